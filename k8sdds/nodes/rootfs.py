"""Create the root file system of local nodes, a minimal Debian, in the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from k8sdds.bundle import cache, debian
from k8sdds.system import debian_release
from k8sdds.system.paths import cache_folder

PACKAGES = (
    "ca-certificates", "conntrack", "containerd", "dbus", "ebtables", "ethtool", "iproute2", "ipset",
    "iptables", "iputils-ping", "kmod", "mount", "nftables", "openssh-server", "passwd", "procps", "runc",
    "socat", "sudo", "systemd", "systemd-sysv", "util-linux",
)  # fmt: skip
"""Packages that a node has before Kubernetes is installed."""

MASKED = (
    "apt-daily-upgrade.timer", "apt-daily.timer", "console-getty.service", "dev-hugepages.mount",
    "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "getty.target", "getty@tty1.service",
    "proc-sys-fs-binfmt_misc.automount", "proc-sys-fs-binfmt_misc.mount", "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path", "systemd-ask-password-wall.path", "systemd-binfmt.service",
    "systemd-logind.service", "systemd-modules-load.service", "systemd-remount-fs.service",
    "systemd-sysctl.service", "systemd-timesyncd.service", "systemd-udev-trigger.service",
    "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udevd.service",
    "nftables.service",
)  # fmt: skip
"""Units that would change the kernel, which nodes share with this machine, or that wait for hardware or for a
password, which costs an inotify instance each."""

FILES = {
    "etc/ssh/sshd_config.d/k8sdds.conf": "PermitRootLogin prohibit-password\nUseDNS no\nMaxStartups 100\n",
    # Without accounting, systemd creates no controller cgroups per unit, of which cgroup v1 has many.
    "etc/systemd/system.conf.d/k8sdds.conf": "[Manager]\nDefaultCPUAccounting=no\n"
    "DefaultMemoryAccounting=no\nDefaultTasksAccounting=no\nDefaultIOAccounting=no\n",
}


def rootfs(report: Callable[[str], None]) -> Path:
    """Return the folder of the root file system; create it if it is not in the cache (about two minutes)."""
    suite = debian_release.running("local nodes").codename
    recipe = json.dumps([suite, PACKAGES, MASKED, FILES]).encode()
    folder = cache_folder() / "rootfs" / f"{suite}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    log = folder.with_name(f"{folder.name}.log")
    options = ("--mode=root", "--variant=minbase")

    def create(unfinished: Path) -> None:
        debian.mmdebstrap("create the root file system", options, PACKAGES, suite, unfinished, log)
        _prepare(unfinished)

    return cache.folder(folder, "creating the root file system of local nodes", report, create)


def _prepare(folder: Path) -> None:
    units = folder / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    # Every node gets its own keys and configuration.
    for key in (folder / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name in ("etc/machine-id", "etc/resolv.conf", "etc/hostname"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "etc/cni", ignore_errors=True)
    (folder / "etc/containerd/config.toml").unlink(missing_ok=True)
