"""Define one kind of evidence about a trial: what is read right before and after its participants run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from typing_extensions import override

from k8sdds.analysis import profile
from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER, Trial
from k8sdds.system import perf
from k8sdds.system.files import write_atomically
from k8sdds.system.reading import UnreadableError

RECORDING = "perf.data"
SCAN_S = 0.25
"""Time between two looks at the processes of this machine. A trial with a profile measures no times."""


T = TypeVar("T")


class Reading:
    """One kind of evidence. Each kind overrides the methods that it needs."""

    def recording(self) -> AbstractContextManager[None]:
        """Return a context that lasts from before the participants get ready until they have ended."""
        return nullcontext()

    def before(self) -> None:
        """Read right before the participants start. It is not called if they do not get ready."""

    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        """Return fields of Measurement, read right after the participants have ended."""
        return {}


class Compared(Reading, Generic[T]):
    """Evidence from two readings of the same thing.

    `fields` returns fields of Measurement from the reading before the participants started, which is None if they did
    not get ready, `read`, which it calls if it needs the reading after they have ended, and their outcomes.
    """

    def __init__(
        self,
        read: Callable[[], T],
        fields: Callable[[T | None, Callable[[], T], Mapping[str, Outcome]], Mapping[str, Any]],
    ) -> None:
        self._read, self._fields = read, fields
        self._before: T | None = None

    @override
    def before(self) -> None:
        self._before = self._read()

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return self._fields(self._before, self._read, outcomes)


class ProfileReading(Reading):
    """The profile of a trial in its raw folder: the stacks of all cores of this machine, as far as they are its work.

    `owner` returns whose process an id of this machine belongs to. The recording ends after `deadline_s` at the latest.
    """

    def __init__(
        self, trial: Trial, folder: Path, owner: Callable[[int], str | None], deadline_s: float
    ) -> None:
        self._folder, self._owner, self._deadline_s = folder, owner, deadline_s
        self._owners: dict[int, str] = {}
        self._hertz = perf.hertz(trial.duration_s)

    @override
    @contextmanager
    def recording(self) -> Iterator[None]:
        ended = threading.Event()
        scan = threading.Thread(target=self._scan, args=(ended,), daemon=True)
        recording = self._folder / RECORDING
        try:
            with perf.recording(recording, self._hertz, self._deadline_s):
                scan.start()
                try:
                    yield
                finally:
                    ended.set()
                    scan.join()
        except BaseException:
            # `after`, which deletes it, is not called.
            recording.unlink(missing_ok=True)
            raise

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

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        recording = self._folder / RECORDING
        intervals = measured_intervals(outcomes.values())
        try:
            if not intervals:
                return {"warnings": ("the participants measured no interval",)}
            start_ns, end_ns = max(start for start, _ in intervals), min(end for _, end in intervals)
            reduced = profile.reduce(
                perf.samples(recording), perf.events(), self._hertz, start_ns, end_ns, self._owners.get
            )
        except UnreadableError as error:
            return {"warnings": (error.message,)}
        finally:
            recording.unlink(missing_ok=True)
        write_atomically(self._folder / profile.FILE, reduced.model_dump_json())
        return {}


def measured_intervals(outcomes: Iterable[Outcome]) -> list[tuple[int, int]]:
    """Return begin and end of the measured intervals that are known, by CLOCK_MONOTONIC in ns."""
    intervals = [(outcome.meters or {}).get("interval") or {} for outcome in outcomes]
    return [
        (interval["start_monotonic_ns"], interval["start_monotonic_ns"] + round(interval["duration_s"] * 1e9))
        for interval in intervals
        if interval.get("start_monotonic_ns") is not None and interval.get("duration_s")
    ]


def measured_us(outcomes: Mapping[str, Outcome]) -> tuple[float, float] | None:
    """Return the measured interval of the first publisher, from whose begin outages count, in µs; None if unknown."""
    interval = next(iter(measured_intervals([outcomes[FIRST_PUBLISHER.name]])), None)
    return (interval[0] / 1000, interval[1] / 1000) if interval else None


def measured(readings: Sequence[Reading], run: Callable[[Callable[[], None]], Measurement]) -> Measurement:
    """Run participants and return their measurement with the evidence of all readings.

    The last of the readings is read nearest to the participants' run. `run` calls its argument right before they start.
    """

    def before() -> None:
        for reading in readings:
            reading.before()

    with ExitStack() as stack:
        for reading in readings:
            stack.enter_context(reading.recording())
        measurement = run(before)
    fields: dict[str, Any] = {}
    warnings = list(measurement.warnings)
    for reading in reversed(readings):
        seen = dict(reading.after(measurement.outcomes))
        warnings += seen.pop("warnings", ())
        fields |= seen
    return replace(measurement, **fields, warnings=tuple(warnings))
