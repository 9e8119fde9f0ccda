"""Where trials run, behind one protocol: `lab` (network namespaces) and `cluster` (Kubernetes).

A testbed knows participants, addresses, cores and counters; it knows nothing of DDS. The campaign gives
it command lines and gets back exit codes, meters and the proof of wire.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Endpoint, Trial
from k8sdds.system.errors import Problem


@dataclass(frozen=True)
class Launch:
    """One participant to start: its command line, environment, and the folder for its files."""

    participant: str
    argv: tuple[str, ...]
    directory: Path
    env: dict[str, str] = field(default_factory=dict)
    private: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Files for this participant alone, such as its key; the testbed puts them into its private folder."""
    serves_udp: int | None = None
    """For a service: the port that it listens on. It starts before the participants, who wait for that, and
    is ended when they have ended."""
    inputs: dict[str, Path] = field(default_factory=dict)
    """What else it reads: path as it sees it, to the file here; in the lab they are the same."""

    def meters(self) -> dict[str, Any] | None:
        """What its supervisor read, once it has ended; None where there is nothing whole."""
        try:
            data = json.loads((self.directory / "meters.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else None


@dataclass(frozen=True)
class ParticipantPaths:
    """Paths as a participant sees them."""

    program: str
    """perftest."""
    files: Path
    """The folder of its output."""
    qos: Path | None
    """The QoS profile."""


@dataclass(frozen=True)
class Outcome:
    """How a participant ended. Its files are in the launch's folder."""

    participant: str
    exit_code: int
    meters: dict[str, Any] | None
    """The supervisor's meters.json, or None where it could not be read."""
    message: str = ""
    """What the supervisor said where it failed itself."""
    interface: str = "eth0"
    """The one its samples crossed."""
    lost: str = ""
    """Why nobody knows how it ended, such as a pod that is gone; empty where its files are whole."""


@dataclass(frozen=True)
class Measurement:
    """What a testbed saw of one attempt."""

    outcomes: dict[str, Outcome]
    sent_bytes: int | None
    """Bytes that the publishers' nodes sent on their links."""
    received_bytes: dict[str, int]
    """Bytes that each subscriber's node received on its link."""
    decrypted_bytes: dict[str, int] | None = None
    """Bytes that each subscriber's node has decrypted; None where the network does not encrypt."""
    carried_bytes: dict[str, int] | None = None
    """Bytes that came to each subscriber's node through the links that are the network's there; None where
    nobody looked."""
    daemons_cpu_percent: float | None = None
    """CPU time of the network's daemons on all nodes, percent of one core; None where it has none."""
    daemons_user_percent: float | None = None
    """The part of it in user mode."""
    ip_fragments: tuple[int, ...] = ()
    """Distinct numbers of IP fragments of a sample on the publisher's link, where that was captured."""
    includes_scheduling: bool = False
    start_skew_s: float | None = None
    """From the first participant's start to the last one's, by their machines' clocks; None: not known."""
    api_calls: int | None = None
    """Requests to the cluster's API server since the trial before, or since the block was prepared."""
    elsewhere: frozenset[str] = frozenset()
    """Participants whose machine is not that of pub0: its meters say nothing of them."""
    cpu_mhz: float | None = None
    """Mean frequency of the cores right after it, where the kernel says."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """Trials that share one preparation and are measured in the given (random) order."""

    index: int
    trials: tuple[Trial, ...]


def repetitions(trials: Sequence[Trial], seed: int) -> list[Block]:
    """One repetition of all cells is a block, each in a random order of its own."""
    order = random.Random(seed)
    blocks = []
    for repetition in sorted({trial.repetition for trial in trials}):
        members = [trial for trial in trials if trial.repetition == repetition]
        order.shuffle(members)
        blocks.append(Block(repetition, tuple(members)))
    return blocks


class Session(Protocol):
    """A prepared block."""

    def network_facts(self, trial: Trial) -> dict[str, Any]:
        """`mtu_bytes`, `engine`, `fidelity` of the trial's network as built."""

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        """`link_mtu_bytes`, and `offloads` of the publisher's interface where they can be read."""

    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        """Where each participant of the trial will run."""

    def servers(self, trial: Trial) -> tuple[str, ...]:
        """`HOST:PORT` of discovery servers that the testbed runs itself, so that the cell's services are not
        among the participants; empty where they are, or none are asked for."""

    def readings(self) -> list[dict[str, Any]]:
        """Lines for readings.jsonl: what nodes and pods have spent since the block was prepared."""

    def paths(self, trial: Trial, participant: str, directory: Path, qos: Path | None) -> ParticipantPaths:
        """Paths for a participant's command line: `directory` and `qos` as it sees them, and its program."""

    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        """Start all participants together; returns when all have ended, the deadline at the latest."""


class Testbed(Protocol):
    """A place for trials."""

    name: str

    def supported_subset(self, experiment: Experiment, asked: Sequence[str]) -> tuple[Experiment, list[str]]:
        """The experiment as it can be measured here, and the labels of networks left out, since they are not
        here and were not asked for by name."""

    def interference(self) -> list[str]:
        """What may disturb a campaign here now, each as a sentence."""

    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        """What stands against running these trials here. Changes nothing."""

    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        """The trials grouped by what can be prepared together, in random order from the seed."""

    def prepare(self, block: Block) -> Session:
        """Build what the block needs; returns when it is ready and its datapaths are proven."""

    def facts(self) -> dict[str, Any]:
        """Provenance: kernel, CPU, sysctls, package versions, boot_id of each node."""

    def close(self) -> None:
        """Remove all that was built. Safe to call twice, from any state."""
