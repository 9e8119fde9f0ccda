"""What a trial costs a machine outside of the participants' pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8sdds.analysis import components
from k8sdds.model.measurement import OutsideCpu
from k8sdds.system.reading import UnreadableError
from k8sdds.testbeds import machine_cpu
from k8sdds.testbeds.cluster import evidence
from k8sdds.testbeds.machine_cpu import Process, Processes, Usage

OWNERS = {10: components.NETWORK, 20: components.PARTICIPANT}


def seen(at_s: float, kernel_threads_s: float | None, **cpu_s: float) -> Processes:
    """Return processes by name `pPID`; each is a child of process 1."""
    processes = [
        {"pid": int(name[1:]), "parent": 1, "cgroup": "/", "cpu_s": used} for name, used in cpu_s.items()
    ]
    return Processes.model_validate(
        {"monotonic_ns": round(at_s * 1e9), "kernel_threads_s": kernel_threads_s, "processes": processes}
    )


def usage(*arguments: Any, **cpu_s: float) -> Usage:
    def owner(process: Process) -> str | None:
        return OWNERS.get(process.pid)

    return Usage(seen(*arguments, **cpu_s), owner)


POD = "12345678-1234-1234-1234-123456789abc"


def on_node(at_s: float, *seen: tuple[int, int, str, float]) -> Usage:
    """Return the usage of a node with these processes: id, parent, cgroup and CPU time."""
    processes = [dict(zip(("pid", "parent", "cgroup", "cpu_s"), each, strict=True)) for each in seen]
    document = {"monotonic_ns": round(at_s * 1e9), "kernel_threads_s": 0.0, "processes": processes}
    return evidence.usage(Processes.model_validate(document), {POD: components.PARTICIPANT})


def test_cpu_time_is_divided_by_owner() -> None:
    before = usage(5.0, 1.0, p10=1.0, p20=2.0, p30=7.0)
    after = usage(9.0, 1.2, p10=1.4, p20=5.0, p30=7.1, p31=0.3)
    spent = machine_cpu.between(before, after)
    assert spent is not None
    assert (spent.network, spent.others) == (pytest.approx(10.0), pytest.approx(10.0))
    assert spent.kernel_threads == pytest.approx(5.0)
    without_reading = machine_cpu.between(before, after, reading_s=0.3)
    assert without_reading is not None and without_reading.others == pytest.approx(2.5)


def test_an_ended_process_counts_by_its_parent() -> None:
    """Process 31 used 0.5 s before and 0.1 s after the first moment, and ended. Its parent 30 has waited for it."""
    spent = machine_cpu.between(usage(0.0, 0.0, p30=1.0, p31=0.5), usage(2.0, 0.0, p30=1.6))
    assert spent is not None and spent.others == pytest.approx(5.0)


def test_threads_of_the_kernel_may_be_invisible() -> None:
    spent = machine_cpu.between(usage(0.0, None, p30=1.0), usage(2.0, None, p30=1.0))
    assert spent is not None and spent.kernel_threads is None
    assert machine_cpu.between(usage(3.0, 0.0), usage(3.0, 0.0)) is None


def test_nodes_of_one_machine_are_added_but_not_the_threads_of_its_kernel() -> None:
    nodes = [OutsideCpu(1.0, 2.0, 3.0), OutsideCpu(10.0, 20.0, 3.0, links=4.0), OutsideCpu(0.5, 0.5, None)]
    assert machine_cpu.total(nodes) == OutsideCpu(11.5, 22.5, 3.0, links=4.0)


def test_descendants_belong_to_a_tree() -> None:
    processes = [
        {"pid": pid, "parent": parent, "cgroup": "/", "cpu_s": 0.0}
        for pid, parent in ((2, 1), (3, 2), (4, 3), (5, 1), (6, 5))
    ]
    document = {"monotonic_ns": 1, "kernel_threads_s": None, "processes": processes}
    found = machine_cpu.parse(json.dumps(document).encode(), "the list")
    assert found.tree([2]) == {2, 3, 4} and found.tree([3, 6]) == {3, 4, 6}


def test_the_shim_of_a_pod_has_its_owner() -> None:
    """A participant is executed in a pod: the shim of its runtime, in another cgroup, waits for it."""
    init, pause = (1, 0, "/init.scope", 3.0), (51, 50, f"/kubepods/pod{POD}/1", 0.1)
    running = (60, 50, f"/kubepods/pod{POD}/1", 0.2)
    shim = (50, 1, "/system.slice/containerd.service")
    before = on_node(0.0, init, (*shim, 1.0), pause, running)
    spent = machine_cpu.between(before, on_node(4.0, init, (*shim, 3.5), pause))
    assert spent is not None and spent.others == 0


def test_what_emulates_links_is_no_other_program() -> None:
    link = (70, 1, "/system.slice/k8sdds-link.service")
    spent = machine_cpu.between(on_node(0.0, (*link, 1.0)), on_node(4.0, (*link, 3.0)))
    assert spent is not None and (spent.links, spent.others) == (50, 0)


@pytest.mark.parametrize(
    "output", [b"", b"[]", b'{"monotonic_ns": 1}', b'{"monotonic_ns": -1, "processes": []}']
)
def test_another_document_is_no_list_of_processes(output: bytes) -> None:
    with pytest.raises(UnreadableError):
        machine_cpu.parse(output, "the list of processes of a node")
