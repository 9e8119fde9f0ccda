"""Boot perftest's image for arm64 as a machine: Debian's arm64 kernel under qemu, next to this machine's programs.

Its root file system is the image, in memory, so its programs are those that run in pods. Its only network is a tap in
a sandbox. qemu emulates every instruction, so no number of it means anything.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from k8sdds.bundle import cached_bundle, debian, images, oci
from k8sdds.system import debian_release
from k8sdds.system.sandbox import Sandbox
from tests.lab.vm import machine

ARCH = "arm64"
MODULES = ("virtio_mmio", "virtio_net")
COMPUTER = (
    # A CPU as in a Raspberry Pi 4. Emulating newer ones, with pointer authentication, takes longer.
    "-M", "virt", "-cpu", "cortex-a72", "-accel", "tcg,thread=multi", "-smp", "2",
    "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
)  # fmt: skip
"""Options of qemu."""
INIT = f"""#!/bin/busybox sh
busybox=/bin/busybox
$busybox mkdir -p /proc /sys /dev /tmp
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox mount -t devtmpfs dev /dev
$busybox modprobe -a {" ".join(MODULES)}
$busybox ip link set lo up
$busybox ip link set {machine.NIC} up
$busybox ip addr add {machine.GUEST}/24 dev {machine.NIC}
echo {machine.BEGIN}
sh /command
echo {machine.END}
$busybox poweroff -f
"""


def run(within: Sandbox, command: str) -> tuple[list[Any], str]:
    """Boot on the tap of a sandbox, run a shell command and power off; return the same as `machine.run`."""
    with tempfile.TemporaryDirectory() as name:
        linux, initrd = _files(Path(name), command)
        return machine.results(machine.with_tap(within, [
            "qemu-system-aarch64", *COMPUTER, "-m", "2000", "-kernel", str(linux), "-initrd", str(initrd),
            "-append", f"console=ttyAMA0 {machine.KERNEL_OPTIONS}",
        ], "virtio-net-device"))  # fmt: skip


def _files(folder: Path, command: str) -> tuple[Path, Path]:
    """Return (kernel image, initial RAM disk with perftest's image, the kernel's modules and the command)."""
    linux, modules = kernel(folder / "kernel")
    root = folder / "root"
    bundle = cached_bundle((ARCH,), print, only_k8sdds=True)
    (image,) = images.select(bundle, ARCH, ["perftest"])
    for layer in oci.parts(oci.manifest(bundle.file(image)))[1:]:
        _unpack(bundle.folder / "oci/blobs/sha256" / layer, root)
    machine.keep_modules(modules, root / "lib/modules" / modules.name, MODULES)
    subprocess.run(["depmod", "--basedir", str(root), modules.name], check=True)
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    (root / "command").write_text(command)
    machine.pack(root, folder / "initrd.gz")
    return linux, folder / "initrd.gz"


def kernel(folder: Path) -> tuple[Path, Path]:
    """Unpack Debian's kernel package for arm64; return (kernel image, folder with its modules)."""
    release = debian_release.running("an arm64 machine")
    _unpack(
        debian.archive(release, ARCH, ["linux-image-cloud-arm64"], print), folder, "./boot", "./lib/modules"
    )
    (image,) = (folder / "boot").glob("vmlinuz-*")
    modules = folder / "lib/modules" / image.name.removeprefix("vmlinuz-")
    subprocess.run(["depmod", "--basedir", str(folder), modules.name], check=True)
    return image, modules


def _unpack(packed: Path, folder: Path, *only: str) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(folder, [member for member in archive if member.name.startswith(only or ("",))])
