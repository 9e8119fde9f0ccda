"""Run an arm64 machine next to local nodes: Debian on its own kernel, with systemd and sshd, under qemu.

Maintainer scripts of arm64 packages cannot run here. What they write to /etc and /var does not depend on the
architecture, so it is taken from the root file system of the local nodes, which has the same packages; all programs
are those of the arm64 packages. qemu emulates every instruction, so no number of the machine means anything.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from k8sdds import nodes
from k8sdds.bundle import debian
from k8sdds.nodes import access, records, rootfs, switch
from k8sdds.system import debian_release
from tests.lab.vm import machine

ARCH = "arm64"
NAME, ADDRESS = "pi", "10.88.0.90"
"""Host name, and address on the switch of the local nodes."""
TAP = "pi"
MAC = "02:88:0a:58:00:5a"
DISK = "6G"
MEMORY_MIB = 2560
BOOT_TIMEOUT_S = 900
"""Sufficient for a busy machine."""
RAMDISK_MODULES = ("virtio_mmio", "virtio_net", "virtio_blk", "ext4", "crc32c_generic")
COMPUTER = (
    # A CPU as in a Raspberry Pi 4. Emulating newer ones, with pointer authentication, takes longer.
    "-M", "virt", "-cpu", "cortex-a72", "-accel", "tcg,thread=multi", "-smp", "2",
    "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
)  # fmt: skip
"""Options of qemu."""
OWN_KERNEL_UNITS = ("systemd-modules-load.service", "systemd-sysctl.service")
"""Units that local nodes mask because they share a kernel."""
INIT = f"""#!/bin/busybox sh
busybox=/bin/busybox
$busybox mkdir -p /proc /sys /dev /root
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox mount -t devtmpfs dev /dev
$busybox modprobe -a {" ".join(RAMDISK_MODULES)}
$busybox ip link set lo up
$busybox ip link set {machine.NIC} up
$busybox ip addr add {ADDRESS}/24 dev {machine.NIC}
$busybox ip route add default via {switch.PREFIXES["ipv4"]}{switch.GATEWAY}
$busybox mount -t ext4 /dev/vda /root
$busybox umount /sys /proc
exec $busybox switch_root /root /lib/systemd/systemd --log-target=console
"""


@dataclass(frozen=True)
class Arm64Node:
    """A running machine."""

    console: Path
    """File with the output of its console."""
    host_key: str
    """Public host key: type and data."""


@contextlib.contextmanager
def running(cluster: str, folder: Path) -> Iterator[Arm64Node]:
    """Boot the machine on the switch of a cluster of local nodes, whose key may log in as root.

    Args:
        cluster: Name of the running local nodes. When their holder ends, so does the machine.
        folder: Folder for its disk, about 2 GB.
    """
    folder.mkdir()
    linux, ramdisk, disk = _files(cluster, folder)
    record = records.read(cluster)
    assert record is not None, f"no local nodes of {cluster} run"
    sandbox = switch.sandbox_of(record)
    sandbox.run(["ip", "tuntap", "add", "dev", TAP, "mode", "tap"])
    sandbox.run(["ip", "link", "set", TAP, "master", "switch", "up"])
    argv = [
        *sandbox.enter(), "setpriv", "--pdeathsig", "KILL",
        "qemu-system-aarch64", *COMPUTER, "-m", str(MEMORY_MIB), "-kernel", str(linux), "-initrd", str(ramdisk),
        "-append", f"console=ttyAMA0 {machine.KERNEL_OPTIONS}",
        "-drive", f"file={disk},format=raw,if=none,id=disk,cache=unsafe", "-device", "virtio-blk-device,drive=disk",
        "-netdev", f"tap,id=net,ifname={TAP},script=no,downscript=no",
        "-device", f"virtio-net-device,netdev=net,mac={MAC}",
    ]  # fmt: skip
    console = folder / "console.log"
    with console.open("w") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(cluster, process, console)
        yield Arm64Node(console, " ".join((folder / "host_key.pub").read_text().split()[:2]))
    finally:
        process.kill()
        process.wait()
        sandbox.run(["ip", "link", "delete", TAP])


def ssh(cluster: str, script: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a shell script on the machine as root."""
    local = nodes.ls(cluster)[0]
    proxy = " ".join([*local.proxy_command[:-2], ADDRESS, str(local.port)])
    options = [
        "-o",
        f"ProxyCommand={proxy}",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    ]
    return subprocess.run(
        ["ssh", "-q", "-i", str(local.key_file), "-o", "BatchMode=yes", *options, f"root@{ADDRESS}", "sh"],
        input=script, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip


def _wait(cluster: str, process: subprocess.Popen[bytes], console: Path) -> None:
    """Wait until the machine answers and containerd runs."""
    deadline_s = time.monotonic() + BOOT_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if ssh(cluster, "systemctl is-active containerd").returncode == 0:
                return
        time.sleep(2)
    raise RuntimeError(f"the arm64 machine does not answer: {console.read_text(errors='replace')[-4000:]}")


def _files(cluster: str, folder: Path) -> tuple[Path, Path, Path]:
    """Return (kernel, initial RAM disk, image of the root file system)."""
    linux, modules = _kernel(folder / "kernel")
    root = _root(cluster, folder)
    ramdisk = folder / "ramdisk"
    machine.keep_modules(modules, ramdisk / "lib/modules" / modules.name, RAMDISK_MODULES)
    subprocess.run(["depmod", "--basedir", str(ramdisk), modules.name], check=True)
    (ramdisk / "bin").mkdir()
    shutil.copy(root / "bin/busybox", ramdisk / "bin")
    (ramdisk / "init").write_text(INIT)
    (ramdisk / "init").chmod(0o755)
    machine.pack(ramdisk, folder / "initrd.gz")
    shutil.copytree(modules, root / "lib/modules" / modules.name)
    # kubeadm reads the options of the kernel.
    shutil.copy(linux.with_name(f"config-{modules.name}"), root / "boot")
    disk = folder / "disk.img"
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(root), str(disk), DISK], check=True)
    shutil.rmtree(root)
    return linux, folder / "initrd.gz", disk


def _kernel(folder: Path) -> tuple[Path, Path]:
    """Unpack Debian's kernel package for arm64; return (kernel image, folder with its modules)."""
    release = debian_release.running("an arm64 machine")
    with tarfile.open(debian.archive(release, ARCH, ["linux-image-cloud-arm64"], print)) as archive:
        archive.extractall(
            folder, [item for item in archive if item.name.startswith(("./boot", "./lib/modules"))]
        )
    (image,) = (folder / "boot").glob("vmlinuz-*")
    modules = folder / "lib/modules" / image.name.removeprefix("vmlinuz-")
    subprocess.run(["depmod", "--basedir", str(folder), modules.name], check=True)
    return image, modules


def _root(cluster: str, folder: Path) -> Path:
    """Create the root file system: the programs of arm64 packages, and the configuration of the local nodes."""
    base, root = rootfs.rootfs(print), folder / "root"
    status = (base / "var/lib/dpkg/status").read_text()
    packages = sorted(line.split()[1] for line in status.splitlines() if line.startswith("Package:"))
    release = debian_release.running("an arm64 machine")
    packed = debian.archive(release, ARCH, (*packages, "busybox-static"), print)
    root.mkdir()
    # Not the folder itself, whose time changes with each use of the cache: tar would report that.
    _run(f"cd {base} && tar --create $(ls --almost-all --ignore usr) | tar --extract --directory {root}")
    (root / "usr").mkdir()
    for name in ("bin", "sbin", "lib"):
        (root / "usr" / name).mkdir()
    _run(
        f"tar --extract --file {packed} --keep-directory-symlink --directory {root} ./usr ./bin ./sbin ./lib"
    )
    # Links such as /usr/sbin/iptables, which update-alternatives created.
    _run(
        f"cd {base} && find usr -lname '/etc/alternatives/*' | tar --create --files-from - |"
        f" tar --extract --directory {root}"
    )
    (root / "etc/ld.so.cache").unlink()
    (root / "var/lib/dpkg/status").write_text(
        status.replace("\nArchitecture: amd64\n", f"\nArchitecture: {ARCH}\n")
    )
    for unit in OWN_KERNEL_UNITS:
        (root / "etc/systemd/system" / unit).unlink()
    access.keygen(folder / "host_key")
    key = nodes.ls(cluster)[0].key_file
    for name, text, mode in (
        ("etc/hostname", f"{NAME}\n", 0o644),
        ("etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n", 0o644),
        ("etc/resolv.conf", f"nameserver {switch.PREFIXES['ipv4']}{switch.GATEWAY}\n", 0o644),
        ("etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444),
        ("etc/ssh/ssh_host_ed25519_key", (folder / "host_key").read_text(), 0o600),
        ("root/.ssh/authorized_keys", key.with_name(f"{key.name}.pub").read_text(), 0o600),
    ):
        path = root / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(text)
        os.chmod(path, mode)
    return root


def _run(command: str) -> None:
    subprocess.run(["bash", "-o", "pipefail", "-e", "-c", command], check=True)
