"""The workload protocol: what a trial sends, what it measures, and when an attempt is valid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from k8sdds.model.options import OPTIONS, SEARCHES, NoOptions
from k8sdds.model.reason import Reason
from k8sdds.model.services import ServiceSet
from k8sdds.model.trial import Cell, Role
from k8sdds.perftest.command import Load
from k8sdds.results.metrics import Metrics
from k8sdds.system.strict import Strict
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Program

RATE_MISSED = 0.02
"""Fraction by which an offered rate may be missed without a warning."""


def missed_rate(achieved_percent: float | None, offered: str) -> list[str]:
    """Return a warning if an offered rate, such as `100 samples/s`, was missed."""
    if achieved_percent is None or achieved_percent >= 100 * (1 - RATE_MISSED):
        return []
    return [f"rate: {achieved_percent:.3g} % of {offered} were sent"]


class Workload(Protocol):
    """One kind of test. Each workload is one module of this package and one line of its registry."""

    # -- in an experiment -----------------------------------------------------------------------------

    name: str
    """The value of `test` in experiments and in trials.jsonl."""
    layout: str = "split"
    """The core layout that `auto` selects."""
    program: Program | None = None
    """What its participants run; None means the cell's middleware."""
    tcp: bool = False
    """Whether its samples travel over TCP."""
    loss_is_result: bool = False
    """Whether a trial is valid although samples of a reliable topic were lost."""
    runs_graphs: bool = False
    """Whether the participants of its trials are the nodes of the cell's `graph`."""
    starts_fleets: bool = False
    """Whether its participants send nothing, and start processes with the members of a fleet."""
    timed_by: tuple[str, ...] = ()
    """Options that determine `least_s`."""
    interrupts_links: bool = False
    """Whether the testbed interrupts the link of a node in its trials."""
    counts_kinds: bool = False
    """Whether the lab counts the packets that leave the pods by kind, which costs the senders some CPU time."""

    @property
    def options(self) -> type[Strict]:
        """The keys that are allowed next to `name` if `test` is a mapping."""
        return OPTIONS.get(self.name, NoOptions)

    @property
    def finds_capacity(self) -> bool:
        """Whether its trials are probes of a search, which a planner adds."""
        return self.name in SEARCHES

    def unsupported(self, cell: Cell) -> str | None:
        """Return why the workload cannot run this cell with any middleware or network, or None."""
        return None

    def least_s(self, cell: Cell) -> float:
        """Return how long a trial of this cell must be at least."""
        return 0

    def most_s(self, cell: Cell) -> float:
        """Return how long a trial of this cell can be at most."""
        return math.inf

    def largest_cell(self, cell: Cell) -> Cell:
        """Return the cell with the most participants that a search adds to this one; by default itself."""
        return cell

    def probe(self, cell: Cell, value: float) -> Cell:
        """Return the cell of a search's probe at a value of what it searches."""
        return cell

    def is_result(self, failure: Reason, outputs: TrialOutputs) -> bool:
        """Return whether a failure of the participants is a result: the attempt is valid."""
        return False

    def load(self, cell: Cell) -> Load:
        """Return the load of a publisher in the terms of PerfTest."""
        return Load()

    def started_pods(self, cell: Cell) -> int:
        """Return how many further pods the testbed starts and times before the participants run."""
        return 0

    def matched_middleware(self, cell: Cell) -> str | None:
        """Return the middleware with which two of these pods find each other, or None."""
        return None

    def services(self, cell: Cell) -> ServiceSet | None:
        """Return the Services of which the client connects to one; None if it connects to the server's pod."""
        return None

    def timed_per_s(self, cell: Cell) -> float | None:
        """Return how many values a participant times per second; None if it does not depend on the settings alone."""
        return None

    # -- results --------------------------------------------------------------------------------------

    metrics: tuple[str, ...]
    """The metrics of this workload, the main metric first. Names of results.metrics."""
    columns: tuple[str, ...] = ()
    """Further columns of the record that only trials of some tests have, besides their options."""

    @property
    def headlines(self) -> tuple[str, ...]:
        """The main metrics, of which a trial has at least one: the first it has stands for the trial."""
        return self.metrics[:1]

    measured_by: Role
    """The participants that report the main metric."""
    histograms: tuple[str, ...] = ()
    """Tags in latency.hlog of the latencies that the participants log. Empty if there are none."""
    mode: str = ""
    """PerfTest's name of the mode in which it runs this workload; empty if PerfTest does not run it."""

    def shown(self, delay_method: str | None) -> tuple[str, ...]:
        """Return the tags of the latencies whose distribution reports show, for the `delay_method` of a record."""
        return self.histograms

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the metrics of an attempt."""

    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        """Return the metrics of an imported trial; empty if no other program writes logs of this test.

        `received` has the quantities in the summary of each subscriber (perftest.log), `timed` those of each publisher.
        """
        return {}

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        """Return why an attempt without failed participants is not valid, or None."""
        return None

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        """Return the requested values that a valid attempt did not reach, each as `code: explanation`."""
        return []

    def describe(self, record: Metrics) -> str:
        """Return the result of a valid attempt in one line."""
