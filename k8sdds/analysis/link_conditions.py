"""Summarize what the links of a trial did to packets, and compare it with what was requested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from k8sdds.model.impairments import Direction, Loss
from k8sdds.model.link import Link

MAX_ERROR_US, MAX_ERROR_SHARE = 100.0, 0.02
"""Largest 99th percentile of the error of the delay: absolute, or relative to the requested delay if that is more."""
MAX_OUTAGE_ERROR_S = 0.02
"""Largest error of the length of an outage: absolute, or relative to all outages by `MAX_ERROR_SHARE`."""
MAX_FORWARDING_US = 1000.0
"""The same for links that nothing but the outages of a test impairs: what it measures has a resolution of 1 ms."""
CHANCE = 1e-6
"""Largest probability that a link which does what was requested is found to differ, for each comparison."""
NOT_REQUESTED = ("missed", "overflow", "unsent")
"""Packets that the emulator dropped because it was too slow."""

UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("packets", "lost", "decided", "bursts", "burst_mean_packets", "queue_drops", "outages", "outage_s", "outage_drops",
     "not_forwarded", "duplicated", "reordered", "delay_p50_us", "delay_p99_us", "delay_error_p99_us", "rate_mbit")
)  # fmt: skip
"""The keys of a summary of which nothing is known. The kernel's queues count only some of it."""

Conditions = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Node, then `up` or `down`, to the summary of a direction."""
Interval = tuple[float, float]
"""Begin and end, by CLOCK_MONOTONIC in µs."""


def read(
    statistics: Mapping[str, Any], measured: Interval | None = None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the summary of each direction of each link, for the record.

    Args:
        statistics: Those of `k8sdds-link`, with its outages (`links.json`).
        measured: The measured interval; None if it is unknown.
    """
    return {
        name: {
            direction: UNKNOWN | _summary(link[direction]) | _outages(statistics, name, measured)
            for direction in ("up", "down")
        }
        for name, link in statistics["links"].items()
    }


def _outages(statistics: Mapping[str, Any], node: str, measured: Interval | None) -> dict[str, Any]:
    """Return how many outages of a link began in the measured interval, and how long they lasted in it."""
    if measured is None:
        return {}
    begin_us, end_us = (moment - statistics["started_us"] for moment in measured)
    states = [each for each in statistics["outages"] if each["node"] in (node, "*")]
    times = [*(each["at_us"] for each in states), end_us]
    lengths = [
        min(until_us, end_us) - at_us
        for each, at_us, until_us in zip(states, times, times[1:], strict=False)
        if each["state"] != "off" and begin_us - MAX_OUTAGE_ERROR_S * 1e6 <= at_us < end_us
    ]
    return {"outages": len(lengths), "outage_s": sum(lengths) / 1e6}


def _summary(direction: Mapping[str, Any]) -> dict[str, Any]:
    dropped, lost = direction["dropped"], direction["dropped"]["loss"]
    count = sum(number for _, number in direction["loss_bursts"])
    delay, error, rate = direction["delay_us"], direction["error_us"], direction["rate"]
    return {
        "packets": direction["packets_in"],
        "lost": lost,
        "decided": direction["loss_decisions"],
        "bursts": count,
        "burst_mean_packets": round(lost / count, 3) if count else None,
        "queue_drops": dropped["queue"],
        "outage_drops": dropped["outage"],
        "not_forwarded": sum(dropped[name] for name in NOT_REQUESTED),
        "duplicated": direction["duplicated"],
        "reordered": direction["reordered"],
        "delay_p50_us": delay["p50"],
        "delay_p99_us": delay["p99"],
        "delay_error_p99_us": error["p99"],
        "rate_mbit": rate["mbit"] if rate else None,
    }


def differing(link: Link, conditions: Conditions, duration_s: float) -> str:
    """Return how the links of an attempt differed from the requested ones; empty if they did not.

    Args:
        link: The requested links.
        conditions: What `read` returned, or a record has.
        duration_s: The requested length of the measured interval.
    """
    for node, directions in conditions.items():
        for name, wanted in link.directions.items():
            found = directions[name]
            for why in (
                *_differences(wanted, found, link.is_shaped),
                *_outage_differences(link, found, duration_s),
            ):
                return f"{name} of {node}: {why}"
    return ""


def _outage_differences(link: Link, seen: Mapping[str, Any], duration_s: float) -> Iterator[str]:
    if not link.outages:
        return
    if seen["outages"] is None:
        yield "it is not known which outages were in the measured interval"
        return
    wanted = link.outage_phases(duration_s)
    # One that is due at the end may be too late.
    fewest = sum(each.at_us / 1e6 < duration_s - MAX_OUTAGE_ERROR_S for each in wanted)
    if not fewest <= seen["outages"] <= len(wanted):
        yield f"{seen['outages']} outages began in the measured interval, not {len(wanted)}"
        return
    wanted_s = sum(min(each.for_us / 1e6, duration_s - each.at_us / 1e6) for each in wanted)
    allowed_s = max(MAX_OUTAGE_ERROR_S * len(wanted), MAX_ERROR_SHARE * wanted_s)
    if abs(seen["outage_s"] - wanted_s) > allowed_s:
        yield f"the outages lasted {seen['outage_s']:.3f} s of the measured interval, not {wanted_s:.3f} s"


def _differences(wanted: Direction, seen: Mapping[str, Any], is_shaped: bool) -> Iterator[str]:
    if seen["not_forwarded"]:
        yield f"{seen['not_forwarded']} of {seen['packets']} packets were not forwarded, because the machine was busy"
    least_us = MAX_ERROR_US if is_shaped else MAX_FORWARDING_US
    allowed_us = max(least_us, MAX_ERROR_SHARE * (wanted.delay.mean_us if wanted.delay else 0))
    error_us = seen["delay_error_p99_us"]
    if error_us is not None and error_us > allowed_us:
        yield f"1 % of the packets were late by {error_us:.0f} µs or more; at most {allowed_us:.0f} µs are allowed"
    loss = wanted.loss or Loss(percent=0)
    if loss.mean_percent is not None:
        yield from _loss_differences(loss, loss.mean_percent / 100, seen)


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
