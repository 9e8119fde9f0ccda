"""Core layouts: which participant runs on which core, and where the receiving node's work runs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from k8sdds.model.trial import participants

LAYOUTS = {
    "split": "publishers and subscribers on different cores",
    "same": "all participants on one core",
    "free": "not pinned: the scheduler decides",
}

CORES_TO_SPARE = 4
"""From so many cores on, the last one is kept for k8sdds itself."""


@dataclass(frozen=True)
class Layout:
    """Cores of each participant."""

    cpus: dict[str, tuple[int, ...] | None]
    harness: tuple[int, ...] | None
    """Cores for k8sdds and its supervisors; None: wherever."""
    includes_scheduling: bool
    """Participants share cores in a way that their waiting for each other is part of the number."""


def available() -> tuple[int, ...]:
    """The cores that this process may use, in order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def assign(layout: str, publishers: int, subscribers: int, cores: tuple[int, ...]) -> Layout:
    """Cores for `pub0`… and `sub0`… in a layout.

    `split` gives publishers the first cores and subscribers the others, one each as far as they go;
    with one core it is the same as `same`.
    """
    everyone = participants(publishers, subscribers)
    pubs = [one.name for one in everyone if one.publishes]
    subs = [one.name for one in everyone if one.subscribes]
    harness = cores[-1:] if len(cores) >= CORES_TO_SPARE else None
    usable = cores[:-1] if harness else cores
    if layout == "free":
        return Layout(dict.fromkeys([*pubs, *subs]), None, len(pubs) + len(subs) > len(cores))
    if layout == "same" or len(usable) == 1:
        # One publisher and one subscriber in turn is what the layout is for; more wait for each other.
        return Layout({name: usable[:1] for name in [*pubs, *subs]}, harness, len(subs) > 1 or len(pubs) > 1)
    first = min(len(pubs), len(usable) - 1)
    for_pubs, for_subs = usable[:first], usable[first:]
    cpus: dict[str, tuple[int, ...] | None] = {}
    for i, name in enumerate(pubs):
        cpus[name] = (for_pubs[i % len(for_pubs)],)
    for i, name in enumerate(subs):
        cpus[name] = (for_subs[i % len(for_subs)],)
    return Layout(cpus, harness, len(pubs) > len(for_pubs) or len(subs) > len(for_subs))


def mask(cpus: tuple[int, ...]) -> str:
    """A CPU mask as sysfs wants it: hexadecimal, in groups of 32 bits."""
    value = sum(1 << cpu for cpu in cpus)
    groups = []
    while value or not groups:
        groups.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(groups))
