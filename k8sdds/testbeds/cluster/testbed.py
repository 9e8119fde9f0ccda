"""Run a campaign on a Kubernetes cluster: check, group trials into blocks, prepare a session, clean up."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from k8sdds import versions
from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.services import ProxyMode
from k8sdds.model.trial import Trial
from k8sdds.networks import find, with_engines
from k8sdds.networks.detection import DetectedNetwork
from k8sdds.system.errors import Problem
from k8sdds.testbeds import Block
from k8sdds.testbeds.cluster import (
    detection,
    facts,
    namespace,
    permissions,
    pod_room,
    pod_starts,
    policies,
    preflight,
    profiled_pods,
)
from k8sdds.testbeds.cluster import lease as campaign_lease
from k8sdds.testbeds.cluster.blocks import HOST, count_switches, make_blocks, on_host
from k8sdds.testbeds.cluster.lease import CampaignLease
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.node_tuning import NodeTuning
from k8sdds.testbeds.cluster.nodes import NodeInfo, one_kernel, usable
from k8sdds.testbeds.cluster.session import ClusterSession, middlewares
from k8sdds.testbeds.selection import CLUSTER, SelectedTestbed

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.network_switch import NetworkSwitch


SWITCH_S = 35.0
"""Duration of a network switch with the pods and their verification, measured on three local nodes with two cores."""


class ClusterTestbed:
    """A campaign on a cluster. Use as a context manager, or call `close`."""

    name = CLUSTER

    def __init__(self, client: KubernetesClient, selected: SelectedTestbed, campaign: str) -> None:
        """Contact nothing yet. `campaign`: name of the campaign."""
        self.client = client
        self.selected = selected
        self._campaign = campaign
        self._trials: Sequence[Trial] = ()
        self._nodes: list[NodeInfo] | None = None
        self._switch: NetworkSwitch | None = None
        self._namespace: CampaignNamespace | None = None
        self._session: ClusterSession | None = None
        self._lease: CampaignLease | None = None

    def __enter__(self) -> ClusterTestbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what the cluster has ---------------------------------------------------------------------------

    @property
    def nodes(self) -> list[NodeInfo]:
        """The cluster's nodes; empty: this user may not list them."""
        if self._nodes is None:
            allowed = permissions.can_list_nodes(self.client)
            listed = self.client.get(permissions.NODES)["items"] if allowed else []
            self._nodes = [NodeInfo.parse(node) for node in listed]
        return self._nodes

    @property
    def switch(self) -> NetworkSwitch | None:
        """Replaces the cluster's pod network; None: k8sdds did not deploy this cluster."""
        if self._switch is None and self.selected.name:
            # Imported here because other clusters need nothing of `deploy`.
            from k8sdds.testbeds.cluster.network_switch import NetworkSwitch

            self._switch = NetworkSwitch(self.selected.name)
        return self._switch

    @cached_property
    def proxy_mode(self) -> ProxyMode | None:
        """The mode of kube-proxy; None: unknown."""
        return detection.proxy_mode(self.client)

    @property
    def installed(self) -> DetectedNetwork:
        """The installed pod network: what `deploy` installed, what the user named, or what the cluster's signs show.

        Plugins that add interfaces to pods are always detected.
        """
        signs: tuple[str, ...] = ()
        if self.switch is not None:
            name = self.switch.current
        elif self.selected.network:
            name, signs = self.selected.network, ("named by the user",)
        else:
            return self._detected
        return DetectedNetwork(name, find(name).title, signs=signs, secondary=self._detected.secondary)

    @cached_property
    def _detected(self) -> DetectedNetwork:
        """What the cluster's signs show."""
        return detection.detect(self.client, self.nodes)

    def networks(self) -> list[str]:
        """Return the networks that can be measured: installed ones, and those that `deploy` can install."""
        installed = self.installed
        names = self.switch.installable() if self.switch else [installed.name]
        return list(dict.fromkeys([HOST, *names, *installed.secondary]))

    # -- before a campaign ------------------------------------------------------------------------------

    def supported_subset(
        self, experiment: Experiment, requested: Sequence[str]
    ) -> tuple[Experiment, list[str]]:
        """Select the plugins' own engines and replace networks that are not available by the installed one.

        Networks that the user requested by name (`requested`) remain, so that the check reports them.

        Returns:
            The experiment and the labels of the removed networks.
        """
        experiment = with_engines(experiment, lambda _: True)
        if isinstance(experiment, ApplicationExperiment) and (
            self.switch or experiment.application.choices.networks
        ):
            return experiment, []  # the campaign checks each of its choices
        installed = None if self.switch else self.installed.name
        return preflight.reduce_networks(experiment, self.networks(), requested, installed)

    def interference(self) -> list[str]:
        """Return conditions that may disturb a campaign."""
        found = []
        if one_kernel(self.nodes):
            found.append("the cluster's nodes share one kernel and its cores; every caption states this")
        found += [
            f"another campaign is running on this cluster: {other.describe()}"
            for other in campaign_lease.running(self.client)
        ]
        if permissions.missing_in_campaign(self.client, self.selected.namespace, leases.RIGHTS):
            found.append(
                "this user may not hold a Lease in the campaign's namespace, so nothing keeps others from changing the"
                " cluster meanwhile; see: k8sdds init rights"
            )
        return found

    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        """Return what prevents these trials from running here. Makes no changes."""
        self._trials = trials
        cells = [trial.cell for trial in trials]
        problems = preflight.unsupported(cells, can_switch=bool(self.selected.name))
        problems = problems or permissions.missing_rights(self.client, self.selected.namespace)
        return problems or [
            *preflight.missing_networks(
                cells, self.networks(), *([self.switch.obstacle] if self.switch else [])
            ),
            *(profiled_pods.problems(self.nodes) if any(cell.profile for cell in cells) else []),
            *preflight.attachment_problems(cells, self.client),
            *preflight.family_problems(cells, self.nodes),
            *self._disturbed_campaigns(trials),
            *pod_starts.problems(cells),
            *pod_room.problems(cells, self.nodes, self.client),
            *NodeTuning(self.selected.name, cells).problems(),
            *policies.rights_problems(self.client, self.selected.namespace, cells),
            *preflight.service_problems(cells, self.client, self.selected.namespace, self.proxy_mode),
            *preflight.placement_problems(
                cells, self.nodes, self._image(trials), *([self.switch.images] if self.switch else [])
            ),
        ]

    def _disturbed_campaigns(self, trials: Sequence[Trial]) -> list[Problem]:
        """Return the running campaigns that would lose their network or get other settings of the nodes."""
        tuning = NodeTuning(self.selected.name, [trial.cell for trial in trials])
        if not tuning.changes_nodes and not self.preparation_s(self.blocks(trials, seed=0)):
            return []
        return [
            Problem(
                f"another campaign is running on this cluster: {other.describe()}; this one would change the cluster",
                "wait until it ends, or measure the installed network only",
            )
            for other in campaign_lease.running(self.client)
        ]

    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        """Group the trials into blocks: of one network if networks are switched or metered, else of all."""
        return make_blocks(trials, seed, one_network=self.selected.meter)

    def preparation_s(self, blocks: Sequence[Block]) -> float:
        """Return the expected duration of all network switches of a campaign."""
        switch = self.switch
        if switch is None:
            return 0
        return SWITCH_S * count_switches(blocks, lambda mode: switch.is_installed(mode[0], dict(mode[1])))

    # -- running it -------------------------------------------------------------------------------------

    def prepare(self, block: Block) -> ClusterSession:
        """Create the campaign's namespace if needed, and prepare the pods and the network of a block."""
        if self._session is None:
            trials = self._trials or block.trials
            privileged = any(on_host(trial.cell) or trial.cell.capabilities for trial in trials)
            self._namespace = namespace.create(
                self.client, self._campaign, self.selected.namespace, privileged
            )
            self._lease = CampaignLease(
                self.client, self._namespace.name, self._namespace.campaign, self._campaign
            )
            self._lease.acquire()
            self._session = ClusterSession(
                self.client,
                self._namespace,
                self.selected,
                self._campaign,
                trials,
                self._image(trials),
                usable(self.nodes, versions.BUNDLE_ARCHITECTURES) if self.nodes else None,
                self.switch,
                self.installed.name,
            )
        self._session.prepare(block)
        return self._session

    def _image(self, trials: Sequence[Trial]) -> str:
        """Return one image for all pods: a middleware's image is based on ours, so it has all programs."""
        images = (member.image() for member in middlewares(trials))
        return next(filter(None, images), self.selected.image)

    # -- after it ---------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Return the provenance: the cluster's version, facts of each node, and whether the campaign holds a Lease."""
        ready_pods = self._session.ready_pods() if self._session else []
        found = facts.facts(self.client, self.selected, self.nodes, ready_pods, self.installed)
        return found | {"lease": self._lease is not None and self._lease.is_held}

    def close(self) -> None:
        """Delete the campaign's objects and restore the original network. Safe to call in any state."""
        session, self._session = self._session, None
        campaign_namespace, self._namespace = self._namespace, None
        lease, self._lease = self._lease, None
        with contextlib.ExitStack() as steps:  # which runs all, the last one first, also after an error
            if campaign_namespace is not None:
                steps.callback(campaign_namespace.delete)
            if lease is not None:
                steps.callback(lease.release)
            if self._switch is not None:
                steps.callback(self._switch.restore)
            if session is not None:
                steps.callback(session.close)
