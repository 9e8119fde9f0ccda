"""Name the chains that kube-proxy creates for a Service with one port that has no name."""

from __future__ import annotations

import base64
import hashlib

from k8sdds.model.trial import host_and_port

PROTOCOL = "tcp"


def service_chain(service: str) -> str:
    """Return the chain of a Service (NAMESPACE/NAME) in iptables mode."""
    return f"KUBE-SVC-{_hash(service + PROTOCOL)}"


def external_chain(service: str) -> str:
    """Return the chain of its node port in iptables mode."""
    return f"KUBE-EXT-{_hash(service + PROTOCOL)}"


def endpoint_chain(service: str, address: str, port: int) -> str:
    """Return the chain that translates to an endpoint in iptables mode."""
    return f"KUBE-SEP-{_hash(service + PROTOCOL + host_and_port(address, port))}"


def nft_chain(service: str, prefix: str = "service") -> str:
    """Return the chain of a Service in nftables mode. `prefix`: `external` for its node port."""
    name = f"{service}/{PROTOCOL}/"
    return f"{prefix}-{_hash(name, 8)}-{name}"


def _hash(text: str, length: int = 16) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()[:length]
