"""The cluster as a testbed: pods kept for a block, trials started in all of them at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds import middleware, versions
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.middleware import Middleware
from k8sdds.model.experiment import Experiment
from k8sdds.model.measurement import Launch, Measurement, ParticipantPaths
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, Endpoint, Participant, Trial
from k8sdds.networks import find, with_engines
from k8sdds.system.errors import PrerequisiteError, Problem
from k8sdds.testbeds import Block
from k8sdds.testbeds.cluster import blocks as grouping
from k8sdds.testbeds.cluster import facts as provenance
from k8sdds.testbeds.cluster import namespace as spaces
from k8sdds.testbeds.cluster import permissions, placement, preflight, trial_run
from k8sdds.testbeds.cluster.blocks import HOST
from k8sdds.testbeds.cluster.discovery import Services
from k8sdds.testbeds.cluster.exec import NOT_STARTED, ParticipantExec
from k8sdds.testbeds.cluster.metrics import Metering
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.nodes import Node, installed_network, one_kernel, usable
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import PERFTEST, Slot, memory_bytes
from k8sdds.testbeds.cluster.verify import UNPROVEN, Proofs
from k8sdds.testbeds.selection import SelectedTestbed, beside

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.network_switch import Switch

NAME = "cluster"


class Cluster:
    """A campaign's pods on a cluster. Use as a context manager, or call `close`."""

    name = NAME

    def __init__(self, client: KubernetesClient, chosen: SelectedTestbed, campaign: str) -> None:
        self.client = client
        self.chosen = chosen
        self._campaign = campaign
        self._nodes: list[Node] | None = None
        self._space: spaces.CampaignNamespace | None = None
        self._crew: PodPool | None = None
        self._services: Services | None = None
        self._metering: Metering | None = None
        self._trials: Sequence[Trial] = ()
        self._switch: Switch | None = None
        self._witnesses: NodeProbes | None = None
        self._proofs: Proofs | None = None
        self._absent = ""
        """Why the pods of the trial that is about to run are not there."""
        self._forget: dict[str, str] = {}
        """Pod to the folder of an attempt whose files are home."""
        self._calls = 0
        """Requests to the API server until the last trial ended, or its block was prepared."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- before anything is made ------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        """The cluster's nodes; none where this user may not ask for them."""
        if self._nodes is None:
            listed = (
                self.client.get(permissions.NODES)["items"] if permissions.may_see_nodes(self.client) else []
            )
            self._nodes = [Node.of(one) for one in listed]
        return self._nodes

    @property
    def switch(self) -> Switch | None:
        """The means to give this cluster another network, where `deploy` built it."""
        if self._switch is None and self.chosen.name:
            # Imported here because a cluster that was there needs nothing of `deploy`.
            from k8sdds.testbeds.cluster.network_switch import Switch

            self._switch = Switch(self.chosen.name)
        return self._switch

    @property
    def installed(self) -> str | None:
        """The pod network that is there; None where it cannot be told."""
        if self.switch is not None:
            return self.switch.current
        return self.chosen.network or installed_network(self.nodes)

    def networks(self) -> list[str]:
        """What can be measured here: what is there, or what `deploy` can put in its place."""
        there = self.switch.able() if self.switch else [self.installed] if self.installed else []
        return list(dict.fromkeys([HOST, *there]))

    def supported_subset(self, experiment: Experiment, asked: Sequence[str]) -> tuple[Experiment, list[str]]:
        """The experiment with the plugins' own engines and those of its networks that are here; and the
        labels of the others. Networks that are asked for by name stay."""
        experiment = with_engines(experiment, lambda _: True)
        there = self.networks()
        # Where the pod network cannot be told, the check says so.
        return (experiment, []) if there == [HOST] else preflight.only(experiment, there, asked)

    def interference(self) -> list[str]:
        """What may disturb a campaign here, each as a sentence."""
        if one_kernel(self.nodes):
            return ["the cluster's nodes share one kernel and its cores: every caption says so"]
        return []

    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        """What stands against these trials here. Changes nothing."""
        self._trials = trials
        cells = [trial.cell for trial in trials]
        unfit = preflight.unfit(cells, switched=bool(self.chosen.name))
        if unfit:
            return unfit
        lacks = permissions.lacks(self.client, self.chosen.namespace)
        return lacks or [
            *preflight.networks(cells, self.networks(), *([self.switch.lack] if self.switch else [])),
            *preflight.placement(cells, self.nodes, self._image(trials)),
        ]

    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        """Blocks of one network each where networks are switched, or metered; else whole repetitions."""
        return grouping.of(trials, seed, apart=self.chosen.meter)

    # -- building and measuring -------------------------------------------------------------------------

    def prepare(self, block: Block) -> Cluster:
        """Pods for all trials of the block, ready and proven."""
        trials = self._trials or block.trials
        if self._crew is None or self._services is None or self._proofs is None:
            with_host = any(trial.cell.network == HOST for trial in trials)
            self._space = spaces.make(self.client, self._campaign, self.chosen.namespace, with_host)
            memory = memory_bytes(trial.cell for trial in trials)
            image, parts = self._image(trials), self._middleware_parts(trials)
            self._crew = PodPool(self.client, self._space, image, memory, self._campaign, parts)
            self._services = Services(self.client, self._space, self.chosen.image)
            self._witnesses = NodeProbes(self.client, self._space, with_host, image, self._campaign)
            self._proofs = Proofs(self._crew, self._witnesses, self.switch.interface if self.switch else "")
            if self.chosen.meter:
                tools = beside(self.chosen.image, versions.TOOLS_IMAGE)
                self._metering = Metering(self.client, self._space, with_host, tools)
                self._crew.watch.listeners.append(self._metering.seen)
        cells = {trial.cell.cell_id: trial.cell for trial in block.trials}.values()
        self._install(next((one for one in map(grouping.pod_network, cells) if one), None))
        self._crew.ensure(slot for cell in cells for slot in self._slots(cell).values())
        for cell in cells:
            self._proofs.prove(cell, self._slots(cell))
            self._services.provide(cell)
        if self._metering is not None:
            self._metering.begins(block.index, [cell.network_label for cell in cells])
        self._calls = self.client.calls.total()
        return self

    def _image(self, trials: Sequence[Trial]) -> str:
        """Return one image for all pods: a middleware's own image is built on ours, so it has all programs."""
        return next(filter(None, (one.image() for one in _middlewares(trials))), self.chosen.image)

    def _middleware_parts(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the volumes that middlewares need in a pod, and create the Secrets behind them.

        In a prepared namespace the administrator creates the Secrets.
        """
        assert self._space is not None
        parts: dict[str, list[Any]] = {}
        for one in _middlewares(trials):
            secret = one.secret(self._space.namespace)
            if secret is not None and self._space.own:
                objects.create(self.client, [secret])
            for key, items in one.pod_parts().items():
                parts.setdefault(key, []).extend(items)
        return parts

    def servers(self, trial: Trial) -> tuple[str, ...]:
        """The discovery servers of the trial's participants, by name."""
        assert self._services is not None
        return self._services.servers(trial.cell)

    def readings(self) -> list[dict[str, Any]]:
        """What the meters said around the block that has just ended."""
        return self._metering.ends() if self._metering is not None else []

    def _install(self, wanted: grouping.PodNetwork | None) -> None:
        """Give the cluster the pod network that a block needs. Pods of the one before go first."""
        assert self._crew is not None and self._proofs is not None
        if wanted is None or self.switch is None or self.switch.is_there(wanted[0], dict(wanted[1])):
            return
        self._crew.delete_unless(unless=lambda slot: slot.host)
        self._proofs.forget()
        self.switch.to(wanted[0], dict(wanted[1]))

    def _slots(self, cell: Cell) -> dict[str, Slot]:
        return placement.slots(cell, self._usable() if self.nodes else None)

    def _usable(self) -> list[Node]:
        return usable(self.nodes, versions.BUNDLE_ARCHITECTURES)

    def _members(self, cell: Cell) -> dict[str, ReadyPod]:
        assert self._crew is not None
        return {name: self._crew.member(slot) for name, slot in self._slots(cell).items()}

    def network_facts(self, trial: Trial) -> dict[str, Any]:
        """MTU as the pods have it, engine, fidelity, and how many nodes the participants are on."""
        network = find(trial.cell.network)
        options = trial.cell.network_options
        chosen = network.engine_for(options)
        slots = self._slots(trial.cell)
        # Of networks whose turn has not come only their own facts are known.
        here = self._crew is not None and all(map(self._crew.has, slots.values()))
        members = self._members(trial.cell) if here else {}
        proof = self._proofs.of(trial.cell, slots) if self._proofs and here else None
        nodes = {member.node for member in members.values()} or {slot.node for slot in slots.values()}
        return {
            "mtu_bytes": (members[FIRST_PUBLISHER.name].mtu_bytes if here else None) or network.mtu(options),
            "engine": network.engine_title(options),
            "engine_mode": chosen.mode if chosen else None,
            "fidelity": "real",
            "nodes": len(nodes),
            "network_proof": proof.said() if proof else None,
        }

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        """MTU of the nodes' links, where pods on the nodes' own network have seen it."""
        crew = self._crew
        seen = [crew.member(slot).mtu_bytes for slot in crew.slots() if slot.host] if crew else []
        # What the lab leaves out is all there.
        return {"link_mtu_bytes": min(filter(None, seen), default=None), "offloads": None, "differences": ""}

    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        """Address, interface and cores of each participant. Pods that were lost are replaced first; where
        they cannot be, `run` says so."""
        self._absent = self._gather(trial.cell)
        members = self._members(trial.cell)
        layout = placement.layout(trial.cell, members)
        return {
            name: Endpoint(member.address, member.interface, layout.cpus[name])
            for name, member in members.items()
        }

    def _gather(self, cell: Cell) -> str:
        """Pods for a cell, ready and their network proven: all that are there stay. Why not, or empty."""
        assert self._crew is not None and self._proofs is not None
        slots = self._slots(cell)
        try:
            self._crew.ensure(slots.values())
            self._proofs.prove(cell, slots)
        except PrerequisiteError as error:
            self._crew.invalidate()
            return error.message
        return ""

    def paths(
        self, trial: Trial, participant: Participant, directory: Path, qos: Path | None
    ) -> ParticipantPaths:
        """Paths in the participant's pod."""
        there = Path("/run/k8sdds/qos") / qos.name if qos else None
        return ParticipantPaths(PERFTEST, Path(trial_run.output(directory)), there)

    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        """Run one attempt: all ready, then all go at one moment, then all ended and their files here."""
        measured = self._run(trial, launches, deadline_s)
        before, self._calls = self._calls, self.client.calls.total()
        return replace(measured, api_calls=self._calls - before)

    def _run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        assert self._crew is not None and self._space is not None and self._proofs is not None
        if self._absent:
            return trial_run.lost(launches, self._absent)
        members = self._members(trial.cell)
        layout = placement.layout(trial.cell, members)
        attended = []
        for launch in launches:
            pod = members[launch.participant.name].name
            options = trial_run.options(layout, launch.participant.name)
            if pod in self._forget:
                options += ["--forget", self._forget.pop(pod)]
            attended.append(
                ParticipantExec(
                    self.client,
                    self._space.namespace,
                    pod,
                    launch,
                    trial_run.output(launch.directory),
                    options,
                    deadline_s,
                )
            )
        endings = trial_run.attend(attended)
        # Also where it did not start: the next attempt waits until all pods answer.
        if any(one.lost or one.code == NOT_STARTED for one in endings.values()):
            self._crew.invalidate()
        for one in attended:
            if not endings[one.launch.participant.name].lost:
                self._forget[one.pod] = str(Path(trial_run.output(one.launch.directory)))
        seen = trial_run.measurement(trial, members, attended, endings, layout)
        carried, lack = self._proofs.carried(trial.cell, self._slots(trial.cell))
        warnings = (*seen.warnings, *((f"{UNPROVEN}: {lack}",) if lack else ()))
        return replace(seen, carried_bytes=carried, warnings=warnings)

    # -- the rest ---------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Provenance: the cluster's version, and of each node what the API and the pods on it say."""
        members = [self._crew.member(slot) for slot in self._crew.slots()] if self._crew else []
        return provenance.facts(self.client, self.chosen, self.nodes, members, self.installed)

    def close(self) -> None:
        """Remove all that was made. Safe to call twice, from any state."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None
        if self._witnesses is not None:
            self._witnesses.close()
        if self._space is not None:
            space, self._space = self._space, None
            space.remove()
        if self._switch is not None:
            self._switch.back()


def _middlewares(trials: Sequence[Trial]) -> list[Middleware]:
    return [middleware.find(name) for name in dict.fromkeys(trial.cell.middleware for trial in trials)]
