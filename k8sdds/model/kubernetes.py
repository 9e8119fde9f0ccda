"""Define what a profile says about Kubernetes: its release, kube-proxy, and the addresses of pods and Services."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import Field, model_validator

from k8sdds import versions
from k8sdds.model import ip_families as ip
from k8sdds.model.ip_families import IpFamilies, IpFamily, Subnet
from k8sdds.model.services import ProxyMode
from k8sdds.system.strict import Strict


class Kubernetes(Strict):
    """Kubernetes version and address ranges of the cluster."""

    version: str = Field(
        default=versions.KUBERNETES,
        pattern=r"^1\.[0-9]{1,2}\.[0-9]{1,2}$",
        description="release of Kubernetes",
    )
    ip_families: IpFamilies = Field(
        default=ip.DEFAULT,
        description="IP versions of nodes, pods and Services: `[ipv4]`, `[ipv6]`, or both (dual stack); Kubernetes"
        " uses the first for its own connections",
    )
    kube_proxy: ProxyMode = Field(
        default="iptables",
        description="how kube-proxy translates the addresses of Services: rules in iptables or nftables, or IPVS;"
        " deploy changes it on an existing cluster, but not from or to `ipvs`",
    )
    cpu_manager: Literal["none", "static"] = Field(
        default="none",
        description="policy of the kubelets' CPU manager: `static` gives pods whose CPU limit and request are the same"
        " whole number (`cpu_quota` and `cpu_request` of an experiment) cores of their own, and keeps the first core of"
        " each node for other pods; deploy changes it on an existing cluster. Local nodes share the cores of their"
        " machine, so that pods of two local nodes can get the same core",
    )
    pod_cidr: ipaddress.IPv4Network = Field(
        default=ipaddress.IPv4Network("10.244.0.0/16"),
        description="IPv4 addresses of pods; every node needs a /24",
    )
    service_cidr: ipaddress.IPv4Network = Field(
        default=ipaddress.IPv4Network("10.96.0.0/12"), description="IPv4 addresses of Services"
    )
    pod_cidr_ipv6: ipaddress.IPv6Network = Field(
        default=ipaddress.IPv6Network("fd00:10:244::/48"),
        description="IPv6 addresses of pods, a /48 to /63; every node needs a /64",
    )
    service_cidr_ipv6: ipaddress.IPv6Network = Field(
        default=ipaddress.IPv6Network("fd00:10:96::/112"),
        description="IPv6 addresses of Services, a /108 to /120",
    )

    @property
    def minor(self) -> int:
        """Minor version: 36 for 1.36.3."""
        return int(self.version.split(".")[1])

    @property
    def pod_cidrs(self) -> tuple[Subnet, ...]:
        """Addresses of pods: one range for each family, in the order of `ip_families`."""
        ranges: dict[IpFamily, Subnet] = {"ipv4": self.pod_cidr, "ipv6": self.pod_cidr_ipv6}
        return tuple(ranges[family] for family in self.ip_families)

    @property
    def service_cidrs(self) -> tuple[Subnet, ...]:
        """Addresses of Services: one range for each family, in the order of `ip_families`."""
        ranges: dict[IpFamily, Subnet] = {"ipv4": self.service_cidr, "ipv6": self.service_cidr_ipv6}
        return tuple(ranges[family] for family in self.ip_families)

    @model_validator(mode="after")
    def _ranges_are_disjoint(self) -> Kubernetes:
        if self.pod_cidr.overlaps(self.service_cidr):
            raise ValueError(f"pod_cidr {self.pod_cidr} and service_cidr {self.service_cidr} overlap")
        if self.pod_cidr.prefixlen < 8:
            raise ValueError(f"pod_cidr {self.pod_cidr} is too large: a /8 has addresses for 65,536 nodes")
        if self.pod_cidr.prefixlen > 23:
            raise ValueError(f"pod_cidr {self.pod_cidr} is too small: every node needs a /24 of it")
        # Kubernetes divides at most 16 bits among nodes, and numbers Services with at most 20 bits.
        if not 48 <= self.pod_cidr_ipv6.prefixlen <= 63:
            raise ValueError(
                f"pod_cidr_ipv6 {self.pod_cidr_ipv6} must be a /48 to /63: every node needs a /64 of it"
            )
        if not 108 <= self.service_cidr_ipv6.prefixlen <= 120:
            raise ValueError(f"service_cidr_ipv6 {self.service_cidr_ipv6} must be a /108 to /120")
        if self.pod_cidr_ipv6.overlaps(self.service_cidr_ipv6):
            raise ValueError(
                f"pod_cidr_ipv6 {self.pod_cidr_ipv6} and service_cidr_ipv6 {self.service_cidr_ipv6} overlap"
            )
        return self
