"""What an attempt left behind: the participants' own accounts, their meters, and the testbed's counters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds import middleware
from k8sdds.model.measurement import Measurement
from k8sdds.model.trial import Participant, Role, Trial
from k8sdds.perftest.output import Summary


@dataclass(frozen=True)
class TrialOutputs:
    """All that is known of an attempt; summaries are None where a participant left no whole one."""

    trial: Trial
    measurement: Measurement
    folder: Path
    """Of the attempt's raw files, with one folder for each participant."""
    pubs: list[Summary | None]
    subs: list[Summary | None]
    meters: dict[str, dict[str, Any]]
    """Participant to what its supervisor read, docs/supervisor.md; empty where it read nothing."""

    @classmethod
    def of(cls, trial: Trial, measurement: Measurement, folder: Path) -> TrialOutputs:
        """Read the participants' files."""
        chosen = middleware.find(trial.cell.middleware)
        read = {one: chosen.summary(trial, folder / one.name) for one in trial.cell.participants}
        return cls(
            trial,
            measurement,
            folder,
            [summary for one, summary in read.items() if one.publishes],
            [summary for one, summary in read.items() if one.subscribes],
            {name: outcome.meters or {} for name, outcome in measurement.outcomes.items()},
        )

    def meters_of(self, participant: Participant) -> dict[str, Any]:
        """Return what a participant's supervisor read; empty if it read nothing."""
        return self.meters.get(participant.name, {})

    def meters_of_role(self, role: Role) -> list[dict[str, Any]]:
        """Return what the supervisors of all started participants with this role read."""
        return [
            self.meters[name]
            for name, one in self.measurement.outcomes.items()
            if one.participant.role == role
        ]

    def pod_bytes(self, participant: Participant, key: str) -> int | None:
        """Return a counter of a pod's interface, or None if it has none or it was not read."""
        name = self.measurement.outcomes[participant.name].interface
        interface = (self.meters_of(participant).get("interfaces") or {}).get(name)
        return interface.get(key) if isinstance(interface, dict) else None


def percent(meters: dict[str, Any], seconds: float | None) -> float | None:
    """A time in percent of the interval that the meters were read over."""
    duration = (meters.get("interval") or {}).get("duration_s")
    return seconds / duration * 100 if seconds is not None and duration else None
