"""Define which Services a trial needs, and the addresses of those of a lab network."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Literal

from k8sdds.model.ip_families import IpFamily, Subnet

Via = Literal["cluster-ip", "node-port", "headless"]
"""Kind of address of a Service that a client connects to."""
ProxyMode = Literal["iptables", "nftables", "ipvs"]
"""Mode of kube-proxy."""
CLUSTER_IP: Final = "cluster-ip"
NODE_PORT: Final = "node-port"
HEADLESS: Final = "headless"
IPTABLES: Final = "iptables"
NFTABLES: Final = "nftables"

SUBNETS: dict[IpFamily, Subnet] = {
    "ipv4": ipaddress.IPv4Network("10.96.0.0/12"),
    "ipv6": ipaddress.IPv6Network("fd00:10:96::/112"),
}
"""Addresses of Services, as kubeadm sets them for IPv4."""
LAB_NODE_PORT = 30202
"""Node port of the measured Service in the lab, in Kubernetes' default range of 30000 to 32767."""
MAX_SERVICES = 5000
MEASURED = 0
"""Number of the Service that the client connects to."""
_FIRST = 10
"""Kubernetes assigns the first addresses to its API server and DNS."""


@dataclass(frozen=True)
class ServiceSet:
    """The Services that a trial needs, of which the client connects to one."""

    count: int
    via: Via
    proxy: ProxyMode | None
    """Requested mode of kube-proxy; None means that of the testbed, which is iptables in the lab."""


def cluster_ip(family: IpFamily, number: int) -> str:
    """Return the address of a Service by its number."""
    return str(SUBNETS[family][_FIRST + number])
