"""The error of a machine."""

from __future__ import annotations

from k8sdds.system.errors import PrerequisiteError


class HostError(PrerequisiteError):
    """A machine cannot be reached, or a command failed on it."""

    def __init__(self, host: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}", remedy)
        self.host = host


class HostLost(HostError):
    """The connection to a machine was lost while a script ran."""
