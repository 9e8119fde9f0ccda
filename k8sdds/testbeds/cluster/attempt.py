"""Run one attempt of a trial in the pods of a campaign: what is read around it, and what fails in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from k8sdds import versions, workloads
from k8sdds.analysis import components
from k8sdds.model.measurement import Launch, Measurement
from k8sdds.model.options import OutageOptions
from k8sdds.model.trial import FIRST_PUBLISHER, Trial
from k8sdds.networks import find
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.system.errors import K8sddsError
from k8sdds.testbeds.cluster import evidence, links, placement, pod_starts, trial_run
from k8sdds.testbeds.cluster.blocks import on_host
from k8sdds.testbeds.cluster.created_services import Services
from k8sdds.testbeds.cluster.discovery import DiscoveryServers
from k8sdds.testbeds.cluster.exec import ExecResult, ParticipantExec, output_folder
from k8sdds.testbeds.cluster.failures import Failure, PodFailure, ReplacedPods, RestartedServers
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_settings import Steering
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.cluster.verify import PathVerifier
from k8sdds.testbeds.cluster.watch import NeededPods
from k8sdds.testbeds.core_layout import Layout, supervisor_options
from k8sdds.testbeds.evidence import ProfileReading, Reading, measured
from k8sdds.workloads import outage


@dataclass(frozen=True)
class Parts:
    """What the attempts of a campaign use, and what the next one must know of those before."""

    namespace: CampaignNamespace
    cluster: str
    """Name of the cluster; empty if k8sdds did not deploy it."""
    image: str
    """Image of all pods."""
    pods: PodPool
    probes: NodeProbes
    verifier: PathVerifier
    discovery: DiscoveryServers
    services: Services
    steering: Steering
    needed_pods: NeededPods
    reading_s: dict[str, float] = field(default_factory=dict)
    """CPU time that reading the processes of a node costs it."""
    _files_to_delete: dict[tuple[str, str], str] = field(default_factory=dict)
    """Pod and participant to the output folder of an attempt whose files were fetched."""

    def usage(self, pods: Mapping[str, ReadyPod]) -> evidence.NodesUsage:
        """Return the reading of what these pods and the rest of their nodes use."""
        return evidence.NodesUsage(
            self.probes, pods, lambda: self.owners(pods), self.reading_s, set(self.discovery.pods.values())
        )

    def owners(self, pods: Mapping[str, ReadyPod]) -> dict[str, str]:
        """Return the owner of the processes of each pod, by pod id: these participants, the network, or a service."""
        running = filter(None, (self.pods.watch.pod(pod.name) for pod in pods.values()))
        participants = [pod["metadata"]["uid"] for pod in running]
        owners = dict.fromkeys(self.needed_pods.pod_ids(), components.NETWORK)
        owners |= dict.fromkeys(self.discovery.pods, components.SERVICE)
        return owners | dict.fromkeys(participants, components.PARTICIPANT)

    def execution(
        self, pod: str, launch: Launch, deadline_s: float, layout: Layout | None = None
    ) -> ParticipantExec:
        """Return the execution of a program in a pod, on its cores of the layout."""
        name = launch.participant.name
        options = supervisor_options(layout, name) if layout else []
        if (pod, name) in self._files_to_delete:
            options += ["--forget", self._files_to_delete.pop((pod, name))]
        return ParticipantExec(self.namespace.client, self.namespace.name, pod, launch, deadline_s, options)

    def remember(self, execs: Sequence[ParticipantExec], results: Mapping[str, ExecResult]) -> None:
        """Remember which pods must answer before the next attempt, and which files they can delete."""
        # After a failed start too, the next attempt must wait until all pods answer.
        if any(result.lost or result.code == NOT_STARTED for result in results.values()):
            self.pods.invalidate()
        for execution in execs:
            name = execution.launch.participant.name
            if not results[name].lost:
                self._files_to_delete[execution.pod, name] = output_folder(execution.launch.directory)


class Attempt:
    """An attempt of a trial: `slots` are the places of its participants, which have pods."""

    def __init__(
        self, parts: Parts, trial: Trial, slots: Mapping[str, Slot], launches: Sequence[Launch], deadline_s: float,
    ) -> None:  # fmt: skip
        self._parts, self._trial, self._slots, self._deadline_s = parts, trial, slots, deadline_s
        self._folder = launches[0].directory.parent
        self._pods = {name: parts.pods.pod(slot) for name, slot in slots.items()}
        self._layout = placement.pin_cores(trial.cell, self._pods)
        self._execs = {launch.participant: self._execution(launch) for launch in launches}

    def _execution(self, launch: Launch) -> ParticipantExec:
        pod = self._parts.pods.pod(self._slots[launch.participant.name])
        return self._parts.execution(pod.name, launch, self._deadline_s, self._layout)

    def run(self) -> Measurement:
        """Start the pods that the trial requests, then the participants, and return what was measured."""
        parts, cell = self._parts, self._trial.cell
        pod_starts.measure(parts.pods, cell, self._slots.values(), self._folder, parts.execution)
        failure = self._failure()
        try:
            measurement = measured(self._readings(), lambda at_start: self._attend(at_start, failure))
        except Exception:
            self._clean_up(failure)
            raise
        self._clean_up(failure)
        return measurement

    def _clean_up(self, failure: Failure | None) -> None:
        """Remove what a failure left that would change the next attempt, which possibly repeats this one."""
        if failure is None:
            return
        # An error here does not change what was measured, or why it was not. The next attempt waits for its servers.
        with contextlib.suppress(K8sddsError):
            failure.clean_up()
        # What was stopped by request has not failed.
        self._parts.needed_pods.forgive(failure.stopped)

    def _readings(self) -> list[Reading]:
        parts, cell, pods = self._parts, self._trial.cell, self._pods
        workload = workloads.find(cell.test)
        readings: list[Reading] = [
            evidence.SteeredPackets(parts.steering, cell, self._layout, pods),
            evidence.NetworkBytes(parts.verifier, cell, self._slots),
        ]
        readings += parts.services.translations(cell, self._slots)
        if "conntrack_entries" in workload.metrics:
            readings.append(evidence.tracked_connections(parts.probes, pods[FIRST_PUBLISHER.name].node))
        if workload.load(cell).on_schedule and len(evidence.machines(pods)) > 1:
            readings.append(evidence.clocks(parts.cluster, cell, pods))
        if cell.profile:
            owner = evidence.owner(parts.owners(pods))
            readings.append(ProfileReading(self._trial, self._folder, owner, self._deadline_s))
        readings.append(parts.usage(pods))
        # Last, so that their statistics begin right before the participants start.
        return readings + ([self._emulated_links()] if links.emulates([cell]) else [])

    def _emulated_links(self) -> Reading:
        """Return the reading that emulates the links of the nodes, whose outages begin with the measured interval."""
        parts, campaign = self._parts, self._parts.namespace.name
        emulated = links.EmulatedLinks(
            parts.cluster, self._trial, self._pods, parts.image, campaign, self._folder, self._deadline_s
        )
        if emulated.has_outages:
            self._execs[FIRST_PUBLISHER].report_start(emulated.begin_outages)
        return emulated

    def _failure(self) -> Failure | None:
        """Return what fails in the trial, apart from links; None if nothing does."""
        cell, parts = self._trial.cell, self._parts
        failure: Failure
        if fleet := workloads.restarted_fleet(cell):
            node = min(parts.discovery.pods.values(), default="")
            after_s, servers = fleet.change_at_s(self._trial.duration_s), parts.discovery.pod_patterns([cell])
            failure = RestartedServers(node, after_s, 0, parts.namespace.client, servers)
        elif cell.test != outage.NAME or (options := outage.options_of(cell)).of_link:
            return None
        else:
            failure = self._outage(options)
        self._execs[FIRST_PUBLISHER].report_start(failure.begin)
        return failure

    def _outage(self, options: OutageOptions) -> Failure:
        """Return what fails in an outage test, if it is not a link."""
        parts, slot, cell = self._parts, self._slots[options.participant.name], self._trial.cell
        client = parts.namespace.client
        when = self._pods[slot.participant].node, options.after_s, options.for_s
        if options.what == "server":
            return ReplacedPods(*when, client, parts.discovery.pod_patterns([cell]))
        if options.what == "agent":
            installed = find(cell.network).cluster
            assert installed is not None  # the preflight check rejects networks that k8sdds does not deploy
            agents = f"{versions.NETWORK_NAMESPACE}/{installed.daemonset}-*"
            return ReplacedPods(*when, client, [agents], only_on_node=True)
        return PodFailure(
            *when,
            self._execs[options.participant],
            delete=lambda: parts.pods.delete_unless(lambda other: other != slot),
            create=self._in_new_pod,
        )

    def _in_new_pod(self, launch: Launch) -> ParticipantExec:
        self._parts.pods.ensure([self._slots[launch.participant.name]])
        return self._execution(launch)

    def _attend(self, at_start: Callable[[], None], failure: Failure | None) -> Measurement:
        """Run the participants until all have ended, and remember what the next attempt must know."""
        parts, cell, execs, pods = self._parts, self._trial.cell, self._execs, self._pods
        running = failure.running() if failure else None
        results = trial_run.run_participants(
            list(execs.values()), self._is_listening, at_start, failing=running
        )
        later = None
        if failure:
            if failure.second and failure.result:
                later, participant = failure.second, failure.second.launch.participant
                results[participant.name] = failure.result
                execs = execs | {participant: later}
                pods = pods | {participant.name: parts.pods.pod(self._slots[participant.name])}
            failure.write(self._folder, execs.values())
        parts.remember(list(execs.values()), results)
        on_loopback = on_host(cell) and not cell.crosses_links
        return trial_run.measurement(
            pods, list(execs.values()), results, self._layout, self._trial.cell.publishing, on_loopback, later
        )

    def _is_listening(self, execution: ParticipantExec) -> bool:
        listener = execution.launch.listens
        assert listener is not None
        slot = self._slots[execution.launch.participant.name]
        result = self._parts.pods.run(slot, listener.tables)
        return listener.is_ready(result.stdout.decode(errors="replace"))
