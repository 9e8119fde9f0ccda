"""Write the table of kube-proxy in nftables mode: maps lead from an address and port to the chain of its Service.

One lookup in a map decides for any number of Services. Unlike those of kube-proxy, the rules that translate have a
counter, which shows that every connection passed them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

from k8sdds.model.ip_families import IpFamily
from k8sdds.model.services import SUBNETS
from k8sdds.networks.common.iptables import TO_MASQUERADE
from k8sdds.networks.datapath import POD_CIDRS, LabNode

TABLE = "kube-proxy"
PROTOCOL = "tcp"
_BASE_CHAINS = {
    "filter-prerouting-pre-dnat": "filter hook prerouting priority dstnat - 10",
    "filter-output-pre-dnat": "filter hook output priority -110",
    "filter-input": "filter hook input priority filter",
    "filter-forward": "filter hook forward priority filter",
    "filter-output": "filter hook output priority filter",
    "nat-prerouting": "nat hook prerouting priority dstnat",
    "nat-output": "nat hook output priority -100",
    "nat-postrouting": "nat hook postrouting priority srcnat",
}
_CHAINS = (
    "nodeport-endpoints-check", "service-endpoints-check", "firewall-check", "services", "masquerading",
    "cluster-ips-check", "reject-chain",
)  # fmt: skip
_JUMPS = (
    ("filter-input", "ct state new jump nodeport-endpoints-check"),
    ("filter-input", "ct state new jump service-endpoints-check"),
    ("filter-forward", "ct state new jump service-endpoints-check"),
    ("filter-output", "ct state new jump service-endpoints-check"),
    ("filter-prerouting-pre-dnat", "ct state new jump firewall-check"),
    ("filter-output-pre-dnat", "ct state new jump firewall-check"),
    ("nat-output", "jump services"),
    ("nat-prerouting", "jump services"),
    ("nat-postrouting", "jump masquerading"),
    ("filter-forward", "ct state new jump cluster-ips-check"),
    ("filter-output", "ct state new jump cluster-ips-check"),
)
_MARK = f"meta mark set meta mark or {TO_MASQUERADE}"
_LOOPBACK: dict[IpFamily, str] = {"ipv4": "127.0.0.0/8", "ipv6": "::1"}


def family(ip_family: IpFamily) -> str:
    """Return nft's name of the family of the table."""
    return "ip6" if ip_family == "ipv6" else "ip"


def base(node: LabNode) -> Iterator[str]:
    """Return the commands that create the table of a node without Services."""
    own, kind = family(node.family), "ipv6_addr" if node.ipv6 else "ipv4_addr"
    table = f"{own} {TABLE}"
    yield f'add table {table} {{ comment "rules for kube-proxy"; }}'
    for chain, hook in _BASE_CHAINS.items():
        yield f"add chain {table} {chain} {{ type {hook}; }}"
    yield from (f"add chain {table} {chain}" for chain in _CHAINS)
    yield f"add set {table} cluster-ips {{ type {kind}; }}"
    yield f"add set {table} hairpin-connections {{ type {kind} . {kind} . inet_proto . inet_service; }}"
    for name in ("no-endpoint-services", "firewall-ips", "service-ips"):
        yield f"add map {table} {name} {{ type {kind} . inet_proto . inet_service : verdict; }}"
    for name in ("no-endpoint-nodeports", "service-nodeports"):
        yield f"add map {table} {name} {{ type inet_proto . inet_service : verdict; }}"
    yield from (f"add rule {table} {chain} {rule}" for chain, rule in (*_JUMPS, *_rules(node, own)))


def _rules(node: LabNode, own: str) -> Iterator[tuple[str, str]]:
    """Return (chain, rule): those that do not depend on Services."""
    to = f"{own} daddr . meta l4proto . th dport"
    elsewhere = f"{own} daddr != {_LOOPBACK[node.family]}"
    marked = f"meta mark and {TO_MASQUERADE} != 0 meta mark set meta mark xor {TO_MASQUERADE}"
    hairpin = f"ct status dnat {own} saddr . {own} daddr . meta l4proto . th dport @hairpin-connections"
    yield "masquerading", f"{marked} masquerade fully-random"
    yield "masquerading", f"{hairpin} masquerade fully-random"
    yield "cluster-ips-check", f"{own} daddr @cluster-ips reject"
    yield "cluster-ips-check", f"{own} daddr {{ {SUBNETS[node.family]} }} drop"
    yield "reject-chain", "reject"
    yield "service-endpoints-check", f"{to} vmap @no-endpoint-services"
    yield "nodeport-endpoints-check", f"{elsewhere} meta l4proto . th dport vmap @no-endpoint-nodeports"
    yield "firewall-check", f"{to} vmap @firewall-ips"
    yield "services", f"{own} daddr @cluster-ips {own} saddr != {POD_CIDRS[node.family]} {_MARK}"
    yield "services", f"{to} vmap @service-ips"
    yield "services", f"fib daddr type local {elsewhere} meta l4proto . th dport vmap @service-nodeports"


def services(
    ip_family: IpFamily, entries: Sequence[tuple[str, str]], endpoint: str, port: int, node_port: int | None
) -> Iterator[str]:
    """Return the commands that add Services with one endpoint.

    `entries` has NAMESPACE/NAME and cluster IP of each; the first one also has the node port, if there is one.
    """
    own = family(ip_family)
    table = f"{own} {TABLE}"
    for name, address in entries:
        chain = nft_chain(name)
        yield f"add chain {table} {chain}"
        yield f"add element {table} cluster-ips {{ {address} }}"
        yield f"add element {table} service-ips {{ {address} . {PROTOCOL} . {port} : goto {chain} }}"
        yield (
            f"add rule {table} {chain} meta l4proto {PROTOCOL} counter"
            f" dnat {own} addr . port to numgen random mod 1 map {{ 0 : {endpoint} . {port} }}"
        )
    if node_port:
        name = entries[0][0]
        external = nft_chain(name, "external")
        yield f"add chain {table} {external}"
        yield f"add rule {table} {external} {_MARK}"
        yield f"add rule {table} {external} goto {nft_chain(name)}"
        yield f"add element {table} service-nodeports {{ {PROTOCOL} . {node_port} : goto {external} }}"


def nft_chain(service: str, prefix: str = "service") -> str:
    """Return the chain of a Service (NAMESPACE/NAME). `prefix`: `external` for its node port."""
    name = f"{service}/{PROTOCOL}/"
    return f"{prefix}-{name_hash(name, 8)}-{name}"


def name_hash(text: str, length: int = 16) -> str:
    """Return the hash with which kube-proxy and kube-router name chains."""
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()[:length]
