"""Finding and removing what networks leave on a node, on recorded and generated output of the probe."""

import json
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.deploy.network_install import cluster_install, read_manifests
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.deploy.network_switch.node_state import NodeState
from k8sdds.networks.cluster_install import container, find, images

RECORDED = Path(__file__).parent / "recorded"
PODS = IPv4Network("10.244.0.0/16")
NODES = ("10.88.0.11", "10.88.0.12")


def leftovers(text: str, *names: str) -> list[NetworkLeftover]:
    return footprint.leftovers(node_state.parse(text), NODES, [PODS], names or None)


def describe(found: list[NetworkLeftover]) -> list[str]:
    return [str(leftover) for leftover in found]


@pytest.mark.parametrize("name", ["flannel-vxlan", "kube-router", "weavenet-sleeve"])
def test_leftovers_on_a_node_of_a_real_cluster(name: str) -> None:
    """Recorded on local nodes next to kube-proxy and pods, with the daemons of kube-router 2.11.1 and Weave 2.9.0."""
    text = (RECORDED / f"traces-{name}.txt").read_text()
    remaining = describe(leftovers(text, name.removesuffix("-sleeve")))
    assert remaining == (RECORDED / f"leftovers-{name}.txt").read_text().splitlines()
    assert describe(leftovers(text)) == remaining


def test_networks_of_one_plugin_have_the_same_footprint() -> None:
    """Another Flannel backend has no VXLAN device; for another plugin, only the routes into the pod range count."""
    text = (RECORDED / "traces-flannel-vxlan.txt").read_text()
    remaining = describe(leftovers(text))
    assert set(remaining) - set(describe(leftovers(text, "flannel-hostgw"))) == {"link flannel.1"}
    assert all(item.startswith("route ") for item in describe(leftovers(text, "kube-router")))


def test_names_with_characters_of_a_shell_are_quoted() -> None:
    found = leftovers((RECORDED / "traces-weavenet-sleeve.txt").read_text())
    assert "ipset destroy 'weave-J4*d696(J46cdUqEom%=PM[m4'" in footprint.removal_script(found)


def test_tunnels_of_kube_router_are_distinguished_from_those_of_a_vpn() -> None:
    names = ("tun-0123456789a", "tun-office", "tun-0")
    text = "links\t" + json.dumps([{"ifname": name} for name in names])
    assert describe(leftovers(text, "kube-router")) == ["link tun-0123456789a"]


STATES = (
    r"src 10.88.0.11 dst 10.88.0.12\	proto esp spi 0xc5a1e8f0 reqid 11 mode tunnel\	replay-window 0 flag af-unspec\	"
    r"aead rfc4106(gcm(aes)) 0x00 128\	anti-replay context: seq 0x0, oseq 0x5, bitmap 0x00000000",
    r"src 10.88.0.12 dst 10.88.0.11\	proto esp spi 0xc0000001 reqid 11 mode tunnel\	replay-window 32 flag af-unspec",
    r"src 10.88.0.11 dst 192.0.2.9\	proto esp spi 0xcafe reqid 7 mode tunnel",
)
POLICIES = (
    r"src 10.244.0.0/24 dst 10.244.1.0/24 \	dir out priority 0 ptype main \	tmpl src 10.88.0.11 dst 10.88.0.12\		"
    r"proto esp reqid 11 mode tunnel\ ",
    r"src 10.244.1.0/24 dst 10.244.0.0/24 \	dir fwd priority 0 ptype main \	tmpl src 10.88.0.12 dst 10.88.0.11\		"
    r"proto esp reqid 11 mode tunnel\ ",
    r"src 192.168.0.0/24 dst 192.0.2.0/24 \	dir out priority 0 ptype main \	tmpl src 10.88.0.11 dst 192.0.2.9\		"
    r"proto esp reqid 7 mode tunnel\ ",
)
WEAVE = (
    r"src 10.88.0.11/32 dst 10.88.0.12/32 proto udp dport 6784 \	dir out priority 0 ptype main \	"
    r"mark 0x20000/0x20000 \	tmpl src 0.0.0.0 dst 0.0.0.0\		proto esp reqid 0 mode transport\ "
)


def xfrm(*policies: str) -> str:
    lines = [f"xfrm_state\t{line}" for line in STATES] + [f"xfrm_policy\t{line}" for line in policies]
    return "\n".join(lines)


def test_ipsec_of_the_network_is_a_leftover_and_the_users_tunnel_is_not() -> None:
    remaining = leftovers(xfrm(*POLICIES), "flannel-ipsec")
    assert [leftover.arguments for leftover in remaining] == [
        ("src", "10.244.0.0/24", "dst", "10.244.1.0/24", "dir", "out"),
        ("src", "10.244.1.0/24", "dst", "10.244.0.0/24", "dir", "fwd"),
        ("src", "10.88.0.11", "dst", "10.88.0.12", "proto", "esp", "spi", "0xc5a1e8f0"),
        ("src", "10.88.0.12", "dst", "10.88.0.11", "proto", "esp", "spi", "0xc0000001"),
    ]
    script = footprint.removal_script(remaining)
    assert "ip xfrm policy delete src 10.244.0.0/24 dst 10.244.1.0/24 dir out\n" in script
    assert "ip xfrm state delete src 10.88.0.11 dst 10.88.0.12 proto esp spi 0xc5a1e8f0\n" in script
    assert "192.0.2" not in script and "flush" not in script
    assert leftovers(xfrm(*POLICIES), "flannel-hostgw") == []


def test_weave_policies_are_found_by_port_and_removed_with_their_mark() -> None:
    (policy, *_) = leftovers(xfrm(WEAVE, POLICIES[2]), "weavenet-encrypt")
    assert policy.arguments == (
        "src", "10.88.0.11/32", "dst", "10.88.0.12/32", "proto", "udp", "dport", "6784", "dir", "out",
        "mark", "0x20000", "mask", "0x20000",
    )  # fmt: skip


def test_the_weave_datapath_is_removed_by_weaveutil() -> None:
    remaining = leftovers('links\t[{"ifname":"datapath"},{"ifname":"weave"},{"ifname":"eth0"}]', "weavenet")
    assert describe(remaining) == ["device datapath", "link weave"]
    run = "ctr --namespace k8s.io run --rm --net-host --privileged"
    assert (
        f"{run} {images(read_manifests('weave'))[0]} k8sdds-release /usr/bin/weaveutil delete-datapath datapath"
        in (footprint.removal_script(remaining))
    )


def test_only_programs_that_a_network_needs_are_reported_as_missing() -> None:
    state = node_state.parse("missing_program\tipset\nmissing_program\tss")
    assert footprint.missing_programs(state, ["kube-router"]) == ["ipset", "ss"]
    assert footprint.missing_programs(state, ["weavenet"]) == ["ipset"]
    assert footprint.missing_programs(state, ["flannel-vxlan"]) == []


def test_an_empty_state_has_no_leftovers() -> None:
    assert leftovers("") == [] and node_state.parse("") == NodeState()
    assert footprint.removal_script([]).splitlines()[1:] == [":"]


@pytest.mark.parametrize(
    ("saved", "restored"), [("0\n", "-qw net.netfilter.nf_conntrack_acct=0\n"), ("", "")]
)
def test_a_saved_sysctl_is_restored_before_its_file_is_removed(
    saved: str, restored: str, tmp_path: Path
) -> None:
    folder = tmp_path / "calico"
    folder.mkdir()
    (folder / "nf_conntrack_acct").write_text(saved)
    found = leftovers("file\t/var/lib/calico\nfile\t/run/calico", "calico-bgp")
    assert describe(found) == ["file /run/calico", "file /var/lib/calico"]
    script = footprint.removal_script([found[1]]).replace("/var/lib/calico", str(folder))
    done = subprocess.run(
        ["sh", "-e"], input=f'sysctl() {{ echo "$@"; }}\n{script}', text=True, capture_output=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == (restored, "", 0)
    assert not folder.exists()
    assert "sysctl" not in footprint.removal_script([found[0]])


def test_a_machine_that_leaves_its_cluster_gets_its_sysctls_back_first() -> None:
    script = footprint.purge_script()
    for file, sysctl in [pair for each in footprint.footprints() for pair in each.saved_sysctls]:
        line = f'[ ! -s {file} ] || sysctl -qw {sysctl}="$(cat {file})" || :\n'
        assert 0 < script.find(line) < script.index("rm -rf ")


def test_the_agent_of_calico_saves_the_sysctl_where_it_is_restored_from() -> None:
    agent = container(find(read_manifests("calico"), "DaemonSet", "calico"), "calico-node")
    ((file, sysctl),) = cluster_install("calico-bgp").footprint.saved_sysctls
    path = f"/proc/sys/{sysctl.replace('.', '/')}"
    saving = f'saved={file}\n[ -s "$saved" ] || cat {path} >"$saved"\nexec start_runit\n'
    assert agent["args"] == [saving]
    assert agent["lifecycle"]["preStop"]["exec"]["command"][-1] == f"cat {file} >{path}"


OWN_PLUGINS = (
    "/opt/cni/bin/calico",
    "/etc/cni/net.d/calico-kubeconfig",
    "/etc/cni/net.d/05-cilium.",
    "/opt/cni/bin/cilium-cni",
    "/sys/fs/bpf/",
    "/opt/cni/bin/weave-",
    "/opt/cni/bin/k8sdds-",
    "/opt/cni/bin/.k8sdds-",
    "/etc/cni/net.d/00-k8sdds-",
    "/etc/cni/net.d/.00-k8sdds-multus.conf.new",
    "/etc/cni/net.d/k8sdds-",
)


def test_file_patterns_match_only_files_of_networks() -> None:
    for made in footprint.footprints():
        for path in made.files:
            assert path.startswith(("/etc/cni/net.d/10-", "/run/", "/var/lib/", *OWN_PLUGINS)), path
            assert "*" not in path.split("/")[2] and path.count("/") >= 2
            assert path not in (
                "/var/lib/cni",
                "/var/lib/kubelet",
                "/run/containerd",
                "/var/lib/cni/networks",
            )


NAME = st.text("abcdefghijklmnopqrstuvwxyzFLANELWV-_.0123456789", min_size=1, max_size=15)


@given(st.lists(NAME, max_size=8), st.lists(NAME, max_size=8), st.sampled_from(["flannel-vxlan", "weavenet"]))
def test_only_what_matches_a_footprint_is_removed(links: list[str], chains: list[str], name: str) -> None:
    text = "links\t[" + ",".join(f'{{"ifname":"{link}"}}' for link in links) + "]\n"
    text += "iptables-nft\t*nat\n" + "".join(f"iptables-nft\t:{chain} - [0:0]\n" for chain in chains)
    made = cluster_install(name).footprint
    for leftover in leftovers(text, name):
        assert leftover.kind in ("link", "device", "chain")
        if leftover.kind == "link":
            assert any(leftover.name.startswith(pattern.rstrip("*")) for pattern in made.links)
        if leftover.kind == "chain":
            assert leftover.arguments[2].startswith(("FLANNEL-", "WEAVE", "CNI-"))
