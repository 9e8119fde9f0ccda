"""The throughput workload: publishers send a stream of samples, subscribers count what arrives."""

from __future__ import annotations

from k8sdds.model.trial import Cell
from k8sdds.perftest.command import Load
from k8sdds.workloads.protocol import Workload


class Throughput(Workload):
    """Payload rate that a subscriber receives, and the latency under this load."""

    name = "throughput"

    def load(self, cell: Cell) -> Load:
        """Return a stream at the cell's rate."""
        return Load(rate=cell.rate, batch_bytes=cell.batch_bytes)
