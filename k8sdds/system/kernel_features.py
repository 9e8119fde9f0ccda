"""Check which features this machine's kernel and installed programs provide.

Each feature is tried in a temporary network namespace. Trying a feature whose module is not loaded would load the
module, so the check first looks for modules that exist but are not loaded: k8sdds never loads a kernel module.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from k8sdds.system.processes import was_killed


@dataclass(frozen=True)
class Feature:
    """A kernel feature or an installed program, and the command that shows that it works."""

    name: str
    modules: tuple[str, ...]
    """Kernel modules that provide the feature; empty for a program."""
    purpose: str
    command: str
    """Shell command that succeeds if the feature works; it runs in a temporary network namespace."""
    package: str = ""
    """Debian packages with the programs that the command runs."""
    remedy: str = ""
    """What the user can do if the feature is missing; empty if the missing program or module must be installed."""


@dataclass(frozen=True)
class Capabilities:
    """The result of checking features on this machine."""

    features: frozenset[str] = frozenset()
    """Names of the features that work."""
    missing: dict[str, str] = field(default_factory=dict)
    """Name of each feature that does not work → the reason that the kernel or the program reported."""

    def has(self, feature: str) -> bool:
        """Return whether the feature works."""
        return feature in self.features


BRIDGE = Feature("bridge", ("bridge",), "the switch, and pods' bridges", "ip link add b0 type bridge")
VETH = Feature("veth", ("veth",), "every link", "ip link add v0 type veth peer name v1")
VXLAN = Feature(
    "vxlan", ("vxlan",), "VXLAN tunnels",
    "ip link add x0 type vxlan id 1 local 127.0.0.1 dstport 8472 dev lo",
)  # fmt: skip
NFTABLES = Feature(
    "nftables", ("nf_tables", "nft_chain_nat", "nft_masq", "nft_ct"), "masquerade and forward rules",
    "nft add table ip t && nft add chain ip t c '{ type nat hook postrouting priority 100; }'"
    " && nft add rule ip t c ip daddr 10.0.0.1 ct state new counter masquerade",
    "nftables",
)  # fmt: skip
IPTABLES = Feature(
    "iptables",
    ("nft_compat", "nft_log", "nft_limit", "xt_comment", "xt_conntrack", "xt_mark", "xt_addrtype", "xt_physdev",
     "xt_limit", "xt_multiport", "xt_state", "xt_NFLOG", "nfnetlink_log", "xt_MASQUERADE", "ipt_REJECT"),
    "rules that daemons create with iptables-nft",
    "iptables-nft -A FORWARD -m comment --comment t -m conntrack --ctstate NEW -m physdev --physdev-is-bridged"
    " -m limit --limit 10/minute -m mark --mark 1 -j NFLOG && iptables-nft -A INPUT -p udp -m multiport --dports 1:2"
    " -m addrtype --dst-type LOCAL -j MARK --set-mark 1 && iptables-nft -A OUTPUT -m state --state NEW -j REJECT"
    " && iptables-nft -t nat -A POSTROUTING -j MASQUERADE",
    "iptables",
)  # fmt: skip
SERVICES = Feature(
    "services", ("xt_nat", "xt_tcpudp"), "rules of kube-proxy that translate addresses of Services",
    "iptables-nft -t nat -A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80",
    "iptables",
)  # fmt: skip
NFT_SERVICES = Feature(
    "nft-services",
    ("nft_chain_nat", "nft_nat", "nft_masq", "nft_numgen", "nft_fib_ipv4", "nft_fib_ipv6", "nft_reject_ipv4", "nft_ct"),
    "maps of kube-proxy that translate addresses of Services",
    "nft add table ip t && nft add chain ip t s && nft add map ip t m '{ type inet_proto . inet_service : verdict; }'"
    " && nft add chain ip t c '{ type nat hook prerouting priority dstnat; }'"
    " && nft add rule ip t s meta l4proto tcp dnat ip addr . port to numgen random mod 1 map '{ 0 : 10.0.0.1 . 80 }'"
    " && nft add element ip t m '{ tcp . 80 : goto s }'"
    " && nft add rule ip t c fib daddr type local meta l4proto . th dport vmap @m",
    "nftables",
)  # fmt: skip
IPV6 = Feature(
    "ipv6", ("ip6t_REJECT",), "nodes and pods with IPv6 addresses",
    "ip link set lo up && ip -6 route get ::1 >/dev/null && ip6tables-nft -t nat -A POSTROUTING -j MASQUERADE"
    " && ip6tables-nft -A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j REJECT",
    "iptables",
)  # fmt: skip
RPFILTER = Feature(
    "rpfilter", ("ipt_rpfilter",), "rules of Calico that check the path to a packet's source",
    "iptables-nft -t raw -A PREROUTING -m rpfilter --validmark --invert -j DROP",
    "iptables",
)  # fmt: skip
NOTRACK = Feature(
    "notrack", ("xt_CT",), "rules that exempt packets from connection tracking",
    "iptables-nft -t raw -A OUTPUT -j CT --notrack",
    "iptables",
)  # fmt: skip
IPIP = Feature("ipip", ("ipip",), "IP-in-IP tunnels", "ip link add i0 type ipip local 127.0.0.1")
TC_BPF = Feature(
    "tc-bpf", ("cls_bpf", "sch_ingress"), "BPF programs that redirect packets",
    # The kernel accepts such programs only outside of a user namespace.
    "grep --quiet 4294967295 /proc/self/uid_map || { echo not in a user namespace >&2; exit 1; };"
    " tc qdisc add dev lo clsact && tc filter add dev lo ingress bpf direct-action bytecode '1,6 0 0 0'",
    remedy="run as root, on a kernel with cls_bpf and sch_ingress",
)  # fmt: skip
CLANG = Feature(
    "clang", (), "compile BPF programs",
    "echo 'int x;' | clang -target bpf -x c -c - -o /dev/null", "clang",
    remedy="run: k8sdds setup --for lab-cilium",
)  # fmt: skip
MACVLAN = Feature(
    "macvlan", ("macvlan",), "pods with an interface of their own on the node's link",
    "ip link add v0 type veth peer name v1 && ip link add link v0 name m0 type macvlan mode bridge",
)  # fmt: skip
BR_NETFILTER = Feature(
    "br_netfilter", ("br_netfilter",), "firewall rules for bridged packets, as on Kubernetes nodes",
    "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables",
)  # fmt: skip
TBF = Feature(
    "tbf", ("sch_tbf",), "links shaped to a rate",
    "tc qdisc add dev lo root tbf rate 1mbit burst 16kb latency 50ms",
)  # fmt: skip
IPSET = Feature(
    "ipset", ("ip_set", "ip_set_hash_ip", "xt_set"), "rules of NetworkPolicies",
    "ipset create t hash:ip timeout 0 && iptables-nft -A FORWARD -m set --match-set t src -j ACCEPT",
    "ipset iptables",
)  # fmt: skip
OFFLOADS = Feature(
    "offloads", (), "links whose offloads the experiment sets",
    "ip link add v0 type veth peer name v1 && ethtool -K v0 generic-receive-offload on tcp-segmentation-offload off"
    " generic-segmentation-offload off tx-udp-segmentation off tx-udp_tnl-segmentation off",
    "ethtool",
)  # fmt: skip
BONDING = Feature(
    "bonding", ("bonding",), "links with several members", "ip link add b0 type bond mode balance-xor"
)
NETEM = Feature("netem", ("sch_netem",), "links with a delay", "tc qdisc add dev lo root netem delay 1ms")
CODEL = Feature("codel", ("sch_codel",), "queues with CoDel", "tc qdisc add dev lo root codel")
NETEM_QUEUES = (NETEM, TBF, CODEL)
"""What the engine `kernel` of links needs."""
NFT_INGRESS = Feature(
    "nft_ingress", ("nf_tables", "nft_numgen"), "links with loss",
    "nft add table netdev t"
    " && nft add chain netdev t c '{ type filter hook ingress device lo priority 0; }'"
    " && nft add rule netdev t c numgen random mod 1000 '<' 10 counter drop",
    "nftables",
)  # fmt: skip
ESP = Feature(
    "esp", ("esp4", "xfrm_user"), "IPsec in the kernel",
    "ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 1 mode tunnel"
    " aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128",
)  # fmt: skip
WIREGUARD = Feature("wireguard", ("wireguard",), "WireGuard in the kernel", "ip link add w0 type wireguard")
TUN = Feature("tun", ("tun",), "userspace ESP and userspace WireGuard", "ip tuntap add dev t0 mode tun")
STRONGSWAN = Feature(
    "strongswan", (), "IPsec key exchange",
    "for program in charon-systemd swanctl; do PATH=$PATH:/usr/sbin command -v $program >&2"
    " || { echo $program: not found >&2; exit 1; }; done",
    "charon-systemd strongswan-swanctl libstrongswan-standard-plugins libcharon-extra-plugins",
)  # fmt: skip
WG = Feature("wg", (), "WireGuard configuration", "wg --version", "wireguard-tools")
WIREGUARD_GO = Feature("wireguard-go", (), "userspace WireGuard", "wireguard-go --version", "wireguard-go")
REALTIME = Feature(
    "SCHED_FIFO", (), "participants with a `realtime_priority`",
    "test $(cat /proc/sys/kernel/sched_rt_runtime_us) -ge 0 || { echo kernel.sched_rt_runtime_us is -1 >&2; exit 1; }"
    " && chrt --fifo 1 true",
    remedy="run as root, and keep kernel.sched_rt_runtime_us above 0; or leave out realtime_priority",
)  # fmt: skip
MEMORY_LOCKS = Feature(
    "unlimited memory locks", (), "participants with `lock_memory`, and shared memory of Zenoh",
    # The capability IPC_LOCK (bit 14) counts only outside of a user namespace.
    "prlimit --memlock=unlimited true || { grep --quiet 4294967295 /proc/self/uid_map"
    " && [ $((0x$(sed --quiet 's/^CapEff:[[:space:]]*//p' /proc/self/status) >> 14 & 1)) = 1 ]; }",
    remedy="run as root, or set the hard limit memlock to unlimited in /etc/security/limits.conf",
)  # fmt: skip

PERF = Feature(
    "perf", (), "profiles of CPU time with --profile",
    "perf record --quiet --all-cpus --event cpu-clock --output /dev/null -- true", "linux-perf",
    remedy="run: k8sdds setup; and run as root, or: sudo sysctl kernel.perf_event_paranoid=-1",
)  # fmt: skip

FEATURES = (
    BRIDGE, VETH, VXLAN, IPIP, MACVLAN, NFTABLES, IPTABLES, IPV6, RPFILTER, NOTRACK, BR_NETFILTER, TC_BPF, CLANG,
    TBF, NETEM, NFT_INGRESS, BONDING, OFFLOADS, IPSET, ESP, WIREGUARD, TUN, STRONGSWAN, WG, WIREGUARD_GO,
)  # fmt: skip

NOT_LOADED = "not loaded"
"""Start of the reason for a feature whose kernel module exists but is not loaded."""
TIMEOUT_S = 30
MAX_RUNS = 3
"""How often a probe that is killed is run."""


def unshare_argv() -> list[str]:
    """Return the start of a command line that runs a program in temporary network and mount namespaces."""
    argv = ["unshare", "--net", "--mount"]
    if os.geteuid() != 0:
        argv += ["--user", "--map-root-user"]
    return [*argv, "--"]


def namespaces_error() -> str:
    """Return why this user cannot create namespaces, or an empty string."""
    done = _run([*unshare_argv(), "true"])
    return done.stderr.strip() if done.returncode else ""


def probe(features: Iterable[Feature] = FEATURES) -> Capabilities:
    """Check the given features. Changes nothing and loads no module."""
    reasons = {feature.name: _failure(feature) for feature in features}
    working = frozenset(name for name, reason in reasons.items() if not reason)
    return Capabilities(working, {name: reason for name, reason in reasons.items() if reason})


def available(feature: Feature) -> bool:
    """Return whether a feature works, or would work after its kernel module is loaded."""
    reason = _failure(feature)
    return not reason or reason.startswith(NOT_LOADED)


def remedy(feature: Feature) -> str:
    """Return the remedy for a missing feature."""
    if feature.remedy:
        return feature.remedy
    unloaded = unloaded_modules(feature)
    if unloaded:
        return f"sudo modprobe --all {' '.join(unloaded)}"
    if feature.package and (not feature.modules or _failure(feature).endswith("not found")):
        return "run: k8sdds setup"
    return (
        f"this kernel has no module {feature.modules[0]}; use a network, engine or link that does not need it"
    )


def unloaded_modules(feature: Feature) -> list[str]:
    """Return the kernel modules of a feature that this machine has but has not loaded."""
    return [module for module in feature.modules if _is_loadable(module)]


@cache
def _failure(feature: Feature) -> str:
    """Return why a feature does not work, or an empty string. Results are cached per process."""
    unloaded = unloaded_modules(feature)
    if unloaded:
        return f"{NOT_LOADED}: kernel module {', '.join(unloaded)}"
    argv = [*unshare_argv(), "sh", "-c", feature.command]
    done = _run(argv)
    return " ".join(done.stderr.split()) or "the kernel refused" if done.returncode else ""


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a probe, again if it was killed: that proves nothing about the machine."""
    for _ in range(MAX_RUNS):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
        if not was_killed(done.returncode):
            break
    return done


def _is_loadable(module: str) -> bool:
    """Return whether a module is installed for the running kernel but not loaded."""
    if Path(f"/sys/module/{module}").exists():
        return False
    folder = Path("/lib/modules") / os.uname().release
    try:
        index = (folder / "modules.dep").read_text()
    except OSError:
        return False
    return any(
        line.partition(":")[0].rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_") == module
        for line in index.splitlines()
    )
