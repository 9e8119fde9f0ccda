"""Read what a node does with packets: packet filters, connection tracking, attached programs. Pure functions.

`COMMAND` only reads. Packet filters can be read with NET_ADMIN alone. `PacketHandling.unreadable` names what a user may
not read, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from k8sdds.system import reading

# `ip` with its path: busybox's shell would run its built-in `ip`, which has no JSON output.
_SCRIPT = r"""
show() {
  name=$1; shift
  if out=$("$@" 2>/dev/null); then code=0; else code=$?; out=$("$@" 2>&1); fi
  printf '== %s %s\n%s\n' "$name" "$code" "$out"
}
show route /bin/ip -json route get "$1"
show links /bin/ip -json -details link
show conntrack cat /proc/sys/net/netfilter/nf_conntrack_count
show nft nft --json list ruleset
if [ -n "$(cat /proc/net/ip_tables_names 2>/dev/null)" ]; then show legacy xtables-legacy-multi iptables-save -c; fi
show queues tc qdisc show
for link in $(tc qdisc show 2>/dev/null | sed -n 's/^qdisc \(clsact\|ingress\) .* dev \([^ ]*\) .*/\2/p'); do
  for hook in ingress egress; do show "filter $link $hook" tc -json filter show dev "$link" "$hook"; done
done
"""
COMMAND = ("sh", "-c", _SCRIPT, "state")
"""Command for a node's own network, to which the address of another node is appended; `parse` parses its output."""

_SECTION = re.compile(r"^== (.+) (\d+)$", re.MULTILINE)
_LEGACY_RULE = re.compile(r"^\[(\d+):\d+\] (-A .*)$")

RULES, PROGRAMS = "rules", "programs"
"""What can be unreadable."""


@dataclass(frozen=True)
class PacketHandling:
    """How a node handles packets at one moment, and what it has counted."""

    uplink: str
    """The link by which packets for the other node leave; empty if unknown."""
    rules: dict[str, int | None] | None
    """Each rule of the packet filters, with the number of packets that it has matched (None if it does not count)."""
    connections: int
    """Number of tracked connections."""
    programs: tuple[str, ...] | None
    """BPF programs attached to links, such as `eth0 tc ingress: cil_from_netdev`."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """What could not be read (`RULES`, …) to the reason."""


def parse(output: str) -> PacketHandling:
    """Parse the output of `COMMAND`. Raises ValueError for another form."""
    _, *parts = _SECTION.split(output)
    sections = {
        name: (int(code), text) for name, code, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
    unreadable: dict[str, str] = {}

    def readable(name: str, needed_for: str) -> str | None:
        code, text = sections.get(name, (1, "nothing was printed"))
        if code:
            unreadable[needed_for] = reading.one_line(text, 200) or f"exit code {code}"
        return None if code else text

    route, links = sections.get("route", (1, "")), readable("links", PROGRAMS)
    nft, tracked = readable("nft", RULES), sections.get("conntrack", (1, ""))
    legacy = readable("legacy", RULES) if "legacy" in sections else ""
    readable("queues", PROGRAMS)
    filters = {
        name: text for name, (code, text) in sections.items() if name.startswith("filter ") and not code
    }
    try:
        rules = None if nft is None or legacy is None else dict([*_nft_rules(nft), *_legacy_rules(legacy)])
        programs = None if PROGRAMS in unreadable else (*_xdp(links or "[]"), *_classifiers(filters))
        uplink = "" if route[0] else str(_json(route[1])[0]["dev"])
        # Without the module, no connection is tracked.
        connections = int(tracked[1]) if not tracked[0] else 0
    except (reading.UnreadableError, KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"not the state of a node: {error!r}") from error
    return PacketHandling(uplink, rules, connections, programs, unreadable)


def matched_rules(before: PacketHandling, after: PacketHandling, packets: int) -> int | None:
    """Return how many rules matched at least this number of packets between two readings; None if one is unreadable."""
    if before.rules is None or after.rules is None:
        return None
    counted = ((count, before.rules.get(rule)) for rule, count in after.rules.items())
    return sum(now is not None and now - (then or 0) >= packets for now, then in counted)


def _json(text: str) -> Any:
    return reading.json_value(text, "state of a node")


def _nft_rules(text: str) -> Iterator[tuple[str, int | None]]:
    for item in _json(text)["nftables"]:
        rule: dict[str, Any] | None = item.get("rule")
        if rule is not None:
            where = f"{rule['family']} {rule['table']} {rule['chain']} {rule['handle']}"
            counters = [
                part["counter"]
                for part in rule.get("expr", ())
                if isinstance(part, dict) and "counter" in part
            ]
            packets = [counter["packets"] for counter in counters if isinstance(counter, dict)]
            yield where, packets[0] if packets else None


def _legacy_rules(text: str) -> Iterator[tuple[str, int | None]]:
    table = ""
    for number, line in enumerate(text.splitlines()):
        if line.startswith("*"):
            table = line
        elif match := _LEGACY_RULE.match(line):
            yield f"legacy {table} {number} {match[2]}", int(match[1])


def _xdp(links: str) -> Iterator[str]:
    for link in _json(links):
        program = link.get("xdp")
        if program:
            name = (program.get("prog") or {}).get("name") or "a program without a name"
            yield f"{link['ifname']} XDP: {name}"


def _classifiers(filters: Mapping[str, str]) -> Iterator[str]:
    for section, text in filters.items():
        _, link, hook = section.split()
        for entry in _json(text.strip() or "[]"):
            options = entry.get("options") or {}
            if entry.get("kind") in ("bpf", "flower", "matchall", "u32") and options:
                name = options.get("bpf_name") or entry["kind"]
                yield f"{link} tc {hook}: {name}"
