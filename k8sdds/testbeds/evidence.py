"""Define one kind of evidence about a trial: what is read right before and after its participants run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from typing_extensions import override

from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import Trial
from k8sdds.testbeds.profiling import Profiler

Key = TypeVar("Key", bound=Hashable)


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


class Counters(Reading, Generic[Key]):
    """Counters, of which only the difference is evidence."""

    def __init__(self) -> None:
        self._before: Mapping[Key, int] | None = None

    def read(self) -> Mapping[Key, int]:
        """Return the current values."""
        raise NotImplementedError

    def fields(self, gained: Mapping[Key, int], outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        """Return fields of Measurement for what the counters gained."""
        raise NotImplementedError

    @override
    def before(self) -> None:
        self._before = self.read()

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        after = self.read()
        before = after if self._before is None else self._before
        return self.fields({key: value - before[key] for key, value in after.items()}, outcomes)


class ProfileReading(Reading):
    """The profile of a trial, in a file of its raw folder.

    Args:
        trial: The trial.
        folder: The raw folder of the attempt.
        owner: Whose process an id of this machine belongs to.
        deadline_s: The recording ends then at the latest.
    """

    def __init__(
        self, trial: Trial, folder: Path, owner: Callable[[int], str | None], deadline_s: float
    ) -> None:
        self._profiler = Profiler(folder, owner)
        self._limits = (trial.duration_s, deadline_s)

    @override
    def recording(self) -> AbstractContextManager[None]:
        return self._profiler.recording(*self._limits)

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        problem = self._profiler.write(outcome.meters for outcome in outcomes.values())
        return {"warnings": (problem,) if problem else ()}


def measured(readings: Sequence[Reading], run: Callable[[Callable[[], None]], Measurement]) -> Measurement:
    """Run participants and return their measurement with the evidence of all readings.

    Args:
        readings: The kinds of evidence; the last one is read nearest to the participants' run.
        run: Runs the participants; calls its argument right before they start.
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
