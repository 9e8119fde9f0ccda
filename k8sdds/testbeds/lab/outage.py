"""Interrupt links of a trial in the lab: the outages of a link (`link.outages`), or the one that a test measures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from k8sdds import links, workloads
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.link import Link
from k8sdds.model.outages import Phase
from k8sdds.model.trial import Trial
from k8sdds.results import arrivals
from k8sdds.testbeds.lab import netem
from k8sdds.testbeds.lab.emulator import ALL_LINKS, LinkEmulator
from k8sdds.testbeds.lab.failures import KINDS, Interrupter, Wait
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.supervisors import Attempt
from k8sdds.testbeds.link_emulation import OFF, state_of
from k8sdds.workloads import outage


def with_forwarders(experiment: Experiment) -> Experiment:
    """Return the experiment with `k8sdds-link` as the engine of links in sweeps of tests that netem is unfit for.

    These interrupt links, whatever else impairs them, or send large packets, which netem would lose or delay as one.
    """

    def needs_forwarder(sweep: Sweep, link: Link) -> bool:
        tests = [choice.name for choice in sweep.test]
        large = any(netem.passes_large_packets(*each) for each in itertools.product(tests, sweep.middleware))
        interrupts = any(workloads.find(test).interrupts_links for test in tests)
        return interrupts or (large and link.exceeds_short_keys)

    return links.with_forwarders(experiment, needs_forwarder)


class LinkOutages(Interrupter):
    """Phases of outages of one link, or of all, from when the measured interval of a trial begins.

    Args:
        emulator: What forwards the packets.
        node: The node whose link is interrupted, or `ALL_LINKS`.
        phases: What happens, in order.
        ended: Called with the start and the end of an outage that the participants have outlived.
    """

    def __init__(
        self,
        emulator: LinkEmulator,
        node: str,
        phases: Sequence[Phase],
        ended: Callable[[int, int], None] = lambda failed_us, repaired_us: None,
    ) -> None:
        self._emulator, self._node, self._phases, self._ended = emulator, node, phases, ended

    def run(self, wait: Wait, attempt: Attempt) -> None:
        """Interrupt the link and restore it, until all is over. Call it when the measured interval begins."""
        begun = time.monotonic()
        for each, following in itertools.zip_longest(self._phases, self._phases[1:]):
            if wait(max(0.0, begun + each.at_us / 1e6 - time.monotonic())):
                return
            failed_us = self._emulator.interrupt(self._node, state_of(each))
            # A late outage is not shorter than it should be.
            over = wait(each.for_us / 1e6)
            if over or following is None or following.at_us > each.at_us + each.for_us:
                repaired_us = self._emulator.interrupt(self._node, OFF)
                if over:
                    return
                self._ended(failed_us, repaired_us)


def of_trial(lab_network: LabNetwork, trial: Trial, folder: Path) -> Interrupter | None:
    """Return what fails during a trial, or None."""
    emulator, cell = lab_network.emulator, trial.cell
    if emulator is None:
        return None
    if not workloads.find(cell.test).interrupts_links:
        found = cell.link.outage_phases(trial.duration_s)
        return LinkOutages(emulator, ALL_LINKS, found) if found else None
    options = outage.options_of(cell)
    if not options.of_link:
        return KINDS[options.what](lab_network, trial, folder)
    node = lab_network.node_of(options.participant.name)

    def write(failed_us: int, repaired_us: int) -> None:
        seen = arrivals.Interruption(node, failed_us, repaired_us, emulator.started_us)
        arrivals.write_interruption(folder, seen)

    return LinkOutages(emulator, node, [options.phase], write)
