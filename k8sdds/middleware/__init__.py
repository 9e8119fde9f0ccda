"""The middleware plug point: one module per program that publishes and subscribes, and the registry.

To add a middleware, add a module with a `Middleware` and a line to `MIDDLEWARES`. One that k8sdds-perftest
runs also needs a backend in perftest-images/perftest.
"""

from __future__ import annotations

from pathlib import Path

from k8sdds import workloads
from k8sdds.middleware import raw, ros2_fastdds, zenoh
from k8sdds.middleware.connext import Connext
from k8sdds.middleware.cyclonedds import CycloneDDS
from k8sdds.middleware.fastdds import FastDDS
from k8sdds.middleware.files import checksum
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.protocol import Middleware as Middleware
from k8sdds.middleware.protocol import Surroundings as Surroundings
from k8sdds.model.trial import Cell
from k8sdds.workloads import Program

MIDDLEWARES: dict[str, Middleware] = {
    middleware.name: middleware
    for middleware in (
        CycloneDDS(),
        FastDDS(),
        *map(ros2_fastdds.Ros2FastDDS, (ros2_fastdds.BACKEND, ros2_fastdds.PLAIN)),
        *map(raw.Raw, ("", *raw.MODES)),
        *map(zenoh.Zenoh, (zenoh.TCP, *zenoh.MODES)),
        Connext(),
    )
}

BACKENDS = {m.backend: m.build_option for m in MIDDLEWARES.values() if isinstance(m, K8sddsPerftest)}
"""Backend of k8sdds-perftest to the option of CMake that builds it. Several middlewares may be modes of one backend."""
ALWAYS_BUILT = tuple(name for name, option in BACKENDS.items() if not option)
"""Backends that are not built only on request."""

OFFERED = tuple(
    name
    for name, middleware in MIDDLEWARES.items()
    if type(middleware).ready_files is not Middleware.ready_files and name in BACKENDS
)
"""Middlewares that applications can use with files of `ready_files`, each with its usual transport."""


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


def locks_memory(cell: Cell) -> bool:
    """Return whether the participants of a cell lock memory: all of theirs, or what they share."""
    return cell.lock_memory or _locks_shared_memory(cell)


def _locks_shared_memory(cell: Cell) -> bool:
    return not cell.uses_network and find(cell.middleware).locks_shared_memory


def capabilities(cell: Cell) -> dict[str, str]:
    """Return the Linux capabilities that participants need in addition to those of a default container.

    The value of each is what needs it: the middleware, or a setting.
    """
    needed = {"SYS_NICE": "realtime_priority"} if cell.realtime_priority else {}
    if locks_memory(cell):
        needed["IPC_LOCK"] = cell.middleware if _locks_shared_memory(cell) else "lock_memory"
    return needed


def qos_file(cell: Cell) -> Path:
    """Return the file of the cell's QoS profile. Raises InputError if the middleware has no such profile."""
    return find(cell.middleware).qos_file(cell)


def config_checksum(name: str, path: str) -> str:
    """Return the SHA-256 of a configuration file of a middleware."""
    return checksum(path, find(name).check_config)


def config_copy(cell: Cell) -> str:
    """Return the name of the run folder's copy of a cell's configuration file, which depends on its content."""
    name = Path(config_name(cell))
    return f"{name.stem}{_mark(cell)}{name.suffix}"


def config_name(cell: Cell) -> str:
    """Return the recorded name of a cell's configuration file, with the suffix that its middleware needs.

    The cells of a resumed campaign name the run folder's copy of the file.
    """
    stem = Path(cell.middleware_config).stem.removesuffix(_mark(cell))
    return f"{stem}{find(cell.middleware).config_suffix}"


def _mark(cell: Cell) -> str:
    return f"-{cell.middleware_config_sha256[:8]}"
