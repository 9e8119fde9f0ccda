"""Assign cores to participants by a core layout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from k8sdds.model.trial import participants

STEERED = "split"
"""The layout in which the receive work of a node is steered to the cores of its participants. A core of another machine
does it on a real cluster, never that of the sender."""

NOT_STEERED = "00000000"
"""Mask of a node that does not steer packets."""

MIN_CORES_FOR_HARNESS = 4
"""With at least this many cores, the last one is reserved for k8sdds itself."""


@dataclass(frozen=True)
class Layout:
    """Cores of each participant and of k8sdds."""

    cpus: dict[str, tuple[int, ...] | None]
    """By participant name; None if not pinned."""
    harness: tuple[int, ...] | None
    """Cores of k8sdds and its supervisors; None if not pinned."""
    includes_scheduling: bool
    """Whether participants share cores, so that waiting for each other is part of the result."""


def available() -> tuple[int, ...]:
    """Return the cores that this process may use, in ascending order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def harness(cores: tuple[int, ...]) -> tuple[int, ...]:
    """Return the core that is reserved for k8sdds; empty if there are too few cores."""
    return cores[-1:] if len(cores) >= MIN_CORES_FOR_HARNESS else ()


def spare(cores: tuple[int, ...]) -> int | None:
    """Return the core on which links are emulated, which no participant uses; None, any core, if there are too few."""
    return next(iter(harness(cores)), None)


def assign(
    layout: str, publishers: int, subscribers: int, cores: tuple[int, ...], by_role: bool = True
) -> Layout:
    """Assign cores to publishers and subscribers.

    `split` gives the first cores to publishers and the others to subscribers, one core each; cores are
    shared if there are too few. With one core, `split` equals `same`. Without `by_role`, because most participants
    publish and subscribe, each gets the next core.
    """
    members = participants(publishers, subscribers)
    pubs = [participant.name for participant in members if participant.publishes]
    subs = [participant.name for participant in members if participant.subscribes]
    reserved = harness(cores) or None
    usable = cores[:-1] if reserved else cores
    if layout == "free":
        return Layout(dict.fromkeys([*pubs, *subs]), None, len(pubs) + len(subs) > len(cores))
    if layout == "same" or len(usable) == 1:
        # A publisher and a subscriber alternate on their core; more of them wait for each other.
        return Layout({name: usable[:1] for name in [*pubs, *subs]}, reserved, len(subs) > 1 or len(pubs) > 1)
    first = min(len(pubs), len(usable) - 1)
    groups = [(pubs, usable[:first]), (subs, usable[first:])] if by_role else [([*pubs, *subs], usable)]
    cpus: dict[str, tuple[int, ...] | None] = {
        name: (own[i % len(own)],) for names, own in groups for i, name in enumerate(names)
    }
    return Layout(cpus, reserved, any(len(names) > len(own) for names, own in groups))


def measures(layout: Layout, core: int | None) -> bool:
    """Return whether participants may run on a core; None is any core."""
    return core is None or any(cpus is None or core in cpus for cpus in layout.cpus.values())


def unused(layout: Layout, cores: tuple[int, ...]) -> int | None:
    """Return a core on which no participant may run; None if there is none."""
    return next((core for core in reversed(cores) if not measures(layout, core)), None)


def supervisor_options(layout: Layout, participant: str) -> list[str]:
    """Return the supervisor's options for the cores of a participant and of the supervisor itself."""
    cores = {"--cpus": layout.cpus.get(participant), "--own-cpus": layout.harness}
    return [word for option, cpus in cores.items() if cpus for word in (option, ",".join(map(str, cpus)))]


def steering(name: str, layout: Layout, node_of: Mapping[str, str]) -> dict[str, str]:
    """Return the mask of cores to which each node steers received packets (RPS), for a layout with this name."""
    cpus: dict[str, set[int]] = {node: set() for node in node_of.values()}
    if name == STEERED:
        for participant, node in node_of.items():
            cpus[node].update(layout.cpus.get(participant) or ())
    return {node: mask(tuple(used)) for node, used in cpus.items()}


def steers(cpu_mask: str) -> bool:
    """Return whether a node with this mask steers packets."""
    return cpu_mask != NOT_STEERED


def mask(cpus: tuple[int, ...]) -> str:
    """Format a CPU mask for sysfs: hexadecimal, in groups of 32 bits."""
    value = sum(1 << cpu for cpu in cpus)
    groups: list[str] = []
    while value or not groups:
        groups.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(groups))
