"""Which links of the nodes carry a network's packets, by what `ip` says there before and after. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from k8sdds.networks.cluster_install import PathEvidence

TUNNELS = ("vxlan", "geneve", "wireguard", "tun", "ipip", "gre", "gretap", "ip6tnl", "sit", "vti", "xfrm")
"""Kinds of links that put packets into others."""

# By its path: busybox's shell would take its own, which cannot do this.
COMMAND = (
    "sh", "-c",
    '/bin/ip -json -details -statistics link && for one; do /bin/ip -json route get "$one"; done', "ip",
)  # fmt: skip
"""What is run on a node's own network, with addresses behind it; its output is for `read`."""


@dataclass(frozen=True)
class Link:
    """A link and its counters."""

    kind: str
    """As `ip` names it, such as vxlan; empty for a network card."""
    over: str
    """The link below it, where a tunnel is bound to one."""
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class LinkCounters:
    """A node's links and routes at one moment."""

    links: dict[str, Link]
    routes: dict[str, str]
    """Address to the link by which packets for it leave."""


def read(said: str) -> LinkCounters:
    """What `COMMAND` printed: JSON documents one after another. ValueError for anything else."""
    documents, decoder, at = [], json.JSONDecoder(), 0
    while at < len(said.rstrip()):
        found, at = decoder.raw_decode(said, at)
        documents.append(found)
        at += len(said[at:]) - len(said[at:].lstrip())
    try:
        links = {
            one["ifname"]: Link(
                one.get("linkinfo", {}).get("info_kind", ""),
                one.get("linkinfo", {}).get("info_data", {}).get("link", ""),
                one["stats64"]["tx"]["bytes"],
                one["stats64"]["rx"]["bytes"],
            )
            for one in documents[0]
        }
        return LinkCounters(links, {one["dst"]: one["dev"] for found in documents[1:] for one in found})
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no links of a node: {error!r}") from error


@dataclass(frozen=True)
class End:
    """A node with a participant: looked at before and after something was sent between the two."""

    node: str
    address: str
    """Of the participant."""
    before: LinkCounters
    after: LinkCounters


def links(carrier: PathEvidence, look: LinkCounters, peer: str) -> tuple[str, ...]:
    """The links of a node that carry this network's packets between it and a participant elsewhere."""
    if carrier.tunnels:
        return tuple(name for name in look.links if _matches(name, carrier.tunnels))
    device = look.routes.get(peer)
    return (device,) if device else ()


def received_bytes(look: LinkCounters, names: Sequence[str]) -> int:
    """What these links have received so far."""
    return sum(look.links[name].received_bytes for name in names if name in look.links)


def amiss(carrier: PathEvidence, one: End, other: End, sent_bytes: int, interface: str = "") -> str:
    """What shows that packets between two nodes do not go this network's way; empty where all is as it says.

    `sent_bytes`: at least so much went each way meanwhile. `interface`: the nodes' link that was asked for.
    """
    return _at(carrier, one, other, sent_bytes, interface) or _at(carrier, other, one, sent_bytes, interface)


def _at(carrier: PathEvidence, here: End, there: End, sent_bytes: int, interface: str) -> str:
    own = here.after.routes.get(here.address)
    if carrier.bridge and own != carrier.bridge:
        return f"pods of {here.node} are on {own or 'no link'}, not on {carrier.bridge}"
    names = links(carrier, here.after, there.address)
    if not names:
        wanted = " or ".join(carrier.tunnels) or f"route to {there.address}"
        return f"{here.node} has no {wanted}"
    for name in names:
        kind = here.after.links[name].kind if name in here.after.links else "unknown"
        if not carrier.tunnels and kind in TUNNELS and not _matches(name, carrier.optional_tunnels):
            return f"packets for pods of {there.node} leave {here.node} by {name}, a tunnel ({kind})"
        card = _card(here.after, name)
        if interface and card and card != interface:
            return f"packets leave {here.node} by {card}, not by {interface}"
    for words, moved in (("sent", _moved(here, "sent_bytes")), ("received", _moved(here, "received_bytes"))):
        through = sum(moved.get(name, 0) for name in names)
        if through < sent_bytes:
            others = ", ".join(
                f"{name} {count}" for name, count in moved.items() if count >= sent_bytes and name != "lo"
            )
            return (
                f"{' and '.join(names)} of {here.node} has {words} {through} bytes, while at least"
                f" {sent_bytes} were sent each way (by other links: {others or 'none'})"
            )
    return ""


def _moved(end: End, counter: str) -> Mapping[str, int]:
    """Link to how much its counter has grown."""
    return {
        name: getattr(link, counter) - getattr(end.before.links[name], counter)
        for name, link in end.after.links.items()
        if name in end.before.links
    }


def _card(look: LinkCounters, name: str) -> str:
    """The node's own link by which a link's packets leave; empty where that cannot be told."""
    link = look.links.get(name)
    return link.over if link is not None and link.kind in TUNNELS else name


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def describe(one: End, other: End, carrier: PathEvidence) -> str:
    """What carries packets between two nodes, in words."""
    parts = []
    for here, there in ((one, other), (other, one)):
        for name in links(carrier, here.after, there.address):
            kind = here.after.links[name].kind if name in here.after.links else ""
            below = f" over {card}" if (card := _card(here.after, name)) else ""
            parts.append(f"{name} ({kind}){below}" if kind in TUNNELS else name)
    ways = " and ".join(dict.fromkeys(parts))
    return f"carried by {ways}" if any("(" in part for part in parts) else f"routed by {ways}, no tunnel"
