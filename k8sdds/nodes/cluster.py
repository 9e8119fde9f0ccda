"""Create, find, stop and remove clusters of local nodes."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from k8sdds.bundle import cache
from k8sdds.nodes import access, cgroups, machine, records, switch
from k8sdds.nodes.records import ClusterRecord, MachineRecord
from k8sdds.nodes.rootfs import rootfs
from k8sdds.nodes.spec import LocalNode, NodeSpec
from k8sdds.system import processes
from k8sdds.system.cgroups import remove as remove_cgroup
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import cache_folder

OWNER = "owner"
"""File in a cluster's data folder with the path of the folder of its record."""


def up(
    cluster: str, specs: Sequence[NodeSpec], report: Callable[[str], None] = lambda _: None
) -> list[LocalNode]:
    """Create the missing nodes of a cluster, boot the stopped ones, and wait until all answer over SSH.

    On failure, the nodes that this call created are removed. The result has the order of `specs`. `report` is called
    with each step that takes long.
    """
    _require_root()
    if len({spec.name for spec in specs}) != len(specs):
        raise InputError("two nodes have the same name", "give each node another name")
    for share in (share for spec in specs for share in spec.shares):
        if not share.host.is_dir() or not share.inside.startswith("/"):
            message = f"{share.host} cannot be shared as {share.inside}"
            raise InputError(message, "give an existing folder and an absolute path")
    with records.locked(cluster):
        base = rootfs(cache.planned(report, rootfs))
        record = records.read(cluster) or create_record(cluster)
        if not record.alive:
            _mark_stopped(record)
        _create_files(record)
        created: list[str] = []
        try:
            sandbox = switch.create(record)
            for spec in specs:
                if spec.name not in record.machines:
                    address = switch.free_address(record, spec.ip_families[0])
                    record.machines[spec.name] = MachineRecord(spec, address)
                    created.append(spec.name)
            record.write()
            access.write_files(record)
            halted = [spec for spec in specs if not record.machines[spec.name].alive]
            machine.check_inotify_instances(halted)
            for spec in halted:
                report(f"{spec.name}: boots at {record.machines[spec.name].address}")
                machine.boot(record, sandbox, spec.name, base)
            for spec in specs:
                machine.await_ssh(record, spec.name, len(halted))
        except BaseException:
            for name in created:
                _remove_machine(record, name)
            if not record.machines:
                _remove(record)
            raise
        return [access.node(record, spec.name) for spec in specs]


def ls(cluster: str | None = None) -> list[LocalNode]:
    """Return the nodes of one cluster, or of all clusters."""
    selected = [record for record in records.all_clusters() if cluster in (None, record.cluster)]
    return [access.node(record, name) for record in selected for name in record.machines]


def down(cluster: str, names: Sequence[str] | None = None) -> list[str]:
    """Remove a cluster, or some of its nodes, with their disks. Return the names of the removed nodes."""
    _require_root()
    with records.locked(cluster):
        record = records.read(cluster)
        if record is None:
            removed = []
        elif names is None or set(record.machines) <= set(names):
            removed = list(record.machines)
            _remove(record)
        else:
            removed = [name for name in names if name in record.machines]
            for name in removed:
                _remove_machine(record, name)
            access.write_files(record)
    if records.read(cluster) is None:
        (records.folder() / f"{cluster}.lock").unlink(missing_ok=True)
    return removed


def clean(everything: bool, dry_run: bool = False) -> tuple[list[str], list[str]]:
    """Remove leftovers: clusters whose holder has ended, or with `everything` all, and data folders without a record.

    Returns the names of the removed and of the kept clusters.
    """
    removed, kept = [], []
    for record in records.all_clusters():
        if record.alive and not everything:
            kept.append(record.cluster)
        else:
            if not dry_run:
                down(record.cluster)
            removed.append(record.cluster)
    for owner in (cache_folder() / "nodes").glob(f"*/{OWNER}"):
        if not Path(os.fsdecode(owner.read_bytes()), "record.json").exists():
            if not dry_run:
                _remove_unrecorded(owner.parent)
            removed.append(owner.parent.name)
    return removed, kept


def stop(cluster: str, name: str) -> None:
    """Stop a node like a power failure: kill its processes and keep its disk. `up` boots it again."""
    _require_root()
    with records.locked(cluster):
        machine.halt(_known(cluster, name), name)


def set_link(cluster: str, name: str, state: Literal["up", "down"]) -> None:
    """Connect a node to the switch, or disconnect it."""
    switch.sandbox_of(_known(cluster, name)).run(["ip", "link", "set", "dev", name, state])


def exec_argv(cluster: str, name: str) -> list[str]:
    """Return the command prefix that runs a command as root in a node, or next to the switch (`switch`)."""
    if name == "switch":
        return switch.sandbox_of(_known(cluster)).enter()
    record = _known(cluster, name)
    node = record.machines[name]
    if not node.alive:
        raise InputError(f"{name} is stopped", f"boot it: k8sdds nodes up {cluster}/{name}")
    return machine.enter(node)


def run(cluster: str, name: str, argv: Sequence[str], stdin: str = "", timeout_s: float = 60) -> str:
    """Run a command as root in a node and return its stdout."""
    command = shlex.join(argv)
    remedy = f"for the cause, run: k8sdds nodes exec {cluster}/{name} -- {command}"
    try:
        done = subprocess.run(
            [*exec_argv(cluster, name), *argv], input=stdin, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise PrerequisiteError(f"{name}: `{command}` timed out after {timeout_s:g} s", remedy) from None
    if done.returncode:
        raise PrerequisiteError(
            f"{name}: `{command}` failed: {done.stderr.strip() or done.returncode}", remedy
        )
    return done.stdout


def give_real_time_priority(cluster: str, name: str, unit: str) -> None:
    """Give the processes of a systemd unit of a node real-time priority, as they can have it on a machine of its own.

    With cgroups of version 1, only those in the cgroup of this machine's CPU time can have it, if its kernel groups
    real-time processes. They keep their other cgroups, by which systemd ends them.
    """
    record, hierarchies = _known(cluster, name), cgroups.hierarchies()
    groups = [each.of_cluster(Path(record.data)) / name / "system.slice" / unit for each in hierarchies]
    pids: set[int] = set()
    for group in groups:
        try:
            pids.update(map(int, (group / "cgroup.procs").read_text().split()))
        except OSError as error:
            # Only some hierarchies have the unit, and it may end at this moment.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
    parents = [each.parent / "cgroup.procs" for each in hierarchies if "cpu" in each.name.split(",")]
    lowest = os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO))
    for pid in pids:
        # A process may end at this moment. A container may not give the priority: the evidence shows what was late.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            for parent in parents:
                parent.write_text(str(pid))
            os.sched_setscheduler(pid, os.SCHED_FIFO, lowest)


def connect(cluster: str, name: str, port: int) -> list[str]:
    """Return the command that connects stdin and stdout to a port of a node."""
    record = _known(cluster, name)
    return switch.proxy(record, record.machines[name].address, port)


def forward(cluster: str, name: str, port: int, local_port: int = 0) -> int:
    """Forward a port of this machine's loopback interface to a port of a node, until the cluster stops.

    Return the local port. The one that was returned before is used again if possible, unless it is 0.
    """
    return switch.forward(_known(cluster, name), name, port, local_port)


# -- creation --------------------------------------------------------------------------------------


def _require_root() -> None:
    if os.geteuid() != 0:
        raise PrerequisiteError("local nodes need root", "use sudo, or real machines in the profile")


def create_record(cluster: str) -> ClusterRecord:
    """Write and return the record of a new cluster, before anything else of it is created."""
    data = cache_folder() / "nodes" / f"{cluster}-{secrets.token_hex(4)}"
    record = ClusterRecord(cluster, str(data))
    for hierarchy in cgroups.hierarchies():
        record.cgroup_folders.append(str(hierarchy.of_cluster(data)))
    record.folder.mkdir(mode=0o700, exist_ok=True)
    record.write()
    return record


def _create_files(record: ClusterRecord) -> None:
    """Create the missing files of a cluster; an interrupted command may have created only some of them."""
    data = Path(record.data)
    data.mkdir(parents=True, exist_ok=True)
    # Atomically: `clean` removes a cluster whose owner it does not find.
    write_atomically(data / OWNER, os.fsencode(record.folder))
    access.keygen(record.folder / "key")


# -- lookup ----------------------------------------------------------------------------------------


def _known(cluster: str, name: str | None = None) -> ClusterRecord:
    record = records.read(cluster)
    if record is None:
        raise InputError(f"there is no cluster {cluster!r} of local nodes", "list clusters: k8sdds nodes ls")
    if name is not None and name not in record.machines:
        raise InputError(
            f"there is no node {name!r} in {cluster!r}", f"use one of: {', '.join(record.machines)}"
        )
    return record


# -- removal ---------------------------------------------------------------------------------------


def _mark_stopped(record: ClusterRecord) -> None:
    """Record that all nodes have ended with the holder, for example in a reboot; their disks remain."""
    for node in record.machines.values():
        node.pid, node.started, node.answered = 0, None, False
    record.holder = (0, None)
    record.write()


def _remove_unrecorded(data: Path) -> None:
    """Remove a cluster from its data folder, because its record was lost, for example in a reboot."""
    holder = data / switch.HOLDER
    # A killed command may have written a part of the file.
    with contextlib.suppress(OSError, ValueError):
        pid, started = map(int, holder.read_text().split())
        if processes.kill(pid, started):
            processes.wait_gone(pid, 30)
    for hierarchy in cgroups.hierarchies():
        remove_cgroup(hierarchy.of_cluster(data))
    shutil.rmtree(data)


def _remove_machine(record: ClusterRecord, name: str) -> None:
    machine.halt(record, name)
    shutil.rmtree(Path(record.data) / name, ignore_errors=True)
    if not (Path(record.data) / name).exists():
        del record.machines[name]
    record.write()


def _remove(record: ClusterRecord) -> None:
    if processes.kill(*record.holder):
        processes.wait_gone(record.holder[0], 30)
    left = [folder for folder in record.cgroup_folders if not remove_cgroup(Path(folder))]
    deadline = time.monotonic() + 10
    while Path(record.data).exists() and time.monotonic() < deadline:
        shutil.rmtree(record.data, ignore_errors=True)
    if Path(record.data).exists():
        left.append(record.data)
    if left:
        raise PrerequisiteError(f"cannot remove {', '.join(left)}", "retry: k8sdds nodes down")
    record.forget()
