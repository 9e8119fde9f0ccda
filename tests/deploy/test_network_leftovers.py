"""Find and remove what networks create, on a real local node, without touching anything else."""

from __future__ import annotations

import os
import re
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
    "weavenet-encrypt": 17, "host": 5,
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
    return footprint.leftovers(state, [OWN, PEER], PODS, names or None)


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
        "timeout 30 socat TCP-LISTEN:179 - >/dev/null 2>&1 </dev/null &\n"
        "for try in $(seq 100); do ss -Htln 'sport = :179' | grep -q . && exit; sleep 0.1; done; exit 1"
    )
    assert [str(leftover) for leftover in leftovers(probe(), "kube-router")] == ["port 179"]
