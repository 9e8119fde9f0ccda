"""Write the configuration of `k8sdds-link`, the engine of links in userspace."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds.model import link_files
from k8sdds.model.impairments import Delay, Direction, Loss, Queue, Rate
from k8sdds.model.link import Link
from k8sdds.model.outages import Phase
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.core_layout import Layout

UNIFORM_WIDTH = math.sqrt(3)
"""Half of the width of a uniform distribution with the standard deviation 1."""
PARETO_DEVIATION, PARETO_MEAN = 0.8197, -0.0335
"""Standard deviation and mean of netem's pareto table (iproute2 6.1.0), which `k8sdds-link` follows: it ends at four
times the jitter."""
MAX_SEED = 1 << 53
OFF = "off"
"""State of a link without an outage."""
USUAL_QUEUE = Queue(ms=50)
"""Queue of a constant rate for which the link names none."""


@dataclass(frozen=True)
class Port:
    """The two interfaces between which the packets of a node's link are forwarded."""

    node: str
    near: str
    far: str


def configuration(link: Link, ports: Sequence[Port], seed: int, cpu: int | None) -> dict[str, Any]:
    """Return the configuration for the links of these nodes; `cpu`: None is any core."""
    directions = {name: _direction(direction) for name, direction in link.directions.items()}
    return {
        "seed": seed % MAX_SEED,
        "cpu": -1 if cpu is None else cpu,
        "links": [{"name": port.node, "near": port.near, "far": port.far, **directions} for port in ports],
    }


def seed_of(campaign: str, repetition: int | None) -> int:
    """Return the seed of the random decisions in a repetition, which are the same in all of its networks.

    Results of several campaigns can be pooled only if each has random decisions of its own. The repetition is None
    outside of campaigns.
    """
    return zlib.crc32(f"{campaign} {repetition}".encode())


def engine_record(seed: int, core: int | None, layout: Layout) -> dict[str, Any]:
    """Return how links are emulated, for the record; `core`: None is any core."""
    return {"seed": seed, "core": core, "measured_core": core_layout.measures(layout, core)}


def schedule(phases: Sequence[Phase]) -> list[tuple[int, str]]:
    """Return the times from the start of the measured interval, in µs, and the states that a link has from then on.

    A state is one for the command `outage` of `k8sdds-link`; `OFF` ends an outage.
    """
    found = []
    for each, following in itertools.zip_longest(phases, phases[1:]):
        found.append((each.at_us, f"rate {each.rate_mbit:g}" if each.rate_mbit else f"{each.drop_percent:g}"))
        end_us = each.at_us + each.for_us
        if following is None or following.at_us > end_us:
            found.append((end_us, OFF))
    return found


def _direction(direction: Direction) -> dict[str, Any]:
    queue = direction.queue
    if direction.rate and not direction.rate.is_from_file:
        queue = queue or USUAL_QUEUE
    parts: Mapping[str, Any] = {
        "delay": direction.delay and _delay(direction.delay),
        "loss": direction.loss and _loss(direction.loss),
        "rate": direction.rate and _rate(direction.rate),
        "queue": queue and queue.model_dump(exclude_none=True),
        "duplicate_percent": direction.duplicate_percent,
    }
    return {name: value for name, value in parts.items() if value}


def netem_delay(delay: Delay) -> tuple[float, float]:
    """Return mean and jitter of a delay, in µs, as netem and `k8sdds-link` define them for its distribution."""
    if delay.distribution == "uniform":
        return delay.mean_us, delay.jitter_us * UNIFORM_WIDTH
    if delay.distribution == "pareto":
        jitter_us = delay.jitter_us / PARETO_DEVIATION
        return delay.mean_us - PARETO_MEAN * jitter_us, jitter_us
    return delay.mean_us, delay.jitter_us


def _delay(delay: Delay) -> dict[str, Any]:
    if delay.is_from_file:
        return {"values_us": list(link_files.values(delay))}
    mean_us, jitter_us = netem_delay(delay)
    return {
        "mean_us": mean_us,
        "jitter_us": jitter_us,
        "distribution": delay.distribution,
        "correlation_percent": delay.correlation_percent,
        "reorder_percent": delay.reorder_percent,
    }


def _loss(loss: Loss) -> dict[str, Any]:
    if loss.is_from_file:
        return {"pattern": link_files.values(loss), "udp_only": loss.udp_only}
    if loss.p_percent is None:
        return {"percent": loss.percent, "udp_only": loss.udp_only}
    names = ("p_percent", "r_percent", "h_percent", "k_percent")
    return {**dict(zip(names, loss.states, strict=True)), "udp_only": loss.udp_only}


def _rate(rate: Rate) -> dict[str, Any]:
    return {"trace_ms": list(link_files.values(rate))} if rate.is_from_file else {"mbit": rate.mbit}
