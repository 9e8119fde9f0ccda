"""The life of one machine: it boots, answers on its ssh port, and is halted."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

from k8sdds import versions
from k8sdds.nodes import cgroups, switch
from k8sdds.nodes.record import Machine, Record
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox

BOOT_TIMEOUT_S = 60
HALT_TIMEOUT_S = 30
WATCHES = 6
"""Inotify instances that a machine's systemd and its services take; without them it ends without a word."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_watches(wanted: int) -> None:
    """Raise PrerequisiteError if this machine has not so many inotify instances left."""
    libc = ctypes.CDLL(None, use_errno=True)
    opened: list[int] = []
    try:
        for _ in range(wanted):
            handle = libc.inotify_init1(os.O_CLOEXEC)
            if handle < 0:
                number = Path("/proc/sys/fs/inotify/max_user_instances").read_text().strip()
                raise PrerequisiteError(
                    f"root's inotify instances, {number} on this machine, are used up: "
                    f"{len(opened)} are left, and {wanted} needed",
                    "sysctl -w fs.inotify.max_user_instances=1024; or remove other nodes: k8sdds nodes ls",
                )
            opened.append(handle)
    finally:
        for handle in opened:
            os.close(handle)


def boot(known: Record, sandbox: Sandbox, name: str, base: Path) -> None:
    """Start a machine over the root file system `base`, and record it. Raises PrerequisiteError."""
    machine, folder = known.machines[name], Path(known.data) / name
    spec = machine.spec
    if machine.pid or any(Path(group, name).is_dir() for group in known.cgroup_folders):
        # It ended by itself (a reboot, a kill) and its cable still hangs there; or the command that booted it
        # was killed before it could write that down.
        halt(known, name)
    found = cgroups.hierarchies()
    joins = [cgroups.make(hierarchy, f"k8sdds-{Path(known.data).name}", name) for hierarchy in found]
    sandbox.run(["sh", "-e"], stdin=switch.cable(machine))
    environment = {
        "PATH": PATH, "NAME": name, "USER_NAME": spec.user, "SUDO": "yes" if spec.sudo else "no",
        "BOOT": spec.boot, "CONTAINERD": "yes" if spec.containerd else "no", "ROOTFS": str(base),
        "DIR": str(folder), "DISK_MIB": str(spec.disk_mib or 0), "JOIN": "\n".join(map(str, joins)),
        "CGROUPS": " ".join(hierarchy.name for hierarchy in found),
        "SHARES": "\n".join(f"{share.host.resolve()}\t{share.inside}" for share in spec.shares),
    }  # fmt: skip
    # 0 is whoever writes it.
    start = "for group in $JOIN; do echo 0 > $group/cgroup.procs; done; "
    unshare = "exec unshare --mount --uts --ipc --pid --cgroup --fork --propagation private sh "
    script = start + unshare + str(Path(__file__).with_name("machine.sh"))
    console = folder / "console.log"
    with console.open("wb") as output:
        process = subprocess.Popen(
            [*sandbox.enter(name), "sh", "-ec", script],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while (pid := processes.descendant(process.pid, 2)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise PrerequisiteError(f"{name} did not boot: {_last_words(console)}", "see: k8sdds doctor")
        time.sleep(0.01)
    machine.pid, machine.started = pid, processes.start_time(pid)
    known.write()


def await_ssh(known: Record, name: str) -> None:
    """Return when its sshd greets. Raises PrerequisiteError."""
    machine = known.machines[name]
    console = Path(known.data) / name / "console.log"
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    argv = switch.proxy(known, machine.address, versions.SSH_PORT)
    while time.monotonic() < deadline:
        if not machine.alive:
            raise PrerequisiteError(
                f"{name} ended while it booted: {_last_words(console)}", "see: k8sdds doctor"
            )
        try:
            # No stdin: sshd greets, and the pipe ends with it.
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
            if done.stdout.startswith(b"SSH-"):
                machine.answered = True
                known.write()
                return
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.1)
    raise PrerequisiteError(
        f"{name} does not answer on its ssh port: {_last_words(console)}", "see: k8sdds doctor"
    )


def enter(machine: Machine) -> list[str]:
    """The words before a command that run it in a machine that runs, as its root, in its root folder."""
    # No --wd: that folder would be opened before the namespaces are entered, and so be this machine's.
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
    words = ["nsenter", "--target", str(machine.pid), *namespaces, "--", "env", "-i"]
    return [*words, f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"]


def halt(known: Record, name: str) -> None:
    """End a machine's processes at once, and take its cable away; its disk stays."""
    machine = known.machines[name]
    if processes.kill(machine.pid, machine.started):
        processes.wait_gone(machine.pid, HALT_TIMEOUT_S)
    _end_strays(known, name)
    machine.pid, machine.started, machine.answered = 0, None, False
    known.write()
    if known.alive:
        sandbox = switch.sandbox_of(known)
        # Takes the cable with it. Missing where the machine never got that far.
        with contextlib.suppress(PrerequisiteError):
            sandbox.run(["ip", "link", "del", "dev", name])
        with contextlib.suppress(PrerequisiteError):
            sandbox.run(["ip", "netns", "del", name])
    for folder in known.cgroup_folders:
        cgroups.remove(Path(folder) / name)


def _end_strays(known: Record, name: str) -> None:
    """End what runs in a machine's cgroup though it is not recorded to run."""
    for folder in known.cgroup_folders:
        for path in Path(folder, name).rglob("cgroup.procs"):
            # A cgroup or process may end at this moment.
            with contextlib.suppress(OSError):
                for line in path.read_text().split():
                    os.kill(int(line), signal.SIGKILL)


def _last_words(console: Path) -> str:
    with contextlib.suppress(OSError):
        lines = console.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"
    return "it said nothing"
