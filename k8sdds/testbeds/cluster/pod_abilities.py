"""Check that pods can run what cells require of their kernel, their cores and their image."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.model.background import STRESSOR
from k8sdds.model.trial import LOAD_SOURCE, Cell
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot


def require_abilities(cell: Cell, slots: Mapping[str, Slot], pool: PodPool) -> None:
    """Check the pods of a cell, which must be ready.

    Raises:
        PrerequisiteError: A pod cannot run what the cell requires.
    """
    if cell.realtime_priority:
        for slot in slots.values():
            _require_realtime(pool.pod(slot))
    if cell.background.cpus:
        slot = slots[LOAD_SOURCE.name]
        require_cores(cell, pool.pod(slot))
        if pool.run(slot, ["sh", "-c", f"command -v {STRESSOR}"]).code:
            raise PrerequisiteError(
                f"background.cpus: the image of pod {pool.pod(slot).name} does not have {STRESSOR}",
                "load or build the image of this version of k8sdds: k8sdds images load",
            )


def _require_realtime(pod: ReadyPod) -> None:
    if reason := pod.facts.get("realtime_refusal"):
        raise PrerequisiteError(
            f"node {pod.node}: its kernel refuses SCHED_FIFO in pods with the capability SYS_NICE: {reason}",
            "leave out realtime_priority, or use --testbed lab; a kernel with CONFIG_RT_GROUP_SCHED gives"
            " pods no real-time share (cpu.rt_runtime_us)",
        )


def require_cores(cell: Cell, pod: ReadyPod) -> None:
    """Check that a pod may use the cores of the background, which no manifest can request. Raises PrerequisiteError."""
    available = pod.facts["cpus"]
    if unknown := [cpu for cpu in cell.background.cpus if cpu not in available]:
        raise PrerequisiteError(
            f"background.cpus: pods on node {pod.node} cannot use core {unknown[0]}, only"
            f" {', '.join(map(str, available))}",
            "name other cores, or place pub0 on a node that has them; the static CPU manager of a kubelet keeps the"
            " cores of other pods from this one",
        )
