"""Compare DDS with the limit of the machine: plain UDP on the same network, in the fastest mode that was measured.

The limit of a network is the raw middleware (`raw`, `raw-gso`, …) with the best mean in the same test, payload and
machine settings. The mode with the best mean is chosen after the measurement, which favors the limit slightly. Two
ratios follow, both paired by repetition: DDS relative to the limit of its network, and the limit of a network relative
to the limit of the baseline network.

GSO passes many datagrams through the network stack as one packet. Programs that send packet by packet, like DDS, cannot
reach its rate. The limit of packets is therefore the best mode without GSO.
"""

from __future__ import annotations

from typing import Any

from k8sdds.analysis import overhead, statistics
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.model.axis import DDS
from k8sdds.model.trial import AXES
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, grouped

QUANTITIES = ("throughput_mbps", "latency_p50_us", "latency_p90_us", "delay_p50_us", "delay_p99_us")
"""Metrics that are compared with the limit. Latencies under load are not: they depend on how much DDS buffers."""

RAW, GSO = "raw", "raw-gso"

MACHINE, PACKETS = "machine", "packets"
"""The limit by all modes of raw, and by all modes that send each packet separately."""

SAME = tuple(name for name in CONDITION if name not in AXES or AXES[name].scope != DDS)
"""Columns of CONDITION in which a cell and its limit are equal: what is sent, and by which hardware."""

Cells = dict[tuple[Any, ...], list[Row]]


def is_raw(middleware: str | None) -> bool:
    """Return whether a middleware is plain UDP, in any mode."""
    return (middleware or "").split("-")[0] == RAW


def shares(best: list[Row], baseline: str | None) -> list[Row]:
    """Return every cell relative to the limit of its network, and every limit relative to that of the baseline.

    `best` are the valid trials, as rows of `tidy.best`. Each row has `network_label`, the condition,
    `quantity`, `raw` (whether it is a limit itself), `limit` (MACHINE or PACKETS), `limit_network`,
    `limit_middleware` (the raw mode that is the limit), `ratio` (x/limit: a share for rates, a multiple for
    latencies), `ratio_low`, `ratio_high` and `n`. DDS on a network without raw trials is relative to the
    limit of the baseline. There is a row for PACKETS only if it differs from MACHINE.
    """
    cells = overhead.by_cell(best)
    rows = []
    for quantity in QUANTITIES:
        machine, packets = _limits(cells, quantity), _limits(cells, quantity, leave_out=GSO)
        for (label, *condition), trials in cells.items():
            limit = {MACHINE: _limit_of(trials, machine, baseline)}
            if (by_packets := _limit_of(trials, packets, baseline)) is not limit[MACHINE]:
                limit[PACKETS] = by_packets
            cell = {UNIT: label} | dict(zip(CONDITION, condition, strict=True))
            cell |= {"quantity": quantity, "raw": is_raw(trials[0]["middleware"])}
            for name, of in limit.items():
                rows += [cell | {"limit": name} | share for share in _share(trials, of, quantity)]
    return rows


def _share(trials: list[Row], limit: list[Row] | None, quantity: str) -> list[Row]:
    """Return the ratio of a cell to its limit; empty without a limit or without a common repetition."""
    ratio = overhead.paired(trials, limit, METRICS[quantity])[0] if limit else None
    if not limit or ratio is None:
        return []
    of = {"limit_network": limit[0][UNIT], "limit_middleware": limit[0]["middleware"]}
    low, high = ratio.bounds
    return [of | {"ratio": ratio.ratio, "ratio_low": low, "ratio_high": high, "n": ratio.n}]


def _limit_of(trials: list[Row], limits: Cells, baseline: str | None) -> list[Row] | None:
    """Return the trials to compare a cell with; None for the limit of the baseline and for slower raw modes."""
    label, same = trials[0][UNIT], _same(trials[0])
    own, base = limits.get((label, *same)), limits.get((baseline, *same))
    if not is_raw(trials[0]["middleware"]):
        return own or base
    return base if own is trials and label != baseline else None


def _limits(cells: Cells, quantity: str, leave_out: str = "") -> Cells:
    """Return the trials of the best raw mode by network and the columns in SAME."""
    modes = (
        trials
        for trials in cells.values()
        if is_raw(mode := trials[0]["middleware"]) and mode != leave_out
        if overhead.by_repetition(trials, quantity)
    )
    groups = grouped(modes, lambda trials: (trials[0][UNIT], *_same(trials[0])))
    return {key: _best(group, METRICS[quantity]) for key, group in groups.items()}


def _best(modes: list[list[Row]], metric: Metric) -> list[Row]:
    """Return the trials of the mode with the best mean, among values that were measured by the same method."""
    measured = [[trial for trial in trials if trial[metric.name] is not None] for trials in modes]
    values = [overhead.by_repetition(each, metric.name) for each in overhead.alike(metric, *measured)]
    means = [(statistics.geometric_mean([*own.values()]), index) for index, own in enumerate(values) if own]
    return modes[(max if metric.gain else min)(means)[1]]


def _same(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SAME)
