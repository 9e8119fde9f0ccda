"""Probe a node for everything that a network could have created on it, and parse the result."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

IPTABLES_VARIANTS = ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy")


@dataclass(frozen=True)
class IptablesTable:
    """One table of one iptables variant."""

    chains: tuple[str, ...]
    rules: tuple[str, ...]
    """As iptables-save prints them: `-A CHAIN …`."""


@dataclass(frozen=True)
class Xfrm:
    """An IPsec state or policy."""

    source: str
    destination: str
    selector: tuple[str, ...]
    """Arguments that identify it for `ip xfrm state|policy delete`."""
    port: int | None = None


@dataclass(frozen=True)
class NodeState:
    """State of a node as the probe printed it, whether it belongs to a network or not."""

    links: tuple[dict[str, Any], ...] = ()
    """As `ip -json -details link` prints them."""
    routes: tuple[dict[str, Any], ...] = ()
    """As `ip -json route show table all` prints them."""
    policy_rules: tuple[dict[str, Any], ...] = ()
    """As `ip -json rule` prints them."""
    policy_rules_ipv6: tuple[dict[str, Any], ...] = ()
    xfrm_states: tuple[Xfrm, ...] = ()
    xfrm_policies: tuple[Xfrm, ...] = ()
    iptables: dict[tuple[str, str], IptablesTable] = field(default_factory=dict)
    """By (variant, table name)."""
    nft_tables: tuple[str, ...] = ()
    """As `family name`."""
    ip_sets: tuple[str, ...] = ()
    bpf_programs: tuple[tuple[str, ...], ...] = ()
    """Programs at tc: (link, `ingress` or `egress`, preference, name)."""
    files: tuple[str, ...] = ()
    listen_ports: tuple[int, ...] = ()
    """TCP ports with a listening socket."""
    sessions: frozenset[tuple[str, int]] = frozenset()
    """Established TCP connections: address of the peer, and the port of either end."""
    missing_programs: tuple[str, ...] = ()
    """Programs that the probe needs and the node does not have."""


def parse(text: str) -> NodeState:
    """Parse the output of the probe script."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, tab, value = line.partition("\t")
        if tab:
            values[key].append(value)

    def objects(key: str) -> tuple[dict[str, Any], ...]:
        return tuple(item for item in json.loads("".join(values[key]) or "[]") if item)

    iptables = {
        (variant, name): table
        for variant in IPTABLES_VARIANTS
        for name, table in _iptables(values[variant]).items()
    }
    return NodeState(
        links=objects("links"),
        routes=objects("routes"),
        policy_rules=objects("policy_rules"),
        policy_rules_ipv6=objects("policy_rules_ipv6"),
        xfrm_states=tuple(_xfrm(line, ("proto", "spi")) for line in values["xfrm_state"]),
        xfrm_policies=tuple(
            _xfrm(line, ("proto", "sport", "dport", "dir")) for line in values["xfrm_policy"]
        ),
        iptables=iptables,
        nft_tables=tuple(values["nft_table"]),
        ip_sets=tuple(values["set"]),
        bpf_programs=tuple(tuple(line.split(" ", 3)) for line in values["bpf"]),
        files=tuple(values["file"]),
        listen_ports=tuple(int(port) for port in values["listens"] if port.isdigit()),
        sessions=frozenset(pair for line in values["session"] for pair in _session(line)),
        missing_programs=tuple(values["missing_program"]),
    )


def _session(line: str) -> Iterator[tuple[str, int]]:
    """Yield the peer's address of a connection with the port of each end."""
    local, _, remote = line.partition(" ")
    address = remote.rpartition(":")[0].strip("[]").removeprefix("::ffff:")
    for end in (local, remote):
        port = end.rpartition(":")[2]
        if port.isdigit():
            yield address, int(port)


def _iptables(lines: list[str]) -> dict[str, IptablesTable]:
    """Parse the output of iptables-save into tables by name."""
    tables: dict[str, tuple[list[str], list[str]]] = {}
    chains: list[str] = []
    rules: list[str] = []
    for line in lines:
        if line.startswith("*"):
            chains, rules = tables.setdefault(line[1:].strip(), ([], []))
        elif line.startswith(":"):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A "):
            rules.append(line)
    return {name: IptablesTable(tuple(chains), tuple(rules)) for name, (chains, rules) in tables.items()}


def _xfrm(line: str, keys: Sequence[str]) -> Xfrm:
    """Parse a state or policy, which these keys identify in addition to its addresses and mark."""
    tokens = line.replace("\\", " ").split()
    # The template after `tmpl` describes states and has keys of the same names.
    tokens = tokens[: tokens.index("tmpl")] if "tmpl" in tokens else tokens
    # The first occurrence of each key counts.
    values = dict(reversed(list(pairwise(tokens))))
    selector = [word for key in ("src", "dst", *keys) if key in values for word in (key, values[key])]
    if "mark" in values:
        value, _, mask = values["mark"].partition("/")
        selector += ["mark", value, *(["mask", mask] if mask else [])]
    port = (values.get("dport") or values.get("sport")) if "dport" in keys else None
    return Xfrm(values["src"], values["dst"], tuple(selector), int(port) if port else None)
