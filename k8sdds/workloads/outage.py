"""The outage workload: a paced test in which something fails and comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from k8sdds.model.axis import WORKLOAD, Axis
from k8sdds.model.link import KERNEL
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.reason import PEER_LOST, Reason
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER, PUBLISHER, SUBSCRIBER, Cell, Participant
from k8sdds.perftest.command import Load
from k8sdds.results import aggregate, arrivals, link_statistics
from k8sdds.results.arrivals import Arrival
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.system.reading import UnreadableError
from k8sdds.system.strict import mistake
from k8sdds.workloads import recovery
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.paced import Paced, PacedOptions, set_arrivals
from k8sdds.workloads.recovery import Recovery

FEWEST_BEFORE = 20
"""Samples before the failure that show the usual rate and delay."""
LEAST_AFTER_S = 2.0
"""Least time that is left for the recovery. Longer outages need more, of which nothing is known before."""


class OutageOptions(PacedOptions):
    """Options of the outage test."""

    what: Annotated[
        Literal["link", "lossy"], Axis(WORKLOAD, lambda v: f"{v} outage", column="outage_what")
    ] = Field(
        default="link",
        description="what fails: the `link` of a node, over which nothing passes any more; or only a share of its"
        " packets (`lossy`)",
    )
    where: Annotated[
        Literal["publisher", "subscriber"], Axis(WORKLOAD, lambda v: f"at the {v}", column="outage_where")
    ] = Field(
        default="subscriber",
        description="whose node: that of the first publisher, or of the first subscriber",
    )
    for_s: Annotated[float, Axis(WORKLOAD, lambda v: f"outage of {v:g} s", column="outage_for_s")] = Field(
        default=1, ge=0.1, le=30, description="how long it lasts, in seconds"
    )
    after_s: Annotated[float, Axis(WORKLOAD, lambda v: f"after {v:g} s", column="outage_after_s")] = Field(
        default=2, ge=0.5, le=600, description="when it begins, in seconds after the measured interval does"
    )
    drop_percent: Annotated[
        float | None, Axis(WORKLOAD, lambda v: f"{v:g} % dropped", column="outage_drop_percent")
    ] = Field(
        default=None,
        gt=0,
        lt=100,
        description="with `what: lossy`: share of the packets that are lost, each way",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> OutageOptions:
        if (self.what == "lossy") != (self.drop_percent is not None):
            needed = (
                "set it with `what: lossy`" if self.what == "lossy" else "has no effect without `what: lossy`"
            )
            raise mistake(needed, "drop_percent")
        return self

    @property
    def participant(self) -> Participant:
        """The participant whose node has the outage."""
        return FIRST_PUBLISHER if self.where == PUBLISHER else FIRST_SUBSCRIBER


def options_of(cell: Cell) -> OutageOptions:
    """Return the options of a cell of an outage test."""
    return OutageOptions(**cell.test_options)


class Outage(Paced):
    """How long subscribers see nothing when something fails, and how long it takes until everything is as before."""

    name = "outage"
    options = OutageOptions
    metrics = (
        "recovery_full_ms", "outage_blind_ms", "recovered_percent", "recovery_first_ms", "recovery_bytes",
        "outage_late", *(name for name in Paced.metrics if not name.startswith("delay_")),
    )  # fmt: skip
    columns = ("outage_s",)
    histograms = ()
    measured_by = SUBSCRIBER
    mode = ""  # published logs with PerfTest's mode are of `throughput`
    loss_is_result = True
    interrupts_links = True

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
        if cell.rate_profile != CONSTANT:
            return f"an outage test sends at a constant rate: set rate_profile to {CONSTANT}"
        if not cell.crosses_links:
            return "an outage test interrupts the link between two nodes: leave out transport and placement"
        if cell.link.outages:
            return "an outage test has one outage: leave out `outages` of the link"
        if cell.link.engine == KERNEL:
            return "the kernel's netem has no outages by command: set `engine: userspace` of the link"
        if cell.link.nodes not in ("all", f"{options.where}s"):
            return f"the link of the {options.where}'s node is not emulated: set `nodes: all` of the link"
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
    def is_result(self, failure: Reason, cell: Cell) -> bool:
        return failure.code == PEER_LOST

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
        within = f"within {number((_end_us(outputs) - outage.repaired_us) / 1000)} ms after the repair"
        for name, values, what in (
            ("outage_blind_ms", (one.blind_ms for one in found), "no fresh sample"),
            ("recovery_first_ms", (one.first_ms for one in found), "no fresh sample"),
            ("recovery_full_ms", (one.full_ms for one in found), "not recovered"),
        ):
            _set(record, name, aggregate.complete_max(values), f"{what} {within}")
        recovered = sum(one.full_ms is not None for one in found)
        record.recovered_percent = aggregate.ratio(recovered, len(found), 100)
        record.outage_late = aggregate.count(one.late for one in found)
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
        for publisher in range(outputs.trial.cell.publishers):
            if not all(
                any(one.at_us < outage.failed_us for one in own.get(publisher, ())) for own in seen.values()
            ):
                return Reason("no-samples", f"nothing arrived from pub{publisher} before the outage")
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


def _recoveries(outputs: TrialOutputs, outage: arrivals.Interruption) -> Iterator[Recovery]:
    """Yield how each subscriber recovered, from each publisher."""
    cell = outputs.trial.cell
    for seen in _arrived(outputs).values():
        for publisher in range(cell.publishers):
            yield recovery.of(seen.get(publisher, []), outage, cell.rate)


def _arrived(outputs: TrialOutputs) -> dict[str, dict[int, list[Arrival]]]:
    """Return what arrived at each subscriber, by publisher. Raises UnreadableError."""
    return arrivals.of_attempt(outputs.folder, [one.name for one in outputs.summaries_of(SUBSCRIBER)])


def _end_us(outputs: TrialOutputs) -> int:
    """Return the end of the measured interval, by CLOCK_MONOTONIC."""
    interval = outputs.meters_of(FIRST_PUBLISHER).get("interval") or {}
    start_ns, length_s = interval.get("start_monotonic_ns") or 0, interval.get("duration_s") or 0
    return round(start_ns / 1000 + length_s * 1e6)


def _set(record: Metrics, name: str, value: float | None, why_not: str) -> None:
    setattr(record, name, value)
    if value is None:
        record.missing = (record.missing or {}) | {name: why_not}
