"""Run the trials of a campaign in pods that are kept for all blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds import middleware, versions, workloads
from k8sdds.analysis import components
from k8sdds.kubernetes.client import AUTHORIZATION_STATUSES, ApiError
from k8sdds.kubernetes.exec_stream import StreamLost
from k8sdds.middleware import Middleware
from k8sdds.model.measurement import Launch, Measurement, ParticipantPaths
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, Endpoint, NetworkMode, Participant, Trial
from k8sdds.networks import find
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.ssh import HostLost
from k8sdds.testbeds import Block, Session, listening
from k8sdds.testbeds.cluster import evidence, links, placement, pod_starts, trial_run
from k8sdds.testbeds.cluster.blocks import on_host, pod_network
from k8sdds.testbeds.cluster.created_services import Services
from k8sdds.testbeds.cluster.discovery import DiscoveryServers
from k8sdds.testbeds.cluster.exec import ExecResult, ParticipantExec, output_folder
from k8sdds.testbeds.cluster.fingerprints import Fingerprints
from k8sdds.testbeds.cluster.installed import InstalledNetwork
from k8sdds.testbeds.cluster.metrics import MetricsCollector
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.network_policies import Policies
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_settings import NodeSettings, NodeTuning, Steering
from k8sdds.testbeds.cluster.nodes import NodeInfo, tolerations
from k8sdds.testbeds.cluster.outage import ClusterOutage, PodOutage, ReplacedPods
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod, require_abilities
from k8sdds.testbeds.cluster.pods import PERFTEST, Slot, memory_bytes
from k8sdds.testbeds.cluster.verify import PathVerifier
from k8sdds.testbeds.cluster.watch import NeededPods
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.evidence import ProfileReading, Reading, measured
from k8sdds.testbeds.selection import SelectedTestbed, sibling_image
from k8sdds.workloads import outage

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.network_switch import NetworkSwitch

END_VISIBLE_S = 2.0
"""How long after an error the end of a killed pod can become visible."""


class ClusterSession(Session):
    """A campaign's pods, discovery servers and node probes on a cluster.

    Args:
        namespace: The campaign's namespace.
        selected: How the cluster was selected.
        trials: All trials of the campaign.
        image: Image of all pods.
        nodes: Nodes that can run participants; None if this user may not list them.
        switch: Replaces the pod network; None if it cannot be replaced.
        network: Name of the pod network that is installed at the start.
    """

    def __init__(
        self,
        namespace: CampaignNamespace,
        selected: SelectedTestbed,
        trials: Sequence[Trial],
        image: str,
        nodes: Sequence[NodeInfo] | None,
        switch: NetworkSwitch | None,
        network: str,
    ) -> None:
        self._client, self._namespace = namespace.client, namespace
        self._nodes = nodes
        self._switch = switch
        self._cluster = selected.name
        """Name of the cluster; empty if k8sdds did not deploy it."""
        known, tolerated = nodes or (), tolerations(nodes or ())
        with_host = any(on_host(trial.cell) for trial in trials)
        memory = memory_bytes(trial.cell for trial in trials)
        self._image = image
        self._pods = PodPool(namespace, image, memory, volumes(trials), tolerated)
        self._probes = NodeProbes(namespace, with_host, image, tolerated)
        self._discovery = DiscoveryServers(namespace, selected.image, tolerated)
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
        self._tuning = NodeTuning(self._cluster, (trial.cell for trial in trials))
        self._steering = Steering(self._cluster, known)
        self._policies = Policies(namespace, self._pods, self._probes)
        self._services = Services(namespace, self._pods, self._probes)
        self._needed_pods = NeededPods(self._client)
        self._network = InstalledNetwork(self._client, known, switch, network)
        self._prepared: set[int] = set()
        """Indices of the blocks that were prepared once."""
        self._reading_s: dict[str, float] = {}
        """CPU time that reading the processes of a node costs it."""
        self._files_to_delete: dict[tuple[str, str], str] = {}
        """Pod and participant to the output folder of an attempt whose files were fetched."""
        self._calls = 0
        """Requests to the API server up to the end of the last trial or preparation."""

    # -- preparing a block ------------------------------------------------------------------------------

    def prepare(self, block: Block) -> None:
        """Install the block's network, wait for its pods and discovery servers, and verify its paths.

        Raises:
            PrerequisiteError: this is not possible.
            PartFailed: a part failed, or what was possible before no longer is.
            NetworkChanged: somebody else changed the network since the last block.
        """
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
        self._reading_s |= self._usage(pods).cost_s()
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
            "engine": network.engine_title(options, on_cluster=True),
            "engine_mode": engine.mode if engine else None,
            "fidelity": "real",
            "nodes": len(nodes),
            "network_proof": "; ".join(filter(None, (proof.describe(), self._policies.proof)))
            if proof
            else None,
            "fingerprint": observed.model_dump() if observed else None,
            **self._network.facts(),
            **({"node_settings": self._tuning.seen} if self._tuning.seen else {}),
            **({"link_engine": self._link_engine(trial, pods)} if links.emulates([trial.cell]) else {}),
        }

    def _link_engine(self, trial: Trial, pods: Mapping[str, ReadyPod]) -> dict[str, Any]:
        layout = placement.pin_cores(trial.cell, pods)
        return links.engine(trial, pods, layout, self._namespace.name)

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
        self, trial: Trial, participant: Participant, directory: Path, qos: Path | None, config: Path | None
    ) -> ParticipantPaths:
        pod_qos = Path("/run/k8sdds/qos") / qos.name if qos else None
        pod_config = Path("/run/k8sdds/config") / config.name if config else None
        return ParticipantPaths(PERFTEST, Path(output_folder(directory)), pod_qos, pod_config)

    @override
    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        with self._detecting_failures(worked=True):
            measurement = self._run(trial, launches, deadline_s)
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
        self._pods.discard(slots.values())
        self._verifier.forget(slots.values())

    def _run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        cell, pods, slots = trial.cell, self._cell_pods(trial.cell), self._slots(trial.cell)
        layout = placement.pin_cores(cell, pods)
        execs = [
            self._execution(pods[launch.participant.name].name, launch, deadline_s, layout)
            for launch in launches
        ]
        raw_files = launches[0].directory.parent
        readings = self._evidence(trial, pods, slots, layout, raw_files, deadline_s)
        if links.emulates([cell]):
            campaign = self._namespace.name
            emulated = links.EmulatedLinks(
                self._cluster, trial, pods, self._image, campaign, raw_files, deadline_s
            )
            # Last, so that its statistics begin right before the participants start.
            readings.append(emulated)
            if emulated.has_outages:
                first = next(each for each in execs if each.launch.participant == FIRST_PUBLISHER)
                first.report_start(emulated.begin_outages)
        pod_starts.measure(self._pods, cell, slots.values(), raw_files, self._execution)

        failing = self._outage(trial, execs, slots, layout, deadline_s)

        def run(at_start: Callable[[], None]) -> Measurement:
            is_listening = partial(self._is_listening, slots)
            running = failing.running() if failing else None
            results = trial_run.run_participants(execs, is_listening, at_start, failing=running)
            attended, used, later = execs, pods, None
            if failing and failing.second and failing.result:
                later, name = failing.second, failing.second.launch.participant.name
                results[name] = failing.result
                attended = [later if each.launch.participant.name == name else each for each in execs]
                used = pods | {name: self._pods.pod(slots[name])}
            if failing:
                failing.write(raw_files, attended, used[outage.options_of(cell).participant.name].node)
                # What was replaced by request has not failed.
                self._needed_pods.forgive(failing.deleted)
            self._remember(attended, results)
            on_loopback = on_host(cell) and not cell.crosses_links
            return trial_run.measurement(used, attended, results, layout, on_loopback, later)

        return measured(readings, run)

    def _outage(
        self,
        trial: Trial,
        execs: Sequence[ParticipantExec],
        slots: Mapping[str, Slot],
        layout: Layout,
        deadline_s: float,
    ) -> ClusterOutage | None:
        """Return the outage of a trial, in which pods fail; None if none does."""
        if trial.cell.test != outage.NAME or (options := outage.options_of(trial.cell)).of_link:
            return None
        slot = slots[options.participant.name]

        def create(launch: Launch) -> ParticipantExec:
            self._pods.ensure([slot])
            return self._execution(self._pods.pod(slot).name, launch, deadline_s, layout)

        of = {execution.launch.participant: execution for execution in execs}
        failing: ClusterOutage
        if options.what == "server":
            patterns = self._discovery.pod_patterns([trial.cell])
            failing = ReplacedPods(options, self._client, patterns, node="")
        elif options.what == "agent":
            installed = find(trial.cell.network).cluster
            assert installed is not None  # the preflight check rejects networks that k8sdds does not deploy
            agents = f"{versions.NETWORK_NAMESPACE}/{installed.daemonset}-*"
            failing = ReplacedPods(options, self._client, [agents], self._pods.pod(slot).node)
        else:
            failing = PodOutage(
                options,
                of[options.participant],
                lambda: self._pods.delete_unless(lambda other: other != slot),
                create,
            )
        of[FIRST_PUBLISHER].report_start(failing.begin)
        return failing

    def _evidence(
        self,
        trial: Trial,
        pods: dict[str, ReadyPod],
        slots: dict[str, Slot],
        layout: Layout,
        raw_files: Path,
        deadline_s: float,
    ) -> list[Reading]:
        cell, workload = trial.cell, workloads.find(trial.cell.test)
        readings: list[Reading] = [
            evidence.SteeredPackets(self._steering, cell, layout, pods),
            evidence.NetworkBytes(self._verifier, cell, slots),
        ]
        readings += self._services.translations(cell, slots)
        if "conntrack_entries" in workload.metrics:
            readings.append(evidence.TrackedConnections(self._probes, pods[FIRST_PUBLISHER.name].node))
        if workload.load(cell).on_schedule and len(evidence.machines(pods)) > 1:
            readings.append(evidence.Clocks(self._cluster, cell, pods))
        if cell.profile:
            owner = evidence.owner(self._owners(pods))
            readings.append(ProfileReading(trial, raw_files, owner, deadline_s))
        return [*readings, self._usage(pods)]

    def _remember(self, execs: Sequence[ParticipantExec], results: Mapping[str, ExecResult]) -> None:
        """Remember which pods must answer before the next attempt, and which files they can delete."""
        # After a failed start too, the next attempt must wait until all pods answer.
        if any(result.lost or result.code == NOT_STARTED for result in results.values()):
            self._pods.invalidate()
        for execution in execs:
            name = execution.launch.participant.name
            if not results[name].lost:
                self._files_to_delete[execution.pod, name] = output_folder(execution.launch.directory)

    def _execution(
        self, pod: str, launch: Launch, deadline_s: float, layout: Layout | None = None
    ) -> ParticipantExec:
        """Return the execution of a program in a pod of this campaign, on its cores of the layout."""
        name = launch.participant.name
        options = trial_run.core_options(layout, name) if layout else []
        if (pod, name) in self._files_to_delete:
            options += ["--forget", self._files_to_delete.pop((pod, name))]
        return ParticipantExec(self._client, self._namespace.name, pod, launch, deadline_s, options)

    def _owners(self, pods: dict[str, ReadyPod]) -> dict[str, str]:
        """Return the owner of the processes of each pod, by pod id: these participants, or the network's agents."""
        running = filter(None, (self._pods.watch.pod(pod.name) for pod in pods.values()))
        participants = [pod["metadata"]["uid"] for pod in running]
        owners = dict.fromkeys(self._needed_pods.pod_ids(), components.NETWORK)
        return owners | dict.fromkeys(participants, components.PARTICIPANT)

    def _usage(self, pods: dict[str, ReadyPod]) -> evidence.NodesUsage:
        return evidence.NodesUsage(self._probes, pods, lambda: self._owners(pods), self._reading_s)

    def _is_listening(self, slots: Mapping[str, Slot], execution: ParticipantExec) -> bool:
        listener = execution.launch.listens
        assert listener is not None
        result = self._pods.run(slots[execution.launch.participant.name], listening.tables(listener))
        return listening.is_listening(listener, result.stdout.decode(errors="replace"))

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
