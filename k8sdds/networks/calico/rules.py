"""Calico's packet filter rules on a node whose pods no policy selects, in iptables mode."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.datapath import NODE_SUBNETS, POD_CIDRS

VXLAN_PORT = 4789

_ACCEPTED, _FROM_POD = "0x10000/0x10000", "0x40000/0x40000"
"""Marks of packets that a policy or profile accepts, and of packets from pods."""
_FROM_OTHERS, _NOT_ACCEPTED = "0x0/0x40000", "0x0/0x10000"
_ALL_MARKS = "0x0/0xf0000"
_KNOWN = "-m conntrack --ctstate RELATED,ESTABLISHED"
_PROFILES = ("kns.default", "ksa.default.default")
"""The profiles of a pod: of its namespace, which accepts all packets, and of its service account."""

_FROM_PODS_TO_NODE: dict[IpFamily, tuple[str, ...]] = {
    "ipv4": (),
    "ipv6": tuple(
        f"-p ipv6-icmp -m icmp6 --icmpv6-type {kind} -j ACCEPT" for kind in (130, 131, 132, 133, 135, 136)
    ),
}
"""Accepts the discovery of neighbors and of multicast listeners."""

Chains = dict[str, tuple[str, ...]]

LAST: dict[str, Chains] = {
    "filter": {
        "FORWARD": (
            f"{comment('cali:last')} -m mark --mark {_ACCEPTED} -j ACCEPT",
            f"{comment('cali:last')} -j MARK --set-xmark {_ACCEPTED}",
        ),
    },
}
"""Rules after those of kube-proxy."""


VXLAN = f"-p udp -m multiport --dports {VXLAN_PORT}"
IPIP = "-p 4"
"""Matches for packets that are encapsulated between nodes."""


def tables(devices: Sequence[str], tunnel: str, family: IpFamily) -> dict[str, Chains]:
    """Return all tables: name → chain → rules. `devices` are the node's ends of the pods' veth pairs.

    `tunnel` matches encapsulated packets, and is empty if there is no encapsulation. All rules come before those of
    kube-proxy, except LAST. Ranges of addresses replace the ipsets of the IP pool and of the nodes.
    """
    found = {
        "raw": _raw(tunnel),
        "mangle": _mangle(),
        "nat": _nat(POD_CIDRS[family]),
        "filter": _filter(devices, tunnel, family),
    }
    return {table: _commented(chains) for table, chains in found.items()}


def _raw(tunnel: str) -> Chains:
    untracked = (f"{tunnel} -j CT --notrack",) if tunnel == VXLAN else ()
    return {
        "PREROUTING": ("-j cali-PREROUTING",),
        "OUTPUT": ("-j cali-OUTPUT",),
        "cali-PREROUTING": (
            f"-j MARK --set-xmark {_ALL_MARKS}",
            *untracked,
            f"-i cali+ -j MARK --set-xmark {_FROM_POD}",
            f"-m mark --mark {_FROM_POD} -j cali-rpf-skip",
            f"-m mark --mark {_FROM_POD} -m rpfilter --validmark --invert -j DROP",
            f"-m mark --mark {_FROM_OTHERS} -j cali-from-host-endpoint",
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
        ),
        "cali-OUTPUT": (
            f"-j MARK --set-xmark {_ALL_MARKS}",
            "-j cali-to-host-endpoint",
            *untracked,
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
        ),
        "cali-rpf-skip": (),
        "cali-from-host-endpoint": (),
        "cali-to-host-endpoint": (),
    }


def _mangle() -> Chains:
    return {
        "PREROUTING": ("-j cali-PREROUTING",),
        "POSTROUTING": ("-j cali-POSTROUTING",),
        "cali-PREROUTING": (
            f"{_KNOWN} -j ACCEPT",
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
            "-j cali-from-host-endpoint",
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
        ),
        "cali-POSTROUTING": (
            f"-m mark --mark {_ACCEPTED} -j RETURN",
            f"-j MARK --set-xmark {_ALL_MARKS}",
            "-m conntrack --ctstate DNAT -j cali-to-host-endpoint",
            f"-m mark --mark {_ACCEPTED} -j RETURN",
        ),
        "cali-from-host-endpoint": (),
        "cali-to-host-endpoint": (),
    }


def _nat(pods: str) -> Chains:
    return {
        "PREROUTING": ("-j cali-PREROUTING",),
        "POSTROUTING": ("-j cali-POSTROUTING",),
        "OUTPUT": ("-j cali-OUTPUT",),
        "cali-PREROUTING": ("-j cali-fip-dnat",),
        "cali-OUTPUT": ("-j cali-fip-dnat",),
        "cali-POSTROUTING": ("-j cali-fip-snat", "-j cali-nat-outgoing"),
        "cali-fip-dnat": (),
        "cali-fip-snat": (),
        "cali-nat-outgoing": (f"-s {pods} ! -d {pods} -j MASQUERADE --random-fully",),
    }


def _filter(devices: Sequence[str], tunnel: str, family: IpFamily) -> Chains:
    from_nodes, to_nodes = _between_nodes(tunnel, family)
    return {
        "INPUT": ("-j cali-INPUT",),
        "FORWARD": ("-j cali-FORWARD",),
        "OUTPUT": ("-j cali-OUTPUT",),
        "cali-INPUT": (
            *from_nodes,
            "-i cali+ -g cali-wl-to-host",
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
            f"-j MARK --set-xmark {_ALL_MARKS}",
            "-j cali-from-host-endpoint",
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
        ),
        "cali-FORWARD": (
            "-j MARK --set-xmark 0x0/0xe0000",
            f"-m mark --mark {_NOT_ACCEPTED} -j cali-from-hep-forward",
            "-i cali+ -j cali-from-wl-dispatch",
            "-o cali+ -j cali-to-wl-dispatch",
            "-j cali-to-hep-forward",
            "-j cali-cidr-block",
        ),
        "cali-OUTPUT": (
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
            "-o cali+ -j RETURN",
            *to_nodes,
            f"-j MARK --set-xmark {_ALL_MARKS}",
            "-m conntrack ! --ctstate DNAT -j cali-to-host-endpoint",
            f"-m mark --mark {_ACCEPTED} -j ACCEPT",
        ),
        "cali-wl-to-host": (*_FROM_PODS_TO_NODE[family], "-j cali-from-wl-dispatch", "-j ACCEPT"),
        **dict.fromkeys(
            (
                "cali-from-host-endpoint", "cali-to-host-endpoint", "cali-from-hep-forward",
                "cali-to-hep-forward", "cali-cidr-block",
            ),
            (),
        ),
        "cali-from-wl-dispatch": (*(f"-i {device} -g cali-fw-{device}" for device in devices), "-j DROP"),
        "cali-to-wl-dispatch": (*(f"-o {device} -g cali-tw-{device}" for device in devices), "-j DROP"),
        **_pod_chains(devices, family),
        **_profiles(),
    }  # fmt: skip


def _between_nodes(tunnel: str, family: IpFamily) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rules for encapsulated packets from other nodes, and to them."""
    if not tunnel:
        return (), ()
    nodes = NODE_SUBNETS[family]
    return (
        (
            f"{tunnel} -s {nodes} -m addrtype --dst-type LOCAL -j ACCEPT",
            f"{tunnel} -m addrtype --dst-type LOCAL -j DROP",
        ),
        (f"{tunnel} -d {nodes} -m addrtype --src-type LOCAL -j ACCEPT",),
    )


def _pod_chains(devices: Sequence[str], family: IpFamily) -> Chains:
    """Return the chains of each pod: for packets from the pod (fw) and to the pod (tw)."""
    begin = (
        f"{_KNOWN} -j ACCEPT",
        "-m conntrack --ctstate INVALID -j DROP",
        "-j MARK --set-xmark 0x0/0x30000",
    )
    tunnels = (f"{VXLAN} -j DROP", *((f"{IPIP} -j DROP",) if family == "ipv4" else ()))
    end = {
        kind: (
            *(
                rule
                for profile in _PROFILES
                for rule in (f"-j cali-{kind}-{profile}", f"-m mark --mark {_ACCEPTED} -j RETURN")
            ),
            "-j DROP",
        )
        for kind in ("pro", "pri")
    }
    from_pods: Chains = {f"cali-fw-{device}": (*begin, *tunnels, *end["pro"]) for device in devices}
    to_pods: Chains = {f"cali-tw-{device}": (*begin, *end["pri"]) for device in devices}
    return from_pods | to_pods


def _profiles() -> Chains:
    accepting = (f"-j MARK --set-xmark {_ACCEPTED}", f"-m mark --mark {_ACCEPTED} -j RETURN")
    namespace, account = _PROFILES
    return {f"cali-{kind}-{namespace}": accepting for kind in ("pro", "pri")} | {
        f"cali-{kind}-{account}": () for kind in ("pro", "pri")
    }


def _commented(chains: Chains) -> Chains:
    """Return the chains with a comment in every rule, by which Felix recognizes it."""
    return {
        chain: tuple(f"{comment(f'cali:{chain}-{number}')} {rule}" for number, rule in enumerate(rules))
        for chain, rules in chains.items()
    }
