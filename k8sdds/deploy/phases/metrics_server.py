"""metrics-server, for `kubectl top`."""

from __future__ import annotations

from k8sdds import versions
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.objects import changes
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node

PHASE = "metrics server"
WORKLOAD = f"deployment/{versions.KUBE_SYSTEM_NAMESPACE}/metrics-server"
DEPLOYMENT = f"Deployment/{versions.KUBE_SYSTEM_NAMESPACE}/metrics-server"


def objects(resolution_s: int) -> list[apply.Object]:
    """Its objects, unstamped."""
    found = apply.read_manifest("metrics-server/manifest.yaml")
    for one in found:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["containers"][0]["args"].append(
                f"--metric-resolution={resolution_s}s"
            )
    return found


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Applied early, since its first reading takes as long as its resolution; removed where not wanted."""
    if not node.is_control_plane:
        return []
    settings = wanted.profile.metrics_server
    if settings is None:
        if DEPLOYMENT not in wanted.cluster.objects:
            return []
        names = [(one["kind"].lower(), one["metadata"]) for one in objects(15)]
        lines = "".join(
            f"kubectl delete --ignore-not-found {kind} {meta['name']} "
            f"--namespace {meta.get('namespace', 'default')} >/dev/null\n"
            for kind, meta in names
        )
        return [Action(node.name, PHASE, "remove metrics-server", lines)]
    return changes(wanted, PHASE, "apply metrics-server", apply.stamped(objects(settings.resolution_s)))


def wait(wanted: DesiredState, node: Node) -> list[Action]:
    """Until it serves: the last thing, since it takes longest by itself."""
    if not node.is_control_plane or wanted.profile.metrics_server is None:
        return []
    serves = DEPLOYMENT in wanted.cluster.objects and DEPLOYMENT not in wanted.cluster.not_ready
    if serves and not plan(wanted, node):
        return []
    return [
        Action(
            node.name,
            PHASE,
            "wait until metrics-server serves",
            apply.wait_script((WORKLOAD,)),
            timeout_s=240,
        )
    ]
