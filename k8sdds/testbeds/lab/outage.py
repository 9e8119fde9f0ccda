"""Interrupt the link of a node during a trial in the lab."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from k8sdds import workloads
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.link import USERSPACE, LinkChoice
from k8sdds.model.trial import Trial
from k8sdds.results import arrivals
from k8sdds.results.arrivals import Interruption
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.workloads import outage

Wait = Callable[[float], bool]
"""Waits for a number of seconds; returns whether the participants have ended before."""


def with_forwarders(experiment: Experiment) -> Experiment:
    """Return the experiment with `k8sdds-link` as the engine of all links in sweeps of tests that interrupt them.

    The other tests of such a sweep are measured over the same links, so that they can be compared.
    """
    if isinstance(experiment, ApplicationExperiment):
        return experiment
    names = {workload.name for workload in workloads.WORKLOADS.values() if workload.interrupts_links}
    sweeps = [
        sweep.model_copy(
            update={"link": [_with_forwarder(choice) for choice in sweep.link or experiment.link]}
        )
        if any(test.name in names for test in sweep.test)
        else sweep
        for sweep in experiment.sweeps
    ]
    return experiment.model_copy(update={"sweeps": sweeps})


def _with_forwarder(choice: LinkChoice) -> LinkChoice:
    return choice.model_copy(update={"engine": USERSPACE}) if choice.engine == "auto" else choice


class LinkOutage:
    """The outage of a trial: it interrupts a link, restores it, and writes down when."""

    def __init__(self, lab_network: LabNetwork, trial: Trial, folder: Path) -> None:
        assert lab_network.emulator is not None
        self._emulator, self._folder = lab_network.emulator, folder
        self._options = outage.options_of(trial.cell)
        self._node = lab_network.node_of(self._options.participant.name)

    def run(self, wait: Wait) -> None:
        """Interrupt the link after a while. Call it when the measured interval begins."""
        if wait(self._options.after_s):
            return
        drop = self._options.drop_percent
        failed_us = _now_us()
        self._emulator.interrupt(self._node, "on" if drop is None else f"{drop:g}")
        try:
            ended = wait(self._options.for_s)
        finally:
            repaired_us = _now_us()
            self._emulator.interrupt(self._node, "off")
        if not ended:
            seen = Interruption(self._node, failed_us, repaired_us, self._emulator.started_us)
            arrivals.write_interruption(self._folder, seen)


def of_trial(lab_network: LabNetwork, trial: Trial, folder: Path) -> LinkOutage | None:
    """Return the outage of a trial, or None."""
    interrupts = workloads.find(trial.cell.test).interrupts_links
    return LinkOutage(lab_network, trial, folder) if interrupts else None


def _now_us() -> int:
    return time.monotonic_ns() // 1000
