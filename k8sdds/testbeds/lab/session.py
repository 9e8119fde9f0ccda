"""Run trials in the lab networks of a prepared block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds.model.measurement import Inputs, Launch, Measurement, ParticipantPaths
from k8sdds.model.trial import FIRST_SUBSCRIBER, STANDBY, Cell, Endpoint, Participant, Trial
from k8sdds.networks import find
from k8sdds.system.errors import PartFailed
from k8sdds.system.paths import native_program
from k8sdds.testbeds import Session, core_layout
from k8sdds.testbeds.evidence import measured
from k8sdds.testbeds.lab import evidence, outage, pod_starts, services, users
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.outage import Interrupter
from k8sdds.testbeds.lab.runner import Attempt
from k8sdds.testbeds.lab.topology import key_of
from k8sdds.testbeds.link_emulation import engine_record

if TYPE_CHECKING:
    from k8sdds.testbeds.lab.testbed import Lab


class LabSession(Session):
    """The lab networks of a lab, in which trials run."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def _network(self, trial: Trial) -> LabNetwork:
        return self._lab.networks[key_of(trial.cell)]

    @override
    def network_facts(self, trial: Trial) -> dict[str, Any]:
        network = find(trial.cell.network)
        options = trial.cell.datapath_options
        engine = network.engine_for(options)
        observed = self._lab.fingerprints.get(trial.cell.network_mode)
        lab_network = self._network(trial)
        return {
            "mtu_bytes": network.mtu(options),
            "engine": network.engine_title(options),
            "engine_mode": engine.mode if engine else None,
            "fidelity": network.fidelity,
            "network_proof": f"whole packets of {network.mtu(options)} bytes pass"
            + ("; nothing between nodes but encrypted packets" if network.encryption else "")
            + (f"; {lab_network.policy_proof}" if lab_network.policy_proof else ""),
            "fingerprint": observed.model_dump() if observed else None,
            **({"node_settings": settings} if (settings := lab_network.node_settings) else {}),
            **({"node_links": links} if (links := lab_network.node_links) else {}),
            **(
                {"link_engine": engine_record(emulator.seed, emulator.core, _layout(trial.cell))}
                if (emulator := lab_network.emulator)
                else {}
            ),
        }

    @override
    def link_facts(self, trial: Trial) -> dict[str, Any]:
        return {"link_mtu_bytes": trial.cell.link.mtu, "offloads": self._network(trial).offloads()}

    @override
    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        lab_network = self._network(trial)
        layout = _layout(trial.cell)
        datapath = lab_network.plan.datapath
        service = services.address(lab_network.plan)
        return {
            name: Endpoint(
                attachment.address,
                attachment.interface,
                layout.cpus.get(name),
                datapath.mtu,
                service if name == FIRST_SUBSCRIBER.name else None,
            )
            for name, attachment in datapath.attachments.items()
            # The address of a pod that replaces another one is not known before it does.
            if name != STANDBY.name
        }

    @override
    def paths(
        self, trial: Trial, participant: Participant, directory: Path, inputs: Inputs
    ) -> ParticipantPaths:
        if trial.cell.user_of(participant) is not None:
            return users.paths(inputs)
        return ParticipantPaths(native_program("k8sdds-perftest"), directory, inputs)

    @override
    def records_stops(self, trial: Trial) -> bool:
        core = _free_core(_layout(trial.cell))
        return evidence.recorded_stops(self._network(trial), trial.cell, core) is not None

    @override
    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        breaks = False
        try:
            with self._lab.discarding_failed(trial.cell):
                self._require_parts(trial)
                failing = outage.of_trial(self._network(trial), trial, launches[0].directory.parent)
                breaks = failing is not None and failing.breaks
                measurement = self._run(trial, launches, deadline_s, failing)
                if breaks:
                    # `discard` forgets which parts have ended.
                    self._require_parts(trial)
        finally:
            if breaks:
                self.discard(trial)
        if breaks:
            # The other trials of the block use this lab network, too.
            self._lab.up([trial.cell])
        return measurement

    def _require_parts(self, trial: Trial) -> None:
        """Raise PartFailed if a part of the lab network has ended."""
        if failed := self.failed_part(trial):
            raise PartFailed(failed)

    @override
    def failed_part(self, trial: Trial) -> str:
        return self._network(trial).failed_part()

    @override
    def discard(self, trial: Trial) -> None:
        self._lab.discard(key_of(trial.cell))

    def _run(
        self, trial: Trial, launches: Sequence[Launch], deadline_s: float, failing: Interrupter | None
    ) -> Measurement:
        lab_network, layout = self._network(trial), _layout(trial.cell)
        pod_starts.measure(lab_network, trial.cell, launches[0].directory.parent)
        lab_network.write_private_files(launches)
        launches = [users.as_user(launch, trial.cell) for launch in launches]
        not_steered = lab_network.apply_core_layout(trial.cell.layout, layout)

        def run(at_start: Callable[[], None]) -> Measurement:
            outcomes = Attempt(lab_network, launches, layout, deadline_s, failing).run(at_start)
            return Measurement(
                outcomes=outcomes,
                sent_bytes=None,
                received_bytes={},
                includes_scheduling=layout.includes_scheduling,
                nodes={name: (lab_network.node_of(name), evidence.MACHINE) for name in outcomes},
                warnings=(not_steered,) if not_steered else (),
            )

        core = _free_core(layout)
        return measured(evidence.readings(lab_network, trial, launches, deadline_s, core), run)


def _layout(cell: Cell) -> core_layout.Layout:
    cores = core_layout.available()
    return core_layout.assign(cell.layout, cell.publishers, cell.subscribers, cores, by_role=not cell.graph)


def _free_core(layout: core_layout.Layout) -> int | None:
    """Return a core on which no participant runs, for processes that observe; None if there is none."""
    return core_layout.unused(layout, core_layout.available())
