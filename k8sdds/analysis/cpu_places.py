"""Compute where the CPU time of a trial was spent, in milliseconds per delivered megabyte of payload.

Networks deliver different amounts, so CPU time is compared per megabyte (1e6 bytes). The places can overlap: kernels
without accounting of interrupts add softirqs to the program that they interrupt. Therefore the places are never added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.analysis import statistics
from k8sdds.system.grouping import Row

PUBLISHER, SUBSCRIBER, SOFTIRQ, AGENTS = PLACES = (
    "publishers' pods", "subscribers' pods", "softirqs", "network's agents",
)  # fmt: skip
_MS_PER_MB = 8
"""Milliseconds per megabyte in one second per gigabit."""


def of_trial(row: Row, cores: int | None) -> dict[str, float]:
    """Return the places that a trial metered, in ms per delivered MB; `cores` is None if it is unknown.

    Softirqs and agents were metered in percent. Their share of the machine's busy time is that of its cost. Agents of
    the lab are metered over the whole attempt, which begins and ends without samples.
    """
    machine, busy_percent, agents = (
        row[name] for name in ("machine_cpu_ms_per_mb", "machine_cpu_percent", "network_cpu_percent")
    )
    values = {PUBLISHER: row["publisher_cpu_ms_per_mb"], SUBSCRIBER: row["subscriber_cpu_ms_per_mb"]}
    if machine and busy_percent:
        of_all_cores = {SOFTIRQ: row["softirq_percent"], AGENTS: agents / cores if agents and cores else None}
        values |= {
            place: None if percent is None else machine * percent / busy_percent
            for place, percent in of_all_cores.items()
        }
    return {place: value for place in PLACES if (value := values.get(place)) is not None}


def of_network(background: Row) -> dict[str, float]:
    """Return the places that were metered over blocks on all nodes, in ms per delivered MB, from `background_cost`."""
    values = {SOFTIRQ: background["softirq_s_per_gbit"], AGENTS: background["network_cpu_s_per_gbit"]}
    return {place: value * _MS_PER_MB for place, value in values.items() if value is not None}


def estimates(
    trials: Sequence[Row], cores: int | None, background: Row | None
) -> Mapping[str, tuple[statistics.Estimate, list[float]]]:
    """Return mean, interval and single values of each place that was metered, from the trials of one cell.

    A place that only blocks metered has one value and no interval.
    """
    by_place: dict[str, list[float]] = {}
    for row in trials:
        for place, value in of_trial(row, cores).items():
            by_place.setdefault(place, []).append(value)
    for place, value in (of_network(background) if background else {}).items():
        by_place.setdefault(place, [value])
    return {
        place: (statistics.log_mean(values) if min(values) > 0 else statistics.linear_mean(values), values)
        for place in PLACES
        if (values := by_place.get(place))
    }
