"""What this kernel can do, each feature probed by doing it in a throw-away network namespace.

Trying a feature whose module is not loaded would load it, so modules that are there but not loaded are
told apart first: k8sdds never loads one silently.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Capabilities:
    """Features that work on this machine, each probed in a temporary network namespace."""

    features: frozenset[str] = frozenset()
    lacks: dict[str, str] = field(default_factory=dict)
    """Missing feature to the message of the kernel or tool when it was tried."""

    def has(self, feature: str) -> bool:
        """Return whether the feature works."""
        return feature in self.features


@dataclass(frozen=True)
class Feature:
    """A feature of the kernel, what it is needed for, and the commands that prove it."""

    name: str
    modules: tuple[str, ...]
    purpose: str
    proof: str
    package: str = ""
    """Debian package with the tool that the proof runs."""


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("bridge", ("bridge",), "the switch, and pods' bridges", "ip link add b0 type bridge"),
        Feature("veth", ("veth",), "every link", "ip link add v0 type veth peer name v1"),
        Feature(
            "vxlan", ("vxlan",), "flannel-vxlan, weavenet",
            "ip link add x0 type vxlan id 1 local 127.0.0.1 dstport 8472 dev lo",
        ),
        Feature(
            "nftables", ("nf_tables", "nft_chain_nat", "nft_masq", "nft_ct"), "masquerade and forward rules",
            "nft add table ip t && nft add chain ip t c '{ type nat hook postrouting priority 100; }'"
            " && nft add rule ip t c ip daddr 10.0.0.1 ct state new counter masquerade",
            "nftables",
        ),
        Feature(
            "br_netfilter", ("br_netfilter",), "rules also for bridged packets, as on Kubernetes' nodes",
            "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables",
        ),
        Feature(
            "tbf", ("sch_tbf",), "links shaped to a rate",
            "tc qdisc add dev lo root tbf rate 1mbit burst 16kb latency 50ms",
        ),
        Feature("netem", ("sch_netem",), "links with a delay", "tc qdisc add dev lo root netem delay 1ms"),
        Feature(
            "nft_ingress", ("nf_tables", "nft_numgen"), "links with loss",
            "nft add table netdev t"
            " && nft add chain netdev t c '{ type filter hook ingress device lo priority 0; }'"
            " && nft add rule netdev t c numgen random mod 1000 '<' 10 counter drop",
            "nftables",
        ),
        Feature(
            "esp", ("esp4",), "IPsec in the kernel",
            "ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 1 mode tunnel"
            " aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128",
        ),
        Feature("wireguard", ("wireguard",), "WireGuard in the kernel", "ip link add w0 type wireguard"),
        Feature("tun", ("tun",), "userspace ESP, userspace WireGuard", "ip tuntap add dev t0 mode tun"),
        Feature(
            "strongswan", (), "flannel-ipsec, weavenet-encrypt",
            "for program in charon-systemd swanctl; do PATH=$PATH:/usr/sbin command -v $program >&2"
            " || { echo $program: not found >&2; exit 1; }; done",
            "charon-systemd strongswan-swanctl libstrongswan-standard-plugins libcharon-extra-plugins",
        ),
        Feature("wg", (), "flannel-wireguard", "wg --version", "wireguard-tools"),
        Feature("wireguard-go", (), "userspace WireGuard", "wireguard-go --version", "wireguard-go"),
    )
}  # fmt: skip


NOT_LOADED = "not loaded"


def unshare_words() -> list[str]:
    """The words before a command that run it in throw-away namespaces, as root or as an ordinary user."""
    words = ["unshare", "--net", "--mount"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    return [*words, "--"]


def namespaces_lack() -> str:
    """Why namespaces cannot be made here, or an empty string."""
    done = subprocess.run([*unshare_words(), "true"], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def probe(names: tuple[str, ...] = tuple(FEATURES)) -> Capabilities:
    """Which of the named features work here; changes nothing and loads nothing."""
    features = set()
    lacks = {}
    for name in names:
        lack = _lack(FEATURES[name])
        if lack:
            lacks[name] = lack
        else:
            features.add(name)
    return Capabilities(frozenset(features), lacks)


@cache
def _lack(feature: Feature) -> str:
    unloaded = [module for module in feature.modules if loadable(module)]
    if unloaded:
        return f"{NOT_LOADED}: kernel module {', '.join(unloaded)}"
    done = subprocess.run(
        [*unshare_words(), "sh", "-c", feature.proof], capture_output=True, text=True, timeout=30
    )
    return " ".join(done.stderr.split()) or "the kernel refused" if done.returncode else ""


def loadable(module: str) -> bool:
    """Whether the module is there for this kernel and not loaded."""
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


def can(name: str) -> bool:
    """Whether a feature is here, or only waits for its module to be loaded: then its lack is told."""
    lack = _lack(FEATURES[name])
    return not lack or lack.startswith(NOT_LOADED)


def remedy(name: str) -> str:
    """What to do about a missing feature."""
    feature = FEATURES[name]
    unloaded = [module for module in feature.modules if loadable(module)]
    if unloaded:
        return f"sudo modprobe --all {' '.join(unloaded)}"
    if feature.package and _lack(feature).endswith("not found"):
        return f"sudo apt-get install {feature.package}"
    if not feature.modules:
        return f"sudo apt-get install {feature.package}"
    return f"this kernel lacks {feature.modules[0]}; use a network or link that does not need it"
