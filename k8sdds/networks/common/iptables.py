"""Write rules for iptables-restore, as the daemons of CNI plugins and kube-proxy do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.datapath import Batch, LabNode

BUILT_IN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")


def batch(node: LabNode, **tables: Mapping[str, Sequence[str]]) -> Batch:
    """Return the batch that creates tables on a node: name → chain → rules, without `-A CHAIN`."""
    lines: list[str] = []
    for name, chains in tables.items():
        lines.append(f"*{name}")
        lines += [f":{chain} {'ACCEPT' if chain in BUILT_IN else '-'}" for chain in chains]
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
        lines.append("COMMIT")
    return Batch(node.name, "ip6tables" if node.ipv6 else "iptables", tuple(lines))


MULTICAST: dict[IpFamily, str] = {"ipv4": "224.0.0.0/4", "ipv6": "ff00::/8"}


def comment(text: str) -> str:
    """Return the match that holds a comment. It takes time for each packet, like every match of xtables."""
    return f'-m comment --comment "{text}"'


_NEW = "-m conntrack --ctstate NEW"
_FORWARDING = comment("kubernetes forwarding rules")

KUBE_PROXY_JUMPS = (
    f"{_NEW} {comment('kubernetes load balancer firewall')} -j KUBE-PROXY-FIREWALL",
    f"{_FORWARDING} -j KUBE-FORWARD",
    f"{_NEW} {comment('kubernetes service portals')} -j KUBE-SERVICES",
    f"{_NEW} {comment('kubernetes externally-visible service portals')} -j KUBE-EXTERNAL-SERVICES",
)
"""kube-proxy's rules in FORWARD, for packets that no rule of the CNI plugin before them accepts."""

KUBE_PROXY_CHAINS: dict[str, tuple[str, ...]] = {
    "KUBE-PROXY-FIREWALL": (),
    "KUBE-FORWARD": (
        "-m conntrack --ctstate INVALID -j DROP",
        f"{_FORWARDING} -m mark --mark 0x4000/0x4000 -j ACCEPT",
        f"{comment('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ),
    "KUBE-SERVICES": (),
    "KUBE-EXTERNAL-SERVICES": (),
}
"""kube-proxy's chains for forwarded packets in iptables mode, without Services."""
