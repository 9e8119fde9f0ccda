"""Plan a deploy: a pure function of a profile and the facts of its machines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from k8sdds.deploy.actions import Action, Effect
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import PHASES, control_plane, kubernetes, proxy, registry, runtime

FILES = proxy.FILES + runtime.FILES + registry.FILES + kubernetes.FILES + (control_plane.CONFIG_FILE,)
"""Files whose hashes must be among the facts."""
SYSCTLS = (*runtime.SYSCTLS, *runtime.IPV6_SYSCTLS)
"""Sysctls whose values must be among the facts."""


def plan(state: DesiredState, limit: Collection[str] = ()) -> list[Action]:
    """Return the actions that bring all machines to the desired state.

    Args:
        state: The desired state, and the facts.
        limit: Nodes to plan for. Empty for all nodes.
    """
    actions: list[Action] = []
    for phase in PHASES:
        for node in state.profile.nodes:
            if (not limit or node.name in limit) and phase.should_run(state, node, tuple(actions)):
                actions += phase.plan(state, node)
    return actions


def to_json(action: Action) -> dict[str, Any]:
    """Return an action as JSON data without secrets."""
    data = asdict(replace(action, private=(), effect=Effect()))
    del data["effect"]
    data["uploads"] = [
        {
            "target": upload.target,
            "sha256": upload.sha256,
            "size_bytes": upload.size_bytes,
            "mode": upload.mode,
        }
        for upload in action.uploads
    ]
    data["images"] = [name for name, _ in action.images.digests] if action.images else []
    data["private"] = [{"path": secret.path, "from": secret.node} for secret in action.private]
    return data
