"""The latency workload: one publisher sends the next sample after the reply to the previous one."""

from __future__ import annotations

from k8sdds.model.trial import Cell
from k8sdds.perftest.command import Load
from k8sdds.workloads.protocol import Workload


class Latency(Workload):
    """One-way latency without load: half of a round trip."""

    name = "latency"
    # Publisher and subscriber wait for each other in turn, so a second core would only add wake-ups.
    layout = "same"
    sends_at_rate = False

    def unsupported(self, cell: Cell) -> str | None:
        """Return why a cell cannot be a ping-pong of two participants, or None."""
        if cell.batch_bytes:
            return "a latency test never batches: batch_bytes must be 0"
        if cell.publishers > 1:
            return "a latency test has one publisher"
        return None

    def load(self, cell: Cell) -> Load:
        """Return round trips."""
        return Load(round_trips=True)
