"""Tell which percentiles are null in a trial because it has too few values, and why."""

from __future__ import annotations

import json

from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.overhead import Row
from k8sdds.results.metrics import METRICS


def reasons(trial: Row) -> dict[str, str]:
    """Return why percentiles of a trial are null by metric, such as `84 values, 100 are needed`."""
    missing = trial.get("missing") or {}
    parsed: dict[str, str] = json.loads(missing) if isinstance(missing, str) else missing
    return {metric: reason for metric, reason in parsed.items() if metric in METRICS}


def reason(trials: list[Row], metric: str) -> str:
    """Return why a metric is null in the first of these trials that has a reason, or an empty text."""
    return next((found for trial in trials if (found := reasons(trial).get(metric, ""))), "")


def by_network(trials: list[Row]) -> list[Row]:
    """Return `quantity`, network, number of `trials` and the first `reason` of each null percentile."""
    found: dict[tuple[str, str], Row] = {}
    for trial in trials:
        for metric, why in reasons(trial).items():
            entry = {"quantity": metric, UNIT: trial[UNIT], "trials": 0, "reason": why}
            found.setdefault((metric, trial[UNIT]), entry)["trials"] += 1
    order = list(METRICS)
    return sorted(found.values(), key=lambda row: order.index(row["quantity"]))
