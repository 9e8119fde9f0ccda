"""Declare how the kernel objects of several lab networks differ from those on the nodes of a real cluster."""

from __future__ import annotations

from k8sdds.networks.network import Difference

_TCP_TIMEOUTS = r"^sysctl net/netfilter/nf_conntrack_tcp_timeout_(close_wait|established): "
"""Those that kube-proxy sets."""

DEFAULT_ROUTE = Difference(
    "no default route",
    "a default route",
    "nothing: packets between pods match a longer prefix",
    daemon=(r"^route main: unicast default ",),
)

BRIDGED_WITH_KUBE_PROXY = (
    Difference(
        "no Services",
        "chains KUBE-SVC-* and KUBE-SEP-* of the table nat for each Service",
        "nothing: the table nat sees only the first packet of a connection",
        daemon=(r"^iptables nat KUBE-(SVC|SEP)-", r"^iptables nat KUBE-SERVICES: .* -j KUBE-SVC-"),
    ),
    Difference(
        "the rule of KUBE-FORWARD for INVALID packets drops them",
        "it also counts them (nfacct)",
        "nothing: a valid packet does not reach the counter",
        lab=(r"^iptables filter KUBE-FORWARD: -m conntrack --ctstate INVALID -j DROP$",),
        daemon=(r"^iptables filter KUBE-FORWARD: .* --nfacct-name  ct_state_invalid_dropped_pkts -j DROP$",),
    ),
    Difference(
        "no IPv6",
        "the same rules of kube-proxy, kubelet and the plugin for IPv6",
        "nothing: they see IPv6 packets only",
        daemon=(r"^hook ip6 ",),
    ),
    DEFAULT_ROUTE,
    Difference(
        "the kernel's defaults of three sysctls",
        "values of kube-proxy: `route_localnet`, timeouts of tracked TCP connections",
        "nothing: they apply to node ports on 127.0.0.1, and to TCP connections that are idle or half closed",
        lab=(r"^sysctl net/ipv4/conf/all/route_localnet: 0$", _TCP_TIMEOUTS),
        daemon=(r"^sysctl net/ipv4/conf/all/route_localnet: 1$", _TCP_TIMEOUTS),
    ),
    Difference(
        "`arp_notify` is off in pods, and veth pairs have a queue length",
        "the bridge plugin announces the pod's address, and sets no queue length",
        "nothing: the address is announced once, and links without a queue do not use the length",
        lab=(r"^pod sysctl net/ipv4/conf/eth0/arp_notify: 0$", r"^link <veth>: txqlen 1000$"),
        daemon=(r"^pod sysctl net/ipv4/conf/eth0/arp_notify: 1$",),
    ),
)
"""For networks with the bridge plugin, on nodes with kube-proxy."""
