"""The middleware protocol: a program that implements DDS, with what only such a program has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from k8sdds.discovery import Service
from k8sdds.model.security import Protection
from k8sdds.model.trial import Cell
from k8sdds.perftest.output import PERFTEST_REASONS
from k8sdds.workloads.program import Command, Program, Surroundings

__all__ = ["Command", "Middleware", "Surroundings"]


class Middleware(Program, Protocol):
    """What sends the samples. Each middleware is one module of this package and one line of its registry."""

    name: str
    """The value of `middleware` in experiments and in trials.jsonl."""
    service: Service | None = None
    """The service by which participants discover each other with `discovery: server`; None: it has none."""

    shared_memory: bool = False
    """Whether it can send samples through shared memory."""
    exit_reasons: Mapping[int, tuple[str, str]] = PERFTEST_REASONS

    # -- before a campaign ----------------------------------------------------------------------------

    def unsupported(self, cell: Cell) -> str | None:
        """Return why the middleware cannot run this cell on any testbed, or None."""
        return None

    def unsupported_mtu(self, cell: Cell, mtu: int) -> tuple[str, str] | None:
        """Return why the middleware cannot run the cell on a network with this MTU, with a remedy, or None."""
        return None

    def unsupported_protection(self, protection: Protection) -> tuple[str, str] | None:
        """Return why the middleware does not implement a protection, with a remedy, or None."""
        return None

    def takes_qos(self, cell: Cell) -> bool:
        """Whether the cell's QoS profile is passed to the program."""
        return True

    def refused_files(self, cell: Cell) -> str | None:
        """Return why the program rejects the cell's QoS profile or configuration file, or None. Runs the program."""
        return None

    def service_command(self, address: str) -> list[str]:
        """Return the command line of a discovery service that listens on an address in the lab.

        Empty if the service has no program for the lab.
        """
        return []

    # -- on a cluster ---------------------------------------------------------------------------------

    def service_image(self) -> str | None:
        """Return the image of the discovery service; None: the image that the service declares."""
        return None

    def service_problems(self) -> list[tuple[str, str]]:
        """Return what the discovery service is missing on a cluster, each with a remedy."""
        return []

    def secret(self, namespace: str) -> dict[str, Any] | None:
        """Return a Secret that the participants' pods need, or None. Raises InputError."""
        return None

    def pod_parts(self) -> dict[str, Any]:
        """Return `volumes` and `volumeMounts` that a participant's pod needs in addition."""
        return {}
