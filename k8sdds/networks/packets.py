"""Read captured packets, and determine how a network wraps the packets of pods. Pure functions.

The capture contains the packets that left a node by its link while known datagrams were sent between pods. Each
datagram begins with a token. A packet with the token is not encrypted, and what it has in front of the datagram's own
headers was added by the network. If no packet has the token, the network encrypts: as many packets of equal size must
have left.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

PCAP_HEADER = struct.Struct("=IHHiIII")
PCAP_RECORD = struct.Struct("=IIII")
PCAP_MAGIC = 0xA1B2C3D4
ETHERNET, RAW_IP = 1, 101
"""Link types of a capture."""

IPV4, IPV6, ARP, TRANSPARENT_ETHERNET = 0x0800, 0x86DD, 0x0806, 0x6558
_VLAN_TAGS = (0x8100, 0x88A8)
_IPV4_BYTES, _IPV6_BYTES, _UDP_BYTES = 20, 40, 8
_TCP, _UDP, _FRAGMENT = 6, 17, 44
_FRAGMENT_HEADER_BYTES = 8

NONE = "none"
"""Name for packets that leave a node as the pod sent them."""
_BY_IP_PROTOCOL = {4: "IP-in-IP", 6: "TCP", 41: "IPv6 tunnel", 47: "GRE", 50: "ESP", 51: "AH", 132: "SCTP"}
_ESP_IN_UDP_PORT = 4500
_SMALLEST_SHARE = 0.3
"""Share of the known packets of which a group of encrypted packets must consist at least: a slow link drops many."""
_MOST_ADDED_BYTES = 200
"""More than any network adds, so that larger packets of other programs do not count."""


@dataclass(frozen=True)
class IpPacket:
    """An IP packet as it left a node."""

    protocol: int
    """Number of the protocol in it, such as 17 for UDP."""
    destination: str
    size_bytes: int
    """Length of the whole packet; `data` may hold only the start of it."""
    header_bytes: int
    data: bytes


@dataclass(frozen=True)
class Wrapping:
    """How a network carries the packets of pods between nodes."""

    protocol: str
    """Outer protocol, such as VXLAN; `none`: packets leave as the pod sent them."""
    port: int | None
    """Destination port of the outer protocol; None if it has no ports."""
    added_bytes: int
    """How much larger the outer IP packet is than the pod's."""
    cleartext: bool
    """Whether the content of the datagrams can be read on the link."""


def read_pcap(capture: bytes) -> Iterator[IpPacket]:
    """Yield the IP packets of a capture. An incomplete last packet ends it. Raises ValueError if it is no capture."""
    yield from filter(None, itertools.starmap(parse_ip, frames(capture)))


def frames(capture: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (stored bytes, original length, link type) of each packet. Raises like `read_pcap`."""
    if len(capture) < PCAP_HEADER.size:
        raise ValueError("the capture has no header")
    magic, *_, link_type = PCAP_HEADER.unpack_from(capture)
    if magic != PCAP_MAGIC:
        raise ValueError("not a packet capture")
    offset = PCAP_HEADER.size
    while offset + PCAP_RECORD.size <= len(capture):
        _, _, stored, size_bytes = PCAP_RECORD.unpack_from(capture, offset)
        offset += PCAP_RECORD.size
        if offset + stored > len(capture):
            return
        yield capture[offset : offset + stored], size_bytes, link_type
        offset += stored


def parse_ip(frame: bytes, size_bytes: int, link_type: int = ETHERNET) -> IpPacket | None:
    """Return the IP packet in a frame; None if it contains none."""
    if link_type == RAW_IP:
        return _parse_ip(frame, size_bytes)
    offset, kind = 12, _VLAN_TAGS[0]
    while kind in _VLAN_TAGS:
        if len(frame) < offset + 2:
            return None
        kind = int.from_bytes(frame[offset : offset + 2], "big")
        offset += 4 if kind in _VLAN_TAGS else 2
    return _parse_ip(frame[offset:], size_bytes - offset) if kind in (IPV4, IPV6) else None


def _parse_ip(data: bytes, largest_bytes: int) -> IpPacket | None:
    version = data[0] >> 4 if data else 0
    if version == 4 and len(data) >= _IPV4_BYTES:
        # Short Ethernet frames are padded. Packets that the link segments have the length 0.
        size_bytes = int.from_bytes(data[2:4], "big") or largest_bytes
        return IpPacket(data[9], str(ip_address(data[16:20])), size_bytes, (data[0] & 15) * 4, data)
    if version == 6 and len(data) >= _IPV6_BYTES:
        size_bytes = _IPV6_BYTES + int.from_bytes(data[4:6], "big")
        return IpPacket(data[6], str(ip_address(data[24:40])), size_bytes, _IPV6_BYTES, data)
    return None


@dataclass(frozen=True)
class Fragment:
    """A part of a datagram, or a whole one."""

    protocol: int
    """Number of the protocol in the datagram."""
    datagram: bytes
    """What the fragments of a datagram have in common: its addresses and its identification."""
    offset_bytes: int
    size_bytes: int
    more_follow: bool


def fragment_of(packet: IpPacket) -> Fragment:
    """Return the part of a datagram that an IP packet carries."""
    data, size_bytes = packet.data, packet.size_bytes - packet.header_bytes
    if data[0] >> 4 == 4:
        field = int.from_bytes(data[6:8], "big")
        identity = data[12:20] + data[4:6]
        return Fragment(packet.protocol, identity, (field & 0x1FFF) * 8, size_bytes, bool(field & 0x2000))
    header = data[_IPV6_BYTES : _IPV6_BYTES + _FRAGMENT_HEADER_BYTES]
    if packet.protocol != _FRAGMENT or len(header) < _FRAGMENT_HEADER_BYTES:
        return Fragment(packet.protocol, data[8:40], 0, size_bytes, False)
    # The fragment header (RFC 8200, section 4.5).
    field = int.from_bytes(header[2:4], "big")
    identity = data[8:40] + header[4:]
    return Fragment(header[0], identity, field & 0xFFF8, size_bytes - _FRAGMENT_HEADER_BYTES, bool(field & 1))


def outer_protocol(packet: IpPacket) -> tuple[str, int | None]:
    """Return the name of the protocol that an IP packet carries, and its destination port.

    VXLAN, Geneve and WireGuard are recognized by their headers, because networks use various ports. `UDP`: none of
    them.
    """
    if packet.protocol != _UDP:
        return _BY_IP_PROTOCOL.get(packet.protocol, f"IP protocol {packet.protocol}"), None
    start = packet.header_bytes
    if len(packet.data) < start + _UDP_BYTES:
        return "UDP", None
    ports = struct.unpack_from(">HH", packet.data, start)
    payload = packet.data[start + _UDP_BYTES :]
    size_bytes = packet.size_bytes - start - _UDP_BYTES
    return _in_udp(payload, size_bytes, _ESP_IN_UDP_PORT in ports), ports[1]


def _in_udp(payload: bytes, size_bytes: int, esp_port: bool) -> str:
    if esp_port:
        # Four zero bytes mark a message of the key exchange (RFC 3948, section 2.2).
        return "IKE" if payload[:4] == bytes(4) else "ESP in UDP"
    if payload[:4] == b"\x04\x00\x00\x00" and size_bytes >= 32 and size_bytes % 16 == 0:
        return "WireGuard"  # transport data (type 4), padded to 16 bytes
    # The I flag is set and the reserved bits are 0 (RFC 7348, section 5); then comes an Ethernet frame.
    if payload[:4] == b"\x08\x00\x00\x00" and payload[7:8] == b"\x00" and _is_ethernet(payload[8:]):
        return "VXLAN"
    return "Geneve" if _is_geneve(payload) else "UDP"


def _is_geneve(payload: bytes) -> bool:
    # Version 0, options in units of 4 bytes, and the type of the content (RFC 8926, section 3.4).
    if len(payload) < 8 or payload[0] >> 6 or payload[7]:
        return False
    kind = int.from_bytes(payload[2:4], "big")
    content = payload[8 + (payload[0] & 0x3F) * 4 :]
    return kind in (IPV4, IPV6) or (kind == TRANSPARENT_ETHERNET and _is_ethernet(content))


def _is_ethernet(frame: bytes) -> bool:
    return int.from_bytes(frame[12:14], "big") in (IPV4, IPV6, ARP, *_VLAN_TAGS)


def wrapping(packets: Iterable[IpPacket], token: bytes, inner_bytes: int, sent: int) -> Wrapping | None:
    """Determine how known packets left a node by its link; None if none left that can be the known ones.

    `token` is the start of each known datagram, and `inner_bytes` the size of the IP packets that the pod sent.
    """
    captured = list(packets)
    readable = Counter(_readable(packet, token, inner_bytes) for packet in captured if token in packet.data)
    if readable:
        return readable.most_common(1)[0][0]
    groups = Counter(
        (*outer_protocol(packet), packet.destination, packet.size_bytes - inner_bytes)
        for packet in captured
        if inner_bytes < packet.size_bytes <= inner_bytes + _MOST_ADDED_BYTES
    )
    for (protocol, port, _, added_bytes), count in groups.most_common():
        if count >= _SMALLEST_SHARE * sent and protocol != "IKE":
            return Wrapping(protocol, port, added_bytes, cleartext=False)
    return None


def _readable(packet: IpPacket, token: bytes, inner_bytes: int) -> Wrapping:
    added_bytes = packet.size_bytes - inner_bytes
    if packet.data.find(token) == packet.header_bytes + _UDP_BYTES and added_bytes <= 0:
        return Wrapping(NONE, None, 0, cleartext=True)
    protocol, port = outer_protocol(packet)
    return Wrapping(protocol, port, added_bytes, cleartext=True)
