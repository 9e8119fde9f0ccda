"""The middleware plug point: one module per DDS implementation, and the registry.

To add a middleware, add a module with a `Middleware` and a line to `MIDDLEWARES`. One that k8sdds-perftest
runs also needs a backend in perftest-images/perftest.
"""

from __future__ import annotations

from k8sdds import workloads
from k8sdds.middleware.connext import Connext
from k8sdds.middleware.cyclonedds import CycloneDDS
from k8sdds.middleware.fastdds import FastDDS
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.protocol import Command, Middleware, Surroundings
from k8sdds.middleware.qos import qos_file
from k8sdds.middleware.raw import MODES, Raw
from k8sdds.model.trial import Cell
from k8sdds.workloads import Program

__all__ = [
    "BACKENDS",
    "MIDDLEWARES",
    "Command",
    "Middleware",
    "Surroundings",
    "find",
    "of",
    "program_of",
    "qos_file",
]

MIDDLEWARES: dict[str, Middleware] = {
    middleware.name: middleware
    for middleware in (
        CycloneDDS(),
        FastDDS(),
        Raw(),
        *(Raw(mode) for mode in MODES),
        Connext(),
    )
}

BACKENDS = tuple(dict.fromkeys(m.backend for m in MIDDLEWARES.values() if isinstance(m, K8sddsPerftest)))
"""Backends of k8sdds-perftest that these middlewares use. Several middlewares may be modes of one backend."""


def find(name: str) -> Middleware:
    """Return the middleware of a cell.

    A name that is not registered is a backend of k8sdds-perftest that the user may have built.
    """
    return MIDDLEWARES.get(name) or K8sddsPerftest(name)


def program_of(cell: Cell) -> Program:
    """Return what a trial of a cell starts: the program of its test, otherwise its middleware."""
    return workloads.find(cell.test).program or find(cell.middleware)


def of(cell: Cell) -> Middleware | None:
    """Return the middleware of a cell, or None if its test runs another program."""
    return None if workloads.find(cell.test).program else find(cell.middleware)
