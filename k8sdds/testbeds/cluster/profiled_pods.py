"""Find the pods that processes belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from k8sdds.system import perf
from k8sdds.system.errors import Problem
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.machine_cpu import Processes, Usage

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
"""The id of a pod in the name of its cgroup; systemd does not allow hyphens there."""


def problems(nodes: Sequence[NodeInfo]) -> list[Problem]:
    """Return what prevents a profile of the nodes. Makes no changes."""
    own = BOOT_ID.read_text().strip()
    elsewhere = [node.name for node in nodes if node.boot_id != own]
    if elsewhere or not nodes:
        where = f"{', '.join(elsewhere)} run another kernel" if nodes else "its nodes cannot be listed"
        return [
            Problem(
                f"--profile records the kernel of this machine, but {where}",
                "leave out --profile, or use the lab or a cluster on this machine",
                input=True,
            )
        ]
    return perf.problems()


def owner(pods: Mapping[str, str]) -> Callable[[int], str | None]:
    """Return a function that finds whose process an id of this machine belongs to.

    Args:
        pods: Id of a pod to the owner of its processes.
    """

    def find(pid: int) -> str | None:
        try:
            return pods.get(pod_of(Path(f"/proc/{pid}/cgroup").read_text()))
        except OSError:
            return None

    return find


def usage(seen: Processes, pods: Mapping[str, str]) -> Usage:
    """Return the CPU time of a node's processes by their owner.

    The shim of a container runtime waits for the processes of its pod, which adds their time to its own: it has the
    owner of the pod.

    Args:
        seen: The processes.
        pods: Id of a pod to the owner of its processes.
    """
    owners = {process.pid: pods.get(pod_of(process.cgroup)) for process in seen.processes}
    shims = {process.parent: owners[process.pid] for process in seen.processes if owners[process.pid]}
    shims.pop(1, None)
    return Usage(seen, lambda process: owners[process.pid] or shims.get(process.pid))


def pod_of(cgroup: str) -> str:
    """Return the id of the pod in the path of a cgroup; empty if it is not that of a pod."""
    found = _POD.search(cgroup)
    return found[1].replace("_", "-") if found else ""
