"""Profile an attempt on this machine: record the stacks of all cores, and keep those of its work."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from k8sdds.analysis import profile
from k8sdds.system import perf
from k8sdds.system.files import write_atomically
from k8sdds.system.reading import UnreadableError

RECORDING = "perf.data"
SCAN_S = 0.25
"""Time between two looks at the processes of this machine. A trial with a profile measures no times."""


class Profiler:
    """Records one attempt.

    Args:
        folder: The raw folder of the attempt.
        owner: Whose process an id of this machine belongs to (`analysis.profile.Owner`).
    """

    def __init__(self, folder: Path, owner: Callable[[int], str | None]) -> None:
        self._folder = folder
        self._owner = owner
        self._owners: dict[int, str] = {}
        self._hertz = 0

    @contextlib.contextmanager
    def recording(self, duration_s: float, deadline_s: float) -> Iterator[None]:
        """Record while the context lasts. Raises PrerequisiteError.

        Args:
            duration_s: Expected length.
            deadline_s: The recording ends then at the latest.
        """
        self._hertz = perf.hertz(duration_s)
        ended = threading.Event()
        scan = threading.Thread(target=self._scan, args=(ended,), daemon=True)
        with perf.recording(self._folder / RECORDING, self._hertz, deadline_s):
            scan.start()
            try:
                yield
            finally:
                ended.set()
                scan.join()

    def _scan(self, ended: threading.Event) -> None:
        """Find the processes of the attempt while they run."""
        while True:
            last = ended.wait(SCAN_S)
            for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
                # A process that has just started can still be on its way into its namespaces.
                owner = self._owner(pid)
                if owner is not None:
                    self._owners[pid] = owner
            if last:
                return

    def write(self, meters: Iterable[dict[str, Any] | None]) -> str:
        """Write profile.json of the interval that the participants measured, and delete the recording.

        Args:
            meters: The readings of the participants' supervisors.

        Returns:
            Why there is no profile, or an empty string.
        """
        recording = self._folder / RECORDING
        intervals = _intervals(meters)
        try:
            if not intervals:
                return "the participants measured no interval"
            start_ns, end_ns = max(start for start, _ in intervals), min(end for _, end in intervals)
            reduced = profile.reduce(
                perf.samples(recording), perf.events(), self._hertz, start_ns, end_ns, self._owners.get
            )
        except UnreadableError as error:
            return error.message
        finally:
            recording.unlink(missing_ok=True)
        write_atomically(self._folder / profile.FILE, reduced.model_dump_json())
        return ""


def _intervals(meters: Iterable[dict[str, Any] | None]) -> list[tuple[int, int]]:
    intervals = [(readings or {}).get("interval") or {} for readings in meters]
    return [
        (interval["start_monotonic_ns"], interval["start_monotonic_ns"] + round(interval["duration_s"] * 1e9))
        for interval in intervals
        if interval.get("start_monotonic_ns") is not None and interval.get("duration_s")
    ]
