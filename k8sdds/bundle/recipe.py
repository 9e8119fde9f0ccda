"""What a bundle holds: programs, where they are installed, and images. Pure data."""

from __future__ import annotations

import platform
from dataclasses import dataclass

KUBERNETES = "1.36.3"
GO = "1.26.6"
"""The Go release that programs are built with, so that the same sources give the same bytes everywhere."""

ARCHES = ("amd64", "arm64")
ARCH_HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
HUB = "registry.k8s.io"
OWN = "k8sdds.local/"
"""Where our images have their names from: a registry that does not exist, so they are never fetched."""


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
            "kubernetes", KUBERNETES, "kubernetes",
            variables=(
                (f"{_BASE}.gitVersion", f"v{KUBERNETES}"), (f"{_BASE}.gitMajor", "1"),
                (f"{_BASE}.gitMinor", KUBERNETES.split(".")[1]), (f"{_BASE}.gitTreeState", "clean"),
            ),
        ),
        Program("etcd", "3.6.8", "etcd"),
        Program("coredns", "1.14.2", "coredns"),
        Program("metrics-server", "0.9.0", "metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
        Program(
            # Its udp backend, which nobody uses, is C on amd64.
            "flanneld", "0.28.4", "flanneld", "github.com/flannel-io/flannel",
            (("github.com/flannel-io/flannel/pkg/version.Version", "v0.28.4"),), ("amd64",),
        ),
        Program("bridge", "1.9.1", "cni", f"{_CNI}/main/bridge"),
        Program("loopback", "1.9.1", "cni", f"{_CNI}/main/loopback"),
        Program("host-local", "1.9.1", "cni", f"{_CNI}/ipam/host-local"),
        Program("portmap", "1.9.1", "cni", f"{_CNI}/meta/portmap"),
        Program("flannel", "0.9.1", "cni-flannel", f"{_CNI}/meta/flannel"),
        Program("pause", "3.10.2", "pause"),
        Program("probe", "1", "probe"),
        Program("routes", "1", "routes"),
        Program("meter", "1", "meter"),
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
    return Image(f"{HUB}/{name}:v{KUBERNETES}", KUBERNETES, (f"{BIN}/{name}",), programs, base)


def _one(name: str, program: str, target: str, base: bool = False, links: tuple[str, ...] = ()) -> Image:
    return Image(name, PROGRAMS[program].version, (target,), (Install(program, target, links),), base)


PROBE = Install("probe", f"{BIN}/k8sdds-probe")
ROUTES = Install("routes", f"{BIN}/k8sdds-routes")
METER = Install("meter", f"{BIN}/k8sdds-meter")
NOBODY = "65532"
"""A user of no name and no rights."""
IMAGES = (
    _kube("kube-apiserver"),
    _kube("kube-controller-manager"),
    _kube("kube-scheduler"),
    _kube("kube-proxy", base=True),
    _one(f"{HUB}/etcd:3.6.8-0", "etcd", f"{BIN}/etcd", links=(f"{BIN}/etcdctl",)),
    _one(f"{HUB}/coredns/coredns:v1.14.2", "coredns", "/coredns"),
    _one(f"{HUB}/pause:3.10.2", "pause", "/pause"),
    _one(f"{HUB}/metrics-server/metrics-server:v0.9.0", "metrics-server", "/metrics-server"),
    _one("ghcr.io/flannel-io/flannel:v0.28.4", "flanneld", "/opt/bin/flanneld", base=True),
    Image("k8sdds.local/tools:1", "1", (f"{BIN}/k8sdds-probe",), (PROBE, ROUTES, METER), base=True),
    Image(
        "k8sdds.local/perftest:0.1.0",
        "0.1.0",
        ("/opt/k8sdds/k8sdds-supervisor",),
        (PROBE,),
        base=True,
        native="perftest",
        user=NOBODY,
    ),
    Image(
        "k8sdds.local/discovery-server:0.1.0",
        "0.1.0",
        ("/opt/k8sdds/discovery-server",),
        base=True,
        native="discovery",
        user=NOBODY,
    ),
)
