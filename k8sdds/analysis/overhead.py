"""Compute levels per cell, and overheads relative to the baseline, or to the same network without protection."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from k8sdds.analysis import statistics
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.statistics import Contrast, Estimate
from k8sdds.model.settings import SHARED_MEMORY
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, by_columns, grouped

NOT_PROTECTED = (None, "none")
_SECURITY = CONDITION.index("security")


def levels(best: list[Row]) -> list[Row]:
    """Return the level of every metric in every cell: mean, 95 % interval, n, extremes and all values.

    `best` are the valid trials, as rows of `tidy.best`. There is one row per network label, condition and
    metric, in the metric's unit. `averaged_on` is `log` (geometric mean) or `linear`. A metric that is usually
    averaged on the log scale is averaged on the linear scale if one of its values is 0.
    """
    rows = []
    metrics = _measured(best)
    for key, trials in by_cell(best).items():
        for metric in metrics:
            own = alike(metric, trials)[0]
            values = _values(own, metric.name)
            if not values:
                continue
            log = metric.log and min(values) > 0
            estimate = _mean(own, metric.name, log)
            low, high = metric.possible(estimate.value, estimate.low, estimate.high)
            last = trials[-1]
            rows.append(_cell(key, metric) | {
                "unit": metric.unit, "mean": estimate.value, "ci_low": low, "ci_high": high, "n": estimate.n,
                "minimum": min(values), "maximum": max(values), "averaged_on": "log" if log else "linear",
                "engine": last["engine"], "fidelity": last["fidelity"], "mtu_bytes": last["mtu_bytes"],
                "includes_scheduling": _includes_scheduling(trials), "values": values,
            })  # fmt: skip
    return rows


def _mean(trials: list[Row], metric: str, log: bool) -> Estimate:
    """Return the mean over repetitions, each of which has the mean of its values, see `_repeated`."""
    repeated = _repeated(trials, metric).values()
    if log:
        means = [statistics.geometric_mean(values) for values in repeated]
        return statistics.log_mean(means, rounding(trials, metric))
    return statistics.linear_mean([fmean(values) for values in repeated])


def overheads(best: list[Row], baseline: str | None, confidence: float = statistics.CONFIDENCE) -> list[Row]:
    """Return the overheads of all other networks relative to `baseline` in the same condition and repetition.

    `best` are the valid trials, as rows of `tidy.best`. There is one row per network label, condition and
    metric with at least one pair. Overheads are in percent; `values` contains the overhead of each repetition.
    `seen` states whether the interval excludes 0 (None where n is 1). Only metrics on the log scale are compared.
    Pairs with a value of 0 are omitted, because their ratio has no meaning.
    """
    cells = by_cell(_on_networks(best))
    rows = []
    for key, trials in cells.items():
        base = cells.get((baseline, *key[1:]), []) if key[0] != baseline else []
        for metric in _measured(base):
            ratio, pairs = paired(trials, base, metric, confidence)
            if ratio is None:
                continue
            low, high = ratio.bounds
            single = [100 * (1 - x / b if metric.gain else x / b - 1) for x, b in pairs]
            rows.append(
                _cell(key, metric)
                | {"ratio": ratio.ratio, "ratio_low": low, "ratio_high": high}
                | columns_of(metric, ratio)
                | {"baseline": baseline, "includes_scheduling": _includes_scheduling([*trials, *base])}
                | {"values": single}
            )
    return rows


def overheads_by_repetition(best: list[Row], baseline: str | None) -> list[Row]:
    """Return the overheads of every repetition separately, with the column `repetition` first."""
    known = (row for row in best if row["repetition"] is not None)
    return [
        {"repetition": repetition} | row
        for (repetition,), trials in sorted(by_columns(known, ["repetition"]).items())
        for row in overheads(trials, baseline)
    ]


def _cell(key: tuple[Any, ...], metric: Metric) -> Row:
    """Return the first columns of a row about a metric in a cell."""
    return dict(zip((UNIT, *CONDITION), key, strict=True)) | {"quantity": metric.name}


def columns_of(metric: Metric, ratio: Contrast) -> Row:
    """Return the columns of a row about the overhead for a ratio x/b."""
    percent, low, high = ratio.overhead(metric.gain)
    return {
        "overhead_percent": percent, "ci_low_percent": low, "ci_high_percent": high, "n": ratio.n,
        "seen": ratio.differs, "detectable_percent": statistics.detectable_percent(ratio, metric.gain),
    }  # fmt: skip


def ratios(trials: list[Row], baseline: str, metric: str) -> dict[str, Contrast]:
    """Return the paired ratios to the network `baseline`, which may be any network, by network label.

    `trials` are the rows of `tidy.best` for one condition.
    """
    by_label = grouped(trials, lambda trial: str(trial[UNIT]))
    base = by_label.pop(baseline, [])
    by_network = {label: paired(rows, base, METRICS[metric])[0] for label, rows in by_label.items()}
    return {label: ratio for label, ratio in by_network.items() if ratio is not None}


def protections(best: list[Row], networks: Mapping[str, Any]) -> list[Row]:
    """Return the overhead of every protected cell whose unprotected counterpart was also measured.

    A cell is protected by DDS Security, by an encrypting network, or by both. It is compared with the same network
    without protection, with the same pairing and intervals as in `overheads`.

    `best` are the valid trials, as rows of `tidy.best`. `networks` contains the run folder's facts by
    label. The fact `unprotected` is the name of the same network without encryption. Each row has
    `network_label`, the condition, `against` (the label it is compared with), `quantity`, `overhead_percent`,
    `ci_low_percent`, `ci_high_percent`, `n`, `seen` (whether the interval excludes 0) and
    `detectable_percent`.
    """
    cells = by_cell(_on_networks(best))
    unprotected_labels = _unprotected_labels(networks)
    rows = []
    for key, trials in cells.items():
        label, *condition = key
        against = unprotected_labels.get(label, label)
        if against == label and condition[_SECURITY] in NOT_PROTECTED:
            continue
        unprotected = [*condition[:_SECURITY], "none", *condition[_SECURITY + 1 :]]
        base = cells.get((against, *unprotected), [])
        for metric in _measured(base):
            if ratio := paired(trials, base, metric)[0]:
                row = {UNIT: label, "against": against} | _cell(key, metric) | columns_of(metric, ratio)
                rows.append(row)
    return rows


def _on_networks(trials: Iterable[Row]) -> list[Row]:
    """Return the trials of samples on networks: those in shared memory use none, or take another way on another one."""
    return [row for row in trials if row["transport"] != SHARED_MEMORY]


def _unprotected_labels(networks: Mapping[str, Any]) -> dict[str, str]:
    """Map the label of each encrypting network to the first label of the same network without encryption."""
    facts = {label: fact for label, fact in networks.items() if isinstance(fact, Mapping)}
    first: dict[Any, str] = {}
    for label, fact in facts.items():
        first.setdefault(fact.get("name"), label)
    names = {label: fact.get("unprotected") for label, fact in facts.items()}
    return {label: first[name] for label, name in names.items() if name and name in first}


def by_cell(trials: list[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the trials by (network_label, *condition), in the order in which cells were first measured."""
    return by_columns(trials, (UNIT, *CONDITION))


def paired(
    trials: list[Row], base: list[Row], metric: Metric, confidence: float = statistics.CONFIDENCE
) -> tuple[Contrast | None, list[tuple[float, float]]]:
    """Return the paired ratio of two cells, and the pairs. The ratio is None if no repetition has both cells."""
    if not metric.log:
        return None, []
    trials, base = alike(metric, trials, base)
    values, bases = by_repetition(trials, metric.name), by_repetition(base, metric.name)
    pairs = [(values[repetition], bases[repetition]) for repetition in sorted(values.keys() & bases.keys())]
    if not pairs:
        return None, []
    min_spread = math.hypot(rounding(trials, metric.name), rounding(base, metric.name))
    values_of, bases_of = [x for x, _ in pairs], [b for _, b in pairs]
    return statistics.paired_ratio(values_of, bases_of, min_spread, confidence), pairs


def method(metric: Metric, trial: Row) -> str | None:
    """Return how a metric of a trial was measured, if there are several methods whose values cannot be compared."""
    return trial.get("delay_method") if metric.group == "delay" else None


def definitions(metric: Metric, trials: Iterable[Row]) -> set[tuple[bool, str | None]]:
    """Return the definitions of a metric that trials have: whether it is the current one, and the method.

    Published data that was imported always has the definition of the program that measured it.
    """
    own = (row for row in trials if row["testbed"] != "imported" and row.get(metric.name) is not None)
    return {((row.get("schema") or 1) >= metric.since, method(metric, row)) for row in own}


def methods(metric: Metric, trials: Iterable[Row]) -> Counter[str]:
    """Return the methods by which a metric was measured, with the number of trials, see `method`."""
    return Counter(known for trial in trials if (known := method(metric, trial)))


def alike(metric: Metric, *groups: list[Row]) -> tuple[list[Row], ...]:
    """Return the trials of each group for which a metric was measured by the method of most trials of all groups."""
    known = methods(metric, itertools.chain(*groups))
    if len(known) < 2:
        return groups
    usual, _ = known.most_common(1)[0]
    return tuple([trial for trial in trials if method(metric, trial) == usual] for trials in groups)


def by_repetition(trials: list[Row], metric: str) -> dict[int, float]:
    """Return the geometric mean of the positive values of a metric by repetition, see `_repeated`.

    The result is empty if a rate is 0 in one repetition, because it has no ratio.
    """
    if METRICS[metric].gain and 0 in _values(trials, metric):
        return {}
    repeated = _repeated([trial for trial in trials if (trial.get(metric) or 0) > 0], metric)
    return {number: statistics.geometric_mean(values) for number, values in repeated.items()}


def _repeated(trials: list[Row], metric: str) -> dict[int, list[float]]:
    """Return the values of a metric by repetition.

    Imported data may contain a cell twice in the same repetition. These values are not independent, so each repetition
    has one mean. Trials without a repetition count as the same one, because nothing shows that they are independent.
    """
    repetitions = grouped(trials, lambda trial: int(trial["repetition"] or 0))
    values = {number: _values(same, metric) for number, same in repetitions.items()}
    return {number: known for number, known in values.items() if known}


def logs(trials: list[Row], metric: str, base: list[Row] | None = None) -> tuple[dict[int, float], float]:
    """Return the logarithms of the values, or of their ratios to those of `base`, by repetition.

    The second result is the standard deviation of these logarithms that rounding alone causes.
    """
    own = {key: math.log(value) for key, value in by_repetition(trials, metric).items()}
    if base is None:
        return own, rounding(trials, metric)
    others = by_repetition(base, metric)
    relative = {key: value - math.log(others[key]) for key, value in own.items() if key in others}
    return relative, math.hypot(rounding(trials, metric), rounding(base, metric))


def base_of(cell: Row, trials: list[Row], baseline: str | None) -> list[Row]:
    """Return the baseline's trials in a cell's condition. The baseline itself has none: its overhead is 0."""
    if cell[UNIT] == baseline:
        return []
    flow = cell.get("flow")
    return [
        row
        for row in trials
        if row[UNIT] == baseline
        and row.get("flow") == flow
        and all(row[name] == cell[name] for name in CONDITION)
    ]


_STEPS = {"_mbps": 0.1, "_us": 1.0}
"""Steps to which PerfTest rounds the values that it prints, by the unit suffix of the metric's name."""


def rounding(trials: list[Row], metric: str) -> float:
    """Return the standard deviation of ln(value) that rounding alone causes: step/√12 divided by the mean.

    The result is 0 for trials that k8sdds measured, and for values that have more digits than the step and are
    therefore not rounded to it.
    """
    step = next((step for unit, step in _STEPS.items() if metric.endswith(unit)), None)
    values = [value for value in _values(trials, metric) if value > 0]
    if step is None or not values or any(trial.get("testbed") != "imported" for trial in trials):
        return 0.0
    if any(abs(value / step - round(value / step)) > 1e-6 for value in values):
        return 0.0
    return step / math.sqrt(12) * len(values) / math.fsum(values)


def _values(trials: list[Row], metric: str) -> list[float]:
    values = (trial.get(metric) for trial in trials)
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def _measured(trials: list[Row]) -> list[Metric]:
    return [
        metric for metric in METRICS.values() if any(trial.get(metric.name) is not None for trial in trials)
    ]


def _includes_scheduling(trials: list[Row]) -> bool:
    return any(trial["includes_scheduling"] is True for trial in trials)
