"""The testbed protocol: a place where trials run, `lab` (network namespaces) or `cluster` (Kubernetes).

A testbed knows participants, addresses, cores and counters; it knows nothing of DDS. The campaign passes
command lines to a testbed and gets exit codes, meters and link counters back.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from k8sdds.system import reading

if TYPE_CHECKING:
    # Every command imports this package; building the models takes a noticeable part of its start.
    from k8sdds.model.experiment import Experiment
    from k8sdds.model.measurement import Inputs, Launch, Measurement, Outcome, ParticipantPaths
    from k8sdds.model.trial import Endpoint, Participant, Trial
    from k8sdds.system.errors import Problem


@dataclass(frozen=True)
class Block:
    """Trials that share one preparation and run in the given (random) order."""

    index: int
    trials: tuple[Trial, ...]


def repetitions(trials: Sequence[Trial], seed: int) -> list[Block]:
    """Return one block per repetition, each with all cells in an independent random order.

    The networks of one condition follow each other: they are compared, and a machine changes least within seconds.
    """
    order = random.Random(seed)
    compared: dict[int, dict[str, list[Trial]]] = {}
    for trial in trials:
        compared.setdefault(trial.repetition, {}).setdefault(trial.cell.condition, []).append(trial)
    blocks = []
    for repetition, groups in sorted(compared.items()):
        conditions = list(groups.values())
        order.shuffle(conditions)
        for members in conditions:
            order.shuffle(members)
        blocks.append(Block(repetition, tuple(trial for members in conditions for trial in members)))
    return blocks


def read_meters(directory: Path) -> dict[str, Any] | None:
    """Return the supervisor's measurements from a participant's folder; None if missing or damaged."""
    # Imported here, because every command imports this package.
    from k8sdds.perftest.documents import Meters
    from k8sdds.system.shapes import fits

    try:
        data = reading.json_file(directory / "meters.json")
    except (FileNotFoundError, reading.UnreadableError):
        return None
    return data if fits(Meters, data) else None


def interface_bytes(
    outcomes: Mapping[str, Outcome], places: Mapping[str, Hashable], senders: Collection[Participant]
) -> tuple[int | None, dict[str, int]]:
    """Return the bytes that all senders sent (None without meters), and those received by participant, from meters.

    `places` is equal for participants that share an interface, whose bytes then count once.
    """
    counters = {}
    for name, outcome in outcomes.items():
        seen = ((outcome.meters or {}).get("attempt_interfaces") or {}).get(outcome.interface)
        if seen:
            counters[name] = seen
    sent = {
        places[name]: seen["tx_bytes"]
        for name, seen in counters.items()
        if outcomes[name].participant in senders
    }
    return sum(sent.values()) if sent else None, {name: seen["rx_bytes"] for name, seen in counters.items()}


class Session(Protocol):
    """A prepared block.

    Every method can raise PartFailed, and so does what it calls: a part of the testbed was killed. `discard` what the
    trial uses and `prepare` the block again before the next attempt.
    """

    def network_facts(self, trial: Trial) -> dict[str, Any]:
        """Return `mtu_bytes`, `engine` and `fidelity` of the trial's network as built."""

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        """Return `link_mtu_bytes` and, if readable, `offloads` of the publisher's interface."""

    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        """Return the endpoint of each participant of the trial, by participant."""

    def servers(self, trial: Trial) -> tuple[str, ...]:
        """Return `HOST:PORT` of the discovery servers that the testbed itself runs, not as participants; often none."""
        return ()

    def readings(self) -> list[dict[str, Any]]:
        """Return lines for readings.jsonl: resource use of nodes and pods since the block was prepared."""
        return []

    def paths(
        self, trial: Trial, participant: Participant, directory: Path, inputs: Inputs
    ) -> ParticipantPaths:
        """Map `directory` and `inputs` of this machine to the paths that the participant sees."""

    def records_stops(self, trial: Trial) -> bool:
        """Return whether the testbed records when CPU limits stop the participants of the trial."""
        return False

    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        """Start all participants together and wait until they end, at most until the deadline."""

    def failed_part(self, trial: Trial) -> str:
        """Return which part of the testbed failed during the last attempt at this trial; empty if none is known."""

    def discard(self, trial: Trial) -> None:
        """Give up what the trial uses, so that `prepare` builds it again."""


class Testbed(Protocol):
    """A place where trials run. Use as a context manager, or call `close`."""

    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def supported_subset(
        self, experiment: Experiment, requested: Sequence[str]
    ) -> tuple[Experiment, list[str]]:
        """Reduce an experiment to what this testbed can measure; return it and the names of what was removed.

        Networks that the user requested by name remain.
        """

    def interference(self) -> list[str]:
        """Return current conditions that may disturb a campaign, one message each."""

    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        """Return the problems that prevent these trials from running here. Makes no changes."""

    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        """Group the trials by what can be prepared together, in a random order given by the seed."""

    def cores(self) -> int:
        """Return the number of cores of all machines that can run participants; 0 if it is unknown."""

    def preparation_s(self, blocks: Sequence[Block]) -> float:
        """Return how long the preparations of these blocks are expected to take, without the first one."""
        return 0

    def prepare(self, block: Block) -> Session:
        """Build what the block needs and is missing; return when it is ready and its datapaths are verified.

        Raises PartFailed if a part of it was killed meanwhile. Another call builds it again.
        """

    def facts(self) -> dict[str, Any]:
        """Return the provenance: kernel, CPU, sysctls, package versions, boot_id of each node."""

    def close(self) -> None:
        """Remove everything that was built. Safe to call twice and in any state."""
