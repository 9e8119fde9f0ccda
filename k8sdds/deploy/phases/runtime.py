"""Prepare the kernel (modules, forwarding), and install and configure containerd."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds import versions
from k8sdds.bundle import packages
from k8sdds.deploy.actions import STATE, Action, Effect, Upload, file_hashes, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import Phase
from k8sdds.deploy.software import PACKAGES
from k8sdds.model.profile import Node, Profile

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


class Runtime(Phase):
    """Configure the kernel and containerd as kubeadm requires."""

    title = "runtime"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan kernel settings, then the installation of containerd, then its configuration."""
        facts = state.facts[node.name]
        actions = []
        current, sysctls = facts.pairs("sysctl"), desired_sysctls(state.profile)
        differ = any(current.get(key) != value for key, value in sysctls.items())
        if differ or _differ(state, node, _kernel_files(sysctls)):
            actions.append(self._configure_kernel(node, sysctls))
        if not facts.values.get("containerd"):
            actions.append(self._install(state, node))
        files = {CONFIG_FILE: containerd_config(state, node)}
        if _differ(state, node, files) or facts.pairs("unit").get("containerd") != "active":
            actions.append(self._configure_containerd(node, files))
        return actions

    def _configure_kernel(self, node: Node, sysctls: Mapping[str, str]) -> Action:
        saved, files = " ".join((*sysctls, *KUBERNETES_SYSCTLS)), _kernel_files(sysctls)
        script = (
            _LOAD_MODULES
            # Without it, its sysctls do not exist yet. kube-proxy loads it and changes them.
            + "modprobe nf_conntrack 2>/dev/null || :\n"
            + f"[ -e {STATE}/sysctls ] || sysctl {saved} 2>/dev/null >{STATE}/sysctls || :\n"
            + "".join(file_script(path, text) for path, text in files.items())
            + "".join(f"sysctl -qw {key}={value}\n" for key, value in sysctls.items())
        )
        return Action(
            node.name, self.title, "let the kernel forward and filter bridged packets", script,
            remedy="install the kernel's extra modules: overlay, br_netfilter",
            effect=Effect(files=file_hashes(files), sysctls=sysctls),
        )  # fmt: skip

    def _install(self, state: DesiredState, node: Node) -> Action:
        uploads: tuple[Upload, ...] = ()
        names = " ".join(DEBIAN_PACKAGES)
        install = f"apt-get update -q=2\napt-get install -q=2 -y --no-install-recommends {names}\n"
        facts = state.facts[node.name]
        release = facts.architecture, facts.values.get("os.VERSION_CODENAME", "")
        if state.software.has_packages(*release):
            uploads = state.software.packages(*release)
            install = packages.install_script(PACKAGES, list(DEBIAN_PACKAGES)) + f"rm -rf {PACKAGES}\n"
        script = f"""\
export DEBIAN_FRONTEND=noninteractive
before=$(dpkg-query -Wf '${{Package}}\\n' | sort)
{install}dpkg-query -Wf '${{Package}}\\n' | sort >{STATE}/packages.now
echo "$before" | comm -13 - {STATE}/packages.now >>{STATE}/packages
rm {STATE}/packages.now
"""
        return Action(
            node.name, self.title, "install containerd", script, uploads=uploads, timeout_s=900,
            remedy="the machine must reach the package repositories of its distribution:"
            " run apt-get update on it",
        )  # fmt: skip

    def _configure_containerd(self, node: Node, files: Mapping[str, str]) -> Action:
        script = (
            file_script(CONFIG_FILE, files[CONFIG_FILE])
            + f"systemctl is-enabled containerd >/dev/null 2>&1 || echo containerd >>{STATE}/enabled\n"
            "systemctl enable containerd >/dev/null 2>&1 || :\nsystemctl restart containerd\n"
            "for second in 1 2 3 4 5 6 7 8 9 10; do ctr version >/dev/null 2>&1 && exit 0; sleep 1; done\n"
            "ctr version\n"
        )
        effect = Effect(files=file_hashes(files), active_units=("containerd",))
        return Action(node.name, self.title, "configure containerd", script, effect=effect)


def desired_sysctls(profile: Profile) -> dict[str, str]:
    """Return the sysctls that pods need on every node of a profile."""
    return SYSCTLS | (IPV6_SYSCTLS if "ipv6" in profile.kubernetes.ip_families else {})


def _kernel_files(sysctls: Mapping[str, str]) -> dict[str, str]:
    return {
        MODULES_FILE: "".join(f"{name}\n" for name in MODULES),
        SYSCTLS_FILE: "".join(f"{key} = {value}\n" for key, value in sysctls.items()),
    }


def _differ(state: DesiredState, node: Node, files: Mapping[str, str]) -> bool:
    return any(state.file_sha256(node.name, path) != sha for path, sha in file_hashes(files).items())


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
