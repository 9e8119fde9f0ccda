"""Plan Kube-router's datapath for nodes of one subnet.

Pods are on kube-bridge, routes lead to the other nodes' addresses. Packets to other addresses than those of pods and
nodes are masqueraded. The chains of the network policies are those that kube-router creates: they come before every
other rule, and every forwarded packet is compared with the addresses of all pods of its node, even without policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.cluster_install import bridge_cni_config
from k8sdds.networks.common import iptables
from k8sdds.networks.common.bridge_cni import (
    NODE_SYSCTLS,
    Bridge,
    NodePlan,
    bridge_plugins,
    bridge_pods,
    first_address,
    pod_datapath,
)
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.datapath import (
    NODE_SUBNETS,
    POD_CIDRS,
    Attachment,
    Batch,
    CniPlugins,
    Datapath,
    LabNode,
    Topology,
)
from k8sdds.networks.kube_router import policies
from k8sdds.networks.network import Engine

CNI_NAME = "kube-router"
BRIDGE = "kube-bridge"
BGP_PROTOCOL = 17
"""Routing protocol number of the routes that kube-router adds."""
POLICY_TABLE = 77
"""Routing table for packets from pods into tunnels. It is empty if all nodes are in one subnet, but is looked up."""
SERVICE_CIDRS: dict[IpFamily, str] = {"ipv4": "10.96.0.0/12", "ipv6": "fd00:10:96::/112"}
NODE_PORTS = "30000:32767"
"""Kubernetes' defaults."""

_CHECKED = "0x10000/0x10000"
"""Mark of packets that a policy or the default policy allows."""
_ACCEPTED = "0x20000/0x20000"
"""Mark of packets that the chain of a pod has let pass."""

_ICMP: dict[IpFamily, str] = {
    "ipv4": "-p icmp {comment} -m icmp --icmp-type {kind}",
    "ipv6": "-p ipv6-icmp {comment} -m icmp6 --icmpv6-type {kind}",
}

Rules = tuple[str, ...]


def datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath."""
    pod_addresses = [
        str(_bridge(node, mtu).pod_address(pod.slot).ip)
        for node in topology.nodes
        for pod in topology.pods_on(node)
    ]

    def plan_node(node: LabNode) -> NodePlan:
        bridge = _bridge(node, mtu)
        lines, pod_batches, attachments = bridge_pods(topology, node, bridge)
        routes = [
            f"route add {peer.pod_subnet} via {peer.address} dev eth0 proto {BGP_PROTOCOL}"
            for peer in topology.peers(node)
        ]
        masquerade = _masquerade(POD_CIDRS[node.family], str(NODE_SUBNETS[node.family]))
        rules = [
            # Unlike for routes, `ip` does not derive the family of a rule from its address.
            Batch(
                node.name,
                "ip -6" if node.ipv6 else "ip",
                (f"rule add from {node.pod_subnet} lookup {POLICY_TABLE}",),
            ),
            *policies.sets(topology, node, pod_addresses),
            iptables.kubernetes_batch(
                node,
                before={"filter": _policy_chains(attachments, node.family, topology.policies)},
                after={"nat": {"POSTROUTING": (masquerade,)}},
            ),
        ]
        return [Batch(node.name, "ip", (*lines, *routes)), *pod_batches, *rules], attachments

    return pod_datapath(topology, mtu, plan_node, NODE_SYSCTLS)


def _bridge(node: LabNode, mtu: int) -> Bridge:
    return Bridge(BRIDGE, mtu, first_address(node))


def plugins(nodes: Sequence[LabNode], mtu: int) -> CniPlugins:
    """Return the CNI plugins of a node."""
    return bridge_plugins(bridge_cni_config(CNI_NAME, BRIDGE, mtu), nodes)


def _masquerade(pods: str, nodes: str) -> str:
    """Return the rule for packets that leave the cluster. Ranges replace the ipsets of pod subnets and nodes."""
    network = ip_network(pods)
    others = f"-m iprange ! --dst-range {network[0]}-{network[-1]} ! -d {nodes}"
    return f"-s {pods} {others} -j MASQUERADE --random-fully"


def _policy_chains(pods: dict[str, Attachment], family: IpFamily, count: int) -> dict[str, Rules]:
    """Return all chains of the table `filter` on a node with these pods, all of which so many policies select."""
    chains = {f"KUBE-POD-FW-{name.upper()}": pod.address for name, pod in pods.items()}
    end = (
        comment("rule to explicitly handle traffic") + " -j KUBE-NWPLCY-TAIL",
        comment("rule to explicitly ACCEPT traffic") + f" -m mark --mark {_ACCEPTED} -j ACCEPT",
    )
    into = {chain: _jump("-d", address, chain) for chain, address in chains.items()}
    out = {chain: _jump("-s", address, chain) for chain, address in chains.items()}
    bridged = {
        chain: tuple(_jump(side, address, chain, "-m physdev --physdev-is-bridged ") for side in ("-d", "-s"))
        for chain, address in chains.items()
    }
    return {
        "INPUT": (f"{comment('kube-router netpol')} -j KUBE-ROUTER-INPUT",),
        "FORWARD": (
            f"{comment('kube-router netpol')} -j KUBE-ROUTER-FORWARD",
            f"-o eth0 {comment('allow outbound node port traffic')} -j ACCEPT",
            f"-o kube-bridge {comment('allow inbound traffic to pods')} -j ACCEPT",
            f"-i kube-bridge {comment('allow outbound traffic from pods')} -j ACCEPT",
        ),
        "OUTPUT": (f"{comment('kube-router netpol')} -j KUBE-ROUTER-OUTPUT",),
        "KUBE-ROUTER-INPUT": (
            f"-d {SERVICE_CIDRS[family]} {comment('cluster IP range')} -j RETURN",
            *(
                f"-p {protocol} {comment('node ports')} -m addrtype --dst-type LOCAL"
                f" -m multiport --dports {NODE_PORTS} -j RETURN"
                for protocol in ("tcp", "udp", "sctp")
            ),
            *out.values(),
            *end,
        ),
        "KUBE-ROUTER-FORWARD": (
            *(rule for c in chains for rule in (into[c], bridged[c][0], out[c], bridged[c][1])),
            *end,
        ),
        "KUBE-ROUTER-OUTPUT": (*(rule for c in chains for rule in (into[c], out[c])), *end),
        "KUBE-NWPLCY-COMMON": (
            f"{comment('drop invalid state')} -m conntrack --ctstate INVALID -j DROP",
            f"{comment('stateful firewall')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            *(
                f"{_ICMP[family].format(comment=comment(f'allow {kind}'), kind=kind)} -j ACCEPT"
                for kind in ("echo-request", "destination-unreachable", "time-exceeded")
            ),
        ),
        "KUBE-NWPLCY-DEFAULT": (
            f"{comment('mark traffic matching a network policy')} -j MARK --set-xmark {_CHECKED}",
        ),
        "KUBE-NWPLCY-TAIL": (f"{comment('accept netpol-ok')} -m mark --mark {_ACCEPTED} -j ACCEPT",),
        **policies.chains(count, family),
        **{
            chain: _pod_chain(chain, address, policies.jumps(count, address))
            for chain, address in chains.items()
        },
    }


def _pod_chain(chain: str, address: str, ingress: Rules) -> Rules:
    """Return the rules of a pod. `ingress`: the jumps to the policies that select it; empty: there are none."""
    refused = f"-m mark ! --mark {_CHECKED}"
    return (
        f"{comment('common netpol rules')} -j KUBE-NWPLCY-COMMON",
        f"-d {address} {comment('from local node')} -m addrtype --src-type LOCAL -j ACCEPT",
        f"-s {address} {comment('default egress')} -j KUBE-NWPLCY-DEFAULT",
        *(ingress or (f"-d {address} {comment('default ingress')} -j KUBE-NWPLCY-DEFAULT",)),
        f"{comment(f'{chain} log-drop')} {refused} -m limit --limit 10/minute --limit-burst 10"
        " -j NFLOG --nflog-group 100",
        f"{comment(f'{chain} reject')} {refused} -j REJECT",
        "-j MARK --set-mark 0/0x10000",
        f"{comment('set netpol-ok mark')} -j MARK --set-mark {_ACCEPTED}",
    )


def _jump(side: str, address: str, chain: str, match: str = "") -> str:
    """Return the rule that leads a pod's packets to its chain; `side` is `-s` or `-d`."""
    return f"{side} {address} {match}{comment(f'{chain} {side}')} -j {chain}"
