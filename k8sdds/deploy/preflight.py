"""Whether a profile fits its machines: a pure function of both, judged before anything is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from k8sdds import networks, versions
from k8sdds.deploy.facts import DATA, Facts
from k8sdds.model.profile import Node, Profile
from k8sdds.system.errors import Problem

CLOCKS_APART_S = 5.0
"""Certificates made on one machine must be valid on the others at once."""
MIN_MEMORY_KIB = {True: 1_600_000, False: 700_000}
"""Of a control plane (kubeadm wants 1700 MB), and of a worker: a Raspberry Pi of 1 GB shows 900 MB."""
MIN_FREE_KIB = {"/var/lib": 2_000_000, "/usr/local": 300_000, "/etc": 10_000}
MIN_KERNEL = (4, 19)
CGROUP2_FROM_MINOR = 35
"""From this Kubernetes on, a kubelet on cgroup v1 starts only when it is told to."""
CONTAINERD2_FROM_MINOR = 37
BOOT_PARAMETERS = "cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"

_MODULE_REMEDY = {
    "vxlan": "Ubuntu on a Raspberry Pi: apt install linux-modules-extra-raspi; or network: flannel-hostgw",
    "esp": "on a Raspberry Pi: a 64-bit system and its extra modules (esp4, xfrm_user); or another network",
    "wireguard": "a kernel with the module wireguard (5.6 or later); or another network",
    "openvswitch": "apt install linux-modules-extra-$(uname -r); modprobe openvswitch; or another network",
    "bridge": "a kernel with the module bridge",
}


def check(profile: Profile, facts: Mapping[str, Facts]) -> list[Problem]:
    """Everything that prevents the deploy, machine by machine. `facts` may lack some."""
    problems = []
    for node in profile.nodes:
        if node.name in facts:
            for find in CHECKS:
                problems += [
                    Problem(f"{node.name}: {found.what}", found.remedy, found.input)
                    for found in find(profile, node, facts[node.name])
                ]
    return problems + _clocks(facts)


def notes(profile: Profile, facts: dict[str, Facts]) -> list[str]:
    """What is worth knowing but prevents nothing."""
    lines = []
    for node in profile.nodes:
        own = facts.get(node.name)
        if own is None:
            continue
        version = _version(own.values.get("containerd", ""))
        if version and version[0] < 2 and profile.kubernetes.minor == CONTAINERD2_FROM_MINOR - 1:
            lines.append(
                f"{node.name}: containerd {own.values['containerd']} is accepted by Kubernetes"
                f" {profile.kubernetes.version} for the last time: 1.{CONTAINERD2_FROM_MINOR} wants 2.0"
            )
        if own.values.get("cgroup") == "1" and profile.kubernetes.minor >= CGROUP2_FROM_MINOR:
            lines.append(
                f"{node.name}: cgroup v1: the kubelet is told to start on it (--fail-cgroupv1=false)"
            )
        api = own.values.get("kube.api", "ready")
        if api not in ("ready", "forbidden"):
            lines.append(f"{node.name}: its API server does not answer: {api}")
        if own.values.get("hostname") not in ("", node.name):
            lines.append(
                f"{node.name}: calls itself {own.values.get('hostname')!r}; Kubernetes will call it {node.name}"
            )
    return lines


def _system(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    problems = []
    likes = (facts.values.get("os.ID", ""), *facts.values.get("os.ID_LIKE", "").split())
    if "debian" not in likes:
        found = facts.values.get("os.PRETTY_NAME", "an unknown system")
        problems.append(
            Problem(f"{found} is not of the Debian family", "install Raspberry Pi OS, Ubuntu or Debian")
        )
    if node.architecture and facts.architecture != node.architecture:
        problems.append(
            Problem(
                f"is {facts.architecture} where the profile expects {node.architecture}",
                "is it the right machine? else correct `architecture` in the profile",
                input=True,
            )
        )
    if facts.architecture not in versions.ARCHITECTURES:
        problems.append(
            Problem(f"{facts.architecture} machines are not supported", "amd64, arm64 or 32-bit arm")
        )
    elif facts.userland and facts.userland != facts.architecture:
        problems.append(
            Problem(
                f"has a system for {facts.userland} on a kernel for {facts.architecture}: IPsec fails there",
                "install a 64-bit system; or boot a 32-bit kernel (Raspberry Pi: arm_64bit=0 in config.txt)",
            )
        )
    if facts.architecture == "arm" and profile.kubernetes.minor > versions.LAST_MINOR_ON_ARM32:
        problems.append(
            Problem(
                f"is 32-bit ARM, which ended with Kubernetes 1.{versions.LAST_MINOR_ON_ARM32}; wanted is {profile.kubernetes.version}",
                "install a 64-bit system (Raspberry Pi 3 and later can)",
            )
        )
    release = _version(facts.values.get("kernel", ""))
    if release[:2] < MIN_KERNEL:
        problems.append(
            Problem(
                f"kernel {facts.values.get('kernel')} is older than {MIN_KERNEL[0]}.{MIN_KERNEL[1]}",
                "upgrade it",
            )
        )
    if facts.values.get("init") not in ("systemd", None):
        problems.append(
            Problem(
                f"its first process is {facts.values['init']}, not systemd",
                "a machine that was booted with systemd",
            )
        )
    return problems


def _memory_cgroup(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    if "memory" in facts.values.get("controllers", "").split():
        return []
    file = facts.values.get("boot_file")
    if file:
        remedy = (
            f"deploy --allow-reboot; or by hand, on the one line of {file}: {BOOT_PARAMETERS} ; then reboot"
        )
    else:
        remedy = (
            f"add to the kernel's command line (a netbooted machine has it on its server): {BOOT_PARAMETERS}"
        )
    return [Problem("the memory cgroup is not enabled: the kubelet would never start", remedy)]


def _sizes(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    problems = []
    want = MIN_MEMORY_KIB[node.is_control_plane]
    if facts.number("memory_kib") < want:
        problems.append(
            Problem(
                f"has {facts.number('memory_kib') // 1024} MiB of memory,"
                f" a {'control plane' if node.is_control_plane else 'worker'} needs {want // 1024}",
                "a larger machine; only workers may be small"
                if node.is_control_plane
                else "a larger machine",
            )
        )
    for folder, free in facts.pairs("free_kib").items():
        if free.isdigit() and int(free) < MIN_FREE_KIB[folder] and not _is_ours(profile, facts):
            problems.append(
                Problem(
                    f"{folder} has {int(free) // 1024} MiB free, {MIN_FREE_KIB[folder] // 1024} are needed",
                    "free space: apt clean; journalctl --vacuum-size=50M; or a larger card",
                )
            )
    return problems


def _network(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    problems = []
    lacks = facts.pairs("lacks")
    install = networks.find(profile.network.name).cluster
    for feature in install.kernel_features if install else ():
        if not facts.has(feature):
            said = f" ({lacks[feature]})" if lacks.get(feature) else ""
            problems.append(
                Problem(
                    f"the kernel cannot do {feature}, which {profile.network.name} needs{said}",
                    _MODULE_REMEDY[feature],
                )
            )
    if not facts.has("br_netfilter"):
        problems.append(Problem("the kernel has no br_netfilter", "install the kernel's extra modules"))
    interface = profile.network.interface
    if interface and interface not in facts.all("link"):
        problems.append(
            Problem(
                f"has no interface {interface}; it has {', '.join(facts.all('link'))}",
                "correct network.interface in the profile",
                input=True,
            )
        )
    if not facts.values.get("route") and not interface:
        problems.append(
            Problem(
                "has no default route, by which Kubernetes finds its address",
                "give it one, or network.interface",
            )
        )
    return problems


def _foreign(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    marker = facts.values.get("marker")
    if marker == profile.name:
        return []
    leftovers = facts.all("leftover")
    if marker:
        return [
            Problem(
                f"belongs to the cluster {marker!r}",
                f"k8sdds destroy the profile {marker} first; or another name",
            )
        ]
    cluster = [path for path in leftovers if path.startswith(("/etc/kubernetes/", "/var/lib/etcd"))]
    if cluster:
        server = f" of {facts.values['server']}" if facts.values.get("server") else ""
        return [
            Problem(
                f"is part of a cluster{server} that k8sdds has not made ({cluster[0]})",
                "if it is not needed any more, on the machine: kubeadm reset",
            )
        ]
    problems = []
    if leftovers:
        problems.append(
            Problem(
                f"has a network configuration of another cluster ({leftovers[0]})",
                "if it is not needed any more, remove the files in /etc/cni/net.d",
            )
        )
    taken = sorted(
        {int(port) for port in facts.all("listens") if port.isdigit()} & set(versions.KUBERNETES_PORTS)
    )
    if not node.is_control_plane:
        taken = [port for port in taken if port == versions.KUBELET_PORT]
    if taken:
        ports = ", ".join(map(str, taken))
        problems.append(Problem(f"port {ports} is taken", f"see who has it: ss -tlnp 'sport = :{taken[0]}'"))
    return problems


def _data(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    # Where kubeadm was interrupted, it has not written that yet: then it begins anew.
    if facts.values.get("kube.api") != "forbidden" or "initialised" not in facts.all("flag"):
        return []
    # An API server on an empty store; its kubelet comes back to it by itself, and it looks like a cluster.
    return [
        Problem(
            "its API server does not know its own administrator: it has lost what kubeadm wrote there",
            f"k8sdds destroy {profile.name}, then deploy it again; or put the data in {DATA} back",
        )
    ]


def _swap(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    if facts.number("swap_kib") == 0:
        return []
    return [
        Problem(
            f"has {facts.number('swap_kib') // 1024} MiB of swap, which the kubelet refuses",
            "swapoff -a, and for good: systemctl disable --now dphys-swapfile (Raspberry Pi OS),"
            " or without its line in /etc/fstab",
        )
    ]


def _names(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    if node.name in facts.all("resolves"):
        return []
    return [
        Problem(
            f"cannot resolve its own name {node.name}", f"a line in its /etc/hosts: 127.0.1.1 {node.name}"
        )
    ]


def _clocks(facts: Mapping[str, Facts]) -> list[Problem]:
    if len(facts) < 2:
        return []
    by_clock = sorted(facts, key=lambda name: facts[name].clock_ahead_s)
    slow, fast = by_clock[0], by_clock[-1]
    apart = facts[fast].clock_ahead_s - facts[slow].clock_ahead_s
    certain = apart - facts[fast].clock_error_s - facts[slow].clock_error_s
    if certain <= CLOCKS_APART_S:
        return []
    return [
        Problem(
            f"the clocks of {slow} and {fast} are {apart:.0f} s apart: certificates would not be valid yet",
            "on both: timedatectl set-ntp true (a Raspberry Pi has no clock of its own)",
        )
    ]


def _containerd(profile: Profile, node: Node, facts: Facts) -> list[Problem]:
    text = facts.values.get("containerd", "")
    version = _version(text)
    if not version:
        return []  # deploy installs it
    if version[0] < 2 and profile.kubernetes.minor >= CONTAINERD2_FROM_MINOR:
        return [
            Problem(
                f"containerd {text} is too old for Kubernetes {profile.kubernetes.version}, which wants 2.0",
                f"a newer containerd, or kubernetes.version 1.{CONTAINERD2_FROM_MINOR - 1}",
            )
        ]
    return []


def _is_ours(profile: Profile, facts: Facts) -> bool:
    return facts.values.get("marker") == profile.name


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (6, 1, 21) of `v6.1.21-rpi`."""
    numbers = []
    for part in text.lstrip("v").replace("-", ".").replace("~", ".").replace("+", ".").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


CHECKS: tuple[Callable[[Profile, Node, Facts], list[Problem]], ...] = (
    _system,
    _memory_cgroup,
    _swap,
    _sizes,
    _network,
    _foreign,
    _data,
    _names,
    _containerd,
)
