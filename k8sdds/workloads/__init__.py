"""The workload plug point: one module per kind of test, and the registry.

To add a workload, add a module with a `Workload` and a line to `WORKLOADS`.
"""

from __future__ import annotations

from k8sdds.workloads.latency import Latency
from k8sdds.workloads.protocol import Workload
from k8sdds.workloads.throughput import Throughput

__all__ = ["WORKLOADS", "Workload", "find"]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Throughput(),
        Latency(),
    )
}
"""By name, in the order of reports. Results that no workload claims are reported from the first."""


def find(name: str) -> Workload:
    """Return the workload of a cell. Experiments are checked for unknown names when they are loaded."""
    return WORKLOADS[name]
