"""Plan a deploy: a pure function of a profile and the facts of its machines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import kubeadm, kubernetes, machine, objects, proxy, registry
from k8sdds.deploy.phases.metadata import label, taint

PHASES = (
    machine.claim,
    machine.tune,
    proxy.proxy,
    machine.runtime,
    registry.registry,
    kubernetes.kubernetes,
    kubeadm.control_plane,
    kubeadm.kube_proxy,
    objects.network,
    objects.metrics_server,
    kubernetes.images,
    kubeadm.join,
    kubeadm.cpu_manager,
    kubeadm.wait_for_nodes,
    label,
    taint,
    objects.discovery_service,
)
"""Nodes are changed in parallel. An action that depends on another node names the step that it needs."""
CHECKS = (objects.exchange_datagrams, objects.wait_for_metrics_server)
"""What is verified at the end. It depends on the changes."""
FILES = proxy.FILES + machine.FILES + registry.FILES + kubernetes.FILES + (kubeadm.CONFIG_FILE,)
"""Files whose hashes must be among the facts."""
SYSCTLS = (*machine.SYSCTLS, *machine.IPV6_SYSCTLS)
"""Sysctls whose values must be among the facts."""


def plan(state: DesiredState, limit: Collection[str] = ()) -> list[Action]:
    """Return the actions that bring the nodes in `limit`, by default all, to the desired state."""
    nodes = [node for node in state.profile.nodes if not limit or node.name in limit]
    actions = [action for phase in PHASES for node in nodes for action in phase(state, node)]
    for check in CHECKS:
        actions += [action for node in nodes for action in check(state, node, tuple(actions))]
    return actions


def to_json(action: Action) -> dict[str, Any]:
    """Return an action as JSON data without secrets."""
    data = asdict(replace(action, private=()))
    shown = ("target", "sha256", "size_bytes", "mode")
    data["uploads"] = [{key: getattr(upload, key) for key in shown} for upload in action.uploads]
    data["images"] = [image.name for image in action.images]
    data["private"] = [{"path": secret.path, "from": secret.node} for secret in action.private]
    return data
