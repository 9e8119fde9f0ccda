"""The program protocol: what a trial starts, and what it reports.

A test of DDS starts the cell's middleware. Other tests bring a program of their own (`Workload.program`).
`k8sdds.middleware.program_of` decides which one a cell uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from k8sdds.model.measurement import Listener, ParticipantPaths, Window
from k8sdds.model.security import Protection
from k8sdds.model.trial import Endpoint, Participant, Trial
from k8sdds.perftest.output import Summary, last_line
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
    """`HOST:PORT` of discovery servers that the testbed runs; empty if the server is among the endpoints."""
    nonce: str = ""
    """16 hexadecimal digits that are the same for all participants of an attempt, and for no other attempt."""
    records_stops: bool = False
    """Whether the testbed records when CPU limits stop participants. Only then, subscribers log slow samples."""


@dataclass(frozen=True)
class Command:
    """A participant's command line, and the variables that its clean environment has in addition."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    listens: Listener | None = None
    """The socket of a server. It starts before the others, which wait for this socket, and stops after them."""
    window: Window | None = None
    """When the CPU meters are read; None if the program marks its measured interval itself."""
    private: Mapping[str, bytes] = field(default_factory=dict)
    """Files that the program reads, by name in the private folder of the participant, which is in memory."""
    restarted: Sequence[str] = ()
    """Further arguments of a process that takes the place of one that was killed."""


class Program(Protocol):
    """What the participants of a trial run."""

    name: str
    """Its name in messages."""
    exit_reasons: Mapping[int, tuple[str, str]] = {}
    """Exit codes of its own: to (reason code, explanation)."""
    sysctls: Mapping[str, str] = {}
    """Safe sysctls of Kubernetes that it needs in pods with a network of their own: name to value."""

    # -- before a campaign ----------------------------------------------------------------------------

    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        """Return why a testbed (`lab` or `cluster`) cannot run these trials, which are all of this program."""
        return []

    def facts(self, testbed: str) -> dict[str, Any]:
        """Return further keys of campaign.json."""
        return {}

    # -- a trial --------------------------------------------------------------------------------------

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        """Return the command of a participant."""

    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        """Return the summary of a participant, from the raw files of the attempt; None if there is no complete one."""

    def convert(self, trial: Trial, folder: Path) -> None:
        """Write the latencies that a program printed as a histogram log into the folder of the participant."""
        return

    def error(self, folder: Path) -> str:
        """Return why a participant failed, as it reported in its folder; empty if it reported nothing."""
        return last_line(folder / "stderr")

    # -- on a cluster ---------------------------------------------------------------------------------

    def image(self) -> str | None:
        """Return the image of the participants' pods; None means the image of k8sdds."""
        return None
