"""Declare how the kernel objects of lab networks differ from those on the nodes of a real cluster.

Tests on clusters, and one in a virtual machine, compare all objects of a node and of a pod with those of the lab
(`tests/kernel_objects.py`). They fail for a difference that is not declared here, and for a declared one that does not
exist.
"""

from __future__ import annotations

from dataclasses import dataclass

FLANNEL = ("flannel-vxlan", "flannel-hostgw")
ON_CLUSTER = (*FLANNEL, "kube-router")
"""Networks that are compared with their daemons on a cluster."""
WEAVE = ("weavenet",)
COMPARED = (*ON_CLUSTER, *WEAVE)
"""Networks that are compared with their daemons. WeaveNet's run in a virtual machine, without kube-proxy."""
TCP_TIMEOUTS = r"^sysctl net/netfilter/nf_conntrack_tcp_timeout_(close_wait|established): "
"""Those that kube-proxy sets."""


@dataclass(frozen=True)
class Difference:
    """One difference, as patterns of lines that only one of both has."""

    networks: tuple[str, ...]
    in_lab: str
    on_cluster: str
    cost: str
    """What it costs the packets between two pods, and why."""
    lab: tuple[str, ...] = ()
    """Regular expressions of all lines that only the lab has."""
    daemon: tuple[str, ...] = ()
    """The same for the cluster."""


DIFFERENCES = (
    Difference(
        ON_CLUSTER,
        "no Services",
        "chains KUBE-SVC-* and KUBE-SEP-* of the table nat for each Service",
        "nothing: the table nat sees only the first packet of a connection",
        daemon=(r"^iptables nat KUBE-(SVC|SEP)-", r"^iptables nat KUBE-SERVICES: .* -j KUBE-SVC-"),
    ),
    Difference(
        ON_CLUSTER,
        "the rule of KUBE-FORWARD for INVALID packets drops them",
        "it also counts them (nfacct)",
        "nothing: a valid packet does not reach the counter",
        lab=(r"^iptables filter KUBE-FORWARD: -m conntrack --ctstate INVALID -j DROP$",),
        daemon=(r"^iptables filter KUBE-FORWARD: .* --nfacct-name  ct_state_invalid_dropped_pkts -j DROP$",),
    ),
    Difference(
        ON_CLUSTER,
        "no IPv6",
        "the same rules of kube-proxy, kubelet and the plugin for IPv6",
        "nothing: they see IPv6 packets only",
        daemon=(r"^hook ip6 ",),
    ),
    Difference(
        COMPARED,
        "no default route",
        "a default route",
        "nothing: packets between pods match a longer prefix",
        daemon=(r"^route main: unicast default ",),
    ),
    Difference(
        ON_CLUSTER,
        "the kernel's defaults of three sysctls",
        "values of kube-proxy: `route_localnet`, timeouts of tracked TCP connections",
        "nothing: they apply to node ports on 127.0.0.1, and to TCP connections that are idle or half closed",
        lab=(r"^sysctl net/ipv4/conf/all/route_localnet: 0$", TCP_TIMEOUTS),
        daemon=(r"^sysctl net/ipv4/conf/all/route_localnet: 1$", TCP_TIMEOUTS),
    ),
    Difference(
        ON_CLUSTER,
        "`arp_notify` is off in pods, and veth pairs have a queue length",
        "the bridge plugin announces the pod's address, and sets no queue length",
        "nothing: the address is announced once, and links without a queue do not use the length",
        lab=(r"^pod sysctl net/ipv4/conf/eth0/arp_notify: 0$", r"^link <veth>: txqlen 1000$"),
        daemon=(r"^pod sysctl net/ipv4/conf/eth0/arp_notify: 1$",),
    ),
    Difference(
        ("flannel-vxlan",),
        "`flannel.1` has a queue length",
        "none",
        "nothing: a link without a queue does not use the length",
        lab=(r"^link flannel\.1: txqlen 1000$",),
    ),
    Difference(
        ("kube-router",),
        "a range of addresses decides what is masqueraded",
        "the ipsets `kube-router-pod-subnets` and `kube-router-node-ips`",
        "nothing: the table nat sees only the first packet of a connection",
        lab=(r"^iptables nat POSTROUTING: -s 10\.244\.0\.0/16 .* --dst-range ",),
        daemon=(r"^iptables nat POSTROUTING: -m set --match-set kube-router-pod-subnets src ", r"^ipset "),
    ),
    Difference(
        WEAVE,
        "`datapath` is a bridge that learns, with a VXLAN device that copies to every peer (head-end replication)",
        "`datapath` is one of Open vSwitch, with flow rules and a VXLAN port without an MTU of its own",
        "not measured: the kernel here has no Open vSwitch",
        lab=(
            r"^link (datapath|vethwe-datapath|vxlan-6784): ", r"^fdb vxlan-6784: ", r"^offload datapath: ",
            # Open vSwitch has no netfilter, so only the bridge of the pods passes it.
            r"^link weave: bridge\.nf_call_iptables 1$", r"^sysctl net/bridge/bridge-nf-call-iptables: 0$",
        ),
        daemon=(
            r"^link (datapath|vethwe-datapath|vxlan-6784): ", r"^offload datapath: ",
            r"^link weave: bridge\.nf_call_iptables 0$", r"^sysctl net/bridge/bridge-nf-call-iptables: 1$",
        ),
    ),
    Difference(
        WEAVE,
        "`weave` and the pods have the first addresses of a range for each node",
        "IPAM allocates their addresses from parts of one range",
        "nothing: all are in one subnet",
        lab=(
            r"^(pod )?address (weave|eth0): 10\.32\.", r"^route (main|local): .* dev weave ",
            r"^pod route main: unicast default ",
        ),
        daemon=(r"^(pod )?address (weave|eth0): 10\.32\.",),
    ),
    Difference(
        WEAVE,
        "addresses of pods are not excluded from masquerading by an ipset",
        "the ipset `weaver-no-masq-local`",
        "nothing: the table nat sees only the first packet of a connection",
        daemon=(r"^iptables nat WEAVE: -m set --match-set weaver-no-masq-local dst ", r"^ipset "),
    ),
    Difference(
        WEAVE,
        "veth pairs have a queue length",
        "none",
        "nothing: links without a queue do not use the length",
        lab=(r"^(pod )?link (<veth>|eth0|vethwe-bridge): txqlen 1000$",),
    ),
)  # fmt: skip


def of(network: str) -> tuple[Difference, ...]:
    """Return the declared differences of a network."""
    return tuple(difference for difference in DIFFERENCES if network in difference.networks)
