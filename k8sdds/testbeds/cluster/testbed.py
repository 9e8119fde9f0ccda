"""Run a campaign on a Kubernetes cluster: check, group trials into blocks, prepare a session, clean up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds import links as named_links
from k8sdds import middleware, versions
from k8sdds.kubernetes import leases, objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.services import ProxyMode
from k8sdds.model.settings import HOST
from k8sdds.model.trial import Trial
from k8sdds.networks import find, with_attachment, with_engines
from k8sdds.networks.detection import DetectedNetwork
from k8sdds.networks.macvlan import multus
from k8sdds.results.machine import CPU_MANAGER
from k8sdds.system.errors import InputError, Problem
from k8sdds.testbeds import Block, Testbed, user_ids
from k8sdds.testbeds.cluster import (
    discovery,
    image_login,
    installed,
    links,
    namespace,
    permissions,
    pod_room,
    preflight,
)
from k8sdds.testbeds.cluster.blocks import count_switches, make_blocks, on_host
from k8sdds.testbeds.cluster.image_login import LoginFile
from k8sdds.testbeds.cluster.namespace import CampaignLease, CampaignNamespace
from k8sdds.testbeds.cluster.node_settings import NodeTuning
from k8sdds.testbeds.cluster.nodes import NodeInfo, cores, one_kernel, tolerations, usable
from k8sdds.testbeds.cluster.session import ClusterSession, middlewares
from k8sdds.testbeds.machine_cpu import SEPARATE_INTERRUPTS
from k8sdds.testbeds.selection import CLUSTER, SelectedTestbed

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.network_switch import NetworkSwitch

NODE_INFO = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
POD_FACTS = (
    "boot_id", "kernel", "cpu_model", "cpu_count", "cpu_governor", "memory_bytes", "clocksource", "sysctls",
    SEPARATE_INTERRUPTS,
)  # fmt: skip
SWITCH_S = 35.0
"""Duration of a network switch with the pods and their verification, measured on three local nodes with two cores."""


class ClusterTestbed(Testbed):
    """A campaign on a cluster."""

    name = CLUSTER

    def __init__(self, client: KubernetesClient, selected: SelectedTestbed, campaign: str) -> None:
        self.client = client
        self.selected = selected
        self._campaign = campaign
        self._trials: Sequence[Trial] = ()
        self._switch: NetworkSwitch | None = None
        self._namespace: CampaignNamespace | None = None
        self._session: ClusterSession | None = None
        self._lease: CampaignLease | None = None

    # -- what the cluster has ---------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> list[NodeInfo]:
        """The cluster's nodes; empty if this user may not list them.

        Waits for nodes whose pod network has just been replaced, which kubelets report late.
        """
        nodes = self._list_nodes()
        while any(node.awaits_network(time.time()) for node in nodes):
            time.sleep(1)
            nodes = self._list_nodes()
        return nodes

    def _list_nodes(self) -> list[NodeInfo]:
        listed = permissions.readable(self.client, permissions.NODES)
        taints = self.selected.taints
        return [NodeInfo.parse(node, taints) for node in (listed["items"] if listed else ())]

    @property
    def tolerations(self) -> list[dict[str, str]]:
        """Tolerations of all pods of a campaign, for the taints of the nodes that they may use."""
        return tolerations(usable(self.nodes), self.selected.taints)

    @property
    def switch(self) -> NetworkSwitch | None:
        """Replaces the cluster's pod network; None if k8sdds did not deploy this cluster."""
        if self._switch is None and self.selected.name:
            # Imported here because other clusters need nothing of `deploy`.
            from k8sdds.testbeds.cluster.network_switch import NetworkSwitch

            self._switch = NetworkSwitch(self.selected.name)
        return self._switch

    @cached_property
    def proxy_mode(self) -> ProxyMode | None:
        """The mode of kube-proxy; None if unknown."""
        return installed.proxy_mode(self.client)

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
        return installed.detect(self.client, self.nodes)

    def networks(self) -> list[str]:
        """Return the networks that can be measured: installed ones, and those that `deploy` can install."""
        installed = self.installed
        names = self.switch.installable() if self.switch else [installed.name]
        second = [self.switch.second] if self.switch and self.switch.second else []
        return list(dict.fromkeys([HOST, *names, *second, *installed.secondary]))

    # -- before a campaign ------------------------------------------------------------------------------

    @override
    def supported_subset(
        self, experiment: Experiment, requested: Sequence[str]
    ) -> tuple[Experiment, list[str]]:
        experiment = with_engines(experiment, lambda _: True)
        if self.switch and self.switch.second:
            experiment = with_attachment(experiment, self.switch.second, multus.ATTACHMENT)
        experiment = links.with_forwarders(experiment)
        experiment = named_links.with_engines(experiment, has_netem=False, has_queues=False)
        if isinstance(experiment, ApplicationExperiment) and (
            self.switch or experiment.application.choices.networks
        ):
            return experiment, []  # the campaign checks each of its choices
        installed = None if self.switch else self.installed.name
        experiment, removed = preflight.reduce_networks(experiment, self.networks(), requested, installed)
        experiment, others = user_ids.supported(
            experiment,
            lambda name: not middleware.find(name).locks_shared_memory,
            "only root keeps IPC_LOCK in a container",
        )
        return experiment, removed + others

    @override
    def interference(self) -> list[str]:
        found = []
        if one_kernel(self.nodes):
            found.append("the cluster's nodes share one kernel and its cores; every caption states this")
        found += [
            f"another campaign is running on this cluster: {other.describe()}"
            for other in namespace.running(self.client)
        ]
        if permissions.missing_in_campaign(self.client, self.selected.namespace, leases.RIGHTS):
            found.append(
                "this user may not hold a Lease in the campaign's namespace, so nothing keeps others from changing the"
                " cluster meanwhile; see: k8sdds init rights"
            )
        return found

    @override
    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        self._trials = trials
        cells = [trial.cell for trial in trials]
        problems = preflight.unsupported(cells, can_switch=bool(self.selected.name))
        problems = problems or permissions.missing_rights(self.client, self.selected.namespace)
        return problems or [
            *preflight.missing_networks(
                cells, self.networks(), *([self.switch.obstacle] if self.switch else [])
            ),
            *preflight.profile_problems(cells, self.nodes),
            *preflight.attachment_problems(cells, self.client),
            *preflight.family_problems(cells, self.nodes),
            *self._disturbed_campaigns(trials),
            *preflight.pod_start_problems(cells),
            *pod_room.problems(cells, self.nodes, self.client),
            *NodeTuning(self.selected.name, cells).problems(),
            *links.problems(self.selected.name, cells, usable(self.nodes)),
            *(
                preflight.policy_rights(self.client, self.selected.namespace)
                if any(cell.policies for cell in cells)
                else []
            ),
            *discovery.problems(cells, self.selected.namespace),
            *preflight.service_problems(cells, self.client, self.selected.namespace, self.proxy_mode),
            *self._login_problems(trials),
            *preflight.admission_problems(cells, self.client, self.selected.namespace, self.image(trials)),
            *preflight.placement_problems(
                cells,
                self.nodes,
                self.image(trials),
                *([self.switch.images] if self.switch else []),
                tolerated=self.selected.taints,
            ),
        ]

    def _disturbed_campaigns(self, trials: Sequence[Trial]) -> list[Problem]:
        """Return the running campaigns that would lose their network or get other settings of the nodes."""
        tuning = NodeTuning(self.selected.name, [trial.cell for trial in trials])
        emulates = links.emulates(trial.cell for trial in trials)
        if not emulates and not tuning.changes_nodes and not self.preparation_s(self.blocks(trials, seed=0)):
            return []
        return [
            Problem(
                f"another campaign is running on this cluster: {other.describe()}; this one would change the cluster",
                "wait until it ends, or measure the installed network only",
            )
            for other in namespace.running(self.client)
        ]

    @override
    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        return make_blocks(trials, seed, one_network=self.selected.meter)

    @override
    def cores(self) -> int:
        return cores(self.nodes)

    @override
    def preparation_s(self, blocks: Sequence[Block]) -> float:
        switch = self.switch
        if switch is None:
            return 0
        return SWITCH_S * count_switches(blocks, lambda mode: switch.is_installed(mode[0], dict(mode[1])))

    # -- running it -------------------------------------------------------------------------------------

    @override
    def prepare(self, block: Block) -> ClusterSession:
        if self._session is None:
            trials = self._trials or block.trials
            privileged = any(
                on_host(trial.cell) or trial.cell.shares_memory_of_node or middleware.capabilities(trial.cell)
                for trial in trials
            )
            self._namespace = namespace.create(
                self.client,
                self._campaign,
                self.selected.namespace,
                privileged,
                logins=self.logins(trials),
            )
            self._lease = CampaignLease(self._namespace)
            self._lease.acquire()
            if self._namespace.owned:  # otherwise, the administrator creates the Secrets
                secrets = (member.secret(self._namespace.name) for member in middlewares(trials))
                objects.create(self.client, list(filter(None, secrets)))
            self._session = ClusterSession(self, self._namespace, trials)
        self._session.prepare(block)
        return self._session

    def logins(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Return the user's logins to the registries of a campaign's images; None without any. Raises InputError."""
        return self._login_file.select(self.images(trials)) if self._login_file else None

    @cached_property
    def _login_file(self) -> LoginFile | None:
        path = self.selected.image_login
        return LoginFile.read(Path(path)) if path else None

    def _login_problems(self, trials: Sequence[Trial]) -> list[Problem]:
        if not self.selected.image_login:
            return []
        prepared = self.selected.namespace
        missing = permissions.missing_in_campaign(self.client, prepared, image_login.RIGHTS)
        problems = image_login.problems(prepared, missing)
        try:
            self.logins(trials)
        except InputError as error:
            problems.append(Problem(error.message, error.remedy, input=True))
        return problems

    def images(self, trials: Sequence[Trial]) -> list[str]:
        """Return images from all registries of a campaign; that of `--image` also has the meter and the servers."""
        services = (member.service_image() for member in middlewares(trials))
        images = [self.image(trials), *filter(None, services), self.selected.image]
        return list(dict.fromkeys(images))

    def image(self, trials: Sequence[Trial]) -> str:
        """Return one image for all pods: a middleware's image is based on ours, so it has all programs."""
        images = (member.image() for member in middlewares(trials))
        return next(filter(None, images), self.selected.image)

    # -- after it ---------------------------------------------------------------------------------------

    @override
    def facts(self) -> dict[str, Any]:
        nodes = self._node_facts()
        kernels = {node.get("kernelVersion") or node.get("kernel") for node in nodes.values()}
        models = {node.get("cpu_model") for node in nodes.values()} - {None}
        network = self.installed
        return {
            "server_version": self.client.get("/version").get("gitVersion"),
            "nodes": nodes,
            "one_kernel": one_kernel(self.nodes),
            "kube_proxy": self.proxy_mode,
            "kernel": kernels.pop() if len(kernels) == 1 else None,
            "cpu_model": models.pop() if len(models) == 1 else None,
            "installed_network": network.name,
            "installed_network_facts": {
                "title": network.title,
                "version": network.version or None,
                "signs": list(network.signs),
                "remains": list(network.remains),
                "secondary": list(network.secondary),
            },
            "image": self.selected.image,
            "cluster_uid": self._cluster_uid(),
            "reached": {key: value for key, value in asdict(self.selected).items() if value},
            "api_calls": dict(self.client.calls),
            "lease": self._lease is not None and self._lease.is_held,
        }

    def _node_facts(self) -> dict[str, dict[str, Any]]:
        """Return the facts about each node from the API server and the supervisors in the pods."""
        facts: dict[str, dict[str, Any]] = {
            node.name: {
                "boot_id": node.boot_id,
                "architecture": node.arch,
                **{key: node.info.get(key) for key in NODE_INFO},
            }
            for node in self.nodes
        }
        pods = self._session.ready_pods() if self._session else []
        for pod in pods:
            reported = {key: value for key, value in pod.facts.items() if key in POD_FACTS}
            facts.setdefault(pod.node, {}).update(reported)
        if any(trial.cell.cpu_quota or trial.cell.cpu_request for trial in self._trials):
            names = sorted({pod.node for pod in pods})
            for node, policy in installed.cpu_managers(self.client, names).items():
                facts[node][CPU_MANAGER] = policy
        return facts

    def _cluster_uid(self) -> str | None:
        """Return the UID of kube-system, which identifies a cluster; None if this user may not read it."""
        path = f"{permissions.NAMESPACES}/{versions.KUBE_SYSTEM_NAMESPACE}"
        found = permissions.readable(self.client, path)
        return found["metadata"]["uid"] if found else None

    @override
    def close(self) -> None:
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
