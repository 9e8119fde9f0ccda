"""Define a phase of a deploy, and how phases apply Kubernetes objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from k8sdds.deploy.actions import PRIVATE, Action, Effect, PrivateFile, Step, applied
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.runner import Runner
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node


class Phase:
    """One phase of a deploy. It plans no action on a node that is already in the desired state."""

    title: ClassVar[str]

    def should_run(self, state: DesiredState, node: Node, earlier: Sequence[Action]) -> bool:
        """Return whether the phase applies to a node.

        Args:
            state: The desired state, and the facts.
            node: The node.
            earlier: All actions that earlier phases planned.
        """
        return True

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Return the actions on a node, in order."""
        raise NotImplementedError

    def apply(self, action: Action, state: DesiredState, runner: Runner) -> None:
        """Apply one of the phase's actions. Raises a K8sddsError if it fails."""
        runner.run(action)


class ControlPlanePhase(Phase):
    """A phase that runs on the control plane only."""

    def should_run(self, state: DesiredState, node: Node, earlier: Sequence[Action]) -> bool:
        """Return whether the node is the control plane."""
        return node.is_control_plane


def steps(nodes: Sequence[Node], *phases: type[Phase]) -> tuple[Step, ...]:
    """Return the steps of these phases on these nodes."""
    return tuple((node.name, phase.title) for node in nodes for phase in phases)


def apply_objects(
    state: DesiredState,
    phase: str,
    title: str,
    objects: Sequence[apply.Object],
    secret: Sequence[str] = (),
    needs: tuple[Step, ...] = (),
    wait_for: Sequence[str] = (),
) -> list[Action]:
    """Plan to apply stamped objects if one of them is missing or differs; else return no action.

    Args:
        state: The desired state, and the facts.
        phase: Title of the phase.
        title: Title of the action.
        objects: The stamped objects.
        secret: Objects that are passed as a private file, named `secret/NAMESPACE/NAME`.
        needs: Steps on other nodes that must be complete before.
        wait_for: Workloads to wait for, named `statefulset/NAMESPACE/NAME`.
    """
    current = state.cluster.objects
    if all(current.get(apply.identity(manifest)) == apply.stamp(manifest) for manifest in objects):
        return []
    secrets = [manifest for manifest in objects if apply.identity(manifest).lower() in secret]
    script = apply.apply_script([manifest for manifest in objects if manifest not in secrets])
    private: tuple[PrivateFile, ...] = ()
    if secret:
        path = f"{PRIVATE}/objects.json"
        private = (PrivateFile(path, apply.list_document(secrets).encode()),)
        # After the public objects, which include the namespace of the secret objects.
        script += f"{apply.APPLY} -f {path} >/dev/null\n"
    script += apply.wait_script(wait_for)
    return [
        Action(
            state.control_plane, phase, title, script, private=private, needs=needs, timeout_s=300,
            effect=Effect(objects=applied(objects), ready_workloads=workloads(objects) if wait_for else ()),
        )
    ]  # fmt: skip


def delete_objects(
    state: DesiredState, phase: str, title: str, objects: Sequence[apply.Object]
) -> list[Action]:
    """Plan to delete objects; return no action if there are none.

    Args:
        state: The desired state, and the facts.
        phase: Title of the phase.
        title: Title of the action.
        objects: The objects, which may be missing in the cluster.
    """
    if not objects:
        return []
    script = "".join(
        f"kubectl delete {manifest['kind'].lower()} {manifest['metadata']['name']}"
        f" --namespace {manifest['metadata'].get('namespace', 'default')} --ignore-not-found >/dev/null\n"
        for manifest in objects
    )
    effect = Effect(deleted_objects=tuple(apply.identity(manifest) for manifest in objects))
    return [Action(state.control_plane, phase, title, script, effect=effect)]


def workloads(objects: Sequence[apply.Object]) -> tuple[str, ...]:
    """Return the identities of the workloads among objects."""
    kinds = ("DaemonSet", "Deployment", "StatefulSet")
    return tuple(apply.identity(manifest) for manifest in objects if manifest["kind"] in kinds)
