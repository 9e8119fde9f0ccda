"""Check whether a profile fits its machines before anything is changed, from facts only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address

from k8sdds import networks, versions
from k8sdds.deploy import network_install
from k8sdds.deploy.desired_state import missing_address
from k8sdds.deploy.facts import DEFAULT_ROUTES, ETCD_DATA, Facts
from k8sdds.model import ip_families
from k8sdds.model.profile import Node, Profile
from k8sdds.model.services import ProxyMode
from k8sdds.networks.cluster_install import NodeFeature
from k8sdds.system.errors import Problem
from k8sdds.system.grouping import grouped, merge_by_node

MAX_CLOCK_DIFFERENCE_S = 5.0
"""Certificates that one machine issues must be valid on the others immediately."""
MIN_MEMORY_KIB = {True: 1_600_000, False: 700_000}
"""Minimum of a control plane (kubeadm requires 1700 MB) and of a worker (a 1 GB Raspberry Pi reports 900 MB)."""
MIN_FREE_KIB = {"/var/lib": 2_000_000, "/usr/local": 300_000, "/etc": 10_000}
MIN_KERNEL = (4, 19)
CGROUP2_FROM_MINOR = 35
"""First Kubernetes whose kubelet starts on cgroup v1 only if configured to."""
CONTAINERD2_FROM_MINOR = 37
"""First Kubernetes that requires containerd 2.0."""
BOOT_PARAMETERS = "cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"
"""Kernel parameters that enable the memory cgroup on a Raspberry Pi."""
KUBE_PROXY_FEATURES: dict[ProxyMode, tuple[NodeFeature, ...]] = {
    "iptables": (),
    "nftables": (NodeFeature("nftables", "use a kernel with nf_tables, or kubernetes.kube_proxy: iptables"),),
    "ipvs": (
        NodeFeature("ipvs", "use a kernel with the modules ip_vs*, or kubernetes.kube_proxy: iptables"),
    ),
}
"""Kernel features that every node needs for kube-proxy, by its mode."""


def check(profile: Profile, facts: Mapping[str, Facts]) -> list[Problem]:
    """Return everything that prevents a deploy; machines without facts are skipped."""
    found = [
        (problem, node.name)
        for node in profile.nodes
        if node.name in facts
        for find_problems in CHECKS
        for problem in find_problems(profile, node, facts[node.name])
    ]
    of_nodes = [
        replace(problem, what=line)
        for problem, pairs in grouped(found, lambda pair: pair[0]).items()
        for line in merge_by_node(((name, problem.what) for _, name in pairs), len(profile.nodes))
    ]
    return [*of_nodes, *_clocks(facts)]


def notes(profile: Profile, facts: Mapping[str, Facts]) -> Iterator[tuple[str, str]]:
    """Yield what the user should know although it does not prevent a deploy, as (node, text)."""
    for node in profile.nodes:
        machine = facts.get(node.name)
        if machine is None:
            continue
        containerd = machine.values.get("containerd", "")
        version = _version(containerd)
        if version and version[0] < 2 and profile.kubernetes.minor == CONTAINERD2_FROM_MINOR - 1:
            text = f"Kubernetes {profile.kubernetes.version} is the last version that supports"
            yield node.name, f"{text} containerd {containerd}: 1.{CONTAINERD2_FROM_MINOR} requires 2.0"
        if machine.values.get("cgroup") == "1" and profile.kubernetes.minor >= CGROUP2_FROM_MINOR:
            yield node.name, "cgroup v1: the kubelet is configured to start on it (--fail-cgroupv1=false)"
        api = machine.values.get("kube.api", "ready")
        if api not in ("ready", "forbidden"):
            yield node.name, f"its API server does not answer: {api}"
        hostname = machine.values.get("hostname")
        if hostname not in ("", node.name):
            text = "the host name differs from the name in the profile"
            yield node.name, f"{text}; Kubernetes uses the name in the profile"


def _system(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    families = (facts.values.get("os.ID", ""), *facts.values.get("os.ID_LIKE", "").split())
    if "debian" not in families:
        name = facts.values.get("os.PRETTY_NAME", "an unknown system")
        yield Problem(f"{name} is not of the Debian family", "install Raspberry Pi OS, Ubuntu or Debian")
    if facts.values.get("init") not in ("systemd", None):
        yield Problem(
            f"its first process is {facts.values['init']}, not systemd",
            "use a machine that boots with systemd",
        )
    release = facts.values.get("kernel", "")
    if _version(release)[:2] < MIN_KERNEL:
        minimum = ".".join(map(str, MIN_KERNEL))
        yield Problem(f"kernel {release} is older than {minimum}", "upgrade the kernel")


def _architecture(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    if node.architecture and facts.architecture != node.architecture:
        yield Problem(
            f"is {facts.architecture}, but the profile expects {node.architecture}",
            "check that it is the right machine, or correct `architecture` in the profile",
            input=True,
        )
    if facts.architecture not in versions.ARCHITECTURES:
        yield Problem(
            f"{facts.architecture} machines are not supported", "use amd64, arm64 or 32-bit arm machines"
        )
    elif facts.userland and facts.userland != facts.architecture:
        yield Problem(
            f"has a system for {facts.userland} on a kernel for {facts.architecture}, where IPsec fails",
            "install a 64-bit system; or boot a 32-bit kernel (Raspberry Pi: arm_64bit=0 in config.txt)",
        )
    if facts.architecture == "arm" and profile.kubernetes.minor > versions.LAST_MINOR_ON_ARM32:
        yield Problem(
            f"is 32-bit ARM, for which support ended with Kubernetes 1.{versions.LAST_MINOR_ON_ARM32};"
            f" the profile requires {profile.kubernetes.version}",
            "install a 64-bit system (Raspberry Pi 3 and later support it)",
        )


def _memory_cgroup(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    if "memory" in facts.values.get("controllers", "").split():
        return
    file = facts.values.get("boot_file")
    if file:
        remedy = (
            "use status --fix --allow-reboot, or deploy --allow-reboot; or add to the single line of"
            f" {file} and reboot: {BOOT_PARAMETERS}"
        )
    else:
        remedy = (
            "add to the kernel command line (of a netbooted machine, on its boot server) and reboot:"
            f" {BOOT_PARAMETERS}"
        )
    yield Problem("the memory cgroup is not enabled, so the kubelet cannot start", remedy)


def _sizes(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    memory_kib, min_kib = facts.number("memory_kib"), MIN_MEMORY_KIB[node.is_control_plane]
    if memory_kib < min_kib:
        role = "control plane" if node.is_control_plane else "worker"
        remedy = "use a larger machine"
        yield Problem(
            f"has {memory_kib // 1024} MiB of memory, a {role} needs {min_kib // 1024}",
            f"{remedy}; only workers may be small" if node.is_control_plane else remedy,
        )
    for folder, free in facts.pairs("free_kib").items():
        if free.isdigit() and int(free) < MIN_FREE_KIB[folder] and not _is_claimed(profile, facts):
            yield Problem(
                f"{folder} has {int(free) // 1024} MiB free, {MIN_FREE_KIB[folder] // 1024} are needed",
                "free space: apt clean; journalctl --vacuum-size=50M; or use a larger card",
            )


def missing_features(network: str, facts: Facts, engine: str | None = None) -> Iterator[Problem]:
    """Yield which kernel features that a network's daemons need a machine does not have."""
    install = networks.find(network).install_for(engine)
    return _missing(install.node_features if install else (), facts, network)


def _missing(features: Iterable[NodeFeature], facts: Facts, program: str) -> Iterator[Problem]:
    reasons = facts.pairs("lacks")
    for feature in features:
        if not facts.has(feature.name):
            reason = f" ({reasons[feature.name]})" if reasons.get(feature.name) else ""
            yield Problem(
                f"the kernel does not support {feature.name}, which {program} needs{reason}",
                feature.remedy,
            )


def _kube_proxy(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    """Check that the kernel supports the mode, and that it can be changed on an existing cluster."""
    desired, existing = profile.kubernetes.kube_proxy, facts.values.get("kube_proxy", "")
    yield from _missing(KUBE_PROXY_FEATURES[desired], facts, f"kube-proxy in mode {desired}")
    changes = existing not in ("", desired) and _is_existing_control_plane(profile, node, facts)
    if changes and "ipvs" in (existing, desired):
        yield Problem(
            f"its kube-proxy runs in mode {existing}, which cannot be changed to {desired} while the"
            " cluster runs",
            f"restore kubernetes.kube_proxy; or k8sdds destroy {profile.name}, and deploy again",
            input=True,
        )


def _cpu_manager(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    """Check that there is a core for pods besides the one that the CPU manager keeps."""
    if profile.kubernetes.cpu_manager == "static" and facts.number("cpus") == 1:
        yield Problem(
            "has one core, and kubernetes.cpu_manager: static needs two", "use the policy none", input=True
        )


def _network(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    network = profile.network
    if obstacle := network_install.families_obstacle(profile):
        # What else the network needs does not matter.
        if node.is_control_plane:
            yield Problem(obstacle, network_install.CARRY_IPV6, input=True)
    else:
        yield from missing_features(network.name, facts, network.engine)
        if profile.second_network:
            yield from missing_features(profile.second_network, facts)
    if not facts.has("br_netfilter"):
        yield Problem("the kernel does not have br_netfilter", "install the kernel's extra modules")
    interface = profile.network.interface
    if interface and interface not in facts.all("link"):
        yield Problem(
            f"does not have the interface {interface}; it has {', '.join(facts.all('link'))}",
            "correct network.interface in the profile",
            input=True,
        )
    yield from _addresses(profile, facts)


def _foreign_multus(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    """Refuse to take over a definition of others: k8sdds would later delete it with all objects of its kind."""
    if not (profile.second_network and node.is_control_plane):
        return
    for line in facts.all("kube.definition"):
        name, _, manager = line.partition(" ")
        if manager != versions.MANAGED_BY:
            yield Problem(
                f"Multus of others is installed (CustomResourceDefinition {name})",
                "remove it, or leave out second_network",
            )


def _addresses(profile: Profile, facts: Facts) -> Iterator[Problem]:
    interface = profile.network.interface
    families = profile.kubernetes.ip_families
    for family in families:
        if not facts.default_interface(family) and not interface:
            of_family = "" if families == ip_families.DEFAULT else f"{ip_families.TITLES[family]} "
            yield Problem(
                f"does not have a{'n' if of_family else ''} {of_family}default route, from which Kubernetes"
                " derives its address",
                "add a default route, or set network.interface in the profile",
            )
        elif family == "ipv6" and not facts.address(family, interface):
            yield missing_address(facts, family, interface)
    yield from _ranges_with_node_address(profile, facts)
    learned = "proto ra" in facts.values.get(DEFAULT_ROUTES["ipv6"], "")
    if "ipv6" in families and learned and facts.values.get("accept_ra") == "1":
        link = facts.default_interface("ipv6")
        yield Problem(
            f"its IPv6 default route on {link} comes from router advertisements, which the kernel ignores as soon"
            " as it forwards packets of pods",
            f"sysctl -w net.ipv6.conf.{link}.accept_ra=2, and set it in /etc/sysctl.d",
        )


def _ranges_with_node_address(profile: Profile, facts: Facts) -> Iterator[Problem]:
    """Refuse ranges of pods or Services that contain the node's own address."""
    kubernetes = profile.kubernetes
    for family, *ranges in zip(
        kubernetes.ip_families, kubernetes.pod_cidrs, kubernetes.service_cidrs, strict=True
    ):
        address = facts.address(family, profile.network.interface)
        for kind, cidr in zip(("pod", "service"), ranges, strict=True):
            if address and ip_address(address) in cidr:
                key = f"kubernetes.{kind}_cidr{'_ipv6' if family == 'ipv6' else ''}"
                what = f"its address {address} is in the range {cidr} of {key}, so packets to it would go elsewhere"
                yield Problem(what, f"set {key} in the profile to a range that your network does not use")


def _ranges(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    """Refuse other address ranges than those of the existing cluster, which kubeadm cannot change."""
    existing = facts.values.get("pod_subnets", "")
    desired = ",".join(map(str, profile.kubernetes.pod_cidrs))
    if existing in ("", desired) or not _is_existing_control_plane(profile, node, facts):
        return
    yield Problem(
        f"its cluster has the pod addresses {existing}, which cannot be changed to {desired}",
        f"restore kubernetes.ip_families and the ranges; or k8sdds destroy {profile.name}, and deploy again",
        input=True,
    )


def _foreign_cluster(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    if _is_claimed(profile, facts):
        return
    marker = facts.values.get("marker")
    leftovers = facts.all("leftover")
    if marker:
        yield Problem(
            f"belongs to the cluster {marker!r}",
            f"destroy the profile {marker} first, or use another machine",
        )
        return
    cluster = [path for path in leftovers if path.startswith(("/etc/kubernetes/", "/var/lib/etcd"))]
    if cluster:
        server = f" of {facts.values['server']}" if facts.values.get("server") else ""
        yield Problem(
            f"is part of a cluster{server} that k8sdds did not create ({cluster[0]})",
            "if that cluster is no longer needed, run on the machine: kubeadm reset",
        )
        return
    if leftovers:
        yield Problem(
            f"has a network configuration of another cluster ({leftovers[0]})",
            "if it is no longer needed, delete the files in /etc/cni/net.d",
        )
    used = {int(port) for port in facts.all("listens") if port.isdigit()}
    needed = {*versions.KUBERNETES_PORTS} if node.is_control_plane else {versions.KUBELET_PORT}
    if node.is_control_plane and profile.metrics_server is not None:
        needed.add(versions.METRICS_SERVER_PORT)
    taken = sorted(used & needed)
    if taken:
        ports = ", ".join(map(str, taken))
        yield Problem(f"port {ports} is in use", f"find the program: ss -tlnp 'sport = :{taken[0]}'")


def _lost_data(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    # After an interrupted kubeadm init the flag is missing: then deploy starts again.
    if facts.values.get("kube.api") != "forbidden" or "initialised" not in facts.all("flag"):
        return
    # The API server runs on an empty store. Its kubelet registers again, so it looks like a working cluster.
    yield Problem(
        "its API server rejects its own administrator: the data that kubeadm wrote is lost",
        f"run k8sdds destroy {profile.name} and deploy again; or restore {ETCD_DATA}",
    )


def _swap(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    if facts.number("swap_kib") == 0:
        return
    yield Problem(
        f"has {facts.number('swap_kib') // 1024} MiB of swap, which the kubelet refuses",
        "use status --fix; or by hand: swapoff -a, and disable what enables it (Raspberry Pi OS:"
        " dphys-swapfile or rpi-swap; otherwise a line in /etc/fstab)",
    )


def _host_name(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    if node.name in facts.all("resolves"):
        return
    yield Problem(
        f"cannot resolve its own name {node.name}", f"add a line to its /etc/hosts: 127.0.1.1 {node.name}"
    )


def _containerd(profile: Profile, node: Node, facts: Facts) -> Iterator[Problem]:
    text = facts.values.get("containerd", "")
    version = _version(text)
    if not version:
        return  # deploy installs containerd
    if version[0] < 2 and profile.kubernetes.minor >= CONTAINERD2_FROM_MINOR:
        yield Problem(
            f"containerd {text} is too old for Kubernetes {profile.kubernetes.version}, which requires 2.0",
            f"install a newer containerd, or set kubernetes.version to 1.{CONTAINERD2_FROM_MINOR - 1}",
        )


def _clocks(facts: Mapping[str, Facts]) -> Iterator[Problem]:
    if len(facts) < 2:
        return
    by_clock = sorted(facts, key=lambda name: facts[name].clock_ahead_s)
    slow, fast = by_clock[0], by_clock[-1]
    difference_s = facts[fast].clock_ahead_s - facts[slow].clock_ahead_s
    if difference_s - facts[fast].clock_error_s - facts[slow].clock_error_s <= MAX_CLOCK_DIFFERENCE_S:
        return
    yield Problem(
        f"the clocks of {slow} and {fast} differ by {difference_s:.0f} s: new certificates would be invalid",
        "on both: timedatectl set-ntp true (a Raspberry Pi has no battery-backed clock)",
    )


def _is_existing_control_plane(profile: Profile, node: Node, facts: Facts) -> bool:
    return node.is_control_plane and "initialised" in facts.all("flag") and _is_claimed(profile, facts)


def _is_claimed(profile: Profile, facts: Facts) -> bool:
    return facts.values.get("marker") == profile.name


def _version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (6, 1, 21) for `v6.1.21-rpi`."""
    found = re.match(r"v?(\d+(?:[.~+-]\d+)*)", text)
    return tuple(map(int, re.findall(r"\d+", found[1]))) if found else ()


CHECKS: tuple[Callable[[Profile, Node, Facts], Iterator[Problem]], ...] = (
    _system,
    _architecture,
    _memory_cgroup,
    _swap,
    _sizes,
    _network,
    _foreign_multus,
    _kube_proxy,
    _cpu_manager,
    _ranges,
    _foreign_cluster,
    _lost_data,
    _host_name,
    _containerd,
)
