"""Define the contents of a bundle: programs, where they are installed, and images. Pure data."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace

from k8sdds import versions
from k8sdds.model.background import STRESSOR
from k8sdds.workloads import tool_packages

HOST_ARCH = versions.ARCHITECTURE_OF_MACHINE.get(platform.machine(), platform.machine())
"""Architecture of this machine."""
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
"""Names of architectures for C compilers."""

Report = Callable[[str], None]
"""A callback that receives a progress message."""


@dataclass(frozen=True)
class Program:
    """A Go program. The go.mod and go.sum of its module pin all its dependencies."""

    name: str
    version: str
    folder: str
    """Folder of its Go module, below deploy/bundle."""
    package: str = "."
    variables: tuple[tuple[str, str], ...] = ()
    """Go variables that the linker sets: (name, value)."""
    c_on: tuple[str, ...] = ()
    """Architectures on which it is built with C code, linked statically."""


_MULTUS = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"
_CNI = "github.com/containernetworking/plugins"


def _cni_plugin(path: str) -> Program:
    variables = ((f"{_CNI}/pkg/utils/buildversion.BuildVersion", f"v{versions.CNI_PLUGINS}"),)
    return Program(path.rpartition("/")[2], versions.CNI_PLUGINS, "cni", f"{_CNI}/plugins/{path}", variables)


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
        Program(
            "metrics-server", versions.METRICS_SERVER, "metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
        ),
        Program(
            # Its udp backend contains C code on amd64; k8sdds does not use it.
            "flanneld", versions.FLANNEL, "flanneld", "github.com/flannel-io/flannel",
            (("github.com/flannel-io/flannel/pkg/version.Version", f"v{versions.FLANNEL}"),), ("amd64",),
        ),
        _cni_plugin("main/bridge"),
        _cni_plugin("main/loopback"),
        _cni_plugin("main/macvlan"),
        _cni_plugin("ipam/host-local"),
        _cni_plugin("meta/portmap"),
        Program(
            "multus", versions.MULTUS, "multus", f"{_MULTUS}/cmd/multus",
            ((f"{_MULTUS}/pkg/multus.version", f"v{versions.MULTUS}"),),
        ),
        Program("flannel", versions.TOOLS, "cni-flannel"),
        Program("pause", versions.PAUSE, "pause"),
        Program("probe", versions.TOOLS, "probe"),
        Program("routes", versions.TOOLS, "routes"),
        Program("attach", versions.TOOLS, "attach"),
        Program("meter", versions.TOOLS, "meter"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Install:
    """A program in the file system of a node or image, with the names that link to it."""

    program: str
    target: str
    links: tuple[str, ...] = ()


BIN = "/usr/local/bin"
INSTALLS = (
    Install("kubernetes", f"{BIN}/kubernetes", (f"{BIN}/kubeadm", f"{BIN}/kubelet", f"{BIN}/kubectl")),
    *(
        Install(name, f"/opt/cni/bin/{name}")
        for name in ("bridge", "loopback", "macvlan", "host-local", "portmap", "flannel")
    ),
)

BASE_PACKAGES = (
    "busybox-static", "conntrack", "ethtool", "iproute2", "ipset", "iptables", "iputils-ping", "libstdc++6",
    "nftables", "zlib1g",
)  # fmt: skip
"""Debian packages in the base layer, for images that need more than static programs. The release adds the DDS
libraries."""

SHELL = (
    "awk", "cat", "chmod", "cp", "cut", "date", "dd", "df", "dirname", "echo", "env", "false", "find",
    "grep", "head", "hostname", "httpd", "id", "kill", "ln", "ls", "mkdir", "modprobe", "mv", "nc", "nslookup",
    "ps", "rm", "sed", "seq", "sh", "sleep", "sort", "tail", "tar", "tee", "test", "touch",
    "tr", "traceroute", "true", "uname", "wc", "wget",
)  # fmt: skip
"""Commands of busybox in the base layer."""


STRESSOR_LIBRARIES = (
    "EGL", "GLESv2", "GLdispatch", "IPSec_MB", "Judy", "acl", "apparmor", "bsd", "drm", "expat", "ffi", "gbm", "gmp",
    "jpeg", "kmod", "lzma", "md", "mpfr", "wayland-server", "xxhash", "zstd",
)  # fmt: skip
"""Libraries that stress-ng loads on any release and that the base layer may not have. Its other dependencies, such as
LLVM, are more than ten times as large."""


@dataclass(frozen=True)
class Image:
    """A container image of a bundle."""

    name: str
    version: str
    entrypoint: tuple[str, ...] = ()
    """Empty for an image that is not built: it comes from its registry or from an archive."""
    programs: tuple[Install, ...] = ()
    base: bool = False
    """Whether the image includes the base layer."""
    native: str = ""
    """Group of C and C++ programs that the image also contains: `perftest`, `discovery`, or empty for none."""
    user: str = ""
    """ID of the user that the image runs as. Empty means root."""
    packages: tuple[str, ...] = ()
    """Debian packages in addition to those of the base layer, in a layer of their own."""
    on_request: bool = False
    """Whether only a bundle that requires the image contains it, although it can be built."""
    package_files: tuple[str, ...] = ()
    """Shell patterns of the files of these packages to include. By default, all files are included."""

    @property
    def short_name(self) -> str:
        """The last part of its name, without the version."""
        return self.name.rpartition("/")[2].partition(":")[0]

    @property
    def is_built(self) -> bool:
        """Whether k8sdds can build the image."""
        return bool(self.entrypoint)


def _kube(name: str, base: bool = False) -> Image:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    programs = (Install("kubernetes", f"{BIN}/kubernetes", tuple(f"{BIN}/{command}" for command in names)),)
    return Image(
        f"{versions.KUBERNETES_REGISTRY}/{name}:v{versions.KUBERNETES}",
        versions.KUBERNETES,
        (f"{BIN}/{name}",),
        programs,
        base,
    )


def _single(name: str, program: str, target: str, base: bool = False, links: tuple[str, ...] = ()) -> Image:
    return Image(name, PROGRAMS[program].version, (target,), (Install(program, target, links),), base)


PROBE = Install("probe", f"{BIN}/k8sdds-probe")
ROUTES = Install("routes", f"{BIN}/k8sdds-routes")
ATTACH = Install("attach", f"{BIN}/k8sdds-attach")
METER = Install("meter", f"{BIN}/k8sdds-meter")
UNPRIVILEGED = str(versions.UNPRIVILEGED_USER)
IMAGES = (
    _kube("kube-apiserver"),
    _kube("kube-controller-manager"),
    _kube("kube-scheduler"),
    _kube("kube-proxy", base=True),
    _single(versions.ETCD_IMAGE, "etcd", f"{BIN}/etcd", links=(f"{BIN}/etcdctl",)),
    _single(versions.COREDNS_IMAGE, "coredns", "/coredns"),
    _single(versions.PAUSE_IMAGE, "pause", "/pause"),
    _single(versions.METRICS_SERVER_IMAGE, "metrics-server", "/metrics-server"),
    _single(versions.FLANNEL_IMAGE, "flanneld", "/opt/bin/flanneld", base=True),
    Image(versions.KUBE_ROUTER_IMAGE, versions.KUBE_ROUTER),
    Image(versions.WEAVE_IMAGE, versions.WEAVE),
    Image(versions.WEAVE_NPC_IMAGE, versions.WEAVE),
    replace(_single(versions.MULTUS_IMAGE, "multus", f"{BIN}/multus", base=True), on_request=True),
    Image(
        versions.TOOLS_IMAGE,
        versions.TOOLS,
        (f"{BIN}/k8sdds-probe",),
        (PROBE, ROUTES, ATTACH, METER),
        base=True,
    ),
    Image(
        versions.PERFTEST_IMAGE,
        versions.K8SDDS,
        ("/opt/k8sdds/k8sdds-supervisor",),
        (PROBE,),
        base=True,
        native="perftest",
        user=UNPRIVILEGED,
        packages=tuple(sorted({*tool_packages().values(), STRESSOR} - set(BASE_PACKAGES))),
        # Without perl, on which only the packages' scripts depend.
        package_files=(
            *(f"usr/*bin/{program}" for program in (*tool_packages(), STRESSOR)),
            *(f"*/lib{name}.so*" for name in ("iperf", "sctp", "luajit-5.1", "pcre2-8", "crypt")),
            *(f"*/lib{name}.so*" for name in STRESSOR_LIBRARIES),
        ),
    ),
    Image(
        versions.DISCOVERY_SERVER_IMAGE,
        versions.K8SDDS,
        ("/opt/k8sdds/discovery-server",),
        base=True,
        native="discovery",
        user=UNPRIVILEGED,
    ),
)
