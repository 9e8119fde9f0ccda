"""Compare DDS with the limit of the machine: plain UDP on the same network, in the fastest mode that was measured.

The limit of a network is the raw middleware (`raw`, `raw-gso`, …) with the best mean in the same test, payload and
machine settings. The mode with the best mean is chosen after the measurement, which favors the limit by less than its
interval. Two ratios follow, both paired by repetition: DDS relative to the limit of its network, and the limit of a
network relative to the limit of the baseline network.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import overhead, statistics
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.overhead import Row
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = ("throughput_mbps", "latency_p50_us", "latency_p90_us", "delay_p50_us", "delay_p99_us")
"""Metrics that are compared with the limit. Latencies under load are not: they depend on how much DDS buffers."""

RAW = "raw"

SAME = (
    "test", "payload_bytes", "transport", "publishers", "subscribers", "rate", "layout", "link", "cpu_quota",
    "placement", "nodes", "testbed",
)  # fmt: skip
"""Columns of CONDITION in which a cell and its limit are equal: what is sent, and by which hardware."""

Cells = dict[tuple[Any, ...], list[Row]]


def is_raw(middleware: str | None) -> bool:
    """Return whether a middleware is plain UDP, in any mode."""
    return (middleware or "").split("-")[0] == RAW


def shares(best: pd.DataFrame, baseline: str | None) -> list[Row]:
    """Return every cell relative to the limit of its network, and every limit relative to that of the baseline.

    Each row has `network_label`, the condition, `quantity`, `raw` (whether it is a limit itself), `limit_network`,
    `limit_middleware` (the raw mode that is the limit), `ratio` (x/limit: a share for rates, a multiple for
    latencies), `ratio_low`, `ratio_high` and `n`. DDS on a network without raw trials is relative to the limit of
    the baseline.
    """
    cells = overhead.by_cell(best)
    rows = []
    for quantity in QUANTITIES:
        limits = _limits(cells, quantity)
        for (label, *condition), trials in cells.items():
            limit = _limit_of(trials, limits, baseline)
            ratio = _ratio(trials, limit, quantity) if limit else None
            if not limit or ratio is None:
                continue
            rows.append(
                {UNIT: label}
                | dict(zip(CONDITION, condition, strict=True))
                | {"quantity": quantity, "raw": is_raw(trials[0]["middleware"])}
                | {"limit_network": limit[0][UNIT], "limit_middleware": limit[0]["middleware"]}
                | {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high, "n": ratio.n}
            )
    return rows


def _limit_of(trials: list[Row], limits: Cells, baseline: str | None) -> list[Row] | None:
    """Return what a cell is compared with; None for the limit of the baseline and for slower raw modes."""
    label, same = trials[0][UNIT], _same(trials[0])
    own, base = limits.get((label, *same)), limits.get((baseline, *same))
    if not is_raw(trials[0]["middleware"]):
        return own or base
    return base if own is trials and label != baseline else None


def _limits(cells: Cells, quantity: str) -> Cells:
    """Return the trials of the best raw mode by network and the columns in SAME."""
    groups: dict[tuple[Any, ...], list[list[Row]]] = defaultdict(list)
    for (label, *_), trials in cells.items():
        if is_raw(trials[0]["middleware"]) and overhead.by_repetition(trials, quantity):
            groups[(label, *_same(trials[0]))].append(trials)
    choose = max if METRICS[quantity].gain else min
    return {key: choose(group, key=lambda trials: _mean(trials, quantity)) for key, group in groups.items()}


def _same(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SAME)


def _mean(trials: list[Row], quantity: str) -> float:
    return statistics.geometric_mean(list(overhead.by_repetition(trials, quantity).values()))


def _ratio(trials: list[Row], limit: list[Row], quantity: str) -> statistics.Ratio | None:
    return overhead.paired(trials, limit, METRICS[quantity])[0]
