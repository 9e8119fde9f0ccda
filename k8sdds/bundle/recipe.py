"""What a bundle holds: programs, where they are installed, and images. Pure data."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from k8sdds import versions

ARCH_HERE = versions.ARCHITECTURE_OF_MACHINE.get(platform.machine(), platform.machine())
"""Architecture of this machine."""


@dataclass(frozen=True)
class Program:
    """A Go program: a module folder in deploy/bundle, whose go.mod and go.sum pin everything."""

    name: str
    version: str
    folder: str
    package: str = "."
    variables: tuple[tuple[str, str], ...] = ()
    """Set by the linker."""
    c_on: tuple[str, ...] = ()
    """Architectures on which it needs C, linked statically."""


_CNI = "github.com/containernetworking/plugins/plugins"
_BASE = "k8s.io/component-base/version"
PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "kubernetes", versions.KUBERNETES, "kubernetes",
            variables=(
                (f"{_BASE}.gitVersion", f"v{versions.KUBERNETES}"), (f"{_BASE}.gitMajor", "1"),
                (f"{_BASE}.gitMinor", versions.KUBERNETES.split(".")[1]), (f"{_BASE}.gitTreeState", "clean"),
            ),
        ),
        Program("etcd", versions.ETCD, "etcd"),
        Program("coredns", versions.COREDNS, "coredns"),
        Program("metrics-server", versions.METRICS_SERVER, "metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
        Program(
            # Its udp backend, which nobody uses, is C on amd64.
            "flanneld", versions.FLANNEL, "flanneld", "github.com/flannel-io/flannel",
            (("github.com/flannel-io/flannel/pkg/version.Version", f"v{versions.FLANNEL}"),), ("amd64",),
        ),
        Program("bridge", versions.CNI_PLUGINS, "cni", f"{_CNI}/main/bridge"),
        Program("loopback", versions.CNI_PLUGINS, "cni", f"{_CNI}/main/loopback"),
        Program("host-local", versions.CNI_PLUGINS, "cni", f"{_CNI}/ipam/host-local"),
        Program("portmap", versions.CNI_PLUGINS, "cni", f"{_CNI}/meta/portmap"),
        Program("flannel", versions.FLANNEL_CNI_PLUGIN, "cni-flannel", f"{_CNI}/meta/flannel"),
        Program("pause", versions.PAUSE, "pause"),
        Program("probe", versions.TOOLS, "probe"),
        Program("routes", versions.TOOLS, "routes"),
        Program("meter", versions.TOOLS, "meter"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Install:
    """A program on a node's file system."""

    program: str
    target: str
    links: tuple[str, ...] = ()


BIN = "/usr/local/bin"
INSTALLS = (
    Install("kubernetes", f"{BIN}/kubernetes", (f"{BIN}/kubeadm", f"{BIN}/kubelet", f"{BIN}/kubectl")),
    *(
        Install(name, f"/opt/cni/bin/{name}")
        for name in ("bridge", "loopback", "host-local", "portmap", "flannel")
    ),
)

BASE_PACKAGES = (
    "busybox-static", "conntrack", "ethtool", "iproute2", "ipset", "iptables", "iputils-ping",
    "libddsc0debian", "libfastrtps2.9",
    "libstdc++6", "nftables", "zlib1g", "libtinyxml2-9",
)  # fmt: skip
"""Debian packages of the layer below images that need more than one static program."""

SHELL = (
    "awk", "cat", "chmod", "cp", "cut", "date", "dd", "df", "echo", "env", "false", "find",
    "grep", "head", "hostname", "httpd", "id", "kill", "ln", "ls", "mkdir", "mv", "nc", "nslookup",
    "ps", "rm", "sed", "seq", "sh", "sleep", "sort", "tail", "tar", "tee", "test", "touch",
    "tr", "traceroute", "true", "uname", "wc", "wget",
)  # fmt: skip
"""Commands of busybox in that layer."""


@dataclass(frozen=True)
class Image:
    """A container image: programs, each with its path and the names that link to it."""

    name: str
    version: str
    entrypoint: tuple[str, ...]
    programs: tuple[Install, ...] = ()
    base: bool = False
    """On the Debian layer."""
    native: str = ""
    """A group of programs that are not Go, which it has as well: `perftest` or `discovery`."""
    user: str = ""
    """Number of the user that it runs as; none: root."""


def _kube(name: str, base: bool = False) -> Image:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    programs = (Install("kubernetes", f"{BIN}/kubernetes", tuple(f"{BIN}/{one}" for one in names)),)
    return Image(
        f"{versions.KUBERNETES_REGISTRY}/{name}:v{versions.KUBERNETES}",
        versions.KUBERNETES,
        (f"{BIN}/{name}",),
        programs,
        base,
    )


def _one(name: str, program: str, target: str, base: bool = False, links: tuple[str, ...] = ()) -> Image:
    return Image(name, PROGRAMS[program].version, (target,), (Install(program, target, links),), base)


PROBE = Install("probe", f"{BIN}/k8sdds-probe")
ROUTES = Install("routes", f"{BIN}/k8sdds-routes")
METER = Install("meter", f"{BIN}/k8sdds-meter")
NOBODY = str(versions.UNPRIVILEGED_USER)
"""A user of no name and no rights."""
IMAGES = (
    _kube("kube-apiserver"),
    _kube("kube-controller-manager"),
    _kube("kube-scheduler"),
    _kube("kube-proxy", base=True),
    _one(versions.ETCD_IMAGE, "etcd", f"{BIN}/etcd", links=(f"{BIN}/etcdctl",)),
    _one(versions.COREDNS_IMAGE, "coredns", "/coredns"),
    _one(versions.PAUSE_IMAGE, "pause", "/pause"),
    _one(versions.METRICS_SERVER_IMAGE, "metrics-server", "/metrics-server"),
    _one(versions.FLANNEL_IMAGE, "flanneld", "/opt/bin/flanneld", base=True),
    Image(versions.TOOLS_IMAGE, versions.TOOLS, (f"{BIN}/k8sdds-probe",), (PROBE, ROUTES, METER), base=True),
    Image(
        versions.PERFTEST_IMAGE,
        versions.K8SDDS,
        ("/opt/k8sdds/k8sdds-supervisor",),
        (PROBE,),
        base=True,
        native="perftest",
        user=NOBODY,
    ),
    Image(
        versions.DISCOVERY_SERVER_IMAGE,
        versions.K8SDDS,
        ("/opt/k8sdds/discovery-server",),
        base=True,
        native="discovery",
        user=NOBODY,
    ),
)
