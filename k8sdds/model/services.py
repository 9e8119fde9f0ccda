"""Define the addresses of the Services of a lab network."""

from __future__ import annotations

import ipaddress

from k8sdds.model.ip_families import IpFamily, Subnet

SUBNETS: dict[IpFamily, Subnet] = {
    "ipv4": ipaddress.IPv4Network("10.96.0.0/12"),
    "ipv6": ipaddress.IPv6Network("fd00:10:96::/112"),
}
"""Addresses of Services, as kubeadm sets them for IPv4."""
MAX_SERVICES = 5000
MEASURED = 0
"""Number of the Service that the client connects to."""
_FIRST = 10
"""Kubernetes assigns the first addresses to its API server and DNS."""


def cluster_ip(family: IpFamily, number: int) -> str:
    """Return the address of a Service by its number."""
    return str(SUBNETS[family][_FIRST + number])
