"""Prepare a machine: mark it, tune it, configure its kernel, and install and configure containerd."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds import versions
from k8sdds.deploy import tuning
from k8sdds.deploy.actions import IMAGES_BEFORE, STATE, Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts import MARKER
from k8sdds.deploy.phases.phase import CLAIM, RUNTIME, TUNING, files_script, stale
from k8sdds.deploy.scripts import shell
from k8sdds.deploy.software import PACKAGES
from k8sdds.model.profile import Node

MODULES = ("overlay", "br_netfilter")
MODULES_FILE = "/etc/modules-load.d/k8sdds.conf"
SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
}
IPV6_SYSCTLS = {"net.ipv6.conf.all.forwarding": "1"}
"""In addition, for nodes with IPv6 addresses."""
KUBERNETES_SYSCTLS = (
    "kernel.keys.root_maxbytes", "kernel.keys.root_maxkeys", "kernel.panic", "kernel.panic_on_oops",
    "vm.overcommit_memory", "vm.panic_on_oom",
    "net.ipv4.conf.all.route_localnet", "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
)  # fmt: skip
"""Sysctls that the kubelet and kube-proxy change. Their values are saved, so that destroy can restore them."""
SYSCTLS_FILE = "/etc/sysctl.d/90-k8sdds.conf"
CONFIG_FILE = "/etc/containerd/config.toml"
REGISTRIES = "/etc/containerd/k8sdds-certs.d"
"""Folder with the settings of registries, one folder each; `_default` is for all others. The user's own certs.d stays
unchanged."""
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
FILES = (MODULES_FILE, SYSCTLS_FILE, CONFIG_FILE)
DEBIAN_PACKAGES = (
    "containerd", "runc", "iptables", "conntrack", "socat", "ethtool", "ebtables",
    # Without these, a switch could not remove what some networks create.
    "ipset", "nftables",
)  # fmt: skip
CAP_SYS_RESOURCE = 24

# Local nodes share the host's kernel: a module may be loaded although modprobe fails.
_LOAD_MODULES = (
    f"for module in {' '.join(MODULES)}; do\n"
    "  modprobe $module 2>/dev/null || grep -qw $module /proc/filesystems || [ -d /sys/module/$module ] ||"
    " [ -d /proc/sys/net/bridge ]\ndone\n"
)


def claim(state: DesiredState, node: Node) -> list[Action]:
    """Mark a machine as part of the cluster before anything else is changed, and list the images that it had."""
    name = state.profile.name
    if state.facts[node.name].values.get("marker") == name:
        return []
    script = (
        f"mkdir -p {STATE}\nchmod 755 {STATE}\n: >{IMAGES_BEFORE}\n"
        f"[ ! -S {CONTAINERD_SOCKET} ] || ctr --namespace k8s.io images ls -q >{IMAGES_BEFORE}\n"
        f"echo {name} >{MARKER}.new\nmv {MARKER}.new {MARKER}\n"
    )
    return [Action(node.name, CLAIM, f"mark it as part of {name}", script)]


def tune(state: DesiredState, node: Node) -> list[Action]:
    """Apply settings of the tuning sets that differ, and restore those that only an earlier profile set."""
    tuned = tuning.plan(state.profile.tuning, state.facts[node.name].all("tuning"))
    return [Action(node.name, TUNING, "; ".join(tuned.changes), tuned.script)] if tuned.script else []


def runtime(state: DesiredState, node: Node) -> list[Action]:
    """Configure the kernel as kubeadm requires; install and configure containerd."""
    facts = state.facts[node.name]
    actions = []
    current = facts.pairs("sysctl")
    # What pods need on every node.
    sysctls = SYSCTLS | (IPV6_SYSCTLS if "ipv6" in state.profile.kubernetes.ip_families else {})
    files = {
        MODULES_FILE: "".join(f"{name}\n" for name in MODULES),
        SYSCTLS_FILE: "".join(f"{key} = {value}\n" for key, value in sysctls.items()),
    }
    if stale(state, node, files) or any(current.get(key) != value for key, value in sysctls.items()):
        actions.append(_configure_kernel(node, sysctls, files))
    if not facts.values.get("containerd"):
        actions.append(_install_containerd(state, node))
    config = {CONFIG_FILE: containerd_config(state, node)}
    if stale(state, node, config) or facts.pairs("unit").get("containerd") != "active":
        script = (
            files_script(config)
            + f"systemctl is-enabled containerd >/dev/null 2>&1 || echo containerd >>{STATE}/enabled\n"
            "systemctl enable containerd >/dev/null 2>&1 || :\nsystemctl restart containerd\n"
            "for second in 1 2 3 4 5 6 7 8 9 10; do ctr version >/dev/null 2>&1 && exit 0; sleep 1; done\n"
            "ctr version\n"
        )
        actions.append(Action(node.name, RUNTIME, "configure containerd", script))
    return actions


def _configure_kernel(node: Node, sysctls: Mapping[str, str], files: Mapping[str, str]) -> Action:
    saved = " ".join((*sysctls, *KUBERNETES_SYSCTLS))
    script = (
        _LOAD_MODULES
        # Without it, its sysctls do not exist yet. kube-proxy loads it and changes them.
        + "modprobe nf_conntrack 2>/dev/null || :\n"
        + f"[ -e {STATE}/sysctls ] || sysctl {saved} 2>/dev/null >{STATE}/sysctls || :\n"
        + files_script(files)
        + "".join(f"sysctl -qw {key}={value}\n" for key, value in sysctls.items())
    )
    title = "let the kernel forward and filter bridged packets"
    return Action(
        node.name, RUNTIME, title, script, remedy="install the kernel's extra modules: overlay, br_netfilter"
    )


def _install_containerd(state: DesiredState, node: Node) -> Action:
    names = " ".join(DEBIAN_PACKAGES)
    install = f"apt-get update -q=2\napt-get install -q=2 -y --no-install-recommends {names}\n"
    facts = state.facts[node.name]
    uploads = state.software.packages(facts.architecture, facts.values.get("os.VERSION_CODENAME", ""))
    if uploads:
        install = shell("install_packages", FOLDER=PACKAGES, PACKAGES=names) + f"rm -rf {PACKAGES}\n"
    return Action(
        node.name, RUNTIME, "install containerd", recording_packages(install), uploads=uploads, timeout_s=900,
        remedy="the machine must reach the package repositories of its distribution: run apt-get update on it",
    )  # fmt: skip


def recording_packages(install: str) -> str:
    """Return a script that installs packages and lists those that are new, which `destroy --purge` removes."""
    return shell("record_packages", INSTALL=install, STATE=STATE)


def containerd_config(state: DesiredState, node: Node) -> str:
    """Return the configuration file of containerd on a node."""
    # containerd 1.6 reads format 2; containerd 2.x converts it when it starts.
    bounding_set = int(state.facts[node.name].values.get("capabilities") or "ffffffffffffffff", 16)
    lines = [
        "# Written by k8sdds.",
        "version = 2",
        '[plugins."io.containerd.grpc.v1.cri"]',
        f'  sandbox_image = "{versions.PAUSE_IMAGE}"',
    ]
    if not bounding_set >> CAP_SYS_RESOURCE & 1:
        # Without this capability no pod can start, since containerd cannot lower OOM scores.
        lines.append("  restrict_oom_score_adj = true")
    lines += [
        '[plugins."io.containerd.grpc.v1.cri".cni]',
        '  bin_dir = "/opt/cni/bin"',
        '  conf_dir = "/etc/cni/net.d"',
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]',
        '  runtime_type = "io.containerd.runc.v2"',
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]',
        "  SystemdCgroup = true",
    ]
    if state.profile.registry is not None:
        lines += ['[plugins."io.containerd.grpc.v1.cri".registry]', f'  config_path = "{REGISTRIES}"']
    return "\n".join(lines) + "\n"
