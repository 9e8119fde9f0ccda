"""List the Debian packages that each use of k8sdds requires, and install those that are missing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.bundle.native import LIBRARIES, cross_compiler
from k8sdds.middleware.fastdds import SERVER
from k8sdds.middleware.ros2_fastdds import ARCH as ROS2_ARCH
from k8sdds.middleware.ros2_fastdds import BACKEND as ROS2_FASTDDS
from k8sdds.middleware.ros2_fastdds import PLAIN as ROS2_PLAIN
from k8sdds.middleware.zenoh import BACKEND as ZENOH
from k8sdds.model.background import STRESSOR
from k8sdds.networks import features
from k8sdds.setup.root import as_root
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.kernel_features import CLANG, PERF
from k8sdds.system.paths import BUNDLED
from k8sdds.versions import BUNDLE_ARCHITECTURES
from k8sdds.workloads import tool_packages

TOOLS = {
    "ip": "iproute2", "bridge": "iproute2", "tc": "iproute2", "nft": "nftables", "ping": "iputils-ping",
    "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
}  # fmt: skip
"""Tools that the lab runs, each with the package that provides it."""
BUILD = ("g++", "cmake", "ninja-build", "cyclonedds-tools", *LIBRARIES)
"""What the native programs are built with."""
BUILD_ZENOH = {"cargo-web": "cargo", "rustc-web": "rustc"}
"""Packages with what Zenoh is compiled with, each with its program: any program of this name serves."""
ROS2 = (ROS2_FASTDDS, ROS2_PLAIN)
BUILD_ROS2 = () if find_spec("pip") else ("python3-pip",)
"""The program that downloads ROS 2."""
LAB = tuple(
    dict.fromkeys(
        [*(() if BUNDLED.is_dir() else BUILD), *TOOLS.values(), *tool_packages().values()]
        + ["ethtool", STRESSOR, "kmod", "openssl", "procps", SERVER.package, PERF.package]
        + [package for feature in features() if feature != CLANG for package in feature.package.split()]
    )
)
LAB_CILIUM = (*LAB, *CLANG.package.split())
"""The lab with a compiler of 200 MB that only the networks `cilium-*` need."""
LAB_ZENOH = (*LAB, *(() if BUNDLED.is_dir() else BUILD_ZENOH))
"""The lab with a compiler of 450 MB that only Zenoh needs."""
LAB_ROS2 = (*LAB, *(() if BUNDLED.is_dir() else BUILD_ROS2))
"""The lab with what downloads ROS 2."""
RENAMED = {"libfastrtps-dev": "libfastdds-dev", PERF.package: "linux-tools-generic", **BUILD_ZENOH}
"""Packages that have another name in newer releases."""
DEPLOY = (*LAB, *BUILD, "mmdebstrap", "openssh-client", "skopeo")
TESTS = (
    *DEPLOY, *CLANG.package.split(), *BUILD_ZENOH, *BUILD_ROS2,
    "buildah", "busybox-static", "chromium", "chromium-driver", "cpio", "docker-registry",
    "dropbear-bin", "faketime", "fonts-dejavu-core", "git", "gpg", "gpg-agent", "graphviz",
    "libclang-rt-dev", "qemu-system-arm", "qemu-system-x86",
    *(cross_compiler(arch) for arch in BUNDLE_ARCHITECTURES if arch != HOST_ARCH),
)  # fmt: skip


@dataclass(frozen=True)
class Purpose:
    """Something that a machine can be set up for."""

    name: str
    packages: tuple[str, ...]
    next: str
    """The command to continue with."""
    tests: bool = False
    """Whether it needs the native programs that only tests run."""
    backends: tuple[str, ...] = ()
    """Backends of k8sdds-perftest that it needs in addition to the usual ones: they take minutes, or are downloaded."""


PURPOSES = {
    purpose.name: purpose
    for purpose in (
        Purpose("lab", LAB, "k8sdds run quickstart"),
        Purpose("lab-cilium", LAB_CILIUM, "k8sdds run tcp-networks --network cilium-vxlan"),
        Purpose("lab-zenoh", LAB_ZENOH, "k8sdds run quickstart --set middleware=zenoh", backends=(ZENOH,)),
        Purpose("lab-ros2", LAB_ROS2, f"k8sdds run quickstart --set middleware={ROS2[0]}", backends=ROS2),
        Purpose("deploy", DEPLOY, "k8sdds deploy one-machine"),
        *(
            Purpose(
                f"deploy-{arch}",
                DEPLOY if arch == HOST_ARCH else (*DEPLOY, cross_compiler(arch)),
                f"k8sdds bundle create bundle --arch {arch}",
            )
            for arch in BUNDLE_ARCHITECTURES
        ),
        Purpose(
            "tests",
            TESTS,
            "pytest tests/unit",
            tests=True,
            backends=(ZENOH, *(ROS2 if HOST_ARCH == ROS2_ARCH else ())),
        ),
    )
}

LOCK_TIMEOUT_S = 600
"""How long to wait for another program that changes packages."""
LOCK_POLL_S = 2
APT_FAILED = 100
"""Exit code of apt-get after an error, such as a failed download."""
MAX_SHOWN_LINES = 10

_POLICY = Path("/usr/sbin/policy-rc.d")
"""Program that Debian's maintainer scripts run before they start a service."""
_UNITS = Path("/lib/systemd/system")
_SERVICES = ("docker-registry.service", "iperf3.service", "nginx.service", "strongswan.service")
"""Services of these packages, which must not run: k8sdds starts their programs itself, in namespaces."""


def missing(packages: Sequence[str]) -> list[str]:
    """Return the packages that are not installed under any of their names."""
    if not shutil.which("dpkg-query") or not shutil.which("apt-get"):
        raise PrerequisiteError(
            "apt-get is not installed: k8sdds setup installs packages of Debian and its relatives",
            f"install what corresponds to these packages yourself: {' '.join(packages)}",
        )
    names = [name for package in packages for name in _names(package)]
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *names],
        capture_output=True, text=True,
    )  # fmt: skip
    installed = {line.split()[0] for line in shown.stdout.splitlines() if line.endswith(" installed")}
    return [
        package for package in packages
        if installed.isdisjoint(_names(package)) and not (package in BUILD_ZENOH and shutil.which(BUILD_ZENOH[package]))
    ]  # fmt: skip


def update(report: Callable[[str], None]) -> None:
    """Update the list of available packages."""
    _apt_get(report, "update")


def install(packages: Sequence[str], report: Callable[[str], None]) -> None:
    """Install packages without starting their services, now or at boot."""
    available = available_names(packages)
    names = [available.get(package) or _unavailable(package) for package in packages]
    new_services = [service for service in _SERVICES if not (_UNITS / service).exists()]
    with _services_stopped():
        _apt_get(report, "install", "--yes", "--no-install-recommends", *names)
    enabled = [service for service in new_services if (_UNITS / service).exists()]
    if enabled and shutil.which("systemctl"):
        as_root("systemctl", "disable", "--quiet", *enabled)


def available_names(packages: Sequence[str]) -> dict[str, str]:
    """Map the packages that the apt sources of this machine provide to the names under which they do."""
    names = [name for package in packages for name in _names(package)]
    # One call, because each reads the lists of all packages.
    shown = subprocess.run(["apt-cache", "show", *names], capture_output=True, text=True)
    provided = set(re.findall(r"^Package: (\S+)$", shown.stdout, re.MULTILINE))
    found = {package: next(filter(provided.__contains__, _names(package)), None) for package in packages}
    return {package: name for package, name in found.items() if name}


def _names(package: str) -> list[str]:
    return [package, *([RENAMED[package]] if package in RENAMED else [])]


def _unavailable(package: str) -> NoReturn:
    raise PrerequisiteError(
        f"the package {package} is not in this machine's apt sources",
        "add a source that provides it; on Ubuntu, enable the component universe",
    )


def _apt_get(report: Callable[[str], None], action: str, *args: str) -> None:
    """Run apt-get. It waits while another program changes packages, and repeats a failed action once."""
    environment = ("env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
    options = ("-q=2", "--option", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_S}")
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    waited = repeated = False
    while True:
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            code = as_root(*environment, "apt-get", *options, action, *args, output=output)
            output.seek(0)
            lines = output.read().splitlines()
        if not code:
            return
        # The option does not apply to the list of packages, which `update` locks.
        if any("Could not get lock" in line for line in lines) and time.monotonic() < deadline:
            if not waited:
                report("waiting for another program that changes packages")
            waited = True
            time.sleep(LOCK_POLL_S)
        elif code == APT_FAILED and not repeated:
            report(f"apt-get {action} failed, and runs once more")
            repeated = True
        else:
            break
    errors = [line for line in lines if line.startswith(("E: ", "dpkg: error"))] or lines
    raise PrerequisiteError(
        "\n".join([f"apt-get {action} failed with exit code {code}", *errors[-MAX_SHOWN_LINES:]]),
        "see the messages above, and run it again; if you may not use sudo, ask an administrator to install the"
        " packages that k8sdds setup --dry-run lists",
    )


@contextlib.contextmanager
def _services_stopped() -> Iterator[None]:
    """Prevent maintainer scripts from starting services. An existing policy of the administrator is kept."""
    if os.path.lexists(_POLICY):
        yield
        return
    try:
        as_root("install", "-m", "755", "/dev/stdin", str(_POLICY), text="#!/bin/sh\nexit 101\n")
        yield
    finally:
        as_root("rm", "-f", str(_POLICY))
