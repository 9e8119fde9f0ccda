"""The lab testbed: network namespaces on this machine.

A campaign's lab networks, one per network and topology, exist at the same time, so that trials of different
networks can alternate without a rebuild.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from typing_extensions import override

from k8sdds import links, networks, workloads
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.offloads import CARD
from k8sdds.model.trial import Cell, NetworkMode, Trial
from k8sdds.results.fingerprint import Fingerprint, unobserved
from k8sdds.results.run_folder import utc_now
from k8sdds.system import kernel_features, processes
from k8sdds.system.cgroups import PodCgroups
from k8sdds.system.errors import PartFailed, PrerequisiteError, Problem
from k8sdds.system.kernel_features import Capabilities
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds import Block, Testbed, core_layout, fingerprint, repetitions, user_ids
from k8sdds.testbeds.lab import facts, outage, places, preflight, records, verification
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan, make_plan
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.topology import Key, emulated, key_of, services_of
from k8sdds.testbeds.link_emulation import configuration, seed_of
from k8sdds.testbeds.machine_cpu import SEPARATE_INTERRUPTS

END_VISIBLE_S = 1.0
"""How long after an error the end of a killed process can become visible."""


class Lab(Testbed):
    """A testbed of lab networks, for a campaign whose name is unique among the labs of this machine.

    The records have the name of the experiment. Without `psk`, the user's pre-shared key, keys are generated.
    """

    name = "lab"

    def __init__(self, campaign: str, experiment: str = "", psk: str | None = None) -> None:
        self._psk = psk
        self.capabilities = Capabilities()
        self.networks: dict[Key, LabNetwork] = {}
        self._block: int | None = None
        """Index of the block whose networks are built."""
        self._pod_cgroups: PodCgroups | None = None
        self.fingerprints: dict[NetworkMode, Fingerprint] = {}
        """What was observed of each network."""
        self._record = records.LabRecord(
            name=campaign,
            kind="campaign",
            owner=(os.getpid(), processes.start_time(os.getpid())),
            experiment=experiment,
            created_at=utc_now(),
        )

    # -- checks ---------------------------------------------------------------------------------------

    @override
    def supported_subset(
        self, experiment: Experiment, requested: Sequence[str]
    ) -> tuple[Experiment, list[str]]:
        """Choose an engine for each network that this machine supports, and offloads.

        Without root, `users: other` is removed. Networks are never removed.
        """
        experiment = networks.with_engines(experiment, kernel_features.available)
        experiment = outage.with_forwarders(experiment)
        has_netem = all(kernel_features.available(feature) for feature in kernel_features.NETEM_QUEUES)
        experiment = links.with_engines(experiment, has_netem)
        if kernel_features.available(kernel_features.OFFLOADS):
            experiment = with_card_offloads(experiment)
        return user_ids.supported(experiment, lambda _: os.geteuid() == 0, "needs root")

    @override
    def interference(self) -> list[str]:
        return facts.interference()

    @override
    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        return preflight.problems([trial.cell for trial in trials])

    @override
    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        return repetitions(trials, seed)

    # -- lab networks and attempts --------------------------------------------------------------------

    @override
    def cores(self) -> int:
        return len(core_layout.available())

    @override
    def prepare(self, block: Block) -> LabSession:
        """Build and verify the missing lab networks of a block, and observe each network once.

        Every block has networks of its own, so that intervals over repetitions contain what two builds of a network
        differ in (docs/explanation/statistics.md).
        """
        cells = [trial.cell for trial in block.trials]
        if block.index != self._block:
            self._block = block.index
            for key in list(self.networks):
                self.discard(key)
        self.up(cells)
        # On a link that loses or delays packets, less can be observed, and Services add rules to those of the network.
        for cell in sorted(cells, key=lambda cell: (cell.link.is_shaped, services_of(cell) is not None)):
            self._observe(cell)
        return LabSession(self)

    def _observe(self, cell: Cell) -> None:
        """Take the fingerprint of a cell's network, unless it is known."""
        if cell.network_mode in self.fingerprints or not cell.crosses_links:
            return
        try:
            with self.discarding_failed(cell):
                observed = fingerprint.observe(places.probed(self.networks[key_of(cell)]))
        except PrerequisiteError as error:
            observed = unobserved(error.message)
        self.fingerprints[cell.network_mode] = observed

    def up(self, cells: Iterable[Cell]) -> None:
        """Build and verify the missing lab networks of these cells."""
        cells = list(cells)
        if self._pod_cgroups is None:
            self._pod_cgroups = self._begin(any(cell.cpu_resources for cell in cells))
        for cell in cells:
            if key_of(cell) not in self.networks:
                with self.discarding_failed(cell):
                    self._build(cell)

    @contextlib.contextmanager
    def discarding_failed(self, cell: Cell) -> Iterator[None]:
        """Use a cell's lab network within a `with` block; remove it and raise PartFailed if a part was killed."""
        key = key_of(cell)
        try:
            yield
        except Exception as error:
            lab_network = self.networks.get(key)
            failed = lab_network.failed_part(END_VISIBLE_S) if lab_network is not None else ""
            if failed or isinstance(error, PartFailed):
                self.discard(key)
            if failed and not isinstance(error, PartFailed):
                raise PartFailed(failed) from error
            raise

    def discard(self, key: Key) -> None:
        """Remove a lab network, if it exists, so that `prepare` builds it again."""
        lab_network = self.networks.pop(key, None)
        if lab_network is not None:
            lab_network.close()

    def _begin(self, limited: bool) -> PodCgroups:
        """Record what this lab will leave on the machine, before anything is there."""
        self.capabilities = kernel_features.probe(networks.features())
        pod_cgroups = PodCgroups(self._record.name, limited)
        self._record.cgroup_folders = pod_cgroups.folders
        records.create(self._record)
        return pod_cgroups

    def _build(self, cell: Cell) -> None:
        assert self._pod_cgroups is not None
        plan = make_plan(cell)
        name = self._network_name(cell)
        lab_network = LabNetwork(plan, Sandbox(name), self._psk)
        self.networks[key_of(cell)] = lab_network
        holder = lab_network.sandbox.pid
        self._record.holders[name] = (holder, processes.start_time(holder))
        self._record.plans[name] = cell.model_dump_json()
        records.write(self._record)
        pods = plan.datapath.attachments if plan.datapath.in_pods else ()
        cgroups = {pod: self._pod_cgroups.create(f"{name}-{pod}", cell.cpu_resources_of(pod)) for pod in pods}
        lab_network.build(cgroups, self._emulation(plan))
        self._record.pods[name] = lab_network.pods
        records.write(self._record)
        verification.verify(lab_network, cell.crosses_links)

    def _emulation(self, plan: Plan) -> dict[str, Any] | None:
        """Return the configuration of `k8sdds-link`, with the same random decisions in all networks of a block."""
        link = plan.cell.link
        forwarded = emulated(plan.topology, link)
        core = core_layout.spare(core_layout.available())
        seed = seed_of(self._record.name, self._block)
        return configuration(link, forwarded, seed, core) if forwarded else None

    def detach(self) -> None:
        """Let all lab networks outlive this process; `records.remove` then removes them."""
        self._record.kind = "lab"
        records.write(self._record)
        for lab_network in self.networks.values():
            lab_network.sandbox.detach()

    def _network_name(self, cell: Cell) -> str:
        """Return the network's label without its engine, with a suffix if the name is in use."""
        name = re.sub(r"[^A-Za-z0-9.-]", "_", networks.label_without_engine(cell.network_label))
        taken = {lab_network.name for lab_network in self.networks.values()}
        for candidate in (name, f"{name}-{cell.publishers}x{cell.subscribers}"):
            if candidate not in taken:
                return candidate
        return f"{name}-{len(taken)}"

    # -- provenance and cleanup -------------------------------------------------------------------------

    @override
    def facts(self) -> dict[str, Any]:
        return {
            **facts.machine(),
            SEPARATE_INTERRUPTS: facts.separate_interrupts(),
            "privileged": os.geteuid() == 0,
            "features": sorted(self.capabilities.features),
            "lacking_features": self.capabilities.missing,
            "cgroups": self._pod_cgroups.own.version if self._pod_cgroups else "none",
            "cgroups_lack": self._pod_cgroups.unavailable if self._pod_cgroups else "",
            "cores": list(core_layout.available()),
            "interference": facts.interference(),
        }

    @override
    def close(self) -> None:
        # Ctrl-C must not interrupt the cleanup.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            self._remove()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _remove(self) -> None:
        for lab_network in self.networks.values():
            lab_network.close()
        self.networks.clear()
        if self._pod_cgroups is not None:
            left = records.remove(self._record)
            if left:
                raise PrerequisiteError(
                    f"cannot remove cgroups: {', '.join(left)}", "retry later: k8sdds clean"
                )
            self._pod_cgroups = None


def with_card_offloads(experiment: Experiment) -> Experiment:
    """Return the experiment with the offloads of an Ethernet card in sweeps of TCP tests over links with a rate.

    A veth pair passes on TCP in packets of up to 64 KiB, which no link between two machines carries. Headers, rules and
    encapsulation are then paid once for about 45 packets of a real link. Without TSO, the kernel splits packets right
    before the link, as it does for cards without TSO; with TSO, the card does this work. In both cases, the receiver
    gets packets of the link's MTU and joins them with GRO, which is on by default for cards and off for veth pairs.

    A link without a rate stays as it is: nothing spaces its packets, so small ones overflow the queues of the receiving
    core, and what TCP repeats decides the ranking (docs/explanation/lab-and-cluster.md). Offloads that the experiment
    sets stay, too. A sweep of TCP and other tests becomes two. The flows of an application are DDS.
    """
    if isinstance(experiment, ApplicationExperiment):
        return experiment
    sweeps = [part for sweep in experiment.sweeps for part in _by_protocol(experiment, sweep)]
    return experiment.model_copy(update={"sweeps": sweeps})


def _by_protocol(experiment: Experiment, sweep: Sweep) -> Iterator[Sweep]:
    given = sweep.link or experiment.link
    with_card = [_with_card(choice) for choice in given]
    over_tcp = [choice for choice in sweep.test if workloads.find(choice.name).tcp]
    if not over_tcp or with_card == given:
        yield sweep
        return
    others = [choice for choice in sweep.test if choice not in over_tcp]
    if others:
        yield sweep.model_copy(update={"test": others})
    yield sweep.model_copy(update={"test": over_tcp, "link": with_card})


def _with_card(choice: LinkChoice) -> LinkChoice:
    directions = choice.link.directions.values()
    if "offloads" in choice.model_fields_set or not any(direction.rate for direction in directions):
        return choice
    return choice.model_copy(update={"offloads": [CARD]})
