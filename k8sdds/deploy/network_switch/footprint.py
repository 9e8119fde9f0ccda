"""What networks have made on a node, seen by one probe, and how exactly that is removed.

The probe changes nothing and prints everything that a network could have made; what belongs to a network is
told by its signs (model/installing.py), as a pure function; and only what was found is removed.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any

from k8sdds import networks
from k8sdds.networks.cluster_install import Footprint

COMMON = Footprint(iptables_chains=("CNI-*",))
"""What the plugins that all networks share make for single pods, such as host ports."""
VARIANTS = ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy")


def probe() -> str:
    """A shell script for root that prints what networks may have made, one `key<TAB>value` a line."""
    patterns = sorted({path for signs in all_footprints() for path in signs.files})
    return rf"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH LC_ALL=C
say() {{ printf '%s\t%s\n' "$1" "$2"; }}
has() {{ command -v "$1" >/dev/null 2>&1 || {{ say lacks "$1"; false; }}; }}
say links "$(ip -j -d link show)"
say routes "$(ip -j route show table all)"
say policy_rules "$(ip -j rule show)"
ip -o xfrm state 2>/dev/null | sed 's/^/xfrm_state\t/'
ip -o xfrm policy 2>/dev/null | sed 's/^/xfrm_policy\t/'
for variant in {" ".join(VARIANTS)}; do
  command -v $variant-save >/dev/null 2>&1 && $variant-save 2>/dev/null | sed "s/^/$variant\t/"
done
has nft && nft list tables 2>/dev/null | sed 's/^table /nft_table\t/'
has ipset && ipset list -n 2>/dev/null | sed 's/^/set\t/'
has ss && ss -Htln | awk '{{ n = split($4, part, ":"); printf "listens\t%s\n", part[n] }}' | sort -u
for path in {" ".join(patterns)}; do [ ! -e "$path" ] || say file "$path"; done
:
"""


@dataclass(frozen=True)
class Rules:
    """One table of one variant of iptables."""

    chains: tuple[str, ...]
    lines: tuple[str, ...]
    """As iptables-save prints them: `-A CHAIN …`."""


@dataclass(frozen=True)
class Xfrm:
    """An IPsec state or policy: what `ip xfrm` calls it by."""

    source: str
    destination: str
    words: tuple[str, ...]
    """That name it, for `ip xfrm state|policy delete`."""
    port: int | None = None


@dataclass(frozen=True)
class NodeState:
    """What the probe saw on a node."""

    links: tuple[dict[str, Any], ...] = ()
    routes: tuple[dict[str, Any], ...] = ()
    policy_rules: tuple[dict[str, Any], ...] = ()
    states: tuple[Xfrm, ...] = ()
    policies: tuple[Xfrm, ...] = ()
    iptables: dict[tuple[str, str], Rules] = field(default_factory=dict)
    """By (variant, table)."""
    nft_tables: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    listens: tuple[int, ...] = ()
    lacks: tuple[str, ...] = ()
    """Programs that the probe would need to see everything."""


@dataclass(frozen=True, order=True)
class NetworkLeftover:
    """One thing of a network on a node."""

    kind: str
    what: str
    """As a person would name it."""
    words: tuple[str, ...] = ()
    """That name it for the tool that removes it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


def parse(text: str) -> NodeState:
    """What the probe printed."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, tab, value = line.partition("\t")
        if tab:
            values.setdefault(key, []).append(value)

    def table(key: str) -> tuple[dict[str, Any], ...]:
        return tuple(one for one in json.loads("".join(values.get(key, [])) or "[]") if one)

    iptables = {}
    for variant in VARIANTS:
        for name, rules in _tables(values.get(variant, [])).items():
            iptables[variant, name] = rules
    return NodeState(
        links=table("links"),
        routes=table("routes"),
        policy_rules=table("policy_rules"),
        states=tuple(_state(line) for line in values.get("xfrm_state", [])),
        policies=tuple(_policy(line) for line in values.get("xfrm_policy", [])),
        iptables=iptables,
        nft_tables=tuple(values.get("nft_table", [])),
        sets=tuple(values.get("set", [])),
        files=tuple(values.get("file", [])),
        listens=tuple(int(port) for port in values.get("listens", []) if port.isdigit()),
        lacks=tuple(values.get("lacks", [])),
    )


def left(
    seen: NodeState, addresses: Iterable[str], pod_cidr: IPv4Network, names: Sequence[str] | None = None
) -> list[NetworkLeftover]:
    """What of these networks, or of all, is on a node; `addresses` are those of the cluster's nodes.

    A route into the pods' range is a trace of every network.
    """
    found: set[NetworkLeftover] = set()
    nodes = set(addresses)
    for signs in all_footprints(names):
        found |= _made(seen, signs)
        if signs.xfrm:
            found |= _ipsec(seen, signs, nodes, pod_cidr)
    for route in seen.routes:
        if route.get("type", "unicast") == "unicast" and _inside(route["dst"], pod_cidr):
            found.add(_route(route))
    return sorted(found)


def cannot_see(seen: NodeState, names: Sequence[str]) -> list[str]:
    """Programs without which traces of these networks would stay unseen on the node."""
    needs = set()
    for signs in all_footprints(names):
        needs |= {"ipset"} if signs.ip_sets else set()
        needs |= {"nft"} if signs.nft_tables else set()
        needs |= {"ss"} if signs.listen_ports else set()
    return [program for program in seen.lacks if program in needs]


def removal(found: Sequence[NetworkLeftover]) -> str:
    """A shell script for root that removes exactly these; what is gone already is no failure of it."""
    by_kind: dict[str, list[NetworkLeftover]] = {}
    for trace in found:
        by_kind.setdefault(trace.kind, []).append(trace)
    lines = ["PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH"]
    # First what lets pods join the network.
    lines += [f"rm -rf -- {shlex.quote(trace.words[0])}" for trace in by_kind.get("file", [])]
    lines += _without_rules(by_kind.get("rule", []), by_kind.get("chain", []))
    for kind, command in (
        ("nft table", "nft delete table"),
        ("set", "ipset destroy"),
        ("routing rule", "ip rule delete"),
        ("route", "ip route delete"),
        ("IPsec policy", "ip xfrm policy delete"),
        ("IPsec state", "ip xfrm state delete"),
        ("pod link", "ip link delete"),
        # What only a program of the network can remove: from its image, which is still here.
        ("device", "ctr --namespace k8s.io run --rm --net-host --privileged"),
        ("link", "ip link delete"),
    ):
        for trace in by_kind.get(kind, []):
            first, *others = trace.words
            words = [first, "k8sdds-release", *others] if kind == "device" else trace.words
            lines.append(f"{command} {shlex.join(words)}")
    return "\n".join([*lines, ":"])


def forgetting() -> str:
    """Shell words for a machine that leaves its cluster, on which no agent runs: they remove by their names
    the links and files of all networks, which keep the addresses of pods that the next cluster gives anew."""
    signs = all_footprints()
    links = "|".join(sorted({name for one in signs for name in one.links}))
    files = " ".join(sorted({path for one in signs for path in one.files}))
    return (
        f"for link in /sys/class/net/*; do\n  case ${{link##*/}} in\n    {links})\n"
        "      ip link delete ${link##*/} 2>/dev/null || : ;;\n  esac\ndone\n"
        f"rm -rf {files}"
    )


# -- telling -------------------------------------------------------------------------------------------------


def all_footprints(names: Sequence[str] | None = None) -> list[Footprint]:
    """The signs of these networks, or of all, and those that they share."""
    chosen = networks.NETWORKS.values() if names is None else map(networks.find, names)
    return [COMMON, *(one.cluster.footprint for one in chosen if one.cluster)]


def _like(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _made(seen: NodeState, signs: Footprint) -> set[NetworkLeftover]:
    found = set()
    for link in seen.links:
        name = link["ifname"]
        # The node's end of a pod's cable. It may outlive the pod by minutes: the namespace of a pod that was
        # cut off stays while the kernel tries to end the pod's connections.
        veth = link.get("linkinfo", {}).get("info_kind") == "veth"
        if veth and _like(link.get("master", ""), signs.links) and not _like(name, signs.links):
            found.add(NetworkLeftover("pod link", name, (name,)))
        if _like(name, signs.links):
            release = [(image, command) for device, image, command in signs.device_removal if device == name]
            for image, command in release:
                found.add(NetworkLeftover("device", name, (image, *command.split())))
            if not release:
                found.add(NetworkLeftover("link", name, (name,)))
    found |= {NetworkLeftover("file", path, (path,)) for path in seen.files if _like(path, signs.files)}
    for name in seen.nft_tables:
        if _like(name, signs.nft_tables):
            found.add(NetworkLeftover("nft table", name, tuple(name.split())))
    found |= {NetworkLeftover("set", name, (name,)) for name in seen.sets if _like(name, signs.ip_sets)}
    found |= {NetworkLeftover("port", str(port)) for port in seen.listens if port in signs.listen_ports}
    for (variant, table), rules in seen.iptables.items():
        own = {chain for chain in rules.chains if _like(chain, signs.iptables_chains)}
        found |= {
            NetworkLeftover("chain", f"{chain} ({variant}, {table})", (variant, table, chain))
            for chain in own
        }
        for line in rules.lines:
            words = shlex.split(line)
            leads = any(flag in ("-j", "-g") and chain in own for flag, chain in pairwise(words))
            if words[1] not in own and (leads or any(re.search(sign, line) for sign in signs.iptables_rules)):
                found.add(NetworkLeftover("rule", f"{line} ({variant}, {table})", (variant, table, line)))
    for route in seen.routes:
        protocol, table = _number(route.get("protocol")), _number(route.get("table"))
        if protocol in signs.route_protocols or table in signs.route_tables:
            found.add(_route(route))
    for rule in seen.policy_rules:
        if _number(rule.get("table")) in signs.route_tables:
            what = f"{rule['priority']} to table {rule['table']}"
            found.add(NetworkLeftover("routing rule", what, ("priority", str(rule["priority"]))))
    return found


def _ipsec(seen: NodeState, signs: Footprint, nodes: set[str], pod_cidr: IPv4Network) -> set[NetworkLeftover]:
    found = set()
    for policy in seen.policies:
        between = _inside(policy.source, pod_cidr) and _inside(policy.destination, pod_cidr)
        if between or (signs.xfrm_port is not None and policy.port == signs.xfrm_port):
            found.add(NetworkLeftover("IPsec policy", " ".join(policy.words), policy.words))
    for state in seen.states:
        if {state.source, state.destination} <= nodes:
            found.add(NetworkLeftover("IPsec state", " ".join(state.words), state.words))
    return found


def _route(route: dict[str, Any]) -> NetworkLeftover:
    words = [route["dst"]]
    names = {"gateway": "via", "dev": "dev", "table": "table", "protocol": "proto", "metric": "metric"}
    for key, word in names.items():
        if key in route:
            words += [word, str(route[key])]
    return NetworkLeftover("route", " ".join(words), tuple(words))


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None


def _inside(text: str, range_: IPv4Network) -> bool:
    """Whether an address or range lies in a range; `default` and IPv6 do not."""
    try:
        return IPv4Network(text, strict=False).subnet_of(range_)
    except ValueError:
        return False


# -- reading -------------------------------------------------------------------------------------------------


def _tables(lines: list[str]) -> dict[str, Rules]:
    found: dict[str, tuple[list[str], list[str]]] = {}
    chains: list[str] = []
    rules: list[str] = []
    for line in lines:
        if line.startswith("*"):
            chains, rules = found.setdefault(line[1:].strip(), ([], []))
        elif line.startswith(":"):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A "):
            rules.append(line)
    return {name: Rules(tuple(one), tuple(two)) for name, (one, two) in found.items()}


def _state(line: str) -> Xfrm:
    words = line.replace("\\", " ").split()
    said = _said(words, ("src", "dst", "proto", "spi", "mark"))
    named = ["src", said["src"], "dst", said["dst"], "proto", said["proto"], "spi", said["spi"]]
    return Xfrm(said["src"], said["dst"], tuple(named + _mark(said)))


def _policy(line: str) -> Xfrm:
    # What follows `tmpl` tells of states, with words of the same names.
    words = line.replace("\\", " ").split()
    words = words[: words.index("tmpl")] if "tmpl" in words else words
    said = _said(words, ("src", "dst", "proto", "sport", "dport", "dir", "mark"))
    named = ["src", said["src"], "dst", said["dst"]]
    for key in ("proto", "sport", "dport", "dir"):
        if key in said:
            named += [key, said[key]]
    port = said.get("dport") or said.get("sport")
    return Xfrm(said["src"], said["dst"], tuple(named + _mark(said)), int(port) if port else None)


def _said(words: list[str], keys: Sequence[str]) -> dict[str, str]:
    """The first value behind each key."""
    found: dict[str, str] = {}
    for key, value in pairwise(words):
        if key in keys and key not in found:
            found[key] = value
    return found


def _mark(said: dict[str, str]) -> list[str]:
    if "mark" not in said:
        return []
    value, _, mask = said["mark"].partition("/")
    return ["mark", value, *(["mask", mask] if mask else [])]


# -- removing ------------------------------------------------------------------------------------------------


def _without_rules(rules: list[NetworkLeftover], chains: list[NetworkLeftover]) -> list[str]:
    """One call of iptables-restore for each table: all of it or nothing, in one step."""
    tables: dict[tuple[str, str], list[str]] = {}
    for trace in rules:
        variant, table, line = trace.words
        tables.setdefault((variant, table), []).append("-D" + line.removeprefix("-A"))
    for command in ("-F", "-X"):
        for trace in chains:
            variant, table, chain = trace.words
            tables.setdefault((variant, table), []).append(f"{command} {chain}")
    lines = []
    for (variant, table), commands in tables.items():
        text = "\n".join([f"*{table}", *commands, "COMMIT"])
        lines.append(f"{variant}-restore --noflush --wait 10 <<'RULES'\n{text}\nRULES")
    return lines
