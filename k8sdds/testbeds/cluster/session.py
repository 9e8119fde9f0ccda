"""Run the trials of a campaign in pods that are kept for all blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds import middleware, versions, workloads
from k8sdds.analysis import components
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.kubernetes.exec_stream import StreamLost
from k8sdds.middleware import Middleware
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.measurement import Launch, Measurement, ParticipantPaths
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, Endpoint, NetworkMode, Participant, Trial
from k8sdds.networks import find
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.results.fingerprint import Fingerprint, unobserved
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.testbeds import Block, fingerprint, listening
from k8sdds.testbeds.cluster import causes, clocks, evidence, placement, pod_starts, profiled_pods, trial_run
from k8sdds.testbeds.cluster.blocks import on_host, pod_network, prepared_options
from k8sdds.testbeds.cluster.cluster_services import Services
from k8sdds.testbeds.cluster.discovery import DiscoveryServers
from k8sdds.testbeds.cluster.exec import ExecResult, ParticipantExec
from k8sdds.testbeds.cluster.installed import InstalledNetwork
from k8sdds.testbeds.cluster.metrics import MetricsCollector
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_tuning import NodeSettings, NodeTuning, require_path_mtu
from k8sdds.testbeds.cluster.nodes import NodeInfo, tolerations
from k8sdds.testbeds.cluster.places import PodPlace
from k8sdds.testbeds.cluster.pod_abilities import require_abilities
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import PERFTEST, Slot, memory_bytes
from k8sdds.testbeds.cluster.policies import Policies
from k8sdds.testbeds.cluster.services import ServicePods
from k8sdds.testbeds.cluster.steering import Steering
from k8sdds.testbeds.cluster.verify import PathVerifier
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.evidence import ProfileReading, Reading, measured
from k8sdds.testbeds.fingerprint import Probed
from k8sdds.testbeds.selection import SelectedTestbed, sibling_image

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.network_switch import NetworkSwitch

END_VISIBLE_S = 2.0
"""How long after an error the end of a killed pod can become visible."""


class ClusterSession:
    """A campaign's pods, discovery servers and node probes on a cluster."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: CampaignNamespace,
        selected: SelectedTestbed,
        campaign: str,
        trials: Sequence[Trial],
        image: str,
        nodes: Sequence[NodeInfo] | None,
        switch: NetworkSwitch | None,
        network: str,
    ) -> None:
        """Set up what all blocks share.

        Args:
            client: The cluster.
            namespace: The campaign's namespace.
            selected: How the cluster was selected.
            campaign: Name of the campaign.
            trials: All trials of the campaign.
            image: Image of all pods.
            nodes: Nodes that can run participants; None: this user may not list them.
            switch: Replaces the pod network; None: it cannot be replaced.
            network: Name of the pod network that is installed at the start.
        """
        self._client = client
        self._namespace = namespace
        self._nodes = nodes
        self._switch = switch
        with_host = any(on_host(trial.cell) for trial in trials)
        tolerated = tolerations(nodes or ())
        self._pods = PodPool(
            client,
            namespace,
            image,
            memory_bytes(trial.cell for trial in trials),
            campaign,
            self._provide_volumes(trials),
            tolerated,
        )
        self._discovery = DiscoveryServers(client, namespace, selected.image, tolerated)
        self._probes = NodeProbes(client, namespace, with_host, image, campaign, tolerated)
        self._verifier = PathVerifier(
            self._pods,
            self._probes,
            switch.interface if switch else "",
            self._is_encrypted,
            deployed=switch is not None,
            nodes=nodes or (),
        )
        self._fingerprints: dict[tuple[str, str, IpFamily], Fingerprint] = {}
        """By network, its options and IP family."""
        self._metrics: MetricsCollector | None = None
        if selected.meter:
            meter_image = sibling_image(selected.image, versions.TOOLS_IMAGE)
            self._metrics = MetricsCollector(client, namespace, with_host, meter_image)
            self._pods.watch.listeners.append(self._metrics.observe_pod)
        self._cluster = selected.name
        """Name of the cluster; empty: k8sdds did not deploy it."""
        self._tuning = NodeTuning(selected.name, (trial.cell for trial in trials))
        self._steering = Steering(selected.name, nodes or ())
        self._policies = Policies(client, namespace, self._pods, self._probes)
        self._services = Services(client, namespace, self._pods, self._probes)
        self._needed_pods = ServicePods(client)
        self._network = InstalledNetwork(client, nodes or (), switch, network)
        self._prepared: set[int] = set()
        """Indices of the blocks that were prepared once."""
        self._reading_s: dict[str, float] = {}
        """CPU time that reading the processes of a node costs it."""
        self._files_to_delete: dict[tuple[str, str], str] = {}
        """Pod and participant to the output folder of an attempt whose files were fetched."""
        self._calls = 0
        """Requests to the API server up to the end of the last trial or preparation."""

    def _provide_volumes(self, trials: Sequence[Trial]) -> dict[str, list[Any]]:
        """Return the volumes that the trials' middlewares need in a pod, and create the Secrets behind them.

        In a prepared namespace, the administrator creates the Secrets.
        """
        volumes: dict[str, list[Any]] = {}
        for member in middlewares(trials):
            secret = member.secret(self._namespace.name)
            if secret is not None and self._namespace.owned:
                objects.create(self._client, [secret])
            for key, items in member.pod_parts().items():
                volumes.setdefault(key, []).extend(items)
        return volumes

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
            if failed or (worked and not causes.is_refusal(error)) or causes.is_by_lost_host(error):
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
            self._observe(cell)
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

    def _observe(self, cell: Cell) -> None:
        """Take the fingerprint of a cell's network, whose pods must be ready, unless it is known."""
        key, slots = _observed(cell), self._slots(cell)
        if key in self._fingerprints or not cell.crosses_links:
            return
        sender = slots[FIRST_PUBLISHER.name]
        source = self._pods.pod(sender)
        receivers = (slots[participant.name] for participant in cell.participants if participant.subscribes)
        receiver = next((slot for slot in receivers if self._pods.pod(slot).node != source.node), None)
        if receiver is None:
            return  # the pods of another cell may be on different nodes
        try:
            observed = self._observe_between(sender, receiver)
        except PrerequisiteError as error:
            observed = unobserved(error.message)
        if find(cell.network).encryption and observed.cleartext:
            raise PrerequisiteError(
                f"{cell.network_label}: packets between nodes are not encrypted: their content was read on"
                f" {observed.uplink} of {source.node}",
                "check that the network's agents have the same key, and that no other network is installed",
            )
        require_path_mtu(cell, source.mtu_bytes, observed.path_mtu_bytes)
        self._fingerprints[key] = observed

    def _is_encrypted(self, cell: Cell) -> bool:
        """Return whether the fingerprint of a cell's network shows that its packets cannot be read."""
        observed = self._fingerprints.get(_observed(cell))
        return observed is not None and observed.cleartext is False

    def _observe_between(self, sender: Slot, receiver: Slot) -> Fingerprint:
        source, target = self._pods.pod(sender), self._pods.pod(receiver)
        probed = Probed(
            sender=PodPlace(self._pods, sender),
            sender_address=source.address,
            sender_interface=source.interface,
            mtu_bytes=source.mtu_bytes or LINK_MTU,
            receiver=PodPlace(self._pods, receiver),
            receiver_address=target.address,
            receiver_interface=target.interface,
            peer=target.node_address,
            node=None,
        )
        with contextlib.ExitStack() as stack:
            try:
                node = stack.enter_context(self._probes.observing(source.node))
            except PrerequisiteError as error:
                return fingerprint.observe(replace(probed, node_unavailable=error.message))
            return fingerprint.observe(replace(probed, node=node))

    def _slots(self, cell: Cell) -> dict[str, Slot]:
        return placement.slots(cell, self._nodes)

    def _cell_pods(self, cell: Cell) -> dict[str, ReadyPod]:
        """Return the pod of each participant."""
        return {name: self._pods.pod(slot) for name, slot in self._slots(cell).items()}

    # -- the session protocol ---------------------------------------------------------------------------

    def network_facts(self, trial: Trial) -> dict[str, Any]:
        """Return MTU, engine, fidelity, path and software of the trial's network, and the number of nodes used.

        The trial must belong to the prepared block: the pods of all pod networks have the same slots.
        """
        network, options = find(trial.cell.network), trial.cell.network_options
        engine = network.engine_for(options)
        slots = self._slots(trial.cell)
        observed = self._fingerprints.get(_observed(trial.cell))
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
        }

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        """Return the MTU of the nodes' links, if pods on the nodes' own network reported it."""
        mtus = [pod.mtu_bytes for slot, pod in self._pods.ready_pods().items() if slot.host]
        # A cluster runs the real network, so there are no differences to report.
        return {"link_mtu_bytes": min(filter(None, mtus), default=None), "offloads": None, "differences": ""}

    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        """Replace lost pods, then return address, interface and cores of each participant."""
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

    def servers(self, trial: Trial) -> tuple[str, ...]:
        """Return `HOST:PORT` of the discovery servers for the trial's participants."""
        with self._detecting_failures(worked=True):
            return self._discovery.addresses(trial.cell)

    def readings(self) -> list[dict[str, Any]]:
        """Return the lines for readings.jsonl about the block that has just ended."""
        return self._metrics.finish_block() if self._metrics is not None else []

    def paths(
        self, trial: Trial, participant: Participant, directory: Path, qos: Path | None, config: Path | None
    ) -> ParticipantPaths:
        """Return the paths in the participant's pod."""
        pod_qos = Path("/run/k8sdds/qos") / qos.name if qos else None
        pod_config = Path("/run/k8sdds/config") / config.name if config else None
        return ParticipantPaths(PERFTEST, Path(trial_run.output_folder(directory)), pod_qos, pod_config)

    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        """Run one attempt: start all participants at one moment, await their ends and fetch their files.

        Raises:
            PartFailed: A part of the testbed failed.
            NetworkChanged: Somebody else changed the network.
        """
        with self._detecting_failures(worked=True):
            measurement = self._run(trial, launches, deadline_s)
        measurement = replace(measurement, api_calls=self._number_of_calls() - self._calls)
        self._network.require_unchanged()
        self._calls = self._number_of_calls()
        return measurement

    def _number_of_calls(self) -> int:
        """Return the number of requests to the API server, without renewals of the Lease."""
        return self._client.calls.total() - self._client.calls["patch"]

    def failed_part(self, trial: Trial) -> str:
        """Return which agent of the network or discovery server was restarted; empty: none is known.

        Lost pods of participants are part of the measurement.
        """
        return self._needed_pods.restarted()

    def discard(self, trial: Trial) -> None:
        """Let `prepare` replace the trial's pods, and verify their path again."""
        slots = self._slots(trial.cell)
        self._pods.discard(slots.values())
        self._verifier.forget(slots)

    def _run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        cell, pods, slots = trial.cell, self._cell_pods(trial.cell), self._slots(trial.cell)
        layout = placement.pin_cores(cell, pods)
        execs = [self._participant_exec(launch, pods, layout, deadline_s) for launch in launches]
        not_steered = self._steering.apply(cell, layout, {name: pod.node for name, pod in pods.items()})
        raw_files = launches[0].directory.parent
        pod_starts.measure(self._pods, cell, slots.values(), raw_files, self._execution)

        def run(at_start: Callable[[], None]) -> Measurement:
            results = trial_run.run_participants(
                execs,
                lambda execution: self._is_listening(slots[execution.launch.participant.name], execution),
                at_start,
            )
            self._remember(execs, results)
            on_loopback = on_host(cell) and not cell.crosses_links
            measurement = trial_run.measurement(pods, execs, results, layout, on_loopback)
            return replace(measurement, warnings=(*measurement.warnings, *filter(None, (not_steered,))))

        return measured(self._evidence(trial, pods, slots, raw_files, deadline_s), run)

    def _evidence(
        self,
        trial: Trial,
        pods: dict[str, ReadyPod],
        slots: dict[str, Slot],
        raw_files: Path,
        deadline_s: float,
    ) -> list[Reading]:
        """Return the kinds of evidence that a trial needs."""
        cell = trial.cell
        readings: list[Reading] = [
            evidence.NetworkBytes(self._verifier, cell, slots),
            evidence.ServiceTranslations(self._services, cell, slots),
            evidence.TrackedConnections(self._probes, cell, pods[FIRST_PUBLISHER.name].node),
        ]
        if workloads.find(cell.test).load(cell).on_schedule and len(clocks.machines(pods)) > 1:
            readings.append(evidence.Clocks(self._cluster, cell, pods))
        if cell.profile:
            owner = profiled_pods.owner(self._owners(pods))
            readings.append(ProfileReading(trial, raw_files, owner, deadline_s))
        return [*readings, self._usage(pods)]

    def _participant_exec(
        self, launch: Launch, pods: Mapping[str, ReadyPod], layout: Layout, deadline_s: float
    ) -> ParticipantExec:
        name = launch.participant.name
        pod, output = pods[name].name, trial_run.output_folder(launch.directory)
        options = trial_run.core_options(layout, name)
        if (pod, name) in self._files_to_delete:
            options += ["--forget", self._files_to_delete.pop((pod, name))]
        return ParticipantExec(self._client, self._namespace.name, pod, launch, output, options, deadline_s)

    def _remember(self, execs: Sequence[ParticipantExec], results: Mapping[str, ExecResult]) -> None:
        """Remember which pods must answer before the next attempt, and which files they can delete."""
        # After a failed start too, the next attempt must wait until all pods answer.
        if any(result.lost or result.code == NOT_STARTED for result in results.values()):
            self._pods.invalidate()
        for execution in execs:
            name = execution.launch.participant.name
            if not results[name].lost:
                folder = trial_run.output_folder(execution.launch.directory)
                self._files_to_delete[execution.pod, name] = folder

    def _execution(self, pod: str, launch: Launch, deadline_s: float) -> ParticipantExec:
        """Return the execution of a program in a pod of this campaign, on all cores."""
        output = trial_run.output_folder(launch.directory)
        return ParticipantExec(self._client, self._namespace.name, pod, launch, output, (), deadline_s)

    def _owners(self, pods: dict[str, ReadyPod]) -> dict[str, str]:
        """Return the owner of the processes of each pod, by pod id: these participants, or the network's agents."""
        running = filter(None, (self._pods.watch.pod(pod.name) for pod in pods.values()))
        participants = [pod["metadata"]["uid"] for pod in running]
        owners = dict.fromkeys(self._needed_pods.pod_ids(), components.NETWORK)
        return owners | dict.fromkeys(participants, components.PARTICIPANT)

    def _usage(self, pods: dict[str, ReadyPod]) -> evidence.NodesUsage:
        return evidence.NodesUsage(self._probes, pods, lambda: self._owners(pods), self._reading_s)

    def _is_listening(self, slot: Slot, execution: ParticipantExec) -> bool:
        """Return whether a started server listens on its socket."""
        listener = execution.launch.listens
        assert listener is not None
        result = self._pods.run(slot, listening.tables(listener))
        return listening.is_listening(listener, result.stdout.decode(errors="replace"))

    # -- for the testbed --------------------------------------------------------------------------------

    def ready_pods(self) -> list[ReadyPod]:
        """Return all ready pods."""
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


def _observed(cell: Cell) -> tuple[str, str, IpFamily]:
    """Return what one fingerprint describes: the packets of a family on a network with its options."""
    return cell.network, repr(prepared_options(cell)), cell.ip_family


def middlewares(trials: Sequence[Trial]) -> list[Middleware]:
    """Return the middlewares of some trials, each once."""
    used = (middleware.of(trial.cell) for trial in trials)
    return list({member.name: member for member in used if member is not None}.values())
