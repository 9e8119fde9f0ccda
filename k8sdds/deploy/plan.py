"""The plan: a pure function of a profile and the facts of its machines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import PHASES, control_plane, kubernetes, metrics_server, runtime, smoke_test

FILES = runtime.FILES + kubernetes.FILES + (control_plane.CONFIG_FILE,)
"""Files whose hashes the facts must have."""
SYSCTLS = tuple(runtime.SYSCTLS)


def plan(wanted: DesiredState, limit: Collection[str] = ()) -> list[Action]:
    """All actions that make the machines as wanted, those of one node in their order; none: no changes.

    With `limit`, only those on these nodes.
    """
    actions = [
        action
        for node in wanted.profile.nodes
        if not limit or node.name in limit
        for phase in PHASES
        for action in phase(wanted, node)
    ]
    head = wanted.profile.control_plane
    if not limit or head.name in limit:
        # Last of all, for all.
        actions += smoke_test.plan(wanted, head, changed=bool(actions))
        actions += metrics_server.wait(wanted, head)
    return actions


def shown(action: Action) -> dict[str, Any]:
    """An action as data for people and tests: nothing in it is secret."""
    made = asdict(action)
    made["uploads"] = [
        {"target": one.target, "sha256": one.sha256, "size_bytes": one.size_bytes, "mode": one.mode}
        for one in action.uploads
    ]
    made["images"] = [name for name, _ in action.images.digests] if action.images else []
    made["private"] = [{"path": one.path, "from": one.node} for one in action.private]
    return made
