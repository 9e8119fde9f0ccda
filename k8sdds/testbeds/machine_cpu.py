"""Find what a trial costs a machine outside of the participants' pods, and what else ran there meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Sequence

from k8sdds.analysis import components
from k8sdds.model.measurement import OutsideCpu
from k8sdds.system import reading
from k8sdds.system.paths import native_program
from k8sdds.system.shapes import Finite, Integer, Number, Shape

COMMAND = "processes"
"""Command of the supervisor that prints `Processes`."""
SEPARATE_INTERRUPTS = "separate_interrupts"
"""Key of the supervisor's facts: whether the kernel leaves the time of interrupts out of that of processes."""


class Process(Shape):
    """A process of a machine."""

    pid: Integer
    parent: Integer
    cgroup: str
    """Path of its cgroup; relative to the one of the reader if that has a namespace of its own."""
    cpu_s: Finite
    """CPU time of all its threads so far, and of the children for which it has waited."""


class Processes(Shape):
    """The processes of a machine at one moment (docs/reference/supervisor.md)."""

    monotonic_ns: Integer
    kernel_threads_s: Number
    """CPU time of the kernel's threads so far, without ksoftirqd; None if they are not visible."""
    processes: list[Process]

    def tree(self, roots: Collection[int]) -> set[int]:
        """Return these processes and their descendants."""
        children: dict[int, list[int]] = {}
        for process in self.processes:
            children.setdefault(process.parent, []).append(process.pid)
        found: set[int] = set()
        waiting = list(roots)
        while waiting:
            pid = waiting.pop()
            if pid not in found:
                found.add(pid)
                waiting += children.get(pid, [])
        return found


Owner = Callable[[Process], str | None]
"""Returns whose process it is: `PARTICIPANT`, `NETWORK`, `SERVICE` or `LINK` of `components`; None: of any other."""


class Usage:
    """The CPU time of a machine by owner at one moment, in seconds."""

    def __init__(self, seen: Processes, owner: Owner) -> None:
        self.at_s = seen.monotonic_ns / 1e9
        self.kernel_threads_s = seen.kernel_threads_s
        self._owned: dict[str | None, float] = {}
        for process in seen.processes:
            key = owner(process)
            self._owned[key] = self._owned.get(key, 0.0) + process.cpu_s

    def of(self, owner: str | None) -> float:
        """Return the CPU time of all processes of an owner so far."""
        return self._owned.get(owner, 0.0)


def parse(output: bytes, what: str) -> Processes:
    """Parse what COMMAND printed. Raises UnreadableError, which names its source `what`, for another form."""
    document = reading.json_object(output, what)
    try:
        return Processes.model_validate(document)
    except ValueError as error:
        raise reading.UnreadableError(f"{what} is not a list of processes") from error


def read_here() -> Processes | None:
    """Return the processes of this machine; None if they cannot be read."""
    try:
        done = subprocess.run(
            [native_program("k8sdds-supervisor"), COMMAND], capture_output=True, timeout=10, check=True
        )
        return parse(done.stdout, "the list of processes")
    except (OSError, subprocess.SubprocessError, reading.UnreadableError):
        return None


def between(before: Usage, after: Usage, reading_s: float = 0.0) -> OutsideCpu | None:
    """Return the CPU time between two moments, in percent of one core; None if they are the same.

    Sums are compared rather than single processes: what a process used that has ended is in the time of its parent,
    which must have the same owner. `reading_s`: what a reading costs other programs, such as a container runtime that
    starts a command in a pod.
    """
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0:
        return None

    def percent(start_s: float, end_s: float) -> float:
        return max(0.0, end_s - start_s) / elapsed_s * 100

    threads = before.kernel_threads_s, after.kernel_threads_s
    return OutsideCpu(
        network=percent(before.of(components.NETWORK), after.of(components.NETWORK)),
        others=percent(before.of(None) + reading_s, after.of(None)),
        kernel_threads=(
            None if threads[0] is None or threads[1] is None else percent(threads[0], threads[1])
        ),
        services=percent(before.of(components.SERVICE), after.of(components.SERVICE)),
        links=percent(before.of(components.LINK), after.of(components.LINK)),
    )


def total(nodes: Sequence[OutsideCpu]) -> OutsideCpu:
    """Return the sum of the nodes that share a machine, each of which sees its own processes."""
    threads = [node.kernel_threads for node in nodes if node.kernel_threads is not None]
    return OutsideCpu(
        network=sum(node.network for node in nodes),
        others=sum(node.others for node in nodes),
        # A node that sees the kernel's threads sees those of the whole machine.
        kernel_threads=max(threads, default=None),
        services=sum(node.services for node in nodes),
        links=sum(node.links for node in nodes),
    )
