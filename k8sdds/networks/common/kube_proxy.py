"""Write the rules with which kube-proxy translates the addresses of Services; count what they translated."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from k8sdds.model.ip_families import IpFamily
from k8sdds.model.services import (
    HEADLESS,
    LAB_NODE_PORT,
    MEASURED,
    NFTABLES,
    NODE_PORT,
    ServiceSet,
    cluster_ip,
)
from k8sdds.model.trial import host_and_port
from k8sdds.networks.common import kube_proxy_nft
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.common.kube_proxy_nft import PROTOCOL, name_hash, nft_chain
from k8sdds.networks.datapath import POD_CIDRS, Batch, Datapath, LabNode

LARGE = 1000
"""Number of endpoints above which kube-proxy in iptables mode leaves out the comments of endpoints."""
AT_ONCE = 1000
"""Services in one batch: loading takes time in proportion to the square of their number."""

_TRANSLATED = re.compile(r"^\[(\d+):\d+\] -A KUBE-SEP-\S+ .*-j DNAT", re.MULTILINE)
_LISTED = re.compile(r"^\s*(\d+)\s+\d+\s+DNAT\b", re.MULTILINE)
_NFT_COUNTER = re.compile(r"\bcounter packets (\d+)\b")
_TRACKED = re.compile(r"\bsrc=(\S+) dst=(\S+) sport=\d+ dport=(\d+) .*?\bsrc=(\S+) dst=(\S+) ")


def translates(datapath: Datapath, family: IpFamily) -> bool:
    """Return whether packets of pods pass the rules of a Kubernetes node, which know the pods' addresses."""
    if datapath.bpf_objects:
        # Their programs take the packets of pods past the rules.
        return False
    own = ipaddress.ip_network(POD_CIDRS[family])
    known = all(ipaddress.ip_address(one.address) in own for one in datapath.attachments.values())
    return known and any(
        batch.tool in ("iptables", "ip6tables") and ":KUBE-FIREWALL -" in batch.lines
        for batch in datapath.batches
    )


def service_chain(service: str) -> str:
    """Return the chain of a Service (NAMESPACE/NAME) with one port that has no name, in iptables mode."""
    return f"KUBE-SVC-{name_hash(service + PROTOCOL)}"


def endpoint_chain(service: str, address: str, port: int) -> str:
    """Return the chain that translates to an endpoint in iptables mode."""
    return f"KUBE-SEP-{name_hash(service + PROTOCOL + host_and_port(address, port))}"


def name(number: int) -> str:
    """Return NAMESPACE/NAME of a Service of the lab."""
    return f"k8sdds/service-{number}"


def address(services: ServiceSet, node: LabNode, port: int) -> tuple[str, int] | None:
    """Return the address and port by which clients on a node reach the measured Service; None for those of the pod."""
    if services.via == HEADLESS:
        return None
    if services.via == NODE_PORT:
        return node.address, LAB_NODE_PORT
    return cluster_ip(node.family, MEASURED), port


def batches(node: LabNode, services: ServiceSet, endpoint: str, port: int) -> Iterator[Batch]:
    """Return the batches that add Services to the rules of a node, all with the same endpoint.

    In iptables mode, the measured Service comes last: a new connection to it passes the rules of all others. A
    headless Service has no rules.
    """
    with_rules = range(MEASURED + (services.via == HEADLESS), services.count)
    node_port = LAB_NODE_PORT if services.via == NODE_PORT else None
    if node.proxy == NFTABLES:
        yield Batch(node.name, "nft", tuple(kube_proxy_nft.base(node)))
    for first in range(with_rules.start, with_rules.stop, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, with_rules.stop))
        own_port = node_port if first == MEASURED else None
        if node.proxy == NFTABLES:
            entries = [(name(number), cluster_ip(node.family, number)) for number in numbers]
            rules = kube_proxy_nft.services(node.family, entries, endpoint, port, own_port)
            yield Batch(node.name, "nft", tuple(rules))
            continue
        lines = ["*nat"]
        for number in numbers:
            own = endpoint_chain(name(number), endpoint, port)
            lines += [f":{service_chain(name(number))} -", f":{own} -"]
        # Each is inserted before the previous one, and all before the rule for node ports, which is the last one.
        for number in numbers:
            lines += _rules(number, node.family, endpoint, port, with_comments=len(with_rules) <= LARGE)
        lines += _node_port_rules(own_port) if own_port else ()
        yield Batch(node.name, "ip6tables" if node.ipv6 else "iptables", (*lines, "COMMIT"))


def _rules(number: int, family: IpFamily, endpoint: str, port: int, with_comments: bool) -> Iterator[str]:
    service, own = service_chain(name(number)), endpoint_chain(name(number), endpoint, port)
    prefix = ipaddress.ip_address(endpoint).max_prefixlen
    target = host_and_port(endpoint, port)

    def note(text: str) -> str:
        return f" {comment(text)}" if with_comments else ""

    portal = (
        f"-d {cluster_ip(family, number)}/{prefix} -p {PROTOCOL} {comment(f'{name(number)} cluster IP')}"
        f" -m {PROTOCOL} --dport {port}"
    )
    yield f"-I KUBE-SERVICES 1 {portal} -j {service}"
    yield f"-A {service} ! -s {POD_CIDRS[family]} {portal} -j KUBE-MARK-MASQ"
    yield f"-A {service}{note(f'{name(number)} -> {target}')} -j {own}"
    yield f"-A {own} -s {endpoint}/{prefix}{note(name(number))} -j KUBE-MARK-MASQ"
    yield f"-A {own} -p {PROTOCOL}{note(name(number))} -m {PROTOCOL} -j DNAT --to-destination {target}"


def _node_port_rules(node_port: int) -> Iterator[str]:
    """Return the rules that lead packets to the node port of the measured Service to its chain."""
    service = name(MEASURED)
    external = f"KUBE-EXT-{name_hash(service + PROTOCOL)}"
    yield f":{external} -"
    yield f"-A KUBE-NODEPORTS -p {PROTOCOL} {comment(service)} -m {PROTOCOL} --dport {node_port} -j {external}"
    yield f"-A {external} {comment(f'masquerade traffic for {service} external destinations')} -j KUBE-MARK-MASQ"
    yield f"-A {external} -j {service_chain(service)}"


# -- what was translated ----------------------------------------------------------------------------------


def counters_command(node: LabNode, services: ServiceSet, endpoint: str, port: int) -> list[str]:
    """Return the command that shows the counters of the rules that translate to the endpoint: `translated` adds them.

    For a headless Service, which has no rule, it shows those of all other Services.
    """
    if node.proxy == NFTABLES:
        table = [kube_proxy_nft.family(node.family), kube_proxy_nft.TABLE]
        if services.via == HEADLESS:
            return ["nft", "list", "table", *table]
        return ["nft", "list", "chain", *table, nft_chain(name(MEASURED))]
    tool = "ip6tables-nft" if node.ipv6 else "iptables-nft"
    if services.via == HEADLESS:
        return [f"{tool}-save", "--table", "nat", "--counters"]
    return [tool, "--table", "nat", "-vxnL", endpoint_chain(name(MEASURED), endpoint, port)]


def translated(shown: str) -> int:
    """Return how many connections the rules that a counters command showed have translated."""
    return sum(
        int(found[1]) for form in (_TRANSLATED, _LISTED, _NFT_COUNTER) for found in form.finditer(shown)
    )


def translated_entries(tracked: str, port: int) -> int:
    """Return how many connections to a port in /proc/net/nf_conntrack have another address in their replies."""
    entries = (found.groups() for found in _TRACKED.finditer(tracked))
    return sum(
        int(to) == port and (source, target) != (reply_target, reply_source)
        for source, target, to, reply_source, reply_target in entries
    )
