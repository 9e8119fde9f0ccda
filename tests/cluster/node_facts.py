"""Read everything on a node that a network could change, to compare a node before and after.

Unlike the probe of `k8sdds network switch`, the script does not look for the footprint of any network. Names and
addresses that change with every pod are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SCRIPT = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH LC_ALL=C
print() { sed "s/^/$1\t/"; }
for variant in iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy; do
  # A table exists since any program read it: only its content counts.
  $variant-save 2>/dev/null | grep -v '^#' | sed 's/ \[[0-9:]*\]$//' | awk -v v=$variant '
    /^\*/ { table = $1; next } /^:(PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) ACCEPT/ || /^COMMIT/ { next }
    { print v "\t" table " " $0 }'
done
nft list tables 2>/dev/null | grep -vE '^table ip6? (filter|nat|mangle|raw)$' | print nft
ipset list -n 2>/dev/null | print set
ip -o link | sed 's/^[0-9]*: //; s/@.*: </ </; s/ link\/.*//' | print link
ip -o address | sed 's/^[0-9]*: //; s/ *valid_lft.*//' | grep -v 'inet6 fe80:' | print address
ip route show table all | print route
ip -6 route show table all | grep -v fe80: | print route6
ip rule | print rule
ip -6 rule | print rule6
ip -o xfrm state 2>/dev/null | print xfrm
ip -o xfrm policy 2>/dev/null | print xfrm
tc qdisc show | print qdisc
ss -Htuln | awk '{ print $1, $5 }' | sort -u | print socket
find /etc /opt/cni /var/lib /run /usr/local /lib/modules -xdev \
  -path /var/lib/containerd -prune -o -path /var/lib/kubelet -prune -o -path /run/containerd -prune -o \
  -path /var/lib/etcd -prune -o -path /run/systemd -prune -o -path /run/udev -prune -o -path /run/netns -prune -o \
  -path /etc/k8sdds -prune -o -print 2>/dev/null | print file
find /etc/cni -type f -exec sha256sum {} + 2>/dev/null | print content
sysctl -a 2>/dev/null | grep -E '^net\.(ipv4|ipv6|bridge|core|netfilter)\.' | print sysctl
"""

VOLATILE = (
    (r"\bveth[0-9a-f]{8}\b", "veth*"),
    (r"\b10\.244\.(\d+)\.(?!0\b|1\b|255\b)\d+\b", r"10.244.\1.*"),
    (r"\b[0-9a-f]{64}\b", "*"),
    (r"\bcni-[0-9a-f-]{36}\b", "cni-*"),
)
"""Patterns of what changes with every pod, and what replaces them."""
IGNORED = (
    # Values that change over time.
    r"^sysctl\tnet\.netfilter\.nf_conntrack_count",
    # Link-local addresses are random.
    r"^(route|address).*fe80:",
    # Ports of clients and of containerd's stream server are random.
    r"^socket\t(udp|tcp) \S+:[3-6]\d{4}$",
    # kube-proxy's rules of a Service depend on the pods behind it.
    r"KUBE-(SEP|SVC|EXT|FW)-",
    # kubectl's cache, and state of the system.
    r"^file\t/run/(k8sdds-kubectl|log|lock|user)/|^file\t/var/lib/(systemd|dbus|logrotate)/",
)


def read(run: Callable[[str], str]) -> set[str]:
    """Return the facts of a node, each `kind<TAB>text`. `run` runs a shell script there as root."""
    facts = set()
    for line in run(SCRIPT).splitlines():
        if any(re.search(pattern, line) for pattern in IGNORED):
            continue
        for pattern, replacement in VOLATILE:
            line = re.sub(pattern, replacement, line)
        facts.add(line.rstrip())
    return facts
