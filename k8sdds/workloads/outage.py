"""The outage workload: a paced test in which something fails and comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from k8sdds.discovery import SERVER
from k8sdds.model.link import KERNEL
from k8sdds.model.options import OutageOptions
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.reason import NO_MATCH, NO_SAMPLES, PEER_LOST, Reason
from k8sdds.model.trial import (
    FIRST_PUBLISHER,
    FIRST_SUBSCRIBER,
    STANDBY,
    SUBSCRIBER,
    Cell,
    Participant,
)
from k8sdds.perftest.command import Load
from k8sdds.results import aggregate, arrivals, link_statistics
from k8sdds.results.arrivals import Arrival
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.system.reading import UnreadableError
from k8sdds.workloads import recovery
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.paced import Paced, set_arrivals
from k8sdds.workloads.recovery import Recovery

NAME = "outage"
FEWEST_BEFORE = 20
"""Samples before the failure that show the usual rate and delay."""
LEAST_AFTER_S = 2.0
"""Least time that is left for the recovery. Longer outages need more, of which nothing is known before."""


def options_of(cell: Cell) -> OutageOptions:
    """Return the options of a cell of an outage test."""
    return OutageOptions(**cell.test_options)


def of_link(test: str, options: Mapping[str, Any]) -> bool:
    """Return whether the link of a node fails in a test with these options."""
    return test == NAME and OutageOptions(**options).of_link


def standby(cell: Cell) -> dict[Participant, Participant]:
    """Return the pod that replaces another one in a trial, with the participant of that one; empty if none does."""
    if cell.test != NAME or (options := options_of(cell)).what != "pod":
        return {}
    return {STANDBY: options.participant}


class Outage(Paced):
    """How long subscribers see nothing when something fails, and how long it takes until everything is as before."""

    name = NAME
    metrics = (
        "recovery_full_ms", "outage_blind_ms", "recovered_percent", "recovery_first_ms", "recovery_bytes",
        "outage_late", *(name for name in Paced.metrics if not name.startswith("delay_")),
    )  # fmt: skip
    columns = ("outage_s", "outage_observed_ms")
    histograms = ()
    measured_by = SUBSCRIBER
    mode = ""  # published logs with PerfTest's mode are of `throughput`
    loss_is_result = True
    interrupts_links = True
    timed_by = ("after_s", "for_s")

    @property
    @override
    def headlines(self) -> tuple[str, ...]:
        # What does not recover has no time of recovery.
        return self.metrics[:2]

    @override
    def unsupported(self, cell: Cell) -> str | None:
        options = options_of(cell)
        if not cell.rate:
            return "an outage test needs the rate of its schedule: set `rate` (samples per second)"
        if cell.rate_profile != CONSTANT or cell.schedule:
            return (
                f"an outage test sends at a constant rate: set rate_profile to {CONSTANT}, without schedule"
            )
        if not cell.crosses_links:
            return "an outage test is about samples between two nodes: leave out transport and placement"
        if cell.link.outages:
            return "an outage test has one outage: leave out `outages` of the link"
        if options.what == "server" and cell.discovery != SERVER:
            return "without a discovery server, none can fail: set `discovery: server`"
        if why := _not_interrupted(cell) if options.of_link else None:
            return why
        if options.after_s * cell.rate < FEWEST_BEFORE:
            return (
                f"{options.after_s:g} s before the outage have fewer than {FEWEST_BEFORE} samples: set after_s of the"
                f" test to at least {FEWEST_BEFORE / cell.rate:g}"
            )
        return None

    @override
    def least_s(self, cell: Cell) -> float:
        options = options_of(cell)
        return options.after_s + options.for_s + max(LEAST_AFTER_S, 2 * recovery.window_s(cell.rate))

    @override
    def most_s(self, cell: Cell) -> float:
        return arrivals.longest_s(cell.publishers)

    @override
    def load(self, cell: Cell) -> Load:
        return replace(super().load(cell), outage_s=options_of(cell).for_s)

    @override
    def is_result(self, failure: Reason, outputs: TrialOutputs) -> bool:
        # If a new participant finds no peers, or the others lose a peer for good, the middleware did not recover.
        return failure.code in (PEER_LOST, NO_MATCH, NO_SAMPLES) and self.invalid(outputs) is None

    @override
    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        set_arrivals(record, outputs)
        outage = arrivals.interruption(outputs.folder)
        if outage is None:
            return
        try:
            found = list(_recoveries(outputs, outage))
        except UnreadableError:
            return  # `invalid` states why
        record.outage_s = outage.length_s
        # It is 0 if the trial ended with the outage, or if its end is not known.
        record.outage_observed_ms = max((_end_us(outputs) - outage.repaired_us) / 1000, 0.0)
        within = f"within {number(record.outage_observed_ms)} ms after the repair"
        for name, values, what in (
            ("outage_blind_ms", (one.blind_ms for one in found), "no fresh sample"),
            ("recovery_first_ms", (one.first_ms for one in found), "no fresh sample"),
            ("recovery_full_ms", (one.full_ms for one in found), "not recovered"),
        ):
            _set(record, name, aggregate.complete_max(values), f"{what} {within}")
        recovered = sum(one.full_ms is not None for one in found)
        record.recovered_percent = aggregate.ratio(recovered, len(found), 100)
        record.outage_late = aggregate.total(one.late for one in found)
        if record.recovery_full_ms is None:
            _set(record, "recovery_bytes", None, f"not recovered {within}")
        elif (links := link_statistics.read(outputs.folder)) is not None:
            window_ms = recovery.window_s(outputs.trial.cell.rate) * 1000
            until_us = outage.repaired_us + (record.recovery_full_ms + window_ms) * 1000
            record.recovery_bytes = recovery.extra_bytes(links, outage, until_us)

    @override
    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        return {}

    @override
    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        outage = arrivals.interruption(outputs.folder)
        if outage is None:
            return Reason("no-outage", "the trial ended before the outage did")
        try:
            seen = _arrived(outputs)
        except UnreadableError as error:
            return Reason("no-proof", f"what arrived is not known: {error.message}")
        failed_us = {name: _by_its_clock(outputs, name, outage).failed_us for name in seen}
        for publisher in range(outputs.trial.cell.publishers):
            if not all(
                any(one.at_us < failed_us[name] for one in own.get(publisher, ()))
                for name, own in seen.items()
            ):
                return Reason(NO_SAMPLES, f"nothing arrived from pub{publisher} before the outage")
        return None

    @override
    def warnings(self, outputs: TrialOutputs) -> list[str]:
        return []

    @override
    def describe(self, record: Metrics) -> str:
        if record.outage_s is None:
            return "unknown"
        if record.outage_blind_ms is None:
            return "blind until the end, not recovered"
        blind = f"blind for {number(record.outage_blind_ms)} ms"
        if record.recovery_full_ms is None:
            return f"{blind}, not recovered"
        return f"{blind}, full rate {number(record.recovery_full_ms)} ms after the repair"


def _not_interrupted(cell: Cell) -> str | None:
    """Return why the link of the node cannot be interrupted, or None."""
    where = options_of(cell).where
    if cell.link.engine == KERNEL:
        return "the kernel's netem has no outages by command: set `engine: userspace` of the link"
    if cell.link.nodes not in ("all", f"{where}s"):
        return f"the link of the {where}'s node is not emulated: set `nodes: all` of the link"
    return None


def _recoveries(outputs: TrialOutputs, outage: arrivals.Interruption) -> Iterator[Recovery]:
    """Yield how each subscriber recovered, from each publisher."""
    cell = outputs.trial.cell
    for name, seen in _arrived(outputs).items():
        own = _by_its_clock(outputs, name, outage)
        for publisher in range(cell.publishers):
            yield recovery.of(seen.get(publisher, []), own, cell.rate)


def _by_its_clock(
    outputs: TrialOutputs, subscriber: str, outage: arrivals.Interruption
) -> arrivals.Interruption:
    """Return the outage by the clock of a subscriber: on a cluster, each machine has one of its own."""
    return arrivals.interruption(outputs.folder / subscriber) or outage


def _arrived(outputs: TrialOutputs) -> dict[str, dict[int, list[Arrival]]]:
    """Return what arrived at each subscriber, by publisher. Raises UnreadableError."""
    return arrivals.of_attempt(outputs.folder, [one.name for one in outputs.summaries_of(SUBSCRIBER)])


def _end_us(outputs: TrialOutputs) -> int:
    """Return the end of the measured interval, by CLOCK_MONOTONIC of the first subscriber's machine."""
    interval = outputs.meters_of(FIRST_PUBLISHER).get("interval") or {}
    start_ns, length_s = interval.get("start_monotonic_ns") or 0, interval.get("duration_s") or 0
    behind_ns = 0
    if FIRST_SUBSCRIBER.name in outputs.measurement.elsewhere:
        behind_ns = _boot_ns(outputs, FIRST_SUBSCRIBER) - _boot_ns(outputs, FIRST_PUBLISHER)
    return round((start_ns - behind_ns) / 1000 + length_s * 1e6)


def _boot_ns(outputs: TrialOutputs, participant: Participant) -> int:
    """Return when CLOCK_MONOTONIC of a participant's machine was 0, by its realtime clock."""
    meters = outputs.meters_of(participant)
    return (meters.get("started_at_ns") or 0) - (meters.get("start_monotonic_ns") or 0)


def _set(record: Metrics, name: str, value: float | None, why_not: str) -> None:
    setattr(record, name, value)
    if value is None:
        record.missing = (record.missing or {}) | {name: why_not}
