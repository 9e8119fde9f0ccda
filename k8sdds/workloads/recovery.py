"""Compute how a subscriber recovers from an outage, from what arrived in each millisecond. Pure functions."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from k8sdds.results.arrivals import Arrival, Interruption
from k8sdds.results.link_statistics import LinkStatistics

WINDOW_S, WINDOW_PERIODS = 0.5, 10
"""How long the full rate must last so that it counts as recovered: the longer of both."""
FULL_RATE = 0.9
"""Share of the usual rate that counts as the full rate: over a window, it varies by chance on a lossy link."""
_USUAL = 0.99
"""Quantile of the usual delays."""


@dataclass(frozen=True)
class Recovery:
    """What a subscriber got from a publisher around an outage."""

    blind_ms: float | None
    """Longest time without a fresh sample that was due after the failure; it began before the repair. None: until the
    end."""
    first_ms: float | None
    """From the repair to the first such sample; None: there is none."""
    full_ms: float | None
    """From the repair until samples arrive with the usual rate and delay; None: they do not."""
    late: int
    """Samples that arrived after their deadline, from the failure on."""


def window_s(rate: float) -> float:
    """Return how long the full rate must last."""
    return max(WINDOW_S, WINDOW_PERIODS / rate)


def of(arrivals: Sequence[Arrival], outage: Interruption, rate: float) -> Recovery:
    """Return how a subscriber recovered, from what arrived in order of a publisher that sends at a rate."""
    after = [arrival for arrival in arrivals if arrival.at_us >= outage.failed_us]
    # What was sent before the failure can be late, and says nothing about what passes since.
    fresh = [each.at_us for each in after if each.fresh and each.at_us - each.delay_us >= outage.failed_us]
    first_us = next((at for at in fresh if at >= outage.repaired_us), None)
    full_us = _full_us(arrivals, outage, rate)
    return Recovery(
        blind_ms=None
        if first_us is None
        else max(
            later - earlier
            for earlier, later in itertools.pairwise([outage.failed_us, *fresh])
            if earlier < outage.repaired_us
        )
        / 1000,
        first_ms=None if first_us is None else (first_us - outage.repaired_us) / 1000,
        full_ms=None if full_us is None else (full_us - outage.repaired_us) / 1000,
        late=sum(arrival.late for arrival in after),
    )


def _full_us(arrivals: Sequence[Arrival], outage: Interruption, rate: float) -> int | None:
    """Return when samples begin to arrive with the usual rate and delay for a window; None if they do not."""
    before = [arrival for arrival in arrivals if arrival.at_us < outage.failed_us]
    if len(before) < 2:
        return None
    delays = sorted(arrival.max_delay_us for arrival in before)
    limit_us = delays[math.ceil(_USUAL * len(delays)) - 1] + 1e6 / rate
    # What is sent again arrives in a burst, which is no rate.
    in_time = [arrival for arrival in arrivals if arrival.max_delay_us <= limit_us]
    times = [arrival.at_us for arrival in in_time]
    totals = [0, *itertools.accumulate(arrival.fresh for arrival in in_time)]
    usual = totals[bisect_left(times, outage.failed_us)] / (outage.failed_us - before[0].at_us)
    window_us = window_s(rate) * 1e6
    needed = FULL_RATE * usual * window_us
    for index in range(bisect_left(times, outage.repaired_us), len(times)):
        end_us = times[index] + window_us
        if end_us > arrivals[-1].at_us:
            return None
        if totals[bisect_left(times, end_us)] - totals[index] >= needed:
            return times[index]
    return None


def extra_bytes(links: LinkStatistics, outage: Interruption, until_us: float) -> float | None:
    """Return what the link of the failed node carried from the repair on, above the usual; None: unknown."""
    link = links.links.get(outage.node)
    started_us = links.started_us_of(outage.node)
    if link is None or outage.failed_us < started_us:
        return None
    extra = 0.0
    for series in (link.up.series, link.down.series):
        width_us, carried = series.bin_ms * 1000, series.bytes_out
        failed, repaired, last = (
            int((moment - started_us) // width_us)
            for moment in (outage.failed_us, outage.repaired_us, until_us)
        )
        usual = sorted(carried[max(failed // 2, failed - 20) : failed])
        if not usual:
            return None
        extra += sum(carried[repaired : last + 1]) - usual[len(usual) // 2] * (last + 1 - repaired)
    return max(extra, 0.0)
