"""Find and remove what networks create, on a real local node, without touching anything else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.deploy.network_switch.node_state import NodeState

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")

CLUSTER = f"left-{os.getpid()}"
NODE = "node1"
OWN = "10.88.0.11"
PEER = "10.88.0.12"
PODS = IPv4Network("10.244.0.0/16")
RECORDED = Path(__file__).parents[1] / "unit" / "recorded"

# What the machine's owner and Kubernetes created: it must stay.
OTHERS = f"""
ip link add br0 type bridge
# The kernel's module ipip creates this tunnel in every network namespace.
ip link show tunl0 2>/dev/null || ip link add tunl0 type bridge
ip link add tun-office type bridge
ip link add vethmine type veth peer name vethother
ip link set vethmine master br0
ip link add mine type bridge
ip addr add 192.168.7.1/24 dev mine
ip link set mine up
ip route add 192.168.8.0/24 via 192.168.7.2 proto static
ip rule add to 192.168.9.0/24 table 100 priority 500
ip route add 192.168.9.0/24 via 192.168.7.2 table 100
ip xfrm policy add src 192.168.7.0/24 dst 192.168.8.0/24 dir out tmpl src {OWN} dst 192.168.7.2 proto esp mode tunnel
ipset create mine hash:ip
nft add table ip mine
iptables-nft -t nat -N KUBE-SERVICES
iptables-nft -t nat -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
iptables-nft -N MINE
iptables-nft -A FORWARD -i br0 -m comment --comment "it's mine, not weave's" -j MINE
iptables-nft -A INPUT -p tcp --dport 6783 -j ACCEPT
mkdir -p /etc/cni/net.d /var/lib/cni/networks/mine /run/mine
echo '{{}}' >/etc/cni/net.d/99-mine.conf
"""


def recorded_rules(name: str, pattern: str) -> str:
    """Return commands that add the rules and chains of a real daemon that match a pattern."""
    text = (RECORDED / f"traces-{name}.txt").read_text()
    lines = [line.partition("\t")[2] for line in text.splitlines() if line.startswith("iptables-nft\t")]
    rules = [line for line in lines if re.search(pattern, line) or line[:1] == "*" or line == "COMMIT"]
    return "\n".join(["iptables-nft-restore --noflush <<'RULES'", *rules, "RULES"])


CREATED = {
    "flannel-vxlan": """
ip link add cni0 type bridge
ip addr add 10.244.0.1/24 dev cni0
ip link set cni0 up
ip link add veth0123abcd type veth peer name cable
ip link set veth0123abcd master cni0
ip link add flannel.1 mtu 1450 type vxlan id 1 dev eth0 local 10.88.0.11 dstport 8472 nolearning
ip addr add 10.244.0.0/32 dev flannel.1
ip link set flannel.1 up
ip route add 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink
iptables-nft -t nat -N FLANNEL-POSTRTG
iptables-nft -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
iptables-nft -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
iptables-nft -N FLANNEL-FWD
iptables-nft -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
iptables-nft -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT
iptables-nft -t nat -N CNI-HOSTPORT-DNAT
iptables-nft -t nat -N CNI-DN-0123456789abcdef
iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
iptables-nft -t nat -A CNI-HOSTPORT-DNAT -p tcp --dport 80 -j CNI-DN-0123456789abcdef
mkdir -p /run/flannel /var/lib/cni/flannel /var/lib/cni/networks/flannel /var/lib/cni/results
echo FLANNEL_MTU=1450 >/run/flannel/subnet.env
echo '{}' >/etc/cni/net.d/10-flannel.conflist
echo '{}' >/var/lib/cni/results/flannel-0123-eth0
""",
    "flannel-hostgw": """
ip link add cni0 type bridge
ip route add 10.244.1.0/24 via 10.88.0.12 dev eth0
nft add table ip flannel-ipv4
nft add table ip6 flannel-ipv6
mkdir -p /run/flannel
""",
    "flannel-ipsec": """
ip link add cni0 type bridge
for way in out in fwd; do
  ip xfrm policy add src 10.244.0.0/24 dst 10.244.1.0/24 dir $way \
    tmpl src 10.88.0.11 dst 10.88.0.12 proto esp reqid 11 mode tunnel
done
""",
    "flannel-wireguard": """
ip link add cni0 type bridge
ip link add flannel-wg type bridge
ip link set flannel-wg up
ip route add 10.244.0.0/16 dev flannel-wg scope link
""",
    "kube-router": """
ip link add kube-bridge type bridge
ip link set kube-bridge up
ip link add kube-dummy-if type bridge
ip link add tun-0123456789a type bridge
ip route add 10.244.1.0/24 via 10.88.0.12 dev eth0 proto 17
ip rule add from 10.244.0.0/24 lookup 77
ip route add 10.244.2.0/24 dev eth0 table 77
ipset create kube-router-pod-subnets hash:net
ipset add kube-router-pod-subnets 10.244.0.0/24
ipset create kube-router-node-ips hash:ip
"""
    + recorded_rules("kube-router", "KUBE-(ROUTER|POD-FW|NWPLCY)-|kube-bridge|kube-router|node port traffic")
    + """
mkdir -p /var/lib/kube-router
echo '{}' >/etc/cni/net.d/10-kuberouter.conflist
""",
    "calico-ipip": """
ip link add cali0123456789a type veth peer name cable2
ip link set cali0123456789a up
ip addr add 10.244.0.64/32 dev tunl0
ip link set tunl0 up
ip route add 10.244.0.65 dev cali0123456789a scope link
ip route add blackhole 10.244.0.64/26 proto 80
ip route add 10.244.1.0/26 via 10.88.0.12 dev eth0 proto bird onlink
ipset create cali40all-ipam-pools hash:net
iptables-nft -N cali-FORWARD
iptables-nft -I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
iptables-nft -A cali-FORWARD -m set --match-set cali40all-ipam-pools src -j ACCEPT
iptables-nft -A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m mark --mark 0x10000/0x10000 -j ACCEPT
iptables-nft -t nat -N cali-POSTROUTING
iptables-nft -t nat -I POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
mkdir -p /var/lib/calico /run/calico /opt/cni/bin
: >/opt/cni/bin/calico
echo '{}' >/etc/cni/net.d/10-calico.conflist
echo '{}' >/etc/cni/net.d/calico-kubeconfig
""",
    "cilium-vxlan": """
ip link add cilium_net type veth peer name cilium_host
ip link set cilium_net up
ip link set cilium_host up
ip link add cilium_vxlan type vxlan id 1 dev eth0 dstport 8472
ip link add lxc0123456789ab type veth peer name cable3
ip addr add 10.244.0.7/32 dev cilium_host
ip route add 10.244.0.7 dev cilium_host scope link
ip route add 10.244.1.0/24 via 10.244.0.7 dev cilium_host src 10.244.0.7
ip route add local default dev lo table 2004
ip rule add fwmark 0x200/0xf00 lookup 2004 priority 9
ip rule add priority 100 lookup local
ip rule delete priority 0
ipset create cilium_node_set_v4 hash:net
iptables-nft -N CILIUM_FORWARD
iptables-nft -I FORWARD -m comment --comment "cilium-feeder: CILIUM_FORWARD" -j CILIUM_FORWARD
iptables-nft -A CILIUM_FORWARD -o cilium_host -j ACCEPT
mkdir -p /run/cilium /opt/cni/bin
: >/opt/cni/bin/cilium-cni
echo '{}' >/etc/cni/net.d/05-cilium.conflist
""",
    "weavenet-encrypt": """
ip link add weave type bridge
ip addr add 10.244.0.1/16 dev weave
ip link set weave up
ip link add vethwe-bridge type veth peer name vethwe-datapath
ip link set vethwe-bridge master weave
ip link add vxlan-6784 type vxlan id 1 dev eth0 dstport 6784
ipset create weave-abc hash:ip
iptables-nft -t nat -N WEAVE
iptables-nft -t nat -A POSTROUTING -j WEAVE
iptables-nft -t nat -A WEAVE -s 10.244.0.0/16 -d 224.0.0.0/4 -j RETURN
iptables-nft -N WEAVE-NPC
iptables-nft -N WEAVE-NPC-DEFAULT
iptables-nft -A FORWARD -o weave -m comment --comment "NOTE: this must go before '-j KUBE-FORWARD'" -j WEAVE-NPC
iptables-nft -A FORWARD -i weave ! -o weave -j ACCEPT
iptables-nft -A WEAVE-NPC -j WEAVE-NPC-DEFAULT
iptables-nft -A WEAVE-NPC-DEFAULT -m set --match-set weave-abc dst -j ACCEPT
iptables-nft -A INPUT -d 127.0.0.1/32 -p tcp --dport 6784 -m addrtype ! --src-type LOCAL \
  -m comment --comment "Block non-local access to Weave Net control port" -j DROP
ip xfrm policy add src 10.88.0.11 dst 10.88.0.12 proto udp dport 6784 dir out mark 0x20000 mask 0x20000 \
  tmpl proto esp mode transport
mkdir -p /var/lib/weave /run/weave /opt/cni/bin
: >/opt/cni/bin/weave-net
echo '{}' >/etc/cni/net.d/10-weave.conflist
""",
    "host": """
ip link add k8sdds0 type bridge
ip route add 10.244.1.0/24 via 10.88.0.12 dev eth0 proto 75
nft add table ip k8sdds-host
nft add chain ip k8sdds-host postrouting '{ type nat hook postrouting priority srcnat; }'
mkdir -p /var/lib/cni/networks/k8sdds-host
echo '{}' >/etc/cni/net.d/10-k8sdds-host.conflist
""",
}
MIN_LEFTOVERS = {
    "flannel-vxlan": 17, "flannel-hostgw": 5, "flannel-ipsec": 4, "flannel-wireguard": 3, "kube-router": 22,
    "weavenet-encrypt": 17, "host": 5, "calico-ipip": 16, "cilium-vxlan": 15,
}  # fmt: skip
"""Minimum number of leftovers to find for each network."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start a machine with Debian's iptables, nft and ipset, and configure what must stay."""
    state = tmp_path_factory.mktemp("state")
    state.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(state))
        nodes.up(CLUSTER, [nodes.NodeSpec(NODE, boot="sshd")])
        try:
            shell(OTHERS)
            yield
        finally:
            nodes.down(CLUSTER)


def shell(script: str) -> str:
    return nodes.run(CLUSTER, NODE, ["sh", "-e"], stdin=script)


def probe() -> NodeState:
    return node_state.parse(shell(footprint.probe_script()))


def remove(items: list[NetworkLeftover]) -> None:
    # Without -e, as in a cleanup: deleting one end of a veth pair deletes the other end, too.
    nodes.run(CLUSTER, NODE, ["sh"], stdin=footprint.removal_script(items))


def stable(state: NodeState) -> NodeState:
    """Drop what changes over time: timers of bridges, and link-local addresses."""
    links = tuple(
        {key: link.get(key) for key in ("ifname", "mtu", "master", "link_type")} for link in state.links
    )
    return replace(
        state, links=links, routes=tuple(route for route in state.routes if ":" not in route["dst"])
    )


def leftovers(state: NodeState, *names: str) -> list[NetworkLeftover]:
    return footprint.leftovers(state, [OWN, PEER], [PODS], names or None)


@pytest.mark.parametrize("name", CREATED)
def test_exactly_what_a_network_created_is_found_and_removed(node: None, name: str) -> None:
    before = probe()
    assert before.missing_programs == () and leftovers(before) == []
    shell(CREATED[name])
    remaining = leftovers(probe(), name)
    assert len(remaining) >= MIN_LEFTOVERS[name], [str(leftover) for leftover in remaining]
    assert leftovers(probe()) == remaining
    remove(remaining)
    after = probe()
    assert leftovers(after) == []
    # Links, routes, rules, sets, policies and files of the owner are unchanged.
    assert stable(after) == stable(before)


@pytest.mark.long
def test_a_leftover_that_cannot_be_removed_is_still_reported(node: None) -> None:
    """The device is no Open vSwitch device, and the node has no containerd to run weaveutil."""
    shell("ip link add datapath type bridge")
    try:
        (device,) = leftovers(probe(), "weavenet")
        remove([device])
        assert leftovers(probe(), "weavenet") == [device]
    finally:
        shell("ip link delete datapath")


def test_removing_twice_succeeds(node: None) -> None:
    shell(CREATED["host"])
    remaining = leftovers(probe())
    remove(remaining)
    remove(remaining)
    assert leftovers(probe()) == []


def test_an_agent_that_still_listens_is_found(node: None) -> None:
    shell(
        "timeout 120 socat TCP-LISTEN:179 - >/dev/null 2>&1 </dev/null &\n"
        "for try in $(seq 600); do ss -Htln 'sport = :179' | grep -q . && exit; sleep 0.1; done; exit 1"
    )
    assert [str(leftover) for leftover in leftovers(probe(), "kube-router")] == ["port 179"]


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang: k8sdds setup --for lab-cilium")
def test_programs_of_cilium_at_tc_are_removed_and_others_stay(tmp_path: Path) -> None:
    """Real BPF programs with Cilium's name and with another name, in namespaces of the test.

    tc mounts the BPF file system where it is missing.
    """
    for name in ("cil_from_netdev", "mine"):
        source = f"""__attribute__((section("tc"), used)) int {name}(void *packet) {{ return 0; }}
char licenses[] __attribute__((section("license"), used)) = "GPL";
"""
        compiled = str(tmp_path / f"{name}.o")
        argv = ["clang", "-O2", "-g", "-target", "bpf", "-x", "c", "-", "-c", "-o", compiled]
        subprocess.run(argv, input=source.encode(), check=True, timeout=60)
    holder = ["unshare", "--net", "--mount", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(holder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()

        def run(script: str) -> str:
            argv = ["nsenter", "--net", "--mount", f"--target={process.pid}", "sh"]
            return subprocess.run(argv, input=script, text=True, capture_output=True, timeout=60).stdout

        try:
            run(f"""
ip link add one type veth peer name two
tc qdisc add dev one clsact
tc qdisc add dev two clsact
tc filter add dev one ingress bpf direct-action object-file {tmp_path}/cil_from_netdev.o section tc
tc filter add dev two egress pref 7 bpf direct-action object-file {tmp_path}/cil_from_netdev.o section tc
tc filter add dev two ingress bpf direct-action object-file {tmp_path}/mine.o section tc
""")
            found = leftovers(node_state.parse(run(footprint.probe_script())))
            assert [str(leftover) for leftover in found] == [
                "BPF program cil_from_netdev at egress of two",
                "BPF program cil_from_netdev at ingress of one",
            ]
            run(footprint.removal_script(found))
            state = node_state.parse(run(footprint.probe_script()))
            assert [(link, name) for link, _, _, name in state.bpf_programs] == [("two", "mine")]
            assert run("tc qdisc show | grep clsact | cut -d' ' -f5").split() == ["two"]
        finally:
            process.kill()
