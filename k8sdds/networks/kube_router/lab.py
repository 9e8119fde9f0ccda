"""Plan Kube-router's datapath for nodes of one subnet.

Pods are on kube-bridge, routes lead to the other nodes' addresses. Packets to other addresses than those of pods and
nodes are masqueraded. The chains of the network policies are those that kube-router creates: they come before every
other rule, and every forwarded packet is compared with the addresses of all pods of its node, even without policies.

A NetworkPolicy of the lab selects all pods and allows what they send to each other, on all ports. Its chain has two
rules: the first marks packets whose source and destination are in the policy's ipsets, the second returns marked ones.
A pod's chain has a jump to the chain of every policy. Before the jumps, kube-router accepts packets of known
connections. All other packets pass all policies, although one that marks them is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from k8sdds.model.ip_families import IpFamily
from k8sdds.model.services import SUBNETS
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
    routes_to_peers,
)
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.common.kube_proxy_nft import name_hash
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
from k8sdds.networks.network import Engine
from k8sdds.networks.policies import NAMESPACE, policy_name

CNI_NAME = "kube-router"
BRIDGE = "kube-bridge"
BGP_PROTOCOL = 17
"""Routing protocol number of the routes that kube-router adds."""
POLICY_TABLE = 77
"""Routing table for packets from pods into tunnels. It is empty if all nodes are in one subnet, but is looked up."""
NODE_PORTS = "30000:32767"
"""Kubernetes' default."""

_CHECKED = "0x10000/0x10000"
"""Mark of packets that a policy or the default policy allows."""
_ACCEPTED = "0x20000/0x20000"
"""Mark of packets that the chain of a pod has let pass."""

_ICMP: dict[IpFamily, str] = {
    "ipv4": "-p icmp {comment} -m icmp --icmp-type {kind}",
    "ipv6": "-p ipv6-icmp {comment} -m icmp6 --icmpv6-type {kind}",
}

_SET = "hash:ip family {family} hashsize 1024 maxelem 65536 timeout 0"
_FAMILIES: dict[IpFamily, str] = {"ipv4": "inet", "ipv6": "inet6"}

Rules = tuple[str, ...]


def datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath."""
    pod_addresses = [
        str(_bridge(node, mtu).pod_address(pod.slot).ip)
        for node in topology.nodes
        for pod in topology.pods_on(node)
    ]

    def plan_node(node: LabNode, plan: NodePlan) -> None:
        bridge_pods(topology, node, _bridge(node, mtu), plan)
        plan.ip += routes_to_peers(topology, node, f"dev eth0 proto {BGP_PROTOCOL}")
        rule = f"rule add from {node.pod_subnet} lookup {POLICY_TABLE}"
        policy_chains = _policy_chains(plan.attachments, node.family, topology.policies)
        pods = ip_network(POD_CIDRS[node.family])
        # Ranges replace the ipsets of pod subnets and nodes.
        outside = f"-m iprange ! --dst-range {pods[0]}-{pods[-1]} ! -d {NODE_SUBNETS[node.family]}"
        masquerade = f"-s {pods} {outside} -j MASQUERADE --random-fully"
        plan.after += [
            # Unlike for routes, `ip` does not derive the family of a rule from its address.
            Batch(node.name, "ip -6" if node.ipv6 else "ip", (rule,)),
            *_network_policy_sets(topology, node, pod_addresses),
            iptables.kubernetes_batch(
                node, before={"filter": policy_chains}, after={"nat": {"POSTROUTING": (masquerade,)}}
            ),
        ]

    return pod_datapath(topology, mtu, plan_node, NODE_SYSCTLS)


def _bridge(node: LabNode, mtu: int) -> Bridge:
    return Bridge(BRIDGE, mtu, first_address(node))


def plugins(nodes: Sequence[LabNode], mtu: int) -> CniPlugins:
    """Return the CNI plugins of a node."""
    return bridge_plugins(bridge_cni_config(CNI_NAME, BRIDGE, mtu), nodes)


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
            f"-d {SUBNETS[family]} {comment('cluster IP range')} -j RETURN",
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
        "KUBE-NWPLCY-COMMON": _common_rules(family),
        "KUBE-NWPLCY-DEFAULT": (
            f"{comment('mark traffic matching a network policy')} -j MARK --set-xmark {_CHECKED}",
        ),
        "KUBE-NWPLCY-TAIL": (f"{comment('accept netpol-ok')} -m mark --mark {_ACCEPTED} -j ACCEPT",),
        **{_chain(number): _network_policy_rules(number, family) for number in range(count)},
        **{
            chain: _pod_chain(chain, address, _network_policy_jumps(count, address))
            for chain, address in chains.items()
        },
    }


def _common_rules(family: IpFamily) -> Rules:
    """Return the rules that packets of every pod pass first."""
    kinds = ("echo-request", "destination-unreachable", "time-exceeded")
    icmp = (_ICMP[family].format(comment=comment(f"allow {kind}"), kind=kind) for kind in kinds)
    return (
        f"{comment('drop invalid state')} -m conntrack --ctstate INVALID -j DROP",
        f"{comment('stateful firewall')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        *(f"{match} -j ACCEPT" for match in icmp),
    )


def _pod_chain(chain: str, address: str, ingress: Rules) -> Rules:
    """Return the rules of a pod. `ingress`: the jumps to the policies that select it; empty if there are none."""
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


# -- network policies --------------------------------------------------------------------------------------


def _network_policy_jumps(count: int, address: str) -> Rules:
    """Return the rules that lead packets for a pod to the chains of all policies."""
    return tuple(
        f"-d {address} {comment(f'{NAMESPACE}/{policy_name(number)} policy')} -j {_chain(number)}"
        for number in range(count)
    )


def _network_policy_sets(topology: Topology, node: LabNode, addresses: Sequence[str]) -> list[Batch]:
    """Return the batch that creates the ipsets of all policies on a node: their sources and their destinations."""
    lines = [
        line
        for number in range(topology.policies)
        for name in _sets(number, node.family)
        for line in (
            f"create {name} {_SET.format(family=_FAMILIES[node.family])}",
            *(f"add {name} {address} timeout 0" for address in addresses),
        )
    ]
    return [Batch(node.name, "ipset", tuple(lines))] if lines else []


def _network_policy_rules(number: int, family: IpFamily) -> Rules:
    source, destination = _sets(number, family)
    match = (
        f"{comment(f'{NAMESPACE}/{policy_name(number)} ingress pods')}"
        f" -m set --match-set {source} src -m set --match-set {destination} dst"
    )
    return f"{match} -j MARK --set-xmark {_CHECKED}", f"{match} -m mark --mark {_CHECKED} -j RETURN"


def _chain(number: int) -> str:
    return f"KUBE-NWPLCY-{name_hash(NAMESPACE + policy_name(number))}"


def _sets(number: int, family: IpFamily) -> tuple[str, str]:
    prefix = "inet6:" if family == "ipv6" else ""
    source, destination = (
        f"{prefix}KUBE-{kind}-{name_hash(NAMESPACE + policy_name(number) + kind)}" for kind in ("SRC", "DST")
    )
    return source, destination
