"""Define the fingerprint of a network: what it was observed to do with packets between two pods on different nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from k8sdds.system.grouping import Row
from k8sdds.system.shapes import Count, Shape, Text

PACKET_BYTES = 1024
"""Size of the known IP packets: small enough for every network, and a multiple of the block sizes of ciphers, so that
padding adds as little as possible."""


class Fingerprint(Shape):
    """What was observed. None if not observed; `not_observed` contains the reason."""

    # fmt: off
    uplink: Text = Field(default=None, description="Link of the sender's node on which packets were captured")
    outer_protocol: Text = Field(default=None, description=
        "`none` (packets leave as the pod sent them), `VXLAN`, `Geneve`, `IP-in-IP`, `GRE`, `WireGuard`, `ESP`,"
        " `ESP in UDP`, `UDP` (none of these in UDP), `TCP` or the name of another IP protocol")
    outer_port: Count = Field(default=None, description="Destination port of the outer protocol; null if it has none")
    added_bytes: int | None = Field(default=None, description=
        f"How much larger the IP packet on the link is than the pod's packet of {PACKET_BYTES} bytes")
    cleartext: bool | None = Field(default=None, description="Whether the content could be read on the link")
    path_mtu_bytes: Count = Field(default=None, description=
        "Size of the largest IP packet that passed from pod to pod without being fragmented, at most the MTU of the"
        " pod's interface")
    multicast: bool | None = Field(default=None, description=
        "Whether a multicast datagram with TTL 1, as DDS sends it, reached the pod on the other node")
    masqueraded: bool | None = Field(default=None, description=
        "Whether the receiver saw another source address than that of the sender's pod")
    conntrack: bool | None = Field(default=None, description="Whether the sender's node tracked the connections")
    rules: Count = Field(default=None, description=
        "Number of rules in the packet filters of the sender's node: nftables, and iptables of both kinds")
    rules_matched: Count = Field(default=None, description=
        "Number of rules that counted every packet of a connection. Rules without a counter, and rules that are"
        " evaluated but do not match, do not count")
    programs: list[Annotated[str, Field(max_length=400)]] | None = Field(default=None, description=
        "BPF programs attached to links of the sender's node by tc or XDP. Programs attached by tcx or netkit cannot be"
        " listed in this way")
    link: Text = Field(default=None, description=
        "What impairs the links of the nodes: the engine, and the SHA-256 of all impairments and outages with the"
        " content of their files, such as `userspace 9f3c…`. MTU, members and offloads of the links are not part of it."
        " Null if nothing forwards or impairs packets. k8sdds sets it up, and each trial proves it"
        " (`link_conditions`)")
    not_observed: dict[str, Annotated[str, Field(max_length=4096)]] = Field(default_factory=dict, description=
        "What could not be observed, by key, with the reason, such as a missing right")
    # fmt: on

    def value(self, name: str) -> str:
        """Return a value as text: `not observed` if it was not observed."""
        value = getattr(self, name)
        if value is None:
            return "not observed" if name in self.not_observed else "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return ", ".join(value) or "none" if isinstance(value, list) else str(value)

    @property
    def outer(self) -> str:
        """The outer protocol with its port."""
        port = f", port {self.outer_port}" if self.outer_port is not None else ""
        return f"{self.value('outer_protocol')}{port}"


def first(rows: Iterable[Row]) -> Fingerprint | None:
    """Return the first fingerprint of some trials; None if none has one."""
    return next(filter(None, (Fingerprint.of(row["fingerprint"]) for row in rows)), None)


def unobserved(reason: str) -> Fingerprint:
    """Return the fingerprint of a network of which nothing could be observed."""
    names = [name for name in Fingerprint.model_fields if name not in ("outer_port", "link", "not_observed")]
    return Fingerprint(not_observed=dict.fromkeys(names, reason))
