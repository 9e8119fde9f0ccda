"""Write rules for iptables-restore, as the daemons of CNI plugins and kube-proxy do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from k8sdds.model.ip_families import IpFamily
from k8sdds.model.services import IPTABLES
from k8sdds.networks.datapath import Batch, LabNode

BUILT_IN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")


def tables_text(tables: Tables) -> tuple[str, ...]:
    """Return the lines for iptables-restore that create tables."""
    lines: list[str] = []
    for name, chains in tables.items():
        lines.append(f"*{name}")
        lines += [f":{chain} {'ACCEPT' if chain in BUILT_IN else '-'}" for chain in chains]
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
        lines.append("COMMIT")
    return tuple(lines)


MULTICAST: dict[IpFamily, str] = {"ipv4": "224.0.0.0/4", "ipv6": "ff00::/8"}


def comment(text: str) -> str:
    """Return the match that holds a comment. It takes time for each packet, like every match of xtables."""
    return f'-m comment --comment "{text}"'


Tables = Mapping[str, Mapping[str, Sequence[str]]]
"""Table → chain → rules, without `-A CHAIN`."""
NO_RULES: Tables = MappingProxyType({})

_NEW = "-m conntrack --ctstate NEW"
_FORWARDING = comment("kubernetes forwarding rules")
_SERVICES, _PORTALS = (
    f"{comment('kubernetes service portals')} -j KUBE-SERVICES",
    f"{comment('kubernetes externally-visible service portals')} -j KUBE-EXTERNAL-SERVICES",
)
_FIREWALL = f"{_NEW} {comment('kubernetes load balancer firewall')} -j KUBE-PROXY-FIREWALL"
TO_MASQUERADE = "0x4000"
"""Mark of packets that kube-proxy masquerades."""

KUBELET: Tables = {
    "filter": {
        "INPUT": ("-j KUBE-FIREWALL",),
        "OUTPUT": ("-j KUBE-FIREWALL",),
        "KUBE-FIREWALL": (
            f"! -s 127.0.0.0/8 -d 127.0.0.0/8 {comment('block incoming localnet connections')}"
            " -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
        ),
    },
}
"""The rules of kubelet, which are the only ones of Kubernetes if kube-proxy runs in nftables mode."""

KUBERNETES: Tables = {
    "filter": {
        "INPUT": (
            _FIREWALL,
            f"{comment('kubernetes health check service ports')} -j KUBE-NODEPORTS",
            f"{_NEW} {_PORTALS}",
            *KUBELET["filter"]["INPUT"],
        ),
        "FORWARD": (_FIREWALL, f"{_FORWARDING} -j KUBE-FORWARD", f"{_NEW} {_SERVICES}", f"{_NEW} {_PORTALS}"),
        "OUTPUT": (_FIREWALL, f"{_NEW} {_SERVICES}", *KUBELET["filter"]["OUTPUT"]),
        "KUBE-PROXY-FIREWALL": (),
        "KUBE-FORWARD": (
            "-m conntrack --ctstate INVALID -j DROP",
            f"{_FORWARDING} -m mark --mark {TO_MASQUERADE}/{TO_MASQUERADE} -j ACCEPT",
            f"{comment('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        ),
        "KUBE-SERVICES": (),
        "KUBE-EXTERNAL-SERVICES": (),
        "KUBE-NODEPORTS": (),
        "KUBE-FIREWALL": KUBELET["filter"]["KUBE-FIREWALL"],
    },
    "nat": {
        "PREROUTING": (_SERVICES,),
        "OUTPUT": (_SERVICES,),
        "POSTROUTING": (f"{comment('kubernetes postrouting rules')} -j KUBE-POSTROUTING",),
        "KUBE-SERVICES": (
            f"{comment('kubernetes service nodeports')} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
        ),
        "KUBE-NODEPORTS": (),
        "KUBE-MARK-MASQ": (f"-j MARK --or-mark {TO_MASQUERADE}",),
        "KUBE-POSTROUTING": (
            f"-m mark ! --mark {TO_MASQUERADE}/{TO_MASQUERADE} -j RETURN",
            f"-j MARK --xor-mark {TO_MASQUERADE}",
            f"{comment('kubernetes service traffic requiring SNAT')} -j MASQUERADE --random-fully",
        ),
    },
}
"""All rules of kube-proxy in iptables mode without Services, and those of kubelet. Encapsulated packets
and those of pods with hostNetwork pass INPUT and OUTPUT."""


def kubernetes_batch(node: LabNode, *, before: Tables = NO_RULES, after: Tables = NO_RULES) -> Batch:
    """Return the batch with the rules of every Kubernetes node, and a plugin's rules before or after them."""
    parts = (before, KUBERNETES if node.proxy == IPTABLES else KUBELET, after)
    tables = {
        table: {
            chain: [
                rule
                for part in parts
                for rule in part.get(table, {}).get(chain, ())
                # One rule of kubelet is for IPv4 alone.
                if not (node.ipv6 and "127.0.0.0/8" in rule)
            ]
            for chain in dict.fromkeys(chain for part in parts for chain in part.get(table, ()))
        }
        for table in dict.fromkeys(table for part in parts for table in part)
    }
    return Batch(node.name, "ip6tables" if node.ipv6 else "iptables", tables_text(tables))
