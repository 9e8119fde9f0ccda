"""Run commands in a virtual machine with Debian's kernel and this machine's files, mounted read-only.

qemu emulates it in software, so no number of it means anything; it is for code paths that need a kernel with
ESP, WireGuard or netem. The guest has no network, or a tap in a sandbox. The kernel and its modules are cached.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from k8sdds.system.kernel_features import IPIP, IPTABLES, NOTRACK, RPFILTER
from k8sdds.system.paths import CHECKOUT
from k8sdds.system.sandbox import Sandbox

TIMEOUT_S = 1500
"""Sufficient for a busy machine."""
FOLDERS = ("kernel/crypto", "kernel/arch/x86/crypto", "kernel/lib/crypto")
"""Names of modules that the kernel requests itself."""
MODULES = (
    "virtio_pci", "virtio_net", "9p", "9pnet_virtio", "overlay", "bridge", "br_netfilter", "veth", "vxlan", "nf_tables",
    *IPTABLES.modules, *RPFILTER.modules, *NOTRACK.modules, *IPIP.modules,
    "nft_chain_nat", "nft_masq", "nft_ct", "nft_numgen", "esp4", "xfrm_user", "wireguard", "tun", "sch_tbf",
    "sch_netem", "sch_codel", "openvswitch", "vport_vxlan", "dummy", "ip_set", "ip_set_hash_ip", "ip_set_hash_net",
    "ip_set_list_set", "xt_set", "xt_esp", "xt_policy", "bonding",
)  # fmt: skip
TAP, NIC = "guest", "eth0"
"""Interfaces of a machine with a network: in the sandbox, and in the machine."""
HOST, GUEST = "10.89.0.1", "10.89.0.2"
"""Their addresses."""
BEGIN, END = "k8sdds-vm-begin", "k8sdds-vm-end"
KERNEL_OPTIONS = (
    "quiet panic=-1"
    # Without what costs time where every instruction is emulated, and guards a machine that is not at risk.
    " mitigations=off nokaslr audit=0 apparmor=0 nowatchdog no_timer_check random.trust_cpu=on"
    " rcupdate.rcu_expedited=1"
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RELEASE = 8
"""Increased when the cached files change."""

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /sys /host /upper /root
mount -t proc proc /proc
mount -t sysfs sys /sys
ln -s /bin /sbin
for module in $(cat /modules); do modprobe $module || echo "no module $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
mount -t tmpfs tmpfs /upper
mkdir /upper/up /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/up,workdir=/upper/work root /root
mkdir -p /root/lib/modules
cp -r /lib/modules/* /root/lib/modules/
cp /command /root/command
umount /sys /proc
exec switch_root /root /bin/sh -c '
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
ip link set lo up
echo @BEGIN@
sh /command
echo @END@
busybox poweroff -f'
"""


def cache() -> Path:
    """Return the folder of the kernel and its modules, outside of the checkout."""
    base = os.environ.get("K8SDDS_CACHE_DIR") or Path.home() / ".cache" / "k8sdds"
    folder = Path(base) / f"vm-{RELEASE}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _kernel_package() -> str:
    """Return the newest kernel package, on which Debian's metapackage depends."""
    depends = _run(["apt-cache", "depends", "linux-image-amd64"])
    return next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line)


def _run(argv: list[str], cwd: Path | None = None) -> str:
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def kernel() -> tuple[Path, Path]:
    """Return (kernel image, folder with its modules); the first call fetches about 70 MB."""
    kernels = sorted(cache().glob("vmlinuz-*"))
    if not kernels:
        with tempfile.TemporaryDirectory(dir=cache()) as name:
            folder = Path(name)
            folder.chmod(0o755)
            _run(["apt-get", "download", _kernel_package()], folder)
            (package,) = folder.glob("*.deb")
            _run(["dpkg-deb", "--extract", str(package), str(folder)])
            (image,) = (folder / "boot").glob("vmlinuz-*")
            release = image.name.removeprefix("vmlinuz-")
            _run(["depmod", "--basedir", str(folder), release])
            keep_modules(folder / "lib/modules" / release, cache() / "modules" / release, MODULES, FOLDERS)
            image.rename(cache() / image.name)  # last: with it the cache is whole
        kernels = sorted(cache().glob("vmlinuz-*"))
    return kernels[-1], cache() / "modules" / kernels[-1].name.removeprefix("vmlinuz-")


def keep_modules(source: Path, target: Path, names: Sequence[str], folders: tuple[str, ...] = ()) -> None:
    """Copy these modules, those in these folders, and their dependencies."""
    needs = {}
    for line in (source / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[module] = others.split()
    required = {
        path
        for path in needs
        if path.startswith(folders) or path.rpartition("/")[2].split(".")[0].replace("-", "_") in names
    }
    shutil.rmtree(target, ignore_errors=True)
    for path in required | {other for name in required for other in needs[name]}:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, target / path)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(source / name, target / name)


def _initramfs(folder: Path, modules: Path, command: str) -> Path:
    root = folder / "initramfs"
    for name in ("bin", "lib/modules"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    shutil.copytree(modules, root / "lib/modules" / modules.name)
    _run(["depmod", "--basedir", str(root), modules.name])
    (root / "init").write_text(INIT.replace("@BEGIN@", BEGIN).replace("@END@", END))
    (root / "init").chmod(0o755)
    (root / "command").write_text(command)
    (root / "modules").write_text("\n".join(MODULES))
    image = folder / "initrd.gz"
    pack(root, image)
    return image


def pack(root: Path, image: Path) -> None:
    """Pack a folder as an initial RAM disk."""
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    packed = subprocess.run(
        ["cpio", "--create", "--format=newc", "--quiet"],
        cwd=root, input=names.encode(), stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip
    image.write_bytes(gzip.compress(packed, 1))


def sandbox(name: str) -> Sandbox:
    """Return a sandbox with a tap for a machine; whatever runs in it ends with it."""
    created = Sandbox(name)
    created.run(["ip", "link", "set", "lo", "up"])
    created.run(["ip", "tuntap", "add", "dev", TAP, "mode", "tap"])
    created.run(["ip", "addr", "add", f"{HOST}/24", "dev", TAP])
    created.run(["ip", "link", "set", TAP, "up"])
    return created


def python(*argv: str) -> str:
    """Return the shell command that runs this Python with arguments, in the checkout."""
    return f"cd {shlex.quote(str(CHECKOUT))}; PATH={PATH} {shlex.join([f'{sys.prefix}/bin/python', *argv])}"


def run(command: str, within: Sandbox | None = None) -> tuple[list[Any], str]:
    """Boot, run a shell command and power off; return (the lines of JSON that it printed, all output).

    Args:
        command: The command.
        within: The sandbox whose tap connects the machine. None: the machine has no network.
    """
    image, modules = kernel()
    with tempfile.TemporaryDirectory() as name:
        qemu = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2000",
            "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
            "-kernel", str(image), "-initrd", str(_initramfs(Path(name), modules, command)),
            "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            "-append", f"console=ttyS0 {KERNEL_OPTIONS}",
        ]  # fmt: skip
        if within is None:
            return _results([*qemu, "-nic", "none"])
        tap = f"tap,id=net,ifname={TAP},script=no,downscript=no"
        # The parent is nsenter, which passes no signal on.
        inside = [*within.enter(), "setpriv", "--pdeathsig", "KILL", *qemu]
        return _results([*inside, "-netdev", tap, "-device", "virtio-net-pci,netdev=net"])


def _results(argv: list[str]) -> tuple[list[Any], str]:
    """Run a machine until it powers off; return (the lines of JSON that its command printed, all output)."""
    with tempfile.TemporaryFile() as console:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            problem = f"the guest did not power off within {TIMEOUT_S} s"
        else:
            problem = "" if process.returncode == 0 else f"qemu ended with code {process.returncode}"
        finally:
            process.kill()
            process.wait()
        console.seek(0)
        output = console.read().decode(errors="replace").replace("\r", "")
    if problem or BEGIN not in output:
        raise RuntimeError(f"{problem or 'the guest did not come up'}: {output[-4000:]}")
    inside = output.partition(BEGIN)[2].partition(END)[0]
    return [json.loads(line) for line in inside.splitlines() if line.startswith("{")], output
