"""Boot one node, wait for its SSH port, and halt it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.nodes import cgroups, switch
from k8sdds.nodes.records import ClusterRecord, MachineRecord
from k8sdds.nodes.spec import USER, NodeSpec
from k8sdds.system import cgroups as system_cgroups
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox

BOOT_TIMEOUT_S = 60
BOOT_TIMEOUT_PER_NODE_S = 5
"""Nodes that boot together share the CPUs of this machine."""
HALT_TIMEOUT_S = 30
INOTIFY_INSTANCES = 4
"""Inotify instances that a node's systemd (3) and containerd need; without them systemd exits without a message."""
BOOT_INSTANCES = 1
"""Inotify instances that systemd needs in addition until a node has booted, and other software has not started."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_inotify_instances(specs: Sequence[NodeSpec]) -> None:
    """Check that this machine has enough free inotify instances for nodes."""
    booted = [spec for spec in specs if spec.boot == "systemd"]
    needed = sum(INOTIFY_INSTANCES + max(BOOT_INSTANCES, spec.watches) for spec in booted)
    libc = ctypes.CDLL(None, use_errno=True)
    opened: list[int] = []
    try:
        while len(opened) < needed and (handle := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            opened.append(handle)
    finally:
        for handle in opened:
            os.close(handle)
    if len(opened) < needed:
        number = Path("/proc/sys/fs/inotify/max_user_instances").read_text().strip()
        raise PrerequisiteError(
            f"{needed} inotify instances are needed, but only {len(opened)} of {number} are free",
            "sysctl -w fs.inotify.max_user_instances=1024, or remove other nodes (k8sdds nodes ls)",
        )


def boot(record: ClusterRecord, sandbox: Sandbox, name: str, base: Path) -> None:
    """Start a node with the root file system `base`, and record it."""
    machine, folder = record.machines[name], Path(record.data) / name
    spec = machine.spec
    if machine.pid or any(Path(group, name).is_dir() for group in record.cgroup_folders):
        # Remove leftovers, such as the link of an ended node. A killed command may have booted a node
        # without recording it.
        halt(record, name)
    hierarchies = cgroups.hierarchies()
    groups = [hierarchy.create(Path(record.data), name) for hierarchy in hierarchies]
    sandbox.run(["sh", "-e"], stdin=switch.link_script(machine))
    environment = {
        "PATH": PATH, "NAME": name, "USER_NAME": USER, "SUDO": "yes" if spec.sudo else "no",
        "BOOT": spec.boot, "ROOTFS": str(base),
        "DIR": str(folder), "DISK_MIB": str(spec.disk_mib or 0), "JOIN": "\n".join(map(str, groups)),
        "CGROUPS": " ".join(hierarchy.name for hierarchy in hierarchies),
        "SHARES": "\n".join(f"{share.host.resolve()}\t{share.inside}" for share in spec.shares),
    }  # fmt: skip
    # Writing 0 moves the writing process itself.
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
            raise PrerequisiteError(f"{name} did not boot: {_end_of_console(console)}", "run: k8sdds doctor")
        time.sleep(0.01)
    machine.pid, machine.started = pid, processes.start_time(pid)
    record.write()


def await_ssh(record: ClusterRecord, name: str, booting: int) -> None:
    """Wait until the sshd of a node answers, which boots together with others (`booting` nodes)."""
    machine = record.machines[name]
    console = Path(record.data) / name / "console.log"
    deadline = time.monotonic() + BOOT_TIMEOUT_S + BOOT_TIMEOUT_PER_NODE_S * booting
    argv = switch.proxy(record, machine.address, versions.SSH_PORT)
    while time.monotonic() < deadline:
        if not machine.alive:
            raise PrerequisiteError(
                f"{name} ended while it booted: {_end_of_console(console)}", "run: k8sdds doctor"
            )
        try:
            # Without stdin, the proxy ends after the banner of sshd.
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
            if done.stdout.startswith(b"SSH-"):
                machine.answered = True
                record.write()
                return
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.1)
    raise PrerequisiteError(
        f"{name} does not answer on its SSH port: {_end_of_console(console)}", "run: k8sdds doctor"
    )


def enter(machine: MachineRecord) -> list[str]:
    """Return the command prefix that runs a command as root in a running node, in its root folder."""
    # No --wd, because nsenter opens that folder before it enters the namespaces.
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
    argv = ["nsenter", "--target", str(machine.pid), *namespaces, "--", "env", "-i"]
    return [*argv, f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"]


def halt(record: ClusterRecord, name: str) -> None:
    """Kill a node's processes and remove its link; keep its disk."""
    machine = record.machines[name]
    if processes.kill(machine.pid, machine.started):
        processes.wait_gone(machine.pid, HALT_TIMEOUT_S)
    kill_unrecorded(record, name)
    machine.pid, machine.started, machine.answered = 0, None, False
    record.write()
    if record.alive:
        sandbox = switch.sandbox_of(record)
        # Either may not exist if the boot failed early.
        with contextlib.suppress(PrerequisiteError):
            sandbox.run(["ip", "link", "del", "dev", name])
        with contextlib.suppress(PrerequisiteError):
            sandbox.run(["ip", "netns", "del", name])
    for folder in record.cgroup_folders:
        system_cgroups.remove(Path(folder) / name)


def kill_unrecorded(record: ClusterRecord, name: str) -> None:
    """Kill the processes in a node's cgroups, which may not be recorded."""
    for folder in filter(system_cgroups.is_own, map(Path, record.cgroup_folders)):
        for path in (folder / name).rglob("cgroup.procs"):
            # A cgroup or process may end at this moment.
            with contextlib.suppress(OSError):
                for line in path.read_text().split():
                    os.kill(int(line), signal.SIGKILL)


def _end_of_console(console: Path) -> str:
    with contextlib.suppress(OSError):
        lines = console.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "no output"
    return "no output"
