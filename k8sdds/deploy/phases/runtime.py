"""The container runtime and what the kernel must allow: modules, forwarding, containerd as configured."""

from __future__ import annotations

import hashlib

from k8sdds import versions
from k8sdds.bundle import packages
from k8sdds.deploy.actions import STATE, Action, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.software import PACKAGES
from k8sdds.model.profile import Node

PHASE = "runtime"
MODULES = ("overlay", "br_netfilter")
MODULES_FILE = "/etc/modules-load.d/k8sdds.conf"
SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
}
OF_OTHERS = (
    "kernel.keys.root_maxbytes", "kernel.keys.root_maxkeys", "kernel.panic", "kernel.panic_on_oops",
    "vm.overcommit_memory", "vm.panic_on_oom",
    "net.ipv4.conf.all.route_localnet", "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
)  # fmt: skip
"""What the kubelet and kube-proxy will set: remembered, so that destroy can put it back."""
SYSCTLS_FILE = "/etc/sysctl.d/90-k8sdds.conf"
CONFIG_FILE = "/etc/containerd/config.toml"
FILES = (MODULES_FILE, SYSCTLS_FILE, CONFIG_FILE)

CAP_SYS_RESOURCE = 24

_MODULES = "".join(f"{name}\n" for name in MODULES)
_SYSCTLS = "".join(f"{key} = {value}\n" for key, value in SYSCTLS.items())
# A container on local nodes has the host's kernel: its modules are there or cannot be loaded.
_KERNEL = (
    "for module in overlay br_netfilter; do\n"
    "  modprobe $module 2>/dev/null || grep -qw $module /proc/filesystems || [ -d /sys/module/$module ] ||"
    " [ -d /proc/sys/net/bridge ]\ndone\n"
    + "".join(f"sysctl -qw {key}={value}\n" for key, value in SYSCTLS.items())
)


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """The runtime of one node."""
    facts = wanted.facts[node.name]
    actions = []
    files = {MODULES_FILE: _MODULES, SYSCTLS_FILE: _SYSCTLS}
    now = facts.pairs("sysctl")
    if _changed(wanted, node, files) or any(now.get(key) != value for key, value in SYSCTLS.items()):
        keys = " ".join((*SYSCTLS, *OF_OTHERS))
        before = f"[ -e {STATE}/sysctls ] || sysctl {keys} 2>/dev/null >{STATE}/sysctls || :\n"
        modules, rest = _KERNEL.split("done\n", 1)
        script = modules + "done\n" + before + "".join(file_script(*one) for one in files.items()) + rest
        actions.append(
            Action(
                node.name, PHASE, "let the kernel forward and filter bridged packets", script,
                remedy="the kernel's extra modules must be installed: overlay, br_netfilter",
            )
        )  # fmt: skip
    if not facts.one.get("containerd"):
        actions.append(_install(wanted, node))
    config = {CONFIG_FILE: configuration(wanted, node)}
    active = facts.pairs("unit").get("containerd") == "active"
    if _changed(wanted, node, config) or not active:
        script = file_script(CONFIG_FILE, config[CONFIG_FILE])
        script += f"systemctl is-enabled containerd >/dev/null 2>&1 || echo containerd >>{STATE}/enabled\n"
        script += "systemctl enable containerd >/dev/null 2>&1 || :\nsystemctl restart containerd\n"
        script += (
            "for second in 1 2 3 4 5 6 7 8 9 10; do ctr version >/dev/null 2>&1 && exit 0; sleep 1; done\n"
        )
        script += "ctr version\n"
        actions.append(Action(node.name, PHASE, "configure containerd", script))
    return actions


def _changed(wanted: DesiredState, node: Node, files: dict[str, str]) -> bool:
    return any(
        wanted.sha256(node.name, path) != hashlib.sha256(text.encode()).hexdigest()
        for path, text in files.items()
    )


def _install(wanted: DesiredState, node: Node) -> Action:
    names = "containerd runc iptables conntrack socat ethtool ebtables"
    uploads = ()
    install = f"apt-get update -q=2\napt-get install -q=2 -y --no-install-recommends {names}\n"
    facts = wanted.facts[node.name]
    release = facts.architecture, facts.one.get("os.VERSION_CODENAME", "")
    if wanted.software.has_packages(*release):
        uploads = wanted.software.packages(*release)
        install = packages.install_script(PACKAGES, names.split()) + f"rm -rf {PACKAGES}\n"
    script = f"""\
export DEBIAN_FRONTEND=noninteractive
before=$(dpkg-query -Wf '${{Package}}\\n' | sort)
{install}dpkg-query -Wf '${{Package}}\\n' | sort >{STATE}/packages.now
echo "$before" | comm -13 - {STATE}/packages.now >>{STATE}/packages
rm {STATE}/packages.now
"""
    return Action(
        node.name, PHASE, "install containerd", script, uploads=uploads, timeout_s=900,
        remedy="the machine must reach its distribution's packages: try apt-get update on it",
    )  # fmt: skip


def configuration(wanted: DesiredState, node: Node) -> str:
    """containerd's configuration on a node."""
    # Format 2 is read by containerd 1.6 and, converted on the fly, by 2.x.
    facts = wanted.facts[node.name]
    bounding = int(facts.one.get("capabilities") or "ffffffffffffffff", 16)
    lines = [
        "# Written by k8sdds.",
        "version = 2",
        '[plugins."io.containerd.grpc.v1.cri"]',
        f'  sandbox_image = "{versions.PAUSE_IMAGE}"',
    ]
    if not bounding >> CAP_SYS_RESOURCE & 1:
        # Pods could not be started where their processes' scores may not be lowered.
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
    return "\n".join(lines) + "\n"
