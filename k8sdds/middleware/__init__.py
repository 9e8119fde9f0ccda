"""The middleware plug point: one module per program that publishes and subscribes, and the registry.

To add a middleware, add a module with a `Middleware` and a line to `MIDDLEWARES`. One that k8sdds-perftest
runs also needs a backend in perftest-images/perftest.
"""

from __future__ import annotations

from pathlib import Path

from k8sdds import workloads
from k8sdds.middleware.connext import Connext
from k8sdds.middleware.cyclonedds import CycloneDDS
from k8sdds.middleware.fastdds import FastDDS
from k8sdds.middleware.files import checksum, qos_file
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.protocol import Command, Middleware, Surroundings
from k8sdds.middleware.raw import MODES, Raw
from k8sdds.model.trial import Cell
from k8sdds.workloads import Program

__all__ = [
    "BACKENDS",
    "MIDDLEWARES",
    "Command",
    "Middleware",
    "Surroundings",
    "config_checksum",
    "config_copy",
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
    """Return the program that a trial of a cell starts: that of its test, otherwise its middleware."""
    return workloads.find(cell.test).program or find(cell.middleware)


def of(cell: Cell) -> Middleware | None:
    """Return the middleware of a cell, or None if its test runs another program."""
    return None if workloads.find(cell.test).program else find(cell.middleware)


def config_checksum(name: str, path: str) -> str:
    """Return the SHA-256 of a configuration file of a middleware. Raises InputError for an unusable file."""
    return checksum(path, find(name).check_config)


def config_copy(cell: Cell) -> str:
    """Return the name of the run folder's copy of a cell's configuration file, which depends on its content."""
    stem = Path(cell.middleware_config).stem
    return f"{stem}-{cell.middleware_config_sha256[:8]}{find(cell.middleware).config_suffix}"
