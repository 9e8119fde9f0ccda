"""Name the phases of a deploy, and plan what several of them do: write files, and apply Kubernetes objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

from k8sdds.deploy import limits
from k8sdds.deploy.actions import PRIVATE, Action, PrivateFile, Step, file_script, sha256
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node

# Titles of the phases, by which actions name the steps that they need.
CLAIM = "claim"
TUNING = "tuning"
PROXY = "proxy"
RUNTIME = "runtime"
REGISTRY = "registry"
KUBERNETES = "kubernetes packages"
CONTROL_PLANE = "control plane"
KUBE_PROXY = "kube-proxy"
NETWORK = "network"
METRICS_SERVER = "metrics server"
IMAGES = "images"
JOIN = "join"
CPU_MANAGER = "cpu manager"
LABELS = "labels"
TAINTS = "taints"
DISCOVERY_SERVICE = "discovery service"
SMOKE_TEST = "smoke test"

Plan = Callable[[DesiredState, Node], list[Action]]
"""Returns the actions of a phase on a node, in order; none if the node is in the desired state already."""


def on_control_plane(plan: Plan) -> Plan:
    """Let a phase plan nothing on workers."""

    @functools.wraps(plan)
    def plan_on_control_plane(state: DesiredState, node: Node) -> list[Action]:
        return plan(state, node) if node.is_control_plane else []

    return plan_on_control_plane


def steps(nodes: Sequence[Node], *phases: str) -> tuple[Step, ...]:
    """Return the steps of these phases on these nodes."""
    return tuple((node.name, phase) for node in nodes for phase in phases)


def stale(state: DesiredState, node: Node, desired: Mapping[str, str]) -> dict[str, str]:
    """Return the desired files, path to content, that a node does not have with this content."""
    return {
        path: text for path, text in desired.items() if state.file_sha256(node.name, path) != sha256(text)
    }


def unwanted(
    state: DesiredState, node: Node, files: Sequence[str], desired: Collection[str] = ()
) -> list[str]:
    """Return the files of an earlier profile that a node still has."""
    return [path for path in files if path not in desired and state.file_sha256(node.name, path)]


def files_script(files: Mapping[str, str], unwanted: Sequence[str] = ()) -> str:
    """Return a script that writes and deletes files."""
    written = "".join(file_script(path, text) for path, text in files.items())
    return written + "".join(f"rm -f {path}\n" for path in unwanted)


def apply_objects(
    state: DesiredState,
    phase: str,
    title: str,
    objects: Sequence[apply.Object],
    *,
    needs: tuple[Step, ...] = (),
    wait_for: Sequence[str] = (),
) -> list[Action]:
    """Plan to apply stamped objects if one of them is missing or differs.

    Secrets are passed as a private file. `needs` must be complete before. The action ends when the workloads in
    `wait_for`, named `StatefulSet/NAMESPACE/NAME`, are ready.
    """
    current = state.cluster.objects
    if all(current.get(apply.identity(manifest)) == apply.stamp(manifest) for manifest in objects):
        return []
    secrets = [manifest for manifest in objects if manifest["kind"] == "Secret"]
    script = apply.apply_script([manifest for manifest in objects if manifest not in secrets])
    private: tuple[PrivateFile, ...] = ()
    if secrets:
        path = f"{PRIVATE}/objects.json"
        private = (PrivateFile(path, apply.list_document(secrets)),)
        # After the public objects, which include the namespace of the secret objects.
        script += f"{apply.APPLY} -f {path} >/dev/null\n"
    script += apply.wait_script(wait_for, limits.READY_S)
    return [Action(state.control_plane, phase, title, script, private=private, needs=needs, timeout_s=300)]


def delete_objects(
    state: DesiredState, phase: str, title: str, objects: Sequence[apply.Object]
) -> list[Action]:
    """Plan to delete the objects that the cluster has."""
    existing = [manifest for manifest in objects if apply.identity(manifest) in state.cluster.objects]
    script = "".join(
        f"kubectl delete {manifest['kind'].lower()} {manifest['metadata']['name']}"
        f" --namespace {manifest['metadata'].get('namespace', 'default')} --ignore-not-found >/dev/null\n"
        for manifest in existing
    )
    return [Action(state.control_plane, phase, title, script)] if existing else []
