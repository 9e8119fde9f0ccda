"""Clusters of local nodes: make, find, stop and remove them."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from k8sdds.nodes import access, cgroups, machine, record, switch
from k8sdds.nodes.record import Machine, Record
from k8sdds.nodes.rootfs import rootfs
from k8sdds.nodes.spec import LocalNode, NodeSpec
from k8sdds.system import processes
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder

OWNER = "owner"
"""File that tells whose a folder of machines' data is: the path of the record's folder."""


def up(
    cluster: str, specs: Sequence[NodeSpec], said: Callable[[str], None] = lambda _: None
) -> list[LocalNode]:
    """Make a cluster's machines; those that run are kept, those that were stopped boot again.

    Returns them in the order of `specs` when all answer on their ssh port. Raises InputError or PrerequisiteError,
    and then leaves nothing of a machine that it began to make.
    """
    _need_root()
    if len({spec.name for spec in specs}) != len(specs):
        raise InputError("two nodes have the same name", "give each its own")
    with record.locked(cluster):
        base = rootfs(said)
        known = record.read(cluster)
        if known and not known.alive:
            _stopped_all(known)
        known = known or _new(cluster)
        _have_files(known)
        began: list[str] = []
        try:
            sandbox = switch.make(known)
            for spec in specs:
                if spec.name not in known.machines:
                    known.machines[spec.name] = Machine(spec, switch.free_address(known))
                    began.append(spec.name)
            known.write()
            access.write_files(known)
            halted = [known.machines[spec.name] for spec in specs if not known.machines[spec.name].alive]
            machine.check_watches(
                sum(machine.WATCHES + one.spec.watches for one in halted if one.spec.boot == "systemd")
            )
            for spec in specs:
                if not known.machines[spec.name].alive:
                    said(f"{spec.name}: boots at {known.machines[spec.name].address}")
                    machine.boot(known, sandbox, spec.name, base)
            for spec in specs:
                machine.await_ssh(known, spec.name)
        except BaseException:
            for name in began:
                _remove_machine(known, name)
            if not known.machines:
                _remove(known)
            raise
        return [access.node(known, spec.name) for spec in specs]


def ls(cluster: str | None = None) -> list[LocalNode]:
    """The machines of one cluster, or of all."""
    known = [one for one in record.clusters() if cluster in (None, one.cluster)]
    return [access.node(one, name) for one in known for name in one.machines]


def find(cluster: str, name: str) -> LocalNode:
    """A machine; InputError if there is none of this name."""
    return access.node(_known(cluster, name), name)


def down(cluster: str, names: Sequence[str] | None = None) -> list[str]:
    """Remove a cluster, or some of its machines, with all that they wrote; the names of those removed.

    Raises PrerequisiteError for what could not be removed.
    """
    _need_root()
    with record.locked(cluster):
        known = record.read(cluster)
        if known is None:
            removed = []
        elif names is None or set(known.machines) <= set(names):
            removed = list(known.machines)
            _remove(known)
        else:
            removed = [name for name in names if name in known.machines]
            for name in removed:
                _remove_machine(known, name)
            access.write_files(known)
    if record.read(cluster) is None:
        (record.folder() / f"{cluster}.lock").unlink(missing_ok=True)
    return removed


def clean(everything: bool) -> tuple[list[str], list[str]]:
    """Remove clusters whose holder has ended, or all of this user's, and data without a record; the names of
    those removed and of those kept."""
    removed, kept = [], []
    for known in record.clusters():
        if known.alive and not everything:
            kept.append(known.cluster)
        else:
            down(known.cluster)
            removed.append(known.cluster)
    for owner in (cache_folder() / "nodes").glob(f"*/{OWNER}"):
        if not Path(owner.read_text(), "record.json").exists():
            _remove_unrecorded(owner.parent)
            removed.append(owner.parent.name)
    return removed, kept


def stop(cluster: str, name: str) -> None:
    """Cut a machine's power: its processes end at once, its disk stays. `up` boots it again."""
    _need_root()
    with record.locked(cluster):
        machine.halt(_known(cluster, name), name)


def cut(cluster: str, name: str, cut: bool = True) -> None:
    """Unplug a machine's cable at the switch, or plug it in again."""
    known = _known(cluster, name)
    switch.sandbox_of(known).run(["ip", "link", "set", "dev", name, "down" if cut else "up"])


def exec_argv(cluster: str, name: str) -> list[str]:
    """The words before a command that run it in a machine, as its root; `switch` is what lies between."""
    if name == "switch":
        return switch.sandbox_of(_known(cluster)).enter()
    known = _known(cluster, name)
    found = known.machines[name]
    if not found.alive:
        raise InputError(f"{name} is stopped", f"boot it: k8sdds nodes up --cluster {cluster} {name}")
    return machine.enter(found)


def run(cluster: str, name: str, argv: Sequence[str], stdin: str = "", timeout_s: float = 60) -> str:
    """Run a command in a machine as its root and give its stdout; a failure is a PrerequisiteError."""
    try:
        done = subprocess.run(
            [*exec_argv(cluster, name), *argv], input=stdin, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise PrerequisiteError(f"{name}: `{' '.join(argv)}` did not end within {timeout_s:g} s") from None
    if done.returncode:
        raise PrerequisiteError(
            f"{name}: `{' '.join(argv)}` failed: {done.stderr.strip() or done.returncode}"
        )
    return done.stdout


def connect(cluster: str, name: str, port: int) -> list[str]:
    """The command that connects stdin and stdout to a machine's port."""
    known = _known(cluster, name)
    return switch.proxy(known, known.machines[name].address, port)


# -- making ----------------------------------------------------------------------------------------


def _need_root() -> None:
    if os.geteuid() != 0:
        raise PrerequisiteError("local nodes need root", "sudo, or a real machine in the profile")


def _new(cluster: str) -> Record:
    data = cache_folder() / "nodes" / f"{cluster}-{secrets.token_hex(4)}"
    made = Record(cluster, str(data))
    for hierarchy in cgroups.hierarchies():
        made.cgroup_folders.append(str(hierarchy.parent / f"k8sdds-{data.name}"))
    made.folder.mkdir(mode=0o700, exist_ok=True)
    made.write()
    return made


def _have_files(known: Record) -> None:
    """Make what a cluster has on disk, or what of it is missing since the command that made it was killed."""
    data = Path(known.data)
    data.mkdir(parents=True, exist_ok=True)
    (data / OWNER).write_text(str(known.folder))
    access.keygen(known.folder / "key")


# -- finding ---------------------------------------------------------------------------------------


def _known(cluster: str, name: str | None = None) -> Record:
    known = record.read(cluster)
    if known is None:
        raise InputError(f"there is no cluster {cluster!r} of local nodes", "k8sdds nodes ls")
    if name is not None and name not in known.machines:
        raise InputError(
            f"there is no node {name!r} in {cluster!r}", f"there is: {', '.join(known.machines)}"
        )
    return known


# -- the end ---------------------------------------------------------------------------------------


def _stopped_all(known: Record) -> None:
    """The holder has ended (a reboot, a kill): its machines have too, but their disks are here."""
    for one in known.machines.values():
        one.pid, one.started, one.answered = 0, None, False
    known.holder = (0, None)
    known.write()


def _remove_unrecorded(data: Path) -> None:
    """Remove a cluster of which only its data is known: its record went with a reboot, or with its folder."""
    holder = data / switch.HOLDER
    if holder.exists():
        pid, started = map(int, holder.read_text().split())
        if processes.kill(pid, started):
            processes.wait_gone(pid, 30)
    for hierarchy in cgroups.hierarchies():
        cgroups.remove(hierarchy.parent / f"k8sdds-{data.name}")
    shutil.rmtree(data)


def _remove_machine(known: Record, name: str) -> None:
    machine.halt(known, name)
    shutil.rmtree(Path(known.data) / name, ignore_errors=True)
    if not (Path(known.data) / name).exists():
        del known.machines[name]
    known.write()


def _remove(known: Record) -> None:
    if processes.kill(*known.holder):
        processes.wait_gone(known.holder[0], 30)
    left = [folder for folder in known.cgroup_folders if not cgroups.remove(Path(folder))]
    deadline = time.monotonic() + 10
    while Path(known.data).exists() and time.monotonic() < deadline:
        shutil.rmtree(known.data, ignore_errors=True)
    if Path(known.data).exists():
        left.append(known.data)
    if left:
        raise PrerequisiteError(f"could not be removed: {', '.join(left)}", "k8sdds nodes down, again")
    known.forget()
