"""Run the trials of a campaign in pods that are kept for all blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds import middleware, versions, workloads
from k8sdds.kubernetes.client import AUTHORIZATION_STATUSES, ApiError
from k8sdds.kubernetes.exec_stream import StreamLost
from k8sdds.middleware import Middleware
from k8sdds.model.measurement import Inputs, Launch, Measurement, ParticipantPaths
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, Endpoint, NetworkMode, Participant, Trial
from k8sdds.networks import find
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.ssh import HostLost
from k8sdds.testbeds import Block, Session
from k8sdds.testbeds.cluster import links, placement
from k8sdds.testbeds.cluster.attempt import Attempt, Parts
from k8sdds.testbeds.cluster.blocks import on_host, pod_network
from k8sdds.testbeds.cluster.created_services import Services
from k8sdds.testbeds.cluster.discovery import DiscoveryServers
from k8sdds.testbeds.cluster.exec import output_folder
from k8sdds.testbeds.cluster.fingerprints import Fingerprints
from k8sdds.testbeds.cluster.installed import InstalledNetwork
from k8sdds.testbeds.cluster.metrics import MetricsCollector
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.network_policies import Policies
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_settings import NodeSettings, NodeTuning, Steering
from k8sdds.testbeds.cluster.nodes import usable
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod, require_abilities
from k8sdds.testbeds.cluster.pods import PERFTEST, Slot, memory_bytes, memory_holder
from k8sdds.testbeds.cluster.verify import PathVerifier
from k8sdds.testbeds.cluster.watch import NeededPods
from k8sdds.testbeds.selection import sibling_image

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.testbed import ClusterTestbed

END_VISIBLE_S = 2.0
"""How long after an error the end of a killed pod can become visible."""


class ClusterSession(Session):
    """A campaign's pods, discovery servers and node probes on a cluster, for all of its trials."""

    def __init__(
        self, testbed: ClusterTestbed, namespace: CampaignNamespace, trials: Sequence[Trial]
    ) -> None:
        self._client, self._namespace = namespace.client, namespace
        selected, switch, image = testbed.selected, testbed.switch, testbed.image(trials)
        self._switch = switch
        known = usable(testbed.nodes)
        self._nodes = known if testbed.nodes else None
        """Those that can run participants; None if this user may not list them."""
        tolerated = testbed.tolerations
        with_host = any(on_host(trial.cell) for trial in trials)
        memory = memory_bytes(trial.cell for trial in trials)
        self._pods = PodPool(namespace, image, memory, volumes(trials), tolerated)
        self._probes = NodeProbes(namespace, with_host, image, tolerated)
        restarts = any(workloads.restarted_fleet(trial.cell) for trial in trials)
        self._discovery = DiscoveryServers(namespace, selected.image, tolerated, self._nodes, restarts)
        self._fingerprints = Fingerprints(self._pods, self._probes)
        self._verifier = PathVerifier(
            self._pods,
            self._probes,
            switch.interface if switch else "",
            self._fingerprints.is_encrypted,
            deployed=switch is not None,
            nodes=known,
        )
        self._metrics: MetricsCollector | None = None
        if selected.meter:
            meter_image = sibling_image(selected.image, versions.TOOLS_IMAGE)
            self._metrics = MetricsCollector(namespace, with_host, meter_image)
            self._pods.watch.listeners.append(self._metrics.observe_pod)
        self._tuning = NodeTuning(selected.name, (trial.cell for trial in trials))
        self._steering = Steering(selected.name, known)
        self._policies = Policies(namespace, self._pods, self._probes)
        self._services = Services(namespace, self._pods, self._probes)
        self._needed_pods = NeededPods(self._client)
        self._network = InstalledNetwork(self._client, known, switch, testbed.installed.name)
        self._parts = Parts(
            namespace, selected.name, image, self._pods, self._probes, self._verifier, self._discovery,
            self._services, self._steering, self._needed_pods,
        )  # fmt: skip
        self._prepared: set[int] = set()
        """Indices of the blocks that were prepared once."""
        self._calls = 0
        """Requests to the API server up to the end of the last trial or preparation."""

    # -- preparing a block ------------------------------------------------------------------------------

    def prepare(self, block: Block) -> None:
        """Install the block's network, wait for its pods and discovery servers, and verify its paths."""
        self._network.require_unchanged()
        with self._detecting_failures(worked=block.index in self._prepared):
            self._prepare(block)
        self._prepared.add(block.index)

    @contextlib.contextmanager
    def _detecting_failures(self, worked: bool) -> Iterator[None]:
        """Turn errors within a `with` block into PartFailed if a part failed.

        If all of the block `worked` before, every error counts as one, except a missing right or an exceeded quota.
        """
        try:
            yield
        except StreamLost as error:
            self._pods.invalidate()
            self._network.require_unchanged()
            raise PartFailed(f"a connection through the API server broke: {error}") from error
        except PrerequisiteError as error:
            self._pods.invalidate()
            failed = self._pods.failed_part(END_VISIBLE_S) or self._needed_pods.restarted()
            if failed or worked:
                self._network.require_unchanged()
            if failed or (worked and not _is_refusal(error)) or _is_by_lost_host(error):
                raise PartFailed(
                    f"{failed}: {error.message}" if failed else error.message, error.remedy
                ) from error
            raise

    def _prepare(self, block: Block) -> None:
        cells = list({trial.cell.cell_id: trial.cell for trial in block.trials}.values())
        if self._tuning.provide(self._tuning.of(cells[0])):
            # Pods take over settings of their node when they are created.
            self._delete_pods(keep=lambda slot: False)
        self._install_network(next(filter(None, map(pod_network, cells)), None))
        self._network.read()
        self._pods.ensure(slot for cell in cells for slot in self._slots(cell).values())
        # Cells whose samples cross links come first, because only they show what policies deny.
        for cell in sorted(filter(pod_network, cells), key=lambda cell: not cell.crosses_links):
            if self._policies.provide(cell, self._slots(cell)):
                self._verifier.forget_pod_networks()
        for cell in cells:
            require_abilities(cell, self._slots(cell), self._pods)
        for cell in cells:
            self._verifier.verify(cell, self._slots(cell))
            self._discovery.provide(cell)
            self._fingerprints.take(cell, self._slots(cell))
        if self._metrics is not None:
            self._metrics.start_block(block.index, [cell.network_label for cell in cells])
        agents = [pattern for cell in cells for pattern in find(cell.network).agent_pods]
        self._needed_pods.remember([*agents, *self._discovery.pod_patterns(cells)])
        pods = {name: pod for cell in cells for name, pod in self._cell_pods(cell).items()}
        self._parts.reading_s.update(self._parts.usage(pods).cost_s())
        self._services.provide(cells[0], self._slots(cells[0]))
        self._calls = self._number_of_calls()

    def _install_network(self, network: NetworkMode | None) -> None:
        """Install a pod network, if another one is installed; delete the pods of the other one first."""
        if network is None or self._switch is None:
            return
        name, options = network[0], dict(network[1])
        if not self._switch.is_installed(name, options):
            self._delete_pods(keep=lambda slot: slot.host)
            self._network.forget()
            self._switch.install(name, options)

    def _delete_pods(self, keep: Callable[[Slot], bool]) -> None:
        """Delete pods except those to keep, the policies of all, and what was verified with them."""
        self._policies.remove()
        self._pods.delete_unless(keep)
        self._verifier.forget_pod_networks()

    def _slots(self, cell: Cell) -> dict[str, Slot]:
        return placement.slots(cell, self._nodes)

    def _cell_pods(self, cell: Cell) -> dict[str, ReadyPod]:
        return {name: self._pods.pod(slot) for name, slot in self._slots(cell).items()}

    # -- the session protocol ---------------------------------------------------------------------------

    @override
    def network_facts(self, trial: Trial) -> dict[str, Any]:
        # The trial must belong to the prepared block: the pods of all pod networks have the same slots.
        network, options = find(trial.cell.network), trial.cell.network_options
        engine = network.engine_for(options)
        slots = self._slots(trial.cell)
        observed = self._fingerprints.of(trial.cell)
        pods = self._cell_pods(trial.cell)
        nodes = {pod.node for pod in pods.values()}
        proof = self._verifier.proof(trial.cell, slots)
        return {
            "mtu_bytes": pods[FIRST_PUBLISHER.name].mtu_bytes,
            "engine": network.engine_title(options, on_cluster=True, by_others=self._switch is None),
            "engine_mode": engine.mode if engine else None,
            "fidelity": "real",
            "nodes": len(nodes),
            "network_proof": "; ".join(filter(None, (proof.describe(), self._policies.proof)))
            if proof
            else None,
            "fingerprint": observed.model_dump() if observed else None,
            **self._network.facts(),
            **({"node_settings": self._tuning.seen} if self._tuning.seen else {}),
            **links.facts(trial, pods, self._namespace.name),
        }

    @override
    def link_facts(self, trial: Trial) -> dict[str, Any]:
        mtus = [pod.mtu_bytes for slot, pod in self._pods.ready_pods().items() if slot.host]
        return {"link_mtu_bytes": min(filter(None, mtus), default=None), "offloads": None, "differences": ""}

    @override
    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        slots = self._slots(trial.cell)
        with self._detecting_failures(worked=True):
            self._pods.ensure(slots.values())
            self._verifier.verify(trial.cell, slots)
        pods = self._cell_pods(trial.cell)
        layout = placement.pin_cores(trial.cell, pods)
        endpoints = {
            name: Endpoint(pod.address, pod.interface, layout.cpus[name], pod.mtu_bytes)
            for name, pod in pods.items()
        }
        with self._detecting_failures(worked=True):
            return self._services.through_service(trial.cell, slots, endpoints)

    @override
    def servers(self, trial: Trial) -> tuple[str, ...]:
        with self._detecting_failures(worked=True):
            return self._discovery.addresses(trial.cell)

    @override
    def readings(self) -> list[dict[str, Any]]:
        return self._metrics.finish_block() if self._metrics is not None else []

    @override
    def paths(
        self, trial: Trial, participant: Participant, directory: Path, inputs: Inputs
    ) -> ParticipantPaths:
        in_pod = inputs.placed(lambda kind, file: Path("/run/k8sdds") / kind / file.name)
        return ParticipantPaths(PERFTEST, Path(output_folder(directory)), in_pod)

    @override
    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        with self._detecting_failures(worked=True):
            slots = self._slots(trial.cell)
            measurement = Attempt(self._parts, trial, slots, launches, deadline_s).run()
        measurement = replace(measurement, api_calls=self._number_of_calls() - self._calls)
        self._network.require_unchanged()
        self._calls = self._number_of_calls()
        return measurement

    def _number_of_calls(self) -> int:
        """Return the number of requests to the API server, without renewals of the Lease."""
        return self._client.calls.total() - self._client.calls["patch"]

    @override
    def failed_part(self, trial: Trial) -> str:
        # Lost pods of participants are part of the measurement.
        return self._needed_pods.restarted()

    @override
    def discard(self, trial: Trial) -> None:
        slots = self._slots(trial.cell)
        # Killed participants leave files in the memory that they share.
        holders = [memory_holder(slot.node) for slot in slots.values() if slot.shares_with_node]
        self._pods.discard([*slots.values(), *holders])
        self._verifier.forget(slots.values())

    # -- for the testbed --------------------------------------------------------------------------------

    def ready_pods(self) -> list[ReadyPod]:
        """Return all ready pods, with the facts of their nodes."""
        return list(self._pods.ready_pods().values())

    def close(self) -> None:
        """Delete policies and Services, restore the nodes' settings, stop watching, delete the second namespace."""
        with contextlib.ExitStack() as steps:  # which runs all, the last one first, also after an error
            steps.callback(self._probes.close)
            steps.callback(self._pods.close)
            steps.callback(self._tuning.provide, NodeSettings())
            steps.callback(self._steering.close)
            steps.callback(self._policies.remove)
            if not self._namespace.owned:
                steps.callback(self._services.remove)


def middlewares(trials: Sequence[Trial]) -> list[Middleware]:
    """Return the middlewares of some trials, each once."""
    used = (middleware.of(trial.cell) for trial in trials)
    return list({member.name: member for member in used if member is not None}.values())


def volumes(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return the volumes that the trials' middlewares need in a pod."""
    needed: dict[str, list[Any]] = {}
    for member in middlewares(trials):
        for key, items in member.pod_parts().items():
            needed.setdefault(key, []).extend(items)
    return needed


def _is_by_lost_host(error: BaseException) -> bool:
    return any(isinstance(cause, HostLost) for cause in _causes(error))


def _is_refusal(error: BaseException) -> bool:
    """Return whether the API server refused a request that it will refuse again."""
    return any(
        isinstance(cause, ApiError) and cause.status in AUTHORIZATION_STATUSES for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
