"""Explain which percentiles and times of a trial are null, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from k8sdds.analysis.conditions import UNIT
from k8sdds.results import histograms, tidy
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row


def reasons(trial: Row) -> dict[str, str]:
    """Return why metrics of a trial are null, such as `84 values, 100 are needed`."""
    known = trial.get("missing") or {}
    return {metric: reason for metric, reason in known.items() if metric in METRICS}


def reason(trials: list[Row], metric: str) -> str:
    """Return why a metric is null in the trial that is farthest from a value, or an empty text."""
    known = [trial for trial in trials if reasons(trial).get(metric)]
    return max(
        ((_missing_factor(trial, metric), reasons(trial)[metric]) for trial in known), default=(0, "")
    )[1]


def share(trials: Sequence[Row], metric: str) -> str:
    """Return in how many trials a metric is null because they were unfinished or silent, and the first reason."""
    whys = [reasons(trial).get(metric, "") for trial in trials]
    having = sum(bool(why) or trial.get(metric) is not None for why, trial in zip(whys, trials, strict=True))
    own = [
        why
        for why in whys
        if why and not why.startswith(tidy.ELSEWHERE) and tidy.is_unfinished_or_silent(metric, why)
    ]
    return f"{len(own)} of {having}: {own[0]}" if own else ""


def without_samples(trials: Sequence[Row]) -> str:
    """Return in how many trials no sample arrived at a subscriber; empty if there is none."""
    count = sum(histograms.NOTHING_ARRIVED in reasons(trial).values() for trial in trials)
    return f"{histograms.NOTHING_ARRIVED} in {count} of {len(trials)} trials" if count else ""


def remedy(trials: list[Row], metric: str) -> str:
    """Return how much longer trials must be so that a metric is probably known, such as `measure 4 times as long`.

    The number of episodes and the number of values grow in proportion to the measured time.
    """
    if reason(trials, metric) == histograms.NOTHING_ARRIVED:
        return "look at the loss: longer trials do not help"
    if reason(trials, metric) == histograms.EACH_FLOW:
        return "read tables/flows.csv of the report, or the tables of `k8sdds recommend --from`"
    longer = factor(trials, metric)
    if 0 < longer <= 1:
        return "lower the rate, so that fewer values are missing"
    return (
        f"measure at least {math.ceil(longer)} times as long" if 1 < longer < math.inf else "measure longer"
    )


def extended_s(trials: Sequence[Row], factor: float) -> float | None:
    """Return the length of trials, extended by a factor; None if it is unknown, or they are long enough."""
    lengths = [float(trial["duration_s"]) for trial in trials if trial.get("duration_s")]
    return math.ceil(factor * max(lengths)) if 1 < factor < math.inf and lengths else None


def factor(trials: Sequence[Row], metric: str) -> float:
    """Return how many times as long the trials must be so that a metric is probably known; 0 if that is unknown."""
    return max((_missing_factor(trial, metric) for trial in trials if metric in reasons(trial)), default=0)


def _missing_factor(trial: Row, metric: str) -> float:
    """Return the needed number of episodes or values relative to the number of them in a trial; 0 if it is unknown."""
    kind, _, quantity = metric.removesuffix("_us").rpartition("_")
    known = [(histograms.VALUES_BEYOND, (trial.get("tail_episodes") or {}).get(metric))]
    known += [(histograms.needed(quantity), trial.get(f"{kind}_count"))]
    return max(
        (needed / count if count else math.inf for needed, count in known if count is not None), default=0
    )


def by_network(trials: list[Row]) -> list[Row]:
    """Return `quantity`, network, number of `trials`, first `reason` and `remedy` of each null percentile or time.

    Trials that have the value, and only share a cell with one that does not, do not count.
    """
    found: dict[tuple[str, str], Row] = {}
    for trial in trials:
        for metric, why in reasons(trial).items():
            if why.startswith(tidy.ELSEWHERE):
                continue
            entry = {"quantity": metric, UNIT: trial[UNIT], "trials": 0, "reason": why}
            found.setdefault((metric, trial[UNIT]), entry)["trials"] += 1
    for (metric, unit), entry in found.items():
        entry["remedy"] = remedy([trial for trial in trials if trial[UNIT] == unit], metric)
    order = list(METRICS)
    return sorted(found.values(), key=lambda row: order.index(row["quantity"]))
