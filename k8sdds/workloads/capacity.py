"""The capacity workload: trials of a search for the highest rate, or number of subscribers, that meets goals."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator

from k8sdds.model.axis import WORKLOAD, Axis
from k8sdds.model.rate_profile import CONSTANT, MAX_RATE
from k8sdds.model.reason import NO_MATCH, Reason
from k8sdds.model.settings import MAX_PARTICIPANTS
from k8sdds.model.trial import Cell
from k8sdds.perftest.command import Load
from k8sdds.results import aggregate
from k8sdds.results.metrics import Metrics
from k8sdds.system.strict import Strict, as_list, mistake
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.paced import Paced, delays_of
from k8sdds.workloads.throughput import Throughput

Percent = Annotated[float, Field(ge=0, lt=100)]
Share = Annotated[float, Field(gt=0, le=100)]

MAX_GOALS = 5
MIN_RATE = 10.0

RATE: Final = "rate"
SUBSCRIBERS: Final = "subscribers"
MEMBERS: Final = "fleet_members"
"""What can be searched: the columns of trials with the values of its probes."""

Width = Annotated[float, Axis(WORKLOAD, lambda v: f"intervals of {v:g} %"), Field(ge=1, le=50)]
WIDTH: Any = Field(default=5, description="the search ends when an interval is at most this wide")


class CapacityOptions(Strict):
    """Options of the capacity test."""

    loss_percent: Annotated[
        list[Percent],
        BeforeValidator(as_list),
        Field(min_length=1, max_length=MAX_GOALS),
        Axis(WORKLOAD, lambda _: ""),
    ] = Field(
        default=[0, 0.5],
        description="accepted shares of the samples due that the worst subscriber does not receive; a capacity is"
        " searched for each",
    )
    p99_ms: Annotated[float | None, Axis(WORKLOAD, lambda v: f"p99 ≤ {v:g} ms")] = Field(
        default=10, gt=0, description="accepted 99th percentile of the delay in ms; `null`: any delay"
    )
    width_percent: Width = WIDTH
    max_subscribers: Annotated[int | None, Axis(WORKLOAD, lambda v: f"at most {v:g} subscribers")] = Field(
        default=None,
        ge=2,
        le=MAX_PARTICIPANTS,
        description="search the largest number of subscribers, up to this one, at the `rate` of the sweep; default:"
        " search the highest rate",
    )
    min_rate: Annotated[float, Axis(WORKLOAD, lambda _: "")] = Field(
        default=MIN_RATE, ge=1, le=MAX_RATE, description="no lower rate is measured (samples per second)"
    )
    max_rate: Annotated[float, Axis(WORKLOAD, lambda _: "")] = Field(
        default=MAX_RATE, ge=1, le=MAX_RATE, description="no higher rate is measured (samples per second)"
    )
    latency_at_percent: Annotated[
        list[Share], BeforeValidator(as_list), Field(max_length=10), Axis(WORKLOAD, lambda _: "")
    ] = Field(
        default=[10, 50, 90],
        description="shares of the capacity by the smallest `loss_percent` at which the delay is measured",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> CapacityOptions:
        if len(set(self.loss_percent)) < len(self.loss_percent):
            raise mistake("a share is listed twice", "loss_percent")
        if self.min_rate > self.max_rate:
            raise mistake(f"min_rate {self.min_rate:g} is above max_rate {self.max_rate:g}", "min_rate")
        if self.max_subscribers and (self.min_rate, self.max_rate) != (MIN_RATE, MAX_RATE):
            raise mistake(
                "min_rate and max_rate limit a search for a rate: leave them out", "max_subscribers"
            )
        return self

    @property
    def searched(self) -> str:
        """The column with the values of the probes: `rate` or `subscribers`."""
        return SUBSCRIBERS if self.max_subscribers else RATE


def options_of(cell: Cell) -> CapacityOptions:
    """Return the options of a cell of a capacity test."""
    return CapacityOptions(**cell.test_options)


class Capacity(Paced):
    """A trial of a search (`analysis.capacity`): paced, except one without a rate, which is as fast as possible."""

    name = "capacity"
    options = CapacityOptions
    finds_capacity = True
    loss_is_result = True
    metrics = (*Paced.metrics, "samples_per_s", "undelivered_percent", "overdue_percent")
    mode = ""  # published logs with PerfTest's mode are of `throughput`

    def unsupported(self, cell: Cell) -> str | None:
        searched = options_of(cell).searched
        if searched == RATE and cell.rate:
            return "a capacity test searches the rate: leave out `rate`, or set max_subscribers of the test"
        if searched == SUBSCRIBERS and not cell.rate:
            return "a capacity test with max_subscribers needs the rate of each publisher: set `rate`"
        if searched == SUBSCRIBERS and cell.subscribers > 1:
            return "a capacity test with max_subscribers searches their number: leave out `subscribers`"
        if searched == SUBSCRIBERS and not cell.uses_network:
            return "a capacity test cannot search subscribers in shared memory: leave out max_subscribers"
        if searched == SUBSCRIBERS and isinstance(cell.placement, dict):
            return "a capacity test with max_subscribers needs a placement by name, such as spread"
        if cell.rate_profile != CONSTANT or cell.schedule:
            return (
                f"a capacity test sends at constant rates: set rate_profile to {CONSTANT}, without schedule"
            )
        return None

    def largest_cell(self, cell: Cell) -> Cell:
        most = options_of(cell).max_subscribers
        return self.probe(cell, most) if most else cell

    def probe(self, cell: Cell, value: float) -> Cell:
        searched = options_of(cell).searched
        return cell.model_copy(update={searched: int(value) if searched == SUBSCRIBERS else value})

    def is_result(self, failure: Reason, outputs: TrialOutputs) -> bool:
        cell = outputs.trial.cell
        several = options_of(cell).searched == SUBSCRIBERS and cell.subscribers > 1
        return several and failure.code == NO_MATCH

    def load(self, cell: Cell) -> Load:
        return super().load(cell) if cell.rate else Throughput().load(cell)

    def timed_per_s(self, cell: Cell) -> float | None:
        return None

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        if not outputs.trial.cell.rate:
            Throughput().measure(record, outputs)
            return
        super().measure(record, outputs)
        received = [summary["received"] or 0 for summary in outputs.subscribers]
        worst = min(received) if len(received) == outputs.trial.cell.subscribers else None
        arrived = aggregate.ratio(worst, record.scheduled, 100)
        record.undelivered_percent = None if arrived is None else max(100 - arrived, 0.0)
        limit_ms = options_of(outputs.trial.cell).p99_ms
        delays = delays_of(outputs, record.delay_method)
        if limit_ms is not None and delays is not None:
            overdue = delays.above(round(limit_ms * 1e6))
            record.overdue_percent = aggregate.ratio(overdue, delays.total, 100)

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        return super().invalid(outputs) if outputs.trial.cell.rate else None

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        return []

    def describe(self, record: Metrics) -> str:
        if record.undelivered_percent is None:
            return Throughput().describe(record)
        overdue = "" if record.overdue_percent is None else f", {record.overdue_percent:.2f} % overdue"
        return f"{record.undelivered_percent:.3g} % not delivered{overdue}"
