"""Install metrics-server, which serves `kubectl top`."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.deploy.actions import Action, Effect
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import ControlPlanePhase, apply_objects, delete_objects
from k8sdds.kubernetes import apply
from k8sdds.model.profile import MetricsServer as Settings
from k8sdds.model.profile import Node

WORKLOAD = f"deployment/{versions.KUBE_SYSTEM_NAMESPACE}/metrics-server"
DEPLOYMENT = f"Deployment/{versions.KUBE_SYSTEM_NAMESPACE}/metrics-server"


class MetricsServer(ControlPlanePhase):
    """Apply metrics-server early, because its first sample takes as long as its resolution; or delete it."""

    title = "metrics server"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to apply objects that differ; without metrics-server in the profile, to delete them."""
        settings = state.profile.metrics_server
        if settings is not None:
            return apply_objects(state, self.title, "apply metrics-server", apply.stamped(objects(settings)))
        if DEPLOYMENT not in state.cluster.objects:
            return []
        return delete_objects(state, self.title, "delete metrics-server", objects(Settings()))


class WaitForMetricsServer(ControlPlanePhase):
    """Wait until metrics-server is ready. It runs last, because metrics-server takes longest to start."""

    title = MetricsServer.title

    def should_run(self, state: DesiredState, node: Node, earlier: Sequence[Action]) -> bool:
        """Return whether metrics-server is not ready, or will be changed."""
        if not node.is_control_plane or state.profile.metrics_server is None:
            return False
        is_ready = DEPLOYMENT in state.cluster.objects and DEPLOYMENT not in state.cluster.not_ready
        return not is_ready or any(action.phase == self.title for action in earlier)

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to wait."""
        return [
            Action(
                node.name, self.title, "wait until metrics-server is ready", apply.wait_script((WORKLOAD,)),
                timeout_s=240, effect=Effect(ready_workloads=(DEPLOYMENT,)),
            )
        ]  # fmt: skip


def objects(settings: Settings) -> list[apply.Object]:
    """Return the objects of metrics-server, unstamped."""
    manifests = apply.read_manifest("metrics-server/manifest.yaml")
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            container["args"].append(f"--metric-resolution={settings.resolution_s}s")
    return manifests
