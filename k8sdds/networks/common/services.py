"""Write the rules with which kube-proxy in iptables mode translates the addresses of Services."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterator

from k8sdds.model.ip_families import IpFamily
from k8sdds.model.services import MEASURED, cluster_ip
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.datapath import POD_CIDRS, Batch, Datapath, LabNode

LARGE = 1000
"""Number of endpoints above which kube-proxy leaves out comments."""


AT_ONCE = 1000
"""Services in one batch: loading takes time in proportion to the square of their number."""


def translates(datapath: Datapath, family: IpFamily) -> bool:
    """Return whether packets of pods pass the chains of kube-proxy in iptables mode, which knows their addresses."""
    own = ipaddress.ip_network(POD_CIDRS[family])
    known = all(ipaddress.ip_address(one.address) in own for one in datapath.attachments.values())
    return known and any(
        batch.tool in ("iptables", "ip6tables") and ":KUBE-SERVICES -" in batch.lines
        for batch in datapath.batches
    )


def endpoint_chain(number: int) -> str:
    """Return the name of the chain that translates to the endpoint of a Service."""
    return f"KUBE-SEP-{_hash(number, 'endpoint')}"


def batches(node: LabNode, count: int, endpoint: str, port: int) -> Iterator[Batch]:
    """Return the batches that add Services to the rules of a node, all with the same endpoint.

    The measured Service comes last: a new connection to it passes the rules of all others.
    """
    for first in range(MEASURED, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        lines = ["*nat"]
        for number in numbers:
            lines += [f":{_service_chain(number)} -", f":{endpoint_chain(number)} -"]
        # Each is inserted before the previous one, and all before the rule for node ports, which is the last one.
        for number in numbers:
            lines += _rules(number, node.family, endpoint, port, with_comments=count <= LARGE)
        yield Batch(node.name, "ip6tables" if node.ipv6 else "iptables", (*lines, "COMMIT"))


def _rules(number: int, family: IpFamily, endpoint: str, port: int, with_comments: bool) -> Iterator[str]:
    name = f"k8sdds/service-{number}"
    service, own = _service_chain(number), endpoint_chain(number)

    def note(text: str) -> str:
        return f" {comment(text)}" if with_comments else ""

    prefix, target = ("128", f"[{endpoint}]") if family == "ipv6" else ("32", endpoint)
    portal = (
        f"-d {cluster_ip(family, number)}/{prefix} -p tcp{note(f'{name} cluster IP')} -m tcp --dport {port}"
    )
    yield f"-I KUBE-SERVICES 1 {portal} -j {service}"
    yield f"-A {service} ! -s {POD_CIDRS[family]} {portal} -j KUBE-MARK-MASQ"
    yield f"-A {service}{note(f'{name} -> {target}:{port}')} -j {own}"
    yield f"-A {own} -s {endpoint}/{prefix}{note(name)} -j KUBE-MARK-MASQ"
    yield f"-A {own} -p tcp{note(name)} -m tcp -j DNAT --to-destination {target}:{port}"


def _service_chain(number: int) -> str:
    return f"KUBE-SVC-{_hash(number, 'service')}"


def _hash(number: int, kind: str) -> str:
    """Return 16 characters, as kube-proxy has them in names of chains."""
    return base64.b32encode(hashlib.sha256(f"{kind} {number}".encode()).digest()).decode()[:16]
