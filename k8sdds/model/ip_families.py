"""Define IP families: which IP versions nodes and pods have, and which one participants use."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from k8sdds.system.strict import as_list

IpFamily = Literal["ipv4", "ipv6"]
Subnet = IPv4Network | IPv6Network


def _different(families: tuple[IpFamily, ...]) -> tuple[IpFamily, ...]:
    if len(set(families)) < len(families):
        raise ValueError("a family is listed twice")
    return families


IpFamilies = Annotated[
    tuple[IpFamily, ...], BeforeValidator(as_list), Field(min_length=1, max_length=2), AfterValidator(_different)
]  # fmt: skip
"""One family, or both: the first is the one that is used. Kubernetes calls it the primary family."""

DEFAULT: tuple[IpFamily, ...] = ("ipv4",)

TITLES: dict[IpFamily, str] = {"ipv4": "IPv4", "ipv6": "IPv6"}
"""Names in messages."""


def describe(families: str) -> str:
    """Describe families as a record has them: `IPv6`, or `dual stack, ipv4+ipv6`."""
    return next((title for family, title in TITLES.items() if family == families), f"dual stack, {families}")


ETHERNET_HEADER_BYTES = 14
IP_AND_UDP_HEADERS_BYTES: dict[IpFamily, int] = {"ipv4": 28, "ipv6": 48}
"""What the MTU of an interface holds in addition to a message."""
TCP_HEADER_BYTES, UDP_HEADER_BYTES = 32, 8
"""Headers of a packet with data; the one of TCP with timestamps."""


def family_of(address: str) -> IpFamily:
    """Return the family of an IP address. Raises ValueError if the text is no address."""
    return "ipv6" if ip_address(address.partition("%")[0]).version == 6 else "ipv4"


def address_of(family: IpFamily, addresses: Sequence[str]) -> str:
    """Return the first of these addresses that has the family; empty if there is none."""
    return next((address for address in addresses if address and family_of(address) == family), "")


def is_inside(subnet: Subnet, other: Subnet) -> bool:
    """Return whether a subnet is a part of another one; False for different families."""
    return subnet.version == other.version and subnet.subnet_of(other)  # type: ignore[arg-type]
