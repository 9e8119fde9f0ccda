"""Compare what the links of a trial did to packets with what was requested."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from k8sdds.model import link_files
from k8sdds.model.impairments import PARTS, Direction, Loss
from k8sdds.model.link import Link
from k8sdds.results import link_statistics

MAX_ERROR_US, MAX_ERROR_SHARE = 100.0, 0.02
"""Largest 99th percentile of the error of the delay: absolute, or relative to that of the delay if that is more.
The delay includes the time in the queue."""
MAX_FORWARDING_US = 1000.0
"""The same for links that nothing but the outages of a test impairs: what it measures has a resolution of 1 ms."""
CHANCE = 1e-6
"""Largest probability that a link which does what was requested is found to differ, for each comparison."""
MAX_NOT_FORWARDED_SHARE = 1e-4
"""Largest share of packets that the emulator dropped without a request: far fewer than links are asked to lose."""
CAPACITY_PER_S = 100_000
"""Packets of 1500 bytes per second and direction that `k8sdds-link` forwards on one core (docs: benchmarks)."""


def differing(link: Link, conditions: link_statistics.Conditions, duration_s: float) -> str:
    """Return how links with the conditions of a record differed from the requested ones; empty if they did not.

    Late packets are named only if nothing else differed.
    """
    directions = [
        (f"{name} of {node}", wanted, found[name])
        for node, found in conditions.items()
        for name, wanted in link.directions.items()
    ]
    differences = (
        f"{where}: {why}"
        for where, wanted, seen in directions
        for why in (*_differences(wanted, seen), *_outage_differences(link, seen, duration_s))
    )
    late = (f"{where}: {why}" for where, _, seen in directions if (why := _lateness(seen, link.is_shaped)))
    return next(itertools.chain(differences, late), "")


def _outage_differences(link: Link, seen: Mapping[str, Any], duration_s: float) -> Iterator[str]:
    if not link.outages:
        return
    if seen["outages"] is None:
        yield "it is not known which outages were in the measured interval"
        return
    wanted = link.outage_phases(duration_s)
    # One that is due at the end may be too late.
    fewest = sum(each.at_us / 1e6 < duration_s - link_statistics.MAX_OUTAGE_ERROR_S for each in wanted)
    if not fewest <= seen["outages"] <= len(wanted):
        yield f"{seen['outages']} outages began in the measured interval, not {len(wanted)}"
        return
    wanted_s = sum(min(each.for_us / 1e6, duration_s - each.at_us / 1e6) for each in wanted)
    allowed_s = max(link_statistics.MAX_OUTAGE_ERROR_S * len(wanted), MAX_ERROR_SHARE * wanted_s)
    if abs(seen["outage_s"] - wanted_s) > allowed_s:
        yield f"the outages lasted {seen['outage_s']:.3f} s of the measured interval, not {wanted_s:.3f} s"


def _differences(wanted: Direction, seen: Mapping[str, Any]) -> Iterator[str]:
    if any(getattr(wanted, part) for part in PARTS) and seen["packets"] is None:
        yield "what its queues did was not counted"
        return
    yield from _emulator_faults(seen)
    loss = wanted.loss or Loss(percent=0)
    if loss.mean_percent is None:
        yield from _pattern_differences(link_files.values(loss), seen)
    else:
        yield from _loss_differences(loss, loss.mean_percent / 100, seen)


def _lateness(seen: Mapping[str, Any], is_shaped: bool) -> str:
    """Return how late packets left, if that is more than allowed, or an empty string."""
    least_us = MAX_ERROR_US if is_shaped else MAX_FORWARDING_US
    allowed_us = max(least_us, MAX_ERROR_SHARE * (seen["delay_p99_us"] or 0))
    error_us = seen["delay_error_p99_us"]
    if error_us is None or error_us <= allowed_us:
        return ""
    return (
        f"1 % of the packets were late by {error_us:.0f} µs or more; at most {allowed_us:.0f} µs are allowed"
    )


def _emulator_faults(seen: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the emulator did to packets that no real link does."""
    packets, missing = seen["packets"], seen["not_forwarded"]
    if missing and missing > MAX_NOT_FORWARDED_SHARE * packets:
        why = (
            "more were on the way at once than k8sdds-link has room for: lower the rate or the delay"
            if seen["overflow"] > missing / 2
            else f"the machine was too slow: k8sdds-link forwards about {CAPACITY_PER_S:,} packets/s in each direction"
            " if it has a core for itself. Lower the rate of the test, or use a machine with more cores"
        )
        yield f"{missing} of {packets} packets were not forwarded, because {why}"
    if seen["oversized"]:
        yield (
            f"{seen['oversized']} of {packets} packets were larger than the MTU, so that several packets of the wire"
            " were lost or delayed as one: leave out `offloads` of the link"
        )


def _pattern_differences(pattern: str, seen: Mapping[str, Any]) -> Iterator[str]:
    """Compare the lost packets with a recorded pattern: the n-th packet has its n-th value."""

    def lost_of(count: int) -> int:
        cycles, rest = divmod(count, len(pattern))
        return cycles * pattern.count("1") + pattern[:rest].count("1")

    # Packets that an outage dropped have values, too, and are not among the decided ones.
    decided, dropped = seen["decided"], seen["outage_drops"]
    most = lost_of(decided + dropped)
    if not most - dropped <= seen["lost"] <= most:
        yield f"{seen['lost']} of {decided} packets were lost, not {most} as recorded"


def _loss_differences(loss: Loss, expected: float, seen: Mapping[str, Any]) -> Iterator[str]:
    decided, lost, bursts = seen["decided"], seen["lost"], seen["bursts"]
    if not decided:
        return
    p, r, h, k = (percent / 100 for percent in loss.states)
    # An outage takes packets out of bursts.
    whole_bursts = bursts is not None and not seen["outage_drops"]
    if loss.p_percent is not None and (h, k) == (0, 1) and whole_bursts:
        # Each packet that passes begins a burst with probability p, and each lost one ends it with probability r. A
        # burst that the end of the attempt cuts off is not counted.
        passed = max(decided - lost, 1)
        if not any(_is_likely(begun / passed, p, passed) for begun in (bursts, bursts + 1)):
            yield f"{bursts} bursts of loss after {passed} packets that passed, not {100 * p:.3g} %"
        if lost and not _is_likely(bursts / lost, r, lost):
            yield f"{bursts} bursts of loss with {lost} packets, not with {1 / r:.3g} packets on average"
        return
    # Successive states of the chain are correlated by 1 - p - r, so that they count as fewer independent packets. This
    # is an approximation where the losses do not show the state of the link.
    independent = decided * min(1.0, (p + r) / max(2 - p - r, 1e-9))
    if not _is_likely(lost / decided, expected, independent):
        yield f"{lost} of {decided} packets were lost, not {100 * expected:.3g} %"


def _is_likely(share: float, expected: float, count: float) -> bool:
    """Return whether chance explains a share among so many independent events, by the bound of Chernoff (1952)."""
    if share == expected:
        return True
    if not 0 < expected < 1:
        return False
    divergence = sum(
        seen * math.log(seen / wanted)
        for seen, wanted in ((share, expected), (1 - share, 1 - expected))
        if seen > 0
    )
    return 2 * math.exp(-count * divergence) >= CHANCE
