"""Levels per cell, and overheads relative to the campaign's baseline network within each condition."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import statistics
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.statistics import Overhead, Ratio

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Quantity:
    """One measured quantity: its words, its unit, and how it is averaged and compared."""

    name: str
    words: str
    unit: str
    log: bool = True
    """Averaged on the log scale; False for shares and counts that may be zero."""
    gain: bool = False
    """More is better: the overhead is 1 - x/b, else x/b - 1."""
    exact: bool = False
    """A count that has no spread: compared as it is, without statistics."""

    @property
    def overhead(self) -> Callable[[Ratio], Overhead]:
        """The overhead's definition for this quantity."""
        return statistics.throughput_overhead if self.gain else statistics.latency_overhead


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("throughput_mbps", "throughput", "Mbit/s", gain=True),
        Quantity("samples_per_s", "samples", "samples/s", gain=True),
        Quantity("latency_mean_us", "mean latency", "µs"),
        Quantity("latency_p50_us", "p50 latency", "µs"),
        Quantity("latency_p90_us", "p90 latency", "µs"),
        Quantity("latency_p99_us", "p99 latency", "µs"),
        Quantity("latency_p9999_us", "p99.99 latency", "µs"),
        Quantity("latency_max_us", "maximum latency", "µs"),
        Quantity("loaded_latency_p50_us", "p50 latency under load", "µs"),
        Quantity("loaded_latency_p90_us", "p90 latency under load", "µs"),
        Quantity("publisher_cpu_percent", "publisher CPU", "% of one core"),
        Quantity("subscriber_cpu_percent", "subscriber CPU", "% of one core"),
        Quantity("publisher_host_cpu_percent", "publisher CPU", "% of all cores"),
        Quantity("subscriber_host_cpu_percent", "subscriber CPU", "% of all cores"),
        Quantity("machine_cpu_percent", "machine CPU", "% of all cores"),
        Quantity("softirq_percent", "softirq CPU", "% of all cores", log=False),
        Quantity("publisher_cpu_us_per_sample", "publisher CPU per sample", "µs"),
        Quantity("subscriber_cpu_us_per_sample", "subscriber CPU per sample", "µs"),
        Quantity("publisher_cpu_ms_per_mb", "publisher CPU per delivered MB", "ms/MB"),
        Quantity("subscriber_cpu_ms_per_mb", "subscriber CPU per delivered MB", "ms/MB"),
        Quantity("machine_cpu_ms_per_mb", "machine CPU per delivered MB", "ms/MB"),
        Quantity("wire_bytes_per_payload_byte", "bytes on the wire per payload byte", "B/B"),
        Quantity("publisher_rss_bytes", "publisher memory", "bytes"),
        Quantity("subscriber_rss_bytes", "subscriber memory", "bytes"),
        Quantity("handshake_s", "time from start until all are matched", "s"),
        Quantity("discovery_s", "discovery and handshake", "s"),
        Quantity("lost_percent", "loss", "%", log=False),
        Quantity("ip_fragments_per_sample", "IP fragments of a sample", "packets", log=False, exact=True),
    )
}
"""In the order of the tables. Which quantities a test gives is known from the values that are not null."""

LEVEL_COLUMNS = (
    UNIT, *CONDITION, "quantity", "unit", "mean", "ci_low", "ci_high", "n", "minimum", "maximum",
    "averaged_on", "engine", "fidelity", "mtu_bytes", "includes_scheduling", "values",
)  # fmt: skip
OVERHEAD_COLUMNS = (
    UNIT, *CONDITION, "quantity", "ratio", "ratio_low", "ratio_high", "overhead_percent",
    "ci_low_percent", "ci_high_percent", "n", "seen", "detectable_percent", "baseline",
    "includes_scheduling", "values",
)  # fmt: skip

Row = dict[str, Any]


def plain_rows(table: pd.DataFrame) -> list[Row]:
    """The table's rows as dicts of plain Python values, None for every kind of null."""
    plain = table.astype(object)
    return plain.where(plain.notna(), None).to_dict("records")


def levels(best: pd.DataFrame) -> pd.DataFrame:
    """Every quantity of every cell: mean, 95 % interval, n, extremes and the `values` themselves.

    One row per network_label, condition and quantity, the columns LEVEL_COLUMNS, in the units that the
    quantity's name ends in. `averaged_on` is `log` (geometric mean) or `linear`; a quantity that should be
    positive but has a zero falls back to `linear` rather than vanish.
    """
    import pandas as pd

    rows = []
    for (label, *condition), trials in by_cell(best).items():
        for quantity in QUANTITIES.values():
            values = _values(trials, quantity.name)
            if not values:
                continue
            log = quantity.log and min(values) > 0
            estimate = statistics.log_mean(values) if log else statistics.linear_mean(values)
            rows.append((
                label, *condition, quantity.name, quantity.unit, estimate.value, estimate.low,
                estimate.high, estimate.n, min(values), max(values), "log" if log else "linear",
                trials[-1]["engine"], trials[-1]["fidelity"], trials[-1]["mtu_bytes"],
                _any(trials, "includes_scheduling"), values,
            ))  # fmt: skip
    return pd.DataFrame(rows, columns=list(LEVEL_COLUMNS))


def overheads(best: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """Overheads of every other network against `baseline` in the same condition and repetition.

    One row per network_label, condition and quantity with at least one pair, the columns
    OVERHEAD_COLUMNS, overheads in percent; `values` are the overheads of the single repetitions, `seen`
    whether the interval excludes no difference (None where n is 1). Only quantities averaged on the log
    scale are compared; pairs with a zero are left out, because a ratio to or of nothing says nothing.
    """
    import pandas as pd

    cells = by_cell(best)
    rows = []
    for (label, *condition), trials in cells.items():
        if label == baseline:
            continue
        base = cells.get((baseline, *condition), [])
        for quantity in QUANTITIES.values():
            ratio, pairs = paired(trials, base, quantity)
            if ratio is None:
                continue
            overhead = quantity.overhead(ratio)
            rows.append((
                label, *condition, quantity.name, ratio.value, ratio.low, ratio.high, overhead.percent,
                overhead.low, overhead.high, ratio.n, ratio.seen,
                statistics.detectable_percent(ratio.spread, ratio.n, quantity.gain), baseline,
                _any([*trials, *base], "includes_scheduling"),
                [quantity.overhead(Ratio(x / b, None, None, 1, None)).percent for x, b in pairs],
            ))  # fmt: skip
    return pd.DataFrame(rows, columns=list(OVERHEAD_COLUMNS))


def ratios(trials: list[Row], baseline: str, quantity: str) -> dict[str, Ratio]:
    """Paired ratios to any network (not only the campaign's baseline), by network_label.

    `trials` are rows of one condition, as `plain_rows` gives them.
    """
    by_label: dict[str, list[Row]] = defaultdict(list)
    for trial in trials:
        by_label[trial[UNIT]].append(trial)
    base = by_label.pop(baseline, [])
    found = {label: paired(rows, base, QUANTITIES[quantity])[0] for label, rows in by_label.items()}
    return {label: ratio for label, ratio in found.items() if ratio is not None}


def by_cell(best: pd.DataFrame) -> dict[tuple[Any, ...], list[Row]]:
    """Trials by (network_label, *condition), in the order in which cells were first measured."""
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in plain_rows(best):
        cells[(row[UNIT], *(row[name] for name in CONDITION))].append(row)
    return cells


def paired(trials: list[Row], base: list[Row], quantity: Quantity) -> tuple[Ratio | None, list[tuple]]:
    """The paired ratio of two cells' trials, and the pairs; None where no repetition has both."""
    if not quantity.log:
        return None, []
    ours, theirs = by_repetition(trials, quantity.name), by_repetition(base, quantity.name)
    pairs = [(ours[repetition], theirs[repetition]) for repetition in sorted(ours.keys() & theirs.keys())]
    if not pairs:
        return None, []
    least = math.hypot(rounding(trials, quantity.name), rounding(base, quantity.name))
    return statistics.paired_ratio([x for x, _ in pairs], [b for _, b in pairs], least), pairs


def by_repetition(trials: list[Row], name: str) -> dict[int, float]:
    """The positive values of a quantity by repetition. Imported data may hold a cell twice in one
    repetition; those are averaged, because they are not two independent repetitions."""
    values: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        for value in _values([trial], name):
            if value > 0:
                values[trial["repetition"] or 0].append(value)
    return {repetition: statistics.geometric_mean(list_) for repetition, list_ in values.items()}


_STEPS = {"_mbps": 0.1, "_us": 1.0}
"""To what PerfTest rounds the quantities that it prints, by their unit."""


def rounding(trials: list[Row], name: str) -> float:
    """The standard deviation of ln(value) that rounding alone gives published values: step/√12 of the mean.

    0 for our own trials, and where digits beyond the step show that nothing was rounded to it.
    """
    step = next((step for unit, step in _STEPS.items() if name.endswith(unit)), None)
    values = [value for value in _values(trials, name) if value > 0]
    if step is None or not values or any(trial.get("testbed") != "imported" for trial in trials):
        return 0.0
    if any(abs(value / step - round(value / step)) > 1e-6 for value in values):
        return 0.0
    return step / math.sqrt(12) * len(values) / math.fsum(values)


def _values(trials: list[Row], name: str) -> list[float]:
    found = (trial.get(name) for trial in trials)
    return [float(value) for value in found if value is not None and math.isfinite(value)]


def _any(trials: list[Row], flag: str) -> bool:
    return any(trial[flag] is True for trial in trials)
