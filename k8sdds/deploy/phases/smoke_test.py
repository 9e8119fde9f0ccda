"""The proof that a cluster works: pods on all nodes exchange datagrams, and multicast where it is carried."""

from __future__ import annotations

from k8sdds.deploy import smoke_test
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.model.profile import Node

PHASE = "smoke test"


def key(wanted: DesiredState) -> str:
    """What was proven when a test passed: this network between these nodes."""
    return smoke_test.proof(wanted.network.name, wanted.network.manifests, _names(wanted))


def plan(wanted: DesiredState, node: Node, changed: bool = False) -> list[Action]:
    """Once for a network and its nodes, and again whenever something was changed."""
    if not node.is_control_plane or (wanted.cluster.proven == key(wanted) and not changed):
        return []
    names = _names(wanted)
    needs = tuple((one.name, phase) for one in wanted.workers() for phase in ("join", "images"))
    return [
        Action(
            node.name, PHASE,
            f"exchange datagrams between {len(names)} nodes" if len(names) > 1 else "run a pod",
            smoke_test.script(names, wanted.network.name, key(wanted)), needs=needs, timeout_s=300,
            remedy="a firewall between the machines? docs/troubleshooting.md; and k8sdds logs",
        )
    ]  # fmt: skip


def _names(wanted: DesiredState) -> list[str]:
    return sorted(node.name for node in wanted.profile.nodes)
