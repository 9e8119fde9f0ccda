"""The files of a middleware: those that users provide for a trial, and those that applications need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from k8sdds.system import reading
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared

MAX_BYTES = 64 * 1024
"""Largest configuration file. k8sdds-perftest has the same limit."""
PROFILE_SUFFIXES = (".xml", ".json5")
"""Suffixes of QoS profiles: DDS-XML, and the configuration of Zenoh."""
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
"""What k8sdds-perftest requests for sockets, with all middlewares."""


@dataclass(frozen=True)
class Configuration:
    """What was measured and an application is to use."""

    message_bytes: int | None
    """Largest message; None means the middleware's default."""
    reliable: bool
    multicast: bool
    """Whether samples are sent by multicast."""
    carries_multicast: bool
    """Whether the network carries it, so that participants can discover each other by it."""
    protected: bool = False
    """Whether the middleware encrypts or signs samples."""


@dataclass(frozen=True)
class ReadyFile:
    """A file for an application, and what it is for."""

    name: str
    purpose: str
    text: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that name the file to a program, each with what precedes the path in its value."""
    measured: str = ""
    """The part of it that `middleware_config` of an experiment may set; the experiment itself sets the rest."""


def profile(name: str, suffix: str, program: str) -> Path:
    """Return the file of a QoS profile that a program can read: one of qos/ by name, or the given path."""
    folder = shared("qos")
    is_file = "/" in name or name.endswith(PROFILE_SUFFIXES)
    path = Path(name) if is_file else folder / f"{name}{suffix}"
    if path.suffix != suffix or not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob(f"*{suffix}")))
        raise InputError(
            f"there is no QoS profile {name!r} for {program}",
            f"known: {known}; or name a file that ends in {suffix}",
        )
    return path.resolve()


def checksum(path: str, check: Callable[[bytes, str], None]) -> str:
    """Return the SHA-256 of a configuration file. `check` receives its content, and its name for messages."""
    with reading.explaining_file("middleware_config", path, "name a file, relative to the experiment"):
        content = reading.data(path, MAX_BYTES)
    check(content, f"middleware_config: {path}")
    return hashlib.sha256(content).hexdigest()
