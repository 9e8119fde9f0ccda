"""The workload plug point: one module per kind of test, and the registry.

To add a workload, add a module with a `Workload` and a line to `WORKLOADS`.
"""

from __future__ import annotations

from collections.abc import Collection

from k8sdds.model.axis import axes
from k8sdds.model.trial import Cell
from k8sdds.perftest.command import Fleet
from k8sdds.workloads.capacity import Capacity
from k8sdds.workloads.discovery import Discovery
from k8sdds.workloads.fleet_capacity import FleetCapacity
from k8sdds.workloads.graph import GraphTest
from k8sdds.workloads.http import HttpRequests
from k8sdds.workloads.iperf3 import TcpStream, UdpStream
from k8sdds.workloads.latency import Latency
from k8sdds.workloads.outage import Outage
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.paced import Paced
from k8sdds.workloads.ping import Ping
from k8sdds.workloads.pod_start import PodStart
from k8sdds.workloads.program import Program
from k8sdds.workloads.protocol import Workload
from k8sdds.workloads.service import Service
from k8sdds.workloads.throughput import Throughput
from k8sdds.workloads.tools import Tool
from k8sdds.workloads.transactions import TcpCrr, TcpRr, UdpRr

__all__ = [
    "HEADLINES",
    "WORKLOADS",
    "Program",
    "TrialOutputs",
    "Workload",
    "declaring",
    "find",
    "of_metric",
    "of_mode",
    "restarted_fleet",
    "tool_packages",
    "trials_with",
]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Throughput(),
        Latency(),
        Paced(),
        GraphTest(),
        Discovery(),
        Outage(),
        TcpStream(),
        UdpStream(),
        TcpRr(),
        UdpRr(),
        TcpCrr(),
        Service(),
        HttpRequests(),
        Ping(),
        PodStart(),
        Capacity(),
        FleetCapacity(),
    )
}
"""Workloads by name, in the order used in reports. If several workloads yield a metric, the first one reports it."""

HEADLINES = tuple(dict.fromkeys(name for workload in WORKLOADS.values() for name in workload.headlines))
"""The main metrics of all workloads: a trial has a value for at least one of them."""


def find(name: str) -> Workload:
    """Return the workload of a cell. Experiments are checked for unknown names when they are loaded."""
    return WORKLOADS[name]


def restarted_fleet(cell: Cell) -> Fleet | None:
    """Return the fleet of a cell whose discovery server is restarted during a trial; None for other cells."""
    fleet = find(cell.test).load(cell).fleet
    return fleet if fleet is not None and fleet.restarts_server else None


def of_metric(metric: str, measured: Collection[str] = ()) -> str:
    """Return the name of the workload whose trials are the source of a metric in reports.

    If several workloads yield the metric, the first one that was `measured` is used.
    """
    names = [name for name, workload in WORKLOADS.items() if metric in workload.metrics]
    return next((name for name in names if name in measured), next(iter([*names, *WORKLOADS])))


def of_mode(mode: str | None) -> str | None:
    """Return the name of the workload for a mode that PerfTest or k8sdds-perftest printed, or None."""
    return next((name for name, workload in WORKLOADS.items() if mode in (name, workload.mode)), None)


def trials_with(column: str) -> str:
    """Describe the trials that have a column of the record, such as "trials with `test: http`"."""
    first, *others = declaring(column)
    return f"trials with {' or '.join([f'`test: {first}`', *(f'`{test}`' for test in others)])}"


def declaring(column: str) -> list[str]:
    """Return the tests whose trials have a column of the record because it is their option, metric or other column."""
    return [
        name
        for name, workload in WORKLOADS.items()
        if column in (*workload.metrics, *workload.columns)
        or (workload.tcp and column == "tcp_congestion_control")
        or any(axis.column == column for axis in axes(workload.options).values())
    ]


def tool_packages() -> dict[str, str]:
    """Return the programs of tests that are not DDS, each with the Debian package that provides it."""
    tools = (workload.program for workload in WORKLOADS.values() if isinstance(workload.program, Tool))
    return {name: package for tool in tools for name, package in tool.packages.items()}
