"""The middleware protocol: how a trial becomes processes of one DDS implementation, and what they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from k8sdds.discovery import Service
from k8sdds.model.measurement import ParticipantPaths
from k8sdds.model.security import Protection
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.system.errors import Problem


@dataclass(frozen=True)
class Surroundings:
    """What a participant's command line depends on in addition to the trial."""

    endpoints: Mapping[str, Endpoint]
    """The endpoints of all participants and services, by name."""
    domain: int
    """DDS domain id."""
    paths: ParticipantPaths
    protection: Protection | None = None
    """DDS Security of the trial. The credentials are in the participant's private folder."""
    servers: Sequence[str] = ()
    """`HOST:PORT` of discovery servers that the testbed runs; empty: the server is among the endpoints."""
    nonce: str = ""
    """16 hexadecimal digits that are the same for all participants of an attempt, and for no other attempt."""


@dataclass(frozen=True)
class Command:
    """A participant's command line, and the variables that its clean environment has in addition."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)


class Middleware(Protocol):
    """What sends the samples. Each middleware is one module of this package and one line of its registry."""

    name: str
    """The value of `middleware` in experiments and in trials.jsonl."""
    service: Service | None = None
    """The service by which participants discover each other with `discovery: server`; None: it has none."""

    shared_memory: bool = False
    """Whether it can send samples through shared memory."""

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

    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        """Return what prevents these trials, all of this middleware, on a testbed: `lab` or `cluster`."""
        return []

    def takes_qos(self, cell: Cell) -> bool:
        """Whether the cell's QoS profile is passed to the program."""
        return True

    def refused_files(self, cell: Cell) -> str | None:
        """Return why the program rejects the cell's QoS profile or configuration file, or None. Runs the program."""
        return None

    def facts(self, testbed: str) -> dict[str, Any]:
        """Return further keys of campaign.json."""
        return {}

    # -- a trial --------------------------------------------------------------------------------------

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        """Return what a participant runs. Raises InputError if the program cannot do it."""

    def summary(self, trial: Trial, folder: Path) -> Summary | None:
        """Return the summary that a participant wrote into its folder; None if there is no complete one."""

    def service_command(self, address: str) -> list[str]:
        """Return the command line of a discovery service that listens on an address in the lab.

        Empty if the service has no program for the lab.
        """
        return []

    # -- on a cluster ---------------------------------------------------------------------------------

    def image(self) -> str | None:
        """Return the image of the participants' pods; None: the image of k8sdds."""
        return None

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
