"""Apply the objects of a cluster, those of its network, metrics-server and a DDS discovery service, and test it."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.deploy import limits, smoke_test
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import (
    CLAIM,
    DISCOVERY_SERVICE,
    IMAGES,
    JOIN,
    KUBERNETES,
    METRICS_SERVER,
    NETWORK,
    RUNTIME,
    SMOKE_TEST,
    TUNING,
    apply_objects,
    delete_objects,
    on_control_plane,
    steps,
)
from k8sdds.discovery import REPLICAS
from k8sdds.kubernetes import apply
from k8sdds.middleware.fastdds import SERVER
from k8sdds.model.profile import MetricsServer, Node, taint_identity, toleration
from k8sdds.networks.macvlan import multus

METRICS = f"Deployment/{versions.KUBE_SYSTEM_NAMESPACE}/metrics-server"
"""The workload that serves `kubectl top`."""
MULTUS = f"DaemonSet/{versions.NETWORK_NAMESPACE}/{multus.AGENT}"
DISCOVERY = f"StatefulSet/{versions.SYSTEM_NAMESPACE}/{SERVER.ready[1]}"


@on_control_plane
def network(state: DesiredState, node: Node) -> list[Action]:
    """Apply the network as soon as the API server answers, so that joining nodes get it at once; or replace it."""
    desired = state.network
    title = replacement(state)
    if not title:
        objects = apply.stamped(desired.manifests, desired.name)
        second = f" with Multus and {state.profile.second_network}" if state.profile.second_network else ""
        return apply_objects(state, NETWORK, f"apply the network {desired.name}{second}", objects)
    # A switch replaces the network on all nodes, so all nodes must have joined before.
    needs = steps(state.workers(), CLAIM, TUNING, RUNTIME, KUBERNETES, IMAGES, JOIN)
    return [Action(node.name, NETWORK, title, "", needs=needs)]


def is_switch(action: Action) -> bool:
    """Return whether an action has no script because it is applied as `k8sdds network switch` does."""
    return action.phase == NETWORK and not action.script


def replacement(state: DesiredState) -> str:
    """Return the title of the network switch if another network or other options are installed; else ""."""
    name, cluster = state.network.name, state.cluster
    others = sorted(cluster.networks - {name})
    if others:
        return f"replace {' and '.join(others)} by {name}, and recreate all pods"
    if cluster.networks:
        for manifest in apply.stamped(state.network.manifests, name):
            if cluster.objects.get(apply.identity(manifest)) not in (None, apply.stamp(manifest)):
                return f"install {name} again with other options, and recreate all pods"
        if not state.profile.second_network and MULTUS in cluster.objects:
            return f"remove Multus, install {name} again, and recreate all pods"
    return ""


@on_control_plane
def metrics_server(state: DesiredState, node: Node) -> list[Action]:
    """Apply metrics-server early, because its first sample takes as long as its resolution; or delete it."""
    settings = state.profile.metrics_server
    objects = apply.stamped(metrics_server_objects(settings or MetricsServer()))
    if settings is not None:
        return apply_objects(state, METRICS_SERVER, "apply metrics-server", objects)
    if METRICS not in state.cluster.objects:
        return []
    return delete_objects(state, METRICS_SERVER, "delete metrics-server", objects)


def metrics_server_objects(settings: MetricsServer) -> list[apply.Object]:
    """Return the objects of metrics-server, unstamped."""
    manifests = apply.read_manifest("metrics-server/manifest.yaml")
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            container["args"].append(f"--metric-resolution={settings.resolution_s}s")
    return manifests


@on_control_plane
def discovery_service(state: DesiredState, node: Node) -> list[Action]:
    """Run replicated Fast DDS discovery servers when all nodes have their image, or delete them."""
    desired = discovery_objects(state)
    if not state.profile.discovery_service:
        own = [manifest for manifest in desired if manifest["kind"] != "Namespace"]
        return delete_objects(state, DISCOVERY_SERVICE, "delete the discovery service", own)
    needs = steps(state.workers(), JOIN, IMAGES)
    title = f"run {SERVER.title}"
    actions = apply_objects(state, DISCOVERY_SERVICE, title, desired, needs=needs, wait_for=(DISCOVERY,))
    if actions or DISCOVERY not in state.cluster.not_ready:
        return actions
    return [_wait(node, DISCOVERY_SERVICE, SERVER.title, DISCOVERY, needs)]


def discovery_objects(state: DesiredState) -> list[apply.Object]:
    """Return the objects of the discovery service and their namespace, stamped."""
    workers = sum("worker" in node.roles for node in state.profile.nodes)
    taints = {taint_identity(taint) for node in state.profile.nodes for taint in node.taints}
    tolerations = [toleration(taint) for taint in sorted(taints)]
    service = SERVER.objects(
        versions.SYSTEM_NAMESPACE, max(1, min(REPLICAS, workers)), tolerations=tolerations
    )
    return apply.stamped([smoke_test.namespace(), *service])


def exchange_datagrams(state: DesiredState, node: Node, earlier: Sequence[Action]) -> list[Action]:
    """Run the smoke test once for a network and its nodes, and again whenever a deploy changes something."""
    test = smoke_test.of(state.profile, state.network)
    if not node.is_control_plane or not (earlier or state.cluster.proven != test.proof):
        return []
    second = f", also on {state.profile.second_network}" if state.profile.second_network else ""
    return [
        Action(
            node.name, SMOKE_TEST,
            (f"exchange datagrams between {test.nodes} nodes" if test.nodes > 1 else "run a pod") + second,
            test.script, needs=steps(state.workers(), JOIN, IMAGES), timeout_s=test.limit_s,
            remedy="check the firewalls between the machines (k8sdds docs troubleshooting),"
            " and collect logs with `k8sdds logs`",
        )
    ]  # fmt: skip


def wait_for_metrics_server(state: DesiredState, node: Node, earlier: Sequence[Action]) -> list[Action]:
    """Wait until metrics-server is ready. Planned last, because metrics-server takes longest to start."""
    if not node.is_control_plane or state.profile.metrics_server is None:
        return []
    is_ready = METRICS in state.cluster.objects and METRICS not in state.cluster.not_ready
    if is_ready and not any(action.phase == METRICS_SERVER for action in earlier):
        return []
    return [_wait(node, METRICS_SERVER, "metrics-server", METRICS)]


def _wait(node: Node, phase: str, what: str, workload: str, needs: Sequence[tuple[str, str]] = ()) -> Action:
    title = f"wait for {what}" if phase == DISCOVERY_SERVICE else f"wait until {what} is ready"
    script = apply.wait_script((workload,), limits.READY_S)
    return Action(node.name, phase, title, script, needs=tuple(needs), timeout_s=240)
