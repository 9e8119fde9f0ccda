"""Let links and other things fail during a trial in the lab, and come back.

These are the outages of a link (`link.outages`), what an outage test measures, or the restart of a discovery server.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from k8sdds import links, workloads
from k8sdds.model.experiment import Experiment
from k8sdds.model.outages import Phase
from k8sdds.model.trial import DISCOVERY_SERVER, STANDBY, Trial
from k8sdds.networks.datapath import LabNode
from k8sdds.results import arrivals
from k8sdds.results.arrivals import Interruption
from k8sdds.testbeds.lab.emulator import ALL_LINKS, LinkEmulator
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.runner import Attempt
from k8sdds.testbeds.link_emulation import OFF, schedule
from k8sdds.workloads import outage

Wait = Callable[[float], bool]
"""Waits for a number of seconds; returns whether the participants have ended before."""


class Interrupter(Protocol):
    """Lets something fail during a trial, and come back."""

    breaks: bool = False
    """Whether the lab network must be built again for the next trial."""

    def run(self, wait: Wait, attempt: Attempt) -> None:
        """Let it fail and come back. Call it when the measured interval begins."""


def with_forwarders(experiment: Experiment) -> Experiment:
    """Return the experiment with `k8sdds-link` as the engine of all links in sweeps with outage tests."""
    return links.with_forwarders(
        experiment, lambda sweep: any(workloads.find(test.name).interrupts_links for test in sweep.test)
    )


class LinkOutages(Interrupter):
    """Outages of the link of a node, or of `ALL_LINKS`, from when the measured interval of a trial begins.

    With a `folder`, when the link failed and came back is written there: the phases are one outage.
    """

    def __init__(
        self, emulator: LinkEmulator, node: str, phases: Sequence[Phase], folder: Path | None = None
    ) -> None:
        self._emulator, self._node, self._folder = emulator, node, folder
        self._schedule = schedule(phases)

    def run(self, wait: Wait, attempt: Attempt) -> None:
        """Schedule all states of the link, and return when the last one has begun."""
        begun_us = time.monotonic_ns() // 1000
        moments_us = [
            self._emulator.interrupt(self._node, state, begun_us + at_us) for at_us, state in self._schedule
        ]
        if wait(max(0.0, moments_us[-1] / 1e6 - time.monotonic())):
            self._emulator.interrupt(self._node, OFF)
            return
        if self._folder:
            failed_us, repaired_us = moments_us
            seen = Interruption(node=self._node, failed_us=failed_us, repaired_us=repaired_us)
            arrivals.write_interruption(self._folder, seen)


class Failure(Interrupter, ABC):
    """Lets something fail that is not a link, `after_s` into the measured interval and `for_s` long.

    It is a participant or service, or of its node. When it failed and came back is written to `folder`.
    """

    def __init__(
        self, lab_network: LabNetwork, folder: Path, participant: str, after_s: float, for_s: float = 0
    ) -> None:
        self.lab_network, self.folder, self.participant = lab_network, folder, participant
        self.after_s, self.for_s = after_s, for_s
        self.node = lab_network.node_of(participant)

    @abstractmethod
    def fail(self, attempt: Attempt) -> None:
        """Let it fail."""

    @abstractmethod
    def repair(self, attempt: Attempt) -> None:
        """Let it come back."""

    @override
    def run(self, wait: Wait, attempt: Attempt) -> None:
        if wait(self.after_s):
            return
        failed_us = time.monotonic_ns() // 1000
        self.fail(attempt)
        ended = wait(self.for_s)
        if ended and self.breaks:
            return
        self.repair(attempt)
        if not ended:
            seen = Interruption(node=self.node, failed_us=failed_us, repaired_us=time.monotonic_ns() // 1000)
            arrivals.write_interruption(self.folder, seen)


class ServerFailure(Failure):
    """The discovery server is killed. Where it was, it starts again."""

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


def of_trial(lab_network: LabNetwork, trial: Trial, folder: Path) -> Interrupter | None:
    """Return what fails during a trial, or None."""
    emulator, cell = lab_network.emulator, trial.cell
    if fleet := workloads.restarted_fleet(cell):
        return ServerFailure(lab_network, folder, DISCOVERY_SERVER.name, fleet.change_at_s(trial.duration_s))
    if emulator is None:
        return None
    if not workloads.find(cell.test).interrupts_links:
        found = cell.link.outage_phases(trial.duration_s)
        return LinkOutages(emulator, ALL_LINKS, found) if found else None
    options = outage.options_of(cell)
    if not options.of_link:
        name = DISCOVERY_SERVER.name if options.what == "server" else options.participant.name
        return KINDS[options.what](lab_network, folder, name, options.after_s, options.for_s)
    node = lab_network.node_of(options.participant.name)
    return LinkOutages(emulator, node, [options.phase], folder)
