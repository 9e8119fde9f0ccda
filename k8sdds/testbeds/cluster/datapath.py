"""Decide from link counters and routes of nodes which links carry a network's packets. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from k8sdds.networks.cluster_install import PathEvidence

TUNNELS = ("vxlan", "geneve", "wireguard", "tun", "ipip", "gre", "gretap", "ip6tnl", "sit", "vti", "xfrm")
"""Kinds of links that encapsulate packets."""

# With its path: busybox's shell would run its built-in `ip`, which has no JSON output.
COMMAND = (
    "sh", "-c",
    '/bin/ip -json -details -statistics link && for one; do /bin/ip -json route get "$one"; done', "ip",
)  # fmt: skip
"""Command for a node's own network, to which addresses are appended; `parse_counters` parses its output."""


@dataclass(frozen=True)
class NodeLink:
    """A link of a node and its counters."""

    kind: str
    """As `ip` names it, such as vxlan; empty for a network card."""
    underlay: str
    """The link that a tunnel is bound to; empty if there is none."""
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class LinkCounters:
    """The links and routes of a node at one moment."""

    links: dict[str, NodeLink]
    routes: dict[str, str]
    """Address to the link by which packets for it leave the node."""


def parse_counters(output: str) -> LinkCounters:
    """Parse the output of `COMMAND`: JSON documents, one after another. Raises ValueError for another form."""
    documents, decoder, rest = [], json.JSONDecoder(), output.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        documents.append(document)
        rest = rest[end:].lstrip()
    try:
        links = {
            link["ifname"]: NodeLink(
                link.get("linkinfo", {}).get("info_kind", ""),
                link.get("linkinfo", {}).get("info_data", {}).get("link", ""),
                link["stats64"]["tx"]["bytes"],
                link["stats64"]["rx"]["bytes"],
            )
            for link in documents[0]
        }
        routes = {route["dst"]: route["dev"] for document in documents[1:] for route in document}
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"not the links of a node: {error!r}") from error
    return LinkCounters(links, routes)


@dataclass(frozen=True)
class PathEnd:
    """A node with a participant, with its counters before and after packets were sent to the other end."""

    node: str
    address: str
    """Of the participant, or of its node if the network does not use the node's routes."""
    before: LinkCounters
    after: LinkCounters

    def moved(self, names: Sequence[str]) -> tuple[int, int]:
        """Return the number of bytes that these links have sent, and received, meanwhile."""
        return moved_bytes(self.before, self.after, names)


def moved_bytes(before: LinkCounters, after: LinkCounters, names: Sequence[str]) -> tuple[int, int]:
    """Return the number of bytes that these links have sent, and received, between two readings."""
    pairs = [
        (before.links[name], after.links[name])
        for name in names
        if name in before.links and name in after.links
    ]
    return (
        sum(last.sent_bytes - first.sent_bytes for first, last in pairs),
        sum(last.received_bytes - first.received_bytes for first, last in pairs),
    )


def path_links(evidence: PathEvidence, counters: LinkCounters, peer: str) -> tuple[str, ...]:
    """Return the links of a node that carry a network's packets to and from a participant on another node."""
    device = counters.routes.get(peer)
    tunnels = tuple(name for name in counters.links if _matches(name, evidence.tunnels))
    if evidence.tunnels and device not in tunnels:
        # The route leads to a bridge, behind which the tunnel is.
        return tunnels
    return (device,) if device else ()


def deviation(evidence: PathEvidence, a: PathEnd, b: PathEnd, sent_bytes: int, interface: str = "") -> str:
    """Return how the path of packets between two nodes deviates from the network's; empty if it does not.

    At least `sent_bytes` were sent in each direction between the two readings. `interface`: the node's link that the
    packets must use; empty means any.
    """
    ends = ((a, b), (b, a))
    found = (text for end in ends for text in _deviations(evidence, *end, sent_bytes, interface))
    return next(found, "")


def _deviations(
    evidence: PathEvidence, end: PathEnd, other: PathEnd, sent_bytes: int, interface: str
) -> Iterator[str]:
    own_link = end.after.routes.get(end.address)
    if evidence.bridge and not _matches(own_link or "", (evidence.bridge,)):
        yield f"pods of {end.node} are on {own_link or 'no link'}, not on {evidence.bridge}"
    names = path_links(evidence, end.after, other.address)
    if not names:
        expected = " or ".join(evidence.tunnels) or f"route to {other.address}"
        yield f"{end.node} has no {expected}"
    for name in names:
        kind = end.after.links[name].kind if name in end.after.links else "unknown"
        if not evidence.tunnels and kind in TUNNELS and not _matches(name, evidence.optional_tunnels):
            yield f"packets for pods of {other.node} leave {end.node} by {name}, a tunnel ({kind})"
        underlay = _underlay(end.after, name)
        if interface and underlay and underlay != interface:
            yield f"packets leave {end.node} by {underlay}, not by {interface}"
    for name in evidence.unused:
        if end.moved([name])[0] >= sent_bytes:
            yield f"packets pass {name} of {end.node}"
    for index, direction in enumerate(("sent", "received")):
        count = end.moved(names)[index]
        if count < sent_bytes:
            moved = {name: end.moved([name])[index] for name in end.after.links if name != "lo"}
            others = ", ".join(f"{name} {size}" for name, size in moved.items() if size >= sent_bytes)
            yield (
                f"{' and '.join(names)} of {end.node} has {direction} {count} bytes, while at least"
                f" {sent_bytes} were sent each way (by other links: {others or 'none'})"
            )


def _underlay(counters: LinkCounters, name: str) -> str:
    """Return the link by which packets on a link leave the node; empty if unknown."""
    link = counters.links.get(name)
    return link.underlay if link is not None and link.kind in TUNNELS else name


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def describe(evidence: PathEvidence, a: PathEnd, b: PathEnd) -> str:
    """Return a phrase that names the links which carry packets between two nodes."""
    parts = []
    for end, other in ((a, b), (b, a)):
        for name in path_links(evidence, end.after, other.address):
            kind = end.after.links[name].kind if name in end.after.links else ""
            underlay = _underlay(end.after, name)
            over = f" over {underlay}" if underlay else ""
            parts.append(f"{name} ({kind}){over}" if kind in TUNNELS else name)
    links = " and ".join(dict.fromkeys(parts))
    if any("(" in part for part in parts):
        return f"carried by {links}"
    return f"{'directly on' if evidence.on_node_link else 'routed by'} {links}, no tunnel"
