"""The phases of a deploy: each plans its actions on one node from what is wanted and what is there."""

from __future__ import annotations

from collections.abc import Callable

from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import (
    claim,
    control_plane,
    discovery_service,
    images,
    join,
    kubernetes,
    labels,
    metrics_server,
    network,
    runtime,
    tuning,
)
from k8sdds.model.profile import Node

PHASES: tuple[Callable[[DesiredState, Node], list[Action]], ...] = (
    claim.plan,
    tuning.plan,
    runtime.plan,
    kubernetes.plan,
    control_plane.plan,
    network.plan,
    metrics_server.plan,
    images.plan,
    join.plan,
    labels.plan,
    discovery_service.plan,
)
"""On every node in this order; what waits for other nodes says so itself."""
