"""Let something else than a link fail during an outage test in the lab, and come back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from k8sdds.model.trial import DISCOVERY_SERVER, STANDBY, Trial
from k8sdds.networks.datapath import LabNode
from k8sdds.results import arrivals
from k8sdds.results.arrivals import Interruption
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.supervisors import Attempt
from k8sdds.workloads import outage

Wait = Callable[[float], bool]
"""Waits for a number of seconds; returns whether the participants have ended before."""


class Interrupter(Protocol):
    """Lets something fail during a trial, and come back."""

    breaks: bool = False
    """Whether the lab network must be built again for the next trial."""

    def run(self, wait: Wait, attempt: Attempt) -> None:
        """Let it fail and come back. Call it when the measured interval begins.

        Raises:
            PrerequisiteError: This is not possible.
            PartFailed: A part was killed that is needed for it.
        """


class Failure(Interrupter, ABC):
    """Lets something fail that is not a link, in an outage test. When it failed and came back is written down."""

    def __init__(self, lab_network: LabNetwork, trial: Trial, folder: Path) -> None:
        assert lab_network.emulator is not None
        self.lab_network, self.emulator, self.folder = lab_network, lab_network.emulator, folder
        self.options = outage.options_of(trial.cell)
        self.participant = self.options.participant.name
        self.node = lab_network.node_of(self.participant)

    @abstractmethod
    def fail(self, attempt: Attempt) -> None:
        """Let it fail. Raises like `run`."""

    @abstractmethod
    def repair(self, attempt: Attempt) -> None:
        """Let it come back. Raises like `run`."""

    @override
    def run(self, wait: Wait, attempt: Attempt) -> None:
        if wait(self.options.after_s):
            return
        failed_us = now_us()
        self.fail(attempt)
        ended = wait(self.options.for_s)
        if ended and self.breaks:
            return
        self.repair(attempt)
        if not ended:
            repaired_us = now_us()
            seen = Interruption(self.node, failed_us, repaired_us, self.emulator.started_us)
            arrivals.write_interruption(self.folder, seen)


class ServerFailure(Failure):
    """The discovery server is killed. Where it was, it starts again."""

    def __init__(self, lab_network: LabNetwork, trial: Trial, folder: Path) -> None:
        super().__init__(lab_network, trial, folder)
        self.participant = DISCOVERY_SERVER.name
        self.node = lab_network.node_of(self.participant)

    @override
    def fail(self, attempt: Attempt) -> None:
        attempt.kill(self.participant)

    @override
    def repair(self, attempt: Attempt) -> None:
        attempt.start_again(self.participant, self.participant)


class PodFailure(Failure):
    """A participant is killed with its pod. Its successor runs in another pod of the node, with another address."""

    breaks = True

    @override
    def fail(self, attempt: Attempt) -> None:
        attempt.kill(self.participant)
        self.lab_network.remove_pod(self.participant)

    @override
    def repair(self, attempt: Attempt) -> None:
        attempt.start_again(self.participant, STANDBY.name)


class AgentFailure(Failure):
    """The daemon of the network on a node is killed, and starts again."""

    breaks = True

    @override
    def fail(self, attempt: Attempt) -> None:
        self.lab_network.stop_daemon(self.node)

    @override
    def repair(self, attempt: Attempt) -> None:
        self.lab_network.start_daemon(self.node)


class AddressFailure(Failure):
    """A node loses its address, and gets another one."""

    breaks = True

    @override
    def fail(self, attempt: Attempt) -> None:
        self._change("del", self._node.address)

    @override
    def repair(self, attempt: Attempt) -> None:
        self._change("add", self._node.other_address)

    @property
    def _node(self) -> LabNode:
        return next(node for node in self.lab_network.plan.topology.nodes if node.name == self.node)

    def _change(self, what: str, address: str) -> None:
        prefix_address = f"{address}/{self._node.prefix}"
        self.lab_network.sandbox.run(["ip", "-n", self.node, "addr", what, prefix_address, "dev", "eth0"])


KINDS: dict[str, type[Failure]] = {
    "server": ServerFailure,
    "pod": PodFailure,
    "agent": AgentFailure,
    "address": AddressFailure,
}


def now_us() -> int:
    """Return the time of CLOCK_MONOTONIC, which is that of the arrivals."""
    return time.monotonic_ns() // 1000
