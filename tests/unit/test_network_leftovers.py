"""Finding and removing what networks leave on a node, on recorded and generated output of the probe."""

import json
from ipaddress import IPv4Network
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from k8sdds.deploy.network_install import cluster_install, read_manifests
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.deploy.network_switch.node_state import NodeState
from k8sdds.networks.cluster_install import images

RECORDED = Path(__file__).parent / "recorded"
PODS = IPv4Network("10.244.0.0/16")
NODES = ("10.88.0.11", "10.88.0.12")


def leftovers(text: str, *names: str) -> list[NetworkLeftover]:
    return footprint.leftovers(node_state.parse(text), NODES, [PODS], names or None)


def describe(found: list[NetworkLeftover]) -> list[str]:
    return [str(leftover) for leftover in found]


def test_flannel_on_a_node_of_a_real_cluster() -> None:
    """Recorded on a local node of a deployed cluster, next to kube-proxy and two pods."""
    text = (RECORDED / "traces-flannel-vxlan.txt").read_text()
    remaining = describe(leftovers(text, "flannel-vxlan"))
    ends = [item for item in remaining if item.startswith("pod link veth")]
    assert len(ends) == 2
    of_pods = ("file /var/lib/cni/results/flannel-", "pod link veth")
    assert [item for item in remaining if not item.startswith(of_pods)] == [
        "chain FLANNEL-FWD (iptables-nft, filter)",
        "chain FLANNEL-POSTRTG (iptables-nft, nat)",
        "file /etc/cni/net.d/10-flannel.conflist",
        "file /run/flannel",
        "file /var/lib/cni/flannel",
        "file /var/lib/cni/networks/flannel",
        "link cni0",
        "link flannel.1",
        "route 10.244.0.0/24 via 10.244.0.0 dev flannel.1",
        "route 10.244.1.0/24 dev cni0 proto kernel",
        'rule -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD (iptables-nft, filter)',
        'rule -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG (iptables-nft, nat)',
    ]
    assert describe(leftovers(text)) == remaining
    # Another Flannel backend has the same footprint without the VXLAN device.
    assert set(remaining) - set(describe(leftovers(text, "flannel-hostgw"))) == {"link flannel.1"}
    # For a network of another plugin, only the routes into the pod range count.
    assert [item for item in describe(leftovers(text, "kube-router")) if not item.startswith("route ")] == []


def test_kube_router_on_a_node_of_a_real_cluster() -> None:
    """Recorded on a local node with the daemon of kube-router 2.11.1, next to kube-proxy and one pod."""
    text = (RECORDED / "traces-kube-router.txt").read_text()
    remaining = describe(leftovers(text, "kube-router"))
    of_pods = ("file /var/lib/cni/results/kube-router-", "pod link veth")
    assert [item.partition(" (")[0] for item in remaining if not item.startswith(of_pods)] == [
        "chain KUBE-NWPLCY-COMMON",
        "chain KUBE-NWPLCY-DEFAULT",
        "chain KUBE-NWPLCY-TAIL",
        "chain KUBE-POD-FW-RSMVAPRJNOM73AVZ",
        "chain KUBE-ROUTER-FORWARD",
        "chain KUBE-ROUTER-INPUT",
        "chain KUBE-ROUTER-OUTPUT",
        "file /etc/cni/net.d/10-kuberouter.conflist",
        "file /var/lib/cni/networks/kube-router",
        "link kube-bridge",
        "port 179",
        "route 10.244.0.0/24 via 10.88.0.11 dev eth0 proto 17",
        "route 10.244.1.0/24 via 10.88.0.13 dev eth0 proto 17",
        "route 10.244.2.0/24 dev kube-bridge proto kernel",
        "routing rule 32765 to table 77",
        'rule -A FORWARD -i kube-bridge -m comment --comment "allow outbound traffic from pods" -j ACCEPT',
        'rule -A FORWARD -m comment --comment "kube-router netpol - TEMCG2JMHZYE7H7T" -j KUBE-ROUTER-FORWARD',
        'rule -A FORWARD -o eth0 -m comment --comment "allow outbound node port traffic on node interface with'
        ' which node ip is associated" -j ACCEPT',
        'rule -A FORWARD -o kube-bridge -m comment --comment "allow inbound traffic to pods" -j ACCEPT',
        'rule -A INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT',
        'rule -A OUTPUT -m comment --comment "kube-router netpol - VEAAIY32XVBHCSCY" -j KUBE-ROUTER-OUTPUT',
        "rule -A POSTROUTING -m set --match-set kube-router-pod-subnets src -m set ! --match-set"
        " kube-router-pod-subnets dst -m set ! --match-set kube-router-node-ips dst -j MASQUERADE --random-fully",
        "set kube-router-node-ips",
        "set kube-router-pod-subnets",
    ]
    assert describe(leftovers(text)) == remaining


def test_tunnels_of_kube_router_are_distinguished_from_those_of_a_vpn() -> None:
    names = ("tun-0123456789a", "tun-office", "tun-0")
    text = "links\t" + json.dumps([{"ifname": name} for name in names])
    assert describe(leftovers(text, "kube-router")) == ["link tun-0123456789a"]


def test_weave_on_a_node_of_a_real_cluster() -> None:
    """Recorded on a local node with the daemons of Weave 2.9.0 (sleeve), next to kube-proxy and two pods."""
    text = (RECORDED / "traces-weavenet-sleeve.txt").read_text()
    remaining = describe(leftovers(text, "weavenet"))
    of_pods = ("file /var/lib/cni/results/weave-", "link vethwepl", "set weave-", "chain WEAVE-CANARY")
    assert [item.partition(" (")[0] for item in remaining if not item.startswith(of_pods)] == [
        "chain WEAVE",
        "chain WEAVE-NPC",
        "chain WEAVE-NPC-DEFAULT",
        "chain WEAVE-NPC-EGRESS",
        "chain WEAVE-NPC-EGRESS-ACCEPT",
        "chain WEAVE-NPC-EGRESS-CUSTOM",
        "chain WEAVE-NPC-EGRESS-DEFAULT",
        "chain WEAVE-NPC-INGRESS",
        "file /etc/cni/net.d/10-weave.conflist",
        "file /opt/cni/bin/weave-ipam",
        "file /opt/cni/bin/weave-net",
        "file /opt/cni/bin/weave-plugin-latest",
        "file /var/lib/weave",
        "link vethwe-bridge",
        "link vethwe-pcap",
        "link weave",
        "route 10.244.0.0/16 dev weave proto kernel",
        "rule -A FORWARD -i weave ! -o weave -j ACCEPT",
        "rule -A FORWARD -i weave -m comment --comment \"NOTE: this must go before \\'-j KUBE-FORWARD\\'\""
        " -j WEAVE-NPC-EGRESS",
        "rule -A FORWARD -o weave -j DROP",
        "rule -A FORWARD -o weave -m comment --comment \"NOTE: this must go before \\'-j KUBE-FORWARD\\'\""
        " -j WEAVE-NPC",
        "rule -A FORWARD -o weave -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "rule -A FORWARD -o weave -m state --state NEW -j NFLOG --nflog-group 86",
        "rule -A INPUT -d 127.0.0.1/32 -p tcp -m tcp --dport 6784 -m addrtype ! --src-type LOCAL -m conntrack !"
        ' --ctstate RELATED,ESTABLISHED -m comment --comment "Block non-local access to Weave Net control port"'
        " -j DROP",
        "rule -A INPUT -i weave -j WEAVE-NPC-EGRESS",
        "rule -A POSTROUTING -j WEAVE",
        "set weaver-no-masq-local",
    ]
    # Names of sets contain characters that a shell interprets.
    script = footprint.removal_script(leftovers(text, "weavenet"))
    assert "ipset destroy 'weave-J4*d696(J46cdUqEom%=PM[m4'" in script


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


OWN_PLUGINS = (
    "/opt/cni/bin/calico",
    "/etc/cni/net.d/calico-kubeconfig",
    "/etc/cni/net.d/05-cilium.",
    "/opt/cni/bin/cilium-cni",
    "/sys/fs/bpf/",
    "/opt/cni/bin/weave-",
    "/opt/cni/bin/k8sdds-",
    "/opt/cni/bin/.k8sdds-",
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
