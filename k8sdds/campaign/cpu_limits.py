"""Summarize how the CPU limits of pods stopped participants, by the meters of their supervisors."""

from __future__ import annotations

from typing import Any

from k8sdds.results import aggregate
from k8sdds.workloads.outputs import TrialOutputs

READINGS = {
    "periods": "limit_periods",
    "throttled_periods": "throttled_periods",
    "throttled_s": "throttled_s",
    "pressure_some_s": "cpu_pressure_some_s",
    "pressure_full_s": "cpu_pressure_full_s",
}
"""Keys of a participant in the record, and those of its meters."""


def throttling(outputs: TrialOutputs) -> dict[str, dict[str, Any]] | None:
    """Return the readings of each participant, None for those that are not known; None if no pod had a limit.

    A limit that the trial did not set, such as that of a LimitRange, has periods, too.
    """
    found = {
        participant.name: {key: meters.get(name) for key, name in READINGS.items()}
        for participant in outputs.trial.cell.participants
        if (meters := outputs.meters_of(participant))
    }
    limited = outputs.trial.cell.cpu_quota or any(own["periods"] for own in found.values())
    return (found or None) if limited else None


def throttled_percent(found: dict[str, dict[str, Any]] | None) -> float | None:
    """Return the share of throttled periods of the participant with the largest one."""
    shares = [
        aggregate.ratio(own["throttled_periods"], own["periods"], 100) for own in (found or {}).values()
    ]
    return max((share for share in shares if share is not None), default=None)
