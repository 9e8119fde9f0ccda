"""Find the leftovers of networks on a node, and remove exactly these."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from itertools import pairwise
from typing import Any

from k8sdds import networks
from k8sdds.deploy.network_switch import node_state
from k8sdds.deploy.network_switch.node_state import NodeState
from k8sdds.deploy.scripts import shell
from k8sdds.model.ip_families import Subnet, is_inside
from k8sdds.networks.cluster_install import Footprint
from k8sdds.networks.macvlan import multus
from k8sdds.system.grouping import grouped
from k8sdds.system.ssh import Host

SHARED = replace(multus.FOOTPRINT, iptables_chains=("CNI-*",))
"""Footprint of CNI plugins that several networks use: chains for single pods, such as for host ports; and Multus."""
REMOVAL_ATTEMPTS = 4
"""How often leftovers are removed: an agent that is stopping may create more after the first removal."""
REMOVAL_TIMEOUT_S = 90


@dataclass(frozen=True, order=True)
class NetworkLeftover:
    """Something on a node that a network created."""

    kind: str
    name: str
    """Name for messages."""
    arguments: tuple[str, ...] = ()
    """What identifies it for the tool that removes it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def footprints(names: Sequence[str] | None = None) -> list[Footprint]:
    """Return the footprints of these networks, by default of all, and the shared one."""
    selected = networks.NETWORKS.values() if names is None else map(networks.find, names)
    return [SHARED, *(network.cluster.footprint for network in selected if network.cluster)]


def probe_script() -> str:
    """Return a shell script for root that prints everything that any network may have created on a node.

    It prints one `key<TAB>value` per line, and changes nothing.
    """
    files = sorted({path for footprint in footprints() for path in footprint.files})
    return shell("node_state", VARIANTS=" ".join(node_state.IPTABLES_VARIANTS), FILES=" ".join(files))


def probe(host: Host) -> NodeState:
    """Return the state of a node."""
    return node_state.parse(host.run(probe_script()).out)


def leftovers(
    state: NodeState,
    addresses: Iterable[str],
    pod_cidrs: Sequence[Subnet],
    names: Sequence[str] | None = None,
) -> list[NetworkLeftover]:
    """Return the objects that networks created on a node.

    Routes into the ranges of pods are always included, because every network creates them.

    `addresses` are those of the cluster's nodes. `names` are the networks to look for, by default all.
    """
    found: set[NetworkLeftover] = set()
    for footprint in footprints(names):
        found.update(_links(state, footprint))
        found.update(_named(state, footprint))
        found.update(_iptables(state, footprint))
        found.update(_routing(state, footprint))
        found.update(_in_pod_ranges(state, footprint, set(addresses), pod_cidrs))
    for route in state.routes:
        if route.get("type", "unicast") in ("unicast", "blackhole") and _is_subnet(route["dst"], pod_cidrs):
            found.add(_route(route))
    return sorted(found)


def missing_programs(state: NodeState, names: Sequence[str]) -> list[str]:
    """Return the programs without which the probe cannot find all leftovers of these networks."""
    needed = set()
    for footprint in footprints(names):
        needed |= {"ipset"} if footprint.ip_sets else set()
        needed |= {"nft"} if footprint.nft_tables else set()
        needed |= {"ss"} if footprint.listen_ports else set()
    return [program for program in state.missing_programs if program in needed]


def removal_script(items: Sequence[NetworkLeftover]) -> str:
    """Return a shell script for root that removes exactly these leftovers, as far as they still exist."""
    by_kind = grouped(items, lambda leftover: leftover.kind)
    lines = ["PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH"]
    # Before the files, which contain the values.
    lines += _sysctl_restoration([leftover.arguments[0] for leftover in by_kind.get("file", [])])
    # The CNI configuration first: without it no new pod joins the network.
    lines += [f"rm -rf -- {shlex.quote(leftover.arguments[0])}" for leftover in by_kind.get("file", [])]
    lines += _iptables_removal(by_kind.get("rule", []), by_kind.get("chain", []))
    if "local rule" in by_kind:
        lines.append("ip rule show priority 0 | grep -q . || ip rule add priority 0 lookup local")
    for kind, command in (
        ("BPF program", "tc filter delete dev"),
        ("local rule", "ip rule delete"),
        ("nft table", "nft delete table"),
        ("set", "ipset destroy"),
        ("routing rule", "ip rule delete"),
        ("IPv6 routing rule", "ip -6 rule delete"),
        ("tunnel address", "ip address delete"),
        ("route", "ip route delete"),
        ("IPsec policy", "ip xfrm policy delete"),
        ("IPsec state", "ip xfrm state delete"),
        ("pod link", "ip link delete"),
        # Only a program of the network can remove this device. The network's image is still on the node.
        ("device", "ctr --namespace k8s.io run --rm --net-host --privileged"),
        ("link", "ip link delete"),
    ):
        for leftover in by_kind.get(kind, []):
            first, *others = leftover.arguments
            arguments = [first, "k8sdds-release", *others] if kind == "device" else leftover.arguments
            lines.append(f"{command} {shlex.join(arguments)}")
    for link in sorted({leftover.arguments[0] for leftover in by_kind.get("BPF program", [])}):
        empty = f'[ -z "$(tc filter show dev {link} ingress; tc filter show dev {link} egress)" ]'
        lines.append(f"{empty} && tc qdisc delete dev {link} clsact")
    tunnels = {leftover.arguments[-1] for leftover in by_kind.get("tunnel address", [])}
    lines += [f"ip link set {link} down" for link in sorted(tunnels)]
    return "\n".join([*lines, ":"])


def purge_script() -> str:
    """Return shell commands that remove the links and files of all networks by name, and restore their sysctls.

    For a machine that leaves its cluster and runs no agent. Otherwise these would keep pod addresses that the next
    cluster assigns again.
    """
    links = "|".join(sorted({name for footprint in footprints() for name in footprint.links}))
    files = sorted({path for footprint in footprints() for path in footprint.files})
    sysctls = "".join(f"{line}\n" for line in _sysctl_restoration(files))
    return (
        f"for link in /sys/class/net/*; do\n  case ${{link##*/}} in\n    {links})\n"
        "      ip link delete ${link##*/} 2>/dev/null || : ;;\n  esac\ndone\n"
        f"{sysctls}rm -rf {' '.join(files)}"
    )


# -- finding -------------------------------------------------------------------------------------------------


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _links(state: NodeState, footprint: Footprint) -> Iterator[NetworkLeftover]:
    for link in state.links:
        name = link["ifname"]
        if not _matches(name, footprint.links):
            # The node's end of a pod's veth pair. It may outlive the pod by minutes, because the pod's network
            # namespace remains while the kernel closes the pod's connections.
            is_veth = link.get("linkinfo", {}).get("info_kind") == "veth"
            if is_veth and _matches(link.get("master", ""), footprint.links):
                yield NetworkLeftover("pod link", name, (name,))
            continue
        removals = [(image, command) for device, image, command in footprint.device_removal if device == name]
        for image, command in removals:
            yield NetworkLeftover("device", name, (image, *command.split()))
        if not removals:
            yield NetworkLeftover("link", name, (name,))


def _named(state: NodeState, footprint: Footprint) -> Iterator[NetworkLeftover]:
    """Find files, tables, sets, BPF programs and ports by their names."""
    for path in state.files:
        if _matches(path, footprint.files):
            yield NetworkLeftover("file", path, (path,))
    for name in state.nft_tables:
        if _matches(name, footprint.nft_tables):
            yield NetworkLeftover("nft table", name, tuple(name.split()))
    for name in state.ip_sets:
        if _matches(name, footprint.ip_sets):
            yield NetworkLeftover("set", name, (name,))
    for link, way, preference, name in state.bpf_programs:
        if _matches(name, footprint.bpf_programs):
            yield NetworkLeftover(
                "BPF program", f"{name} at {way} of {link}", (link, way, "pref", preference)
            )
    for port in state.listen_ports:
        if port in footprint.listen_ports:
            yield NetworkLeftover("port", str(port))


def _iptables(state: NodeState, footprint: Footprint) -> Iterator[NetworkLeftover]:
    """Find the network's chains, and the rules in other chains that jump to them or match its expressions."""
    for (variant, name), table in state.iptables.items():
        own = {chain for chain in table.chains if _matches(chain, footprint.iptables_chains)}
        for chain in own:
            yield NetworkLeftover("chain", f"{chain} ({variant}, {name})", (variant, name, chain))
        for rule in table.rules:
            arguments = shlex.split(rule)
            jumps = any(flag in ("-j", "-g") and chain in own for flag, chain in pairwise(arguments))
            matches = any(re.search(expression, rule) for expression in footprint.iptables_rules)
            if arguments[1] not in own and (jumps or matches):
                yield NetworkLeftover("rule", f"{rule} ({variant}, {name})", (variant, name, rule))


def _routing(state: NodeState, footprint: Footprint) -> Iterator[NetworkLeftover]:
    for route in state.routes:
        protocol, table = _number(route.get("protocol")), _number(route.get("table"))
        if protocol in footprint.route_protocols or table in footprint.route_tables:
            yield _route(route)
    for kind, rules in (("routing rule", state.policy_rules), ("IPv6 routing rule", state.policy_rules_ipv6)):
        for rule in rules:
            if _number(rule.get("table")) in footprint.route_tables:
                name = f"{rule['priority']} to table {rule['table']}"
                yield NetworkLeftover(kind, name, ("priority", str(rule["priority"])))
    for rule in state.policy_rules:
        priority, is_local = rule["priority"], rule.get("table") == "local" and rule.get("src") == "all"
        if is_local and priority == footprint.local_rule_priority:
            yield NetworkLeftover("local rule", str(priority), ("priority", str(priority)))


def _in_pod_ranges(
    state: NodeState, footprint: Footprint, nodes: set[str], pods: Sequence[Subnet]
) -> Iterator[NetworkLeftover]:
    """Find addresses of pods on tunnels that no network owns, and IPsec between pods or between nodes."""
    # The kernel has a route to each address.
    for route in state.routes:
        address, link = route["dst"], route.get("dev", "")
        is_tunnel = route.get("type") == "local" and link in footprint.shared_tunnels
        if is_tunnel and _is_subnet(address, pods):
            arguments = str(ip_network(address)), "dev", link
            yield NetworkLeftover("tunnel address", f"{address} on {link}", arguments)
    if not footprint.xfrm:
        return
    for policy in state.xfrm_policies:
        between_pods = _is_subnet(policy.source, pods) and _is_subnet(policy.destination, pods)
        if between_pods or (footprint.xfrm_port is not None and policy.port == footprint.xfrm_port):
            yield NetworkLeftover("IPsec policy", " ".join(policy.selector), policy.selector)
    for sa in state.xfrm_states:
        if {sa.source, sa.destination} <= nodes:
            yield NetworkLeftover("IPsec state", " ".join(sa.selector), sa.selector)


def _route(route: dict[str, Any]) -> NetworkLeftover:
    arguments = [route["dst"]]
    options = {"gateway": "via", "dev": "dev", "table": "table", "protocol": "proto", "metric": "metric"}
    for key, option in options.items():
        if key in route:
            arguments += [option, str(route[key])]
    return NetworkLeftover("route", " ".join(arguments), tuple(arguments))


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None


def _is_subnet(text: str, networks: Sequence[Subnet]) -> bool:
    """Return whether an address or subnet is inside one of these networks; False for `default`."""
    try:
        subnet = ip_network(text, strict=False)
    except ValueError:
        return False
    return any(is_inside(subnet, network) for network in networks)


# -- removing ------------------------------------------------------------------------------------------------


def _sysctl_restoration(removed: Sequence[str]) -> list[str]:
    """Return the commands that restore the sysctls whose previous values are saved below these paths.

    An agent restores them only if Kubernetes stops it, not if it was killed.
    """
    saved = {pair for footprint in footprints() for pair in footprint.saved_sysctls}
    return [
        f'[ ! -s {file} ] || sysctl -qw {sysctl}="$(cat {file})" || :'
        for file, sysctl in sorted(saved)
        if any(file.startswith(f"{path}/") for path in removed)
    ]


def _iptables_removal(rules: list[NetworkLeftover], chains: list[NetworkLeftover]) -> list[str]:
    """Return one iptables-restore call per table, so that each table changes atomically."""
    tables: dict[tuple[str, str], list[str]] = {}
    for leftover in rules:
        variant, table, rule = leftover.arguments
        tables.setdefault((variant, table), []).append("-D" + rule.removeprefix("-A"))
    for command in ("-F", "-X"):
        for leftover in chains:
            variant, table, chain = leftover.arguments
            tables.setdefault((variant, table), []).append(f"{command} {chain}")
    lines = []
    for (variant, table), commands in tables.items():
        text = "\n".join([f"*{table}", *commands, "COMMIT"])
        lines.append(f"{variant}-restore --noflush --wait 10 <<'RULES'\n{text}\nRULES")
    return lines


@dataclass(frozen=True)
class Cleanup:
    """The result of a cleanup of one node."""

    remaining: tuple[NetworkLeftover, ...]
    """What could not be removed."""
    errors: tuple[str, ...]
    """Last lines that the removal printed to stderr."""


def remove_leftovers(host: Host, addresses: Sequence[str], pod_cidrs: Sequence[Subnet]) -> Cleanup:
    """Remove everything that networks left on a node without agents; `addresses` are those of the nodes."""
    errors: list[str] = []
    remaining = leftovers(probe(host), addresses, pod_cidrs)
    for _ in range(REMOVAL_ATTEMPTS):
        if not remaining:
            break
        done = host.run(removal_script(remaining), timeout_s=REMOVAL_TIMEOUT_S)
        errors = done.err.strip().splitlines()[-5:]
        remaining = leftovers(probe(host), addresses, pod_cidrs)
    return Cleanup(tuple(remaining), tuple(errors))
