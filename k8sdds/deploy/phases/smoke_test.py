"""Verify that the cluster works: pods on all nodes exchange datagrams, and multicast where supported."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.deploy import smoke_test
from k8sdds.deploy.actions import Action, Effect, applied
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.images import Images
from k8sdds.deploy.phases.join import Join
from k8sdds.deploy.phases.phase import ControlPlanePhase, steps
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node


class SmokeTest(ControlPlanePhase):
    """Run the smoke test once for a network and its nodes, and again whenever a deploy changes something."""

    title = "smoke test"

    def should_run(self, state: DesiredState, node: Node, earlier: Sequence[Action]) -> bool:
        """Return whether something will be changed, or this network was not tested between these nodes."""
        return node.is_control_plane and (bool(earlier) or state.cluster.proven != _proof(state))

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan one test between all nodes."""
        names, proof = sorted(state.node_names()), _proof(state)
        return [
            Action(
                node.name, self.title,
                f"exchange datagrams between {len(names)} nodes" if len(names) > 1 else "run a pod",
                smoke_test.script(names, state.network.name, proof, state.profile.kubernetes.ip_families),
                needs=steps(state.workers(), Join, Images), timeout_s=300,
                remedy="check the firewalls between the machines (k8sdds docs troubleshooting),"
                " and collect logs with `k8sdds logs`",
                effect=Effect(objects=applied(apply.stamped([smoke_test.namespace()])), proven=proof),
            )
        ]  # fmt: skip


def _proof(state: DesiredState) -> str:
    return smoke_test.proof(state.network.name, state.network.manifests, state.node_names())
