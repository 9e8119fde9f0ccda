"""The capacity workload: trials of a search for the highest rate, or number of subscribers, that meets goals."""

from __future__ import annotations

from k8sdds.model.options import RATE, SUBSCRIBERS, CapacityOptions
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.reason import NO_MATCH, Reason
from k8sdds.model.trial import Cell
from k8sdds.perftest.command import Load
from k8sdds.results import aggregate
from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.paced import Paced, delays_of
from k8sdds.workloads.throughput import Throughput


def options_of(cell: Cell) -> CapacityOptions:
    """Return the options of a cell of a capacity test."""
    return CapacityOptions(**cell.test_options)


class Capacity(Paced):
    """A trial of a search (`analysis.capacity`): paced, except one without a rate, which is as fast as possible."""

    name = "capacity"
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
