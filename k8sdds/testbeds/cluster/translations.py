"""Read from a node which Services kube-proxy has programmed there, and what it has translated. Pure functions.

The commands run in a pod with NET_ADMIN on the node's own network, and only read. Where kube-proxy does not use
iptables, no counters exist, but the connection tracking of the node shows what was translated.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from k8sdds.networks.common import kube_proxy
from k8sdds.networks.common.kube_proxy import endpoint_chain

_IPTABLES = r"""
tool=$1; shift
iptables() {
  # The legacy tool would create tables that do not exist.
  if grep -qs '^nat$' "/proc/net/${tool%tables}_tables_names"; then xtables-legacy-multi "$tool" -t nat "$@"; fi
  xtables-nft-multi "$tool" -t nat "$@"
} 2>/dev/null
"""
_RULES = (
    _IPTABLES
    + r"""
iptables -S KUBE-SERVICES
nft list map "${1}" kube-proxy service-ips 2>/dev/null
true
"""
)
_COUNTERS = (
    _IPTABLES
    + r"""
chain=$1 family=$2 client=$3 target=$4 port=$5 server=$6
iptables -vxnL "$chain"
conntrack -C >/dev/null 2>&1 || exit 0
# One listing for both numbers, because entries expire.
listed=$(conntrack -L -f "$family" -p tcp -s "$client" -d "$target" --dport "$port" 2>/dev/null)
echo "tracked $(echo "$listed" | grep -c src=)"
echo "translated $(echo "$listed" | grep -c "src=.* src=$server ")"
"""
)
_ADDRESS = re.compile(r"[0-9a-f.:]{3,}")
_ENTRIES = re.compile(r"^(tracked|translated) (\d+)$", re.MULTILINE)


def rules_command(ipv6: bool) -> list[str]:
    """Return the command that prints the addresses of all programmed Services: `programmed` parses it."""
    return ["sh", "-c", _RULES, "rules", "ip6tables" if ipv6 else "iptables", "ip6" if ipv6 else "ip"]


def programmed(printed: str, addresses: Collection[str]) -> list[str] | None:
    """Return those of some addresses that are programmed, in the order of the rules; None if no rules were read.

    In ipvs mode, one rule refers to a set of all addresses.
    """
    if not printed.strip() or "--match-set KUBE-CLUSTER-IP" in printed:
        return None
    wanted = frozenset(addresses)
    return list(dict.fromkeys(found for found in _ADDRESS.findall(printed) if found in wanted))


@dataclass(frozen=True)
class Connection:
    """How a client reaches the server."""

    service: str
    """NAMESPACE/NAME of the Service."""
    client: str
    """Address of the client."""
    target: str
    """Address that it connects to, with its port."""
    port: int
    server: str
    """Address of the server's pod, with its port."""
    server_port: int

    @property
    def direct(self) -> bool:
        """Whether the client connects to the pod's own address."""
        return self.target == self.server


@dataclass(frozen=True)
class Counters:
    """What a node has counted of the connections of a client at one moment."""

    by_rule: int | None
    """Connections that the rule of the Service has translated; None if it has no such rule with a counter."""
    tracked: int | None
    """Tracked connections to the client's target; None if not readable."""
    translated: int | None
    """Those whose replies come from the server's pod."""


def counters_command(connection: Connection) -> list[str]:
    """Return the command that prints what `counters` parses."""
    ipv6 = ":" in connection.server
    chain = endpoint_chain(connection.service, connection.server, connection.server_port)
    return [
        "sh", "-c", _COUNTERS, "counters", "ip6tables" if ipv6 else "iptables", chain, "ipv6" if ipv6 else "ipv4",
        connection.client, connection.target, str(connection.port), connection.server,
    ]  # fmt: skip


def counters(printed: str) -> Counters:
    """Parse the output of `counters_command`."""
    entries = {name: int(count) for name, count in _ENTRIES.findall(printed)}
    by_rule = kube_proxy.translated(printed) if "DNAT" in printed else None
    return Counters(by_rule, entries.get("tracked"), entries.get("translated"))


def evidence(
    connection: Connection, before: Counters, after: Counters, replaced: bool = False
) -> dict[str, Any]:
    """Return the translated connections between two readings, as fields of a measurement.

    `replaced`: the network may handle the Services. Then kube-proxy has translated none of these connections.
    """
    if after.tracked is None and after.by_rule is None:
        return {"service_unobserved": "connection tracking: not readable"}
    counted = None
    if after.by_rule is not None and before.by_rule is not None:
        counted = after.by_rule - before.by_rule
    if replaced and not connection.direct and not counted and not after.translated:
        return {"service_unobserved": "the network handles the Services, not kube-proxy"}
    if not after.tracked and after.by_rule is None:
        return {"service_unobserved": "connection tracking: the node tracks no connection to the Service"}
    if connection.direct:
        # Replies to the others come from another address than the server's.
        return {"service_connections": (after.tracked or 0) - (after.translated or 0)}
    return {"service_connections": counted, "service_tracked": after.translated}
