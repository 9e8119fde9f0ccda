"""Replace the network of a cluster: remove the old one, verify its removal, install the new one, recreate the pods.

The switch reads the current state from the machines, so running it again completes an interrupted switch.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

from k8sdds import versions
from k8sdds.deploy import actions, api_access, limits, network_install, profiles, smoke_test
from k8sdds.deploy.images import fetch_images
from k8sdds.deploy.network_switch import cluster_objects, footprint, readiness
from k8sdds.deploy.network_switch.cluster_objects import (
    ClusterNode,
    network_names,
    stamps,
    without_namespaces,
)
from k8sdds.deploy.network_switch.footprint import NetworkLeftover, remove_leftovers
from k8sdds.deploy.network_switch.node_state import NodeState
from k8sdds.kubernetes import apply, exec_stream, objects
from k8sdds.kubernetes.apply import Object
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.networks.cluster_install import AgentConnections
from k8sdds.networks.plugin import is_running
from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.system.ssh import Connections, Host
from k8sdds.system.ssh.host import Result

_PACKAGES = {"nft": "nftables", "ss": "iproute2"}
"""Debian packages of programs whose package has another name."""

Progress = Callable[[str], None]
"""Receives one line about each step of a switch."""


@dataclass(frozen=True)
class SwitchResult:
    """Result of a network switch."""

    network: str
    changed: bool
    removed: dict[str, list[str]]
    """Node → what was removed of other networks."""
    left: dict[str, list[str]]
    """Node → what remains of other networks: verified to be empty."""
    recreated: tuple[str, ...]
    """Pods that were recreated, as NAMESPACE/NAME."""
    took_s: float


def current(control_plane: Host) -> tuple[str, str | None]:
    """Return the installed network and its engine, which is None for the plugin's own."""
    with api_access.administrator(control_plane) as client:
        installed = cluster_objects.agents_by_network(client)
    names = sorted(installed)
    if len(names) != 1:
        problem = f"several networks: {', '.join(names)}" if names else "no network that k8sdds installed"
        raise PrerequisiteError(f"the cluster has {problem}", "k8sdds network switch PROFILE NETWORK")
    if not is_running(installed[names[0]]):
        raise PrerequisiteError(
            f"no agent of the network {names[0]} is ready",
            "wait until its pods are ready, or run: k8sdds network switch PROFILE NETWORK",
        )
    annotations = installed[names[0]]["metadata"].get("annotations", {})
    return names[0], annotations.get(versions.ENGINE_ANNOTATION)


def switch(
    profile: Profile,
    network: PodNetwork,
    connections: Connections,
    progress: Progress = lambda line: None,
    dry_run: bool = False,
) -> SwitchResult:
    """Install a network on all nodes of the profile's cluster, in place of the current one.

    With `dry_run`, only return the changes.
    """
    with api_access.administrator(connections.hosts[profile.control_plane.name]) as client:
        return _Switch(profile, network, connections, client, progress).run(dry_run)


def run_smoke_test(profile: Profile, connections: Connections) -> None:
    """Run the smoke test on the profile's networks."""
    install = network_install.render(profile, profiles.password(profile))
    host = connections.hosts[profile.control_plane.name]
    test = smoke_test.of(profile, install)
    done = host.run(actions.PRELUDE + test.script, timeout_s=test.limit_s)
    if done.code:
        raise PrerequisiteError(
            f"{host.name}: the smoke test of {install.name} failed: {(done.err or done.out).strip()}",
            "check for a firewall between the machines; see `k8sdds docs troubleshooting`",
        )


class _Switch:
    def __init__(
        self,
        profile: Profile,
        network: PodNetwork,
        connections: Connections,
        client: KubernetesClient,
        progress: Progress,
    ) -> None:
        self.profile = network_install.with_network(profile, network)
        self.install = network_install.render(self.profile, profiles.password(self.profile))
        self.spec = network_install.cluster_install(network.name, network.engine)
        self.objects = apply.stamped(self.install.manifests, network.name)
        self.connections = connections
        self.progress = progress
        self.client = client
        self.nodes: list[ClusterNode] = []

    def run(self, dry_run: bool) -> SwitchResult:
        start = time.monotonic()
        self.nodes = self._profile_nodes()
        installed = cluster_objects.installed(self.client)
        # Whether exactly the desired objects are installed, and none of another network.
        is_complete = stamps(installed) == stamps(without_namespaces(self.objects))
        foreign = self._foreign_leftovers() if is_complete else None
        changed = foreign is None or any(foreign.values())
        if dry_run:
            found = _texts(self._leftovers(self._probe())) if changed else {}
            # An interrupted switch may have left only these to do. After a removal, all pods are recreated.
            old = () if changed else _names(self._pods_of_old_network(installed))
            took_s = time.monotonic() - start
            return SwitchResult(self.install.name, changed or bool(old), found, {}, old, took_s)
        removed: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        if changed:
            names = [node.name for node in self.nodes]
            fetch_images(self.profile, self.install, self.connections, names, self.progress)
            removed = self._remove_all_networks(installed)
            self.progress(f"installing {self.install.name}")
            self._install_or_restore(installed)
        else:
            self._wait_until_ready()
        recreated = self._recreate_pods()
        changed = changed or bool(recreated)
        # If nothing was changed, the first probe has shown that nothing is left.
        if changed:
            for node, items in self._remove_late_leftovers().items():
                removed[node] += items
        return SwitchResult(
            network=self.install.name,
            changed=changed,
            removed=removed,
            left={node.name: [] for node in self.nodes},
            recreated=recreated,
            took_s=time.monotonic() - start,
        )

    def _limit_s(self, base_s: float) -> int:
        return limits.of_cluster(base_s, len(self.nodes))

    # -- current state ---------------------------------------------------------------------------------------

    def _profile_nodes(self) -> list[ClusterNode]:
        nodes = cluster_objects.nodes(self.client)
        unknown = [node.name for node in nodes if node.name not in self.connections.hosts]
        if unknown:
            raise InputError(
                f"the cluster has nodes that are not in the profile: {', '.join(unknown)}",
                "add them to the profile, or remove them: kubectl delete node",
            )
        return nodes

    def _probe(self) -> dict[str, NodeState]:
        return self._on_all_nodes(footprint.probe)

    def _on_all_nodes(self, work: Callable[[Host], Result]) -> dict[str, Result]:
        return self.connections.all(work, [node.name for node in self.nodes])

    def _leftovers(
        self, states: Mapping[str, NodeState], names: Sequence[str] | None = None
    ) -> dict[str, list[NetworkLeftover]]:
        addresses = [address for node in self.nodes for address in node.addresses]
        pods = self.profile.kubernetes.pod_cidrs
        return {node: footprint.leftovers(state, addresses, pods, names) for node, state in states.items()}

    def _foreign_leftovers(self) -> dict[str, list[NetworkLeftover]]:
        """Return by node what networks other than the desired one created."""
        states = self._probe()
        every, own = self._leftovers(states), self._leftovers(states, [self.install.name])
        return {node: [item for item in items if item not in own[node]] for node, items in every.items()}

    def _remove_late_leftovers(self) -> dict[str, list[str]]:
        """Remove what other networks created after their removal, and verify that nothing is left.

        Return by node what was removed.

        A CNI plugin may still run then, for a deleted pod: Cilium's queues the deletion in a folder of its agent.
        """
        late = self._foreign_leftovers()
        removed = {node: items for node, items in _texts(late).items() if items}
        if not removed:
            return {}
        for node, items in removed.items():
            self.progress(
                f"{node}: removing what another network created after its removal: {', '.join(items)}"
            )
        self._on_all_nodes(lambda host: host.run(footprint.removal_script(late[host.name])))
        left = _texts(self._foreign_leftovers())
        lines = [f"{node}: {leftover}" for node, items in left.items() for leftover in items]
        if lines:
            raise PrerequisiteError(
                "\n".join([f"leftovers of another network next to {self.install.name}:", *lines]),
                "run the same command again: it removes them",
            )
        return removed

    # -- old network -----------------------------------------------------------------------------------------

    def _remove_all_networks(self, installed: Sequence[Object]) -> dict[str, list[str]]:
        """Remove every network, its objects first, and return what was found on each node."""
        names = sorted(network_names(installed))
        before = self._probe()
        # Of the new network too: otherwise the next switch could not remove it.
        both = list(dict.fromkeys([*names, self.install.name]))
        for node, state in before.items():
            programs = footprint.missing_programs(state, both)
            if programs:
                packages = " ".join(_PACKAGES.get(program, program) for program in programs)
                raise PrerequisiteError(
                    f"{node}: {' and '.join(programs)} missing: cannot verify the removal of {' and '.join(both)}",
                    f"nothing was changed; on that machine: apt-get install {packages}",
                )
        for name in names:
            self.progress(f"removing {name}")
            cluster_objects.stop_agents(self.client, name, self._limit_s(limits.REMOVE_S))
        removed = self._leftovers(before)
        addresses = [address for node in self.nodes for address in node.addresses]
        pods = self.profile.kubernetes.pod_cidrs
        # Without agents, what the API server has and what the nodes have are independent.
        with ThreadPoolExecutor(max_workers=1) as pool:
            deleted = pool.submit(self._delete_objects, names)
            cleanups = self._on_all_nodes(lambda host: remove_leftovers(host, addresses, pods))
            deleted.result()
        lines = [f"{node}: {item}" for node, cleanup in cleanups.items() for item in cleanup.remaining]
        if lines:
            errors = [f"{node}: {line}" for node, cleanup in cleanups.items() for line in cleanup.errors]
            network = f"network {', '.join(names)}" if names else "an old network"
            raise PrerequisiteError(
                "\n".join([f"leftovers of {network}:", *lines, *errors]),
                "remove them by hand, or reboot that machine; then run the same command again",
            )
        return _texts(removed)

    def _install_or_restore(self, before: Sequence[Object]) -> None:
        """Install the network. If this fails, install the previous one with these objects again: pods need one."""
        try:
            objects.apply(self.client, self.objects)
            self._wait_until_ready()
        except PrerequisiteError as error:
            agent = cluster_objects.agent_to_restore(before, self.objects)
            if agent is None:
                raise
            try:
                self._restore(agent, before)
            except K8sddsError as second:
                raise PrerequisiteError(
                    f"{error.message}\nthe previous network cannot be restored: {second.message}",
                    error.remedy,
                ) from second
            raise

    def _restore(self, agent: Object, before: Sequence[Object]) -> None:
        """Replace the network that is not ready by the earlier one of this agent, with the same objects as before."""
        name = agent["metadata"]["labels"][versions.NETWORK_LABEL]
        options = " with its earlier options" if name == self.install.name else ""
        self.progress(f"{self.install.name} is not ready; restoring {name}{options}")
        self._remove_all_networks(cluster_objects.installed(self.client))
        earlier = copy.copy(self)
        earlier.objects = [apply.restorable(manifest) for manifest in before]
        engine = agent["metadata"].get("annotations", {}).get(versions.ENGINE_ANNOTATION)
        earlier.spec = network_install.cluster_install(name, engine)
        earlier.install = replace(self.install, name=name)
        objects.apply(self.client, earlier.objects)
        earlier._wait_until_ready()
        earlier._recreate_pods()

    def _delete_objects(self, names: Sequence[str]) -> None:
        """Delete what networks without agents have in the API server: objects, and changes of Node objects."""
        for name in names:
            cluster_objects.delete_others(self.client, name, self._limit_s(limits.REMOVE_S))
        prefixes = [prefix for each in footprint.footprints() for prefix in each.node_annotations]
        cluster_objects.clean_nodes(self.client, prefixes)

    # -- new network -----------------------------------------------------------------------------------------

    def _wait_until_ready(self) -> None:
        ready_s = self._limit_s(limits.READY_S)
        deadline = time.monotonic() + ready_s
        agents = [manifest for manifest in self.objects if manifest["kind"] == "DaemonSet"]
        for agent in agents:
            ready, wanted = objects.wait_for_replicas(self.client, agent, ready_s)
            if ready != wanted:
                raise self._not_ready(["its agents do not start", *self._missing_connections()])
        while missing := self._missing() or self._missing_connections():
            if time.monotonic() > deadline:
                # The connections may show why something else is missing.
                raise self._not_ready(list(dict.fromkeys([*missing, *self._missing_connections()])))
            time.sleep(0.3)

    def _missing(self) -> list[str]:
        """Return a message for each part of the network that a node does not have yet, and if it is not ready."""
        condition, states = self.spec.ready, self._probe()
        lines = [
            f"{node.name} is not ready" for node in cluster_objects.nodes(self.client) if not node.is_ready
        ]
        for node in self.nodes:
            missing = readiness.missing(condition, node, states[node.name], self.nodes)
            lines += [f"{node.name}: missing {item}" for item in missing]
        return lines

    def _missing_connections(self) -> list[str]:
        """Return a message for each agent that is not connected to all its peers."""
        expected = self.spec.ready.connections
        if expected is None:
            return []

        def missing(pod: Object) -> list[str]:
            output = ""
            if cluster_objects.is_running(pod, expected.container):
                output = self._ask_agent(pod["metadata"]["name"], expected)
            messages = readiness.missing_connections(expected, output, len(self.nodes) - 1)
            return [f"{pod['spec'].get('nodeName')}: {message}" for message in messages]

        pods = cluster_objects.agent_pods(self.client, self.spec.daemonset)
        return list(chain.from_iterable(in_threads(missing, pods)))

    def _ask_agent(self, pod: str, expected: AgentConnections) -> str:
        """Return an agent's output about its connections, or why there is none."""
        try:
            done = exec_stream.run_command(
                self.client, versions.NETWORK_NAMESPACE, pod, expected.command, container=expected.container
            )
        except PrerequisiteError as error:
            # The agent may have ended since its pod was listed, and starts again.
            return error.message
        return (done.stderr if done.code else done.stdout).decode(errors="replace")

    def _not_ready(self, missing: Sequence[str]) -> PrerequisiteError:
        reasons = cluster_objects.reasons(self.client, self.spec.daemonset)
        return PrerequisiteError(
            "\n".join([f"{self.install.name} is not ready:", *missing, *reasons]),
            f"see `k8sdds docs troubleshooting` and `k8sdds logs {self.profile.name}`;"
            " then run the same command again",
        )

    # -- pods ------------------------------------------------------------------------------------------------

    def _recreate_pods(self) -> tuple[str, ...]:
        """Recreate every pod that joined the pod network before this network was installed."""
        old = self._pods_of_old_network(cluster_objects.installed(self.client))
        system = [pod for pod in old if readiness.is_system_pod(pod)]
        if old:
            self.progress(f"recreating {len(old)} pods")
            objects.delete(self.client, old)
            # The replacements of others do not have to wait until these have terminated.
            others = [pod for pod in old if pod not in system]
            objects.await_deletion(self.client, others, self._limit_s(limits.PODS_S))
            # Pods of a campaign belong to the campaign, which stops or creates them itself.
            bare = [
                readiness.recreation_manifest(pod)
                for pod in old
                if not (cluster_objects.controller(pod) or readiness.is_campaign_pod(pod))
            ]
            objects.create(self.client, bare)
        deadline = time.monotonic() + self._limit_s(limits.PODS_S)
        while waiting := self._waiting_pods(system):
            if time.monotonic() > deadline:
                raise PrerequisiteError(
                    "\n".join([f"pods do not join {self.install.name}:", *waiting]),
                    "see `k8sdds docs troubleshooting`; then run the same command again",
                )
            time.sleep(0.3)
        return _names(old)

    def _pods_of_old_network(self, installed: Sequence[Object]) -> list[Object]:
        """Return the pods that joined the pod network before these objects of the network were created.

        A switch creates all objects of a network, `deploy` only those that are missing: the oldest object
        has the time of the installation.
        """
        installed_at = min(manifest["metadata"]["creationTimestamp"] for manifest in installed)
        return readiness.pods_of_old_network(self._pods(), installed_at)

    def _pods(self) -> list[Object]:
        return objects.find_all(self.client, (("v1", "Pod"),), "")

    def _waiting_pods(self, deleted: Sequence[Object]) -> list[str]:
        """Return a message for each pod that has no address yet, and for each that is not yet replaced."""
        pods = [pod for pod in self._pods() if not readiness.is_campaign_pod(pod)]
        return [
            *readiness.pods_without_address(pods, self.profile.kubernetes.pod_cidrs),
            *readiness.missing_replacements(deleted, pods),
        ]


def _texts(leftovers: Mapping[str, Sequence[NetworkLeftover]]) -> dict[str, list[str]]:
    return {node: [str(item) for item in items] for node, items in leftovers.items()}


def _names(pods: Sequence[Object]) -> tuple[str, ...]:
    return tuple(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods)
