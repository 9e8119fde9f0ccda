"""The images that are made here and that no registry has: k8sdds's own."""

from __future__ import annotations

from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.kubernetes import missing
from k8sdds.model.profile import Node

PHASE = "images"


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Import what the node lacks."""
    images = missing(wanted, node, wanted.software.own_images(wanted.arch(node.name)))
    if not images.digests:
        return []
    names = ", ".join(name.rpartition("/")[2] for name, _ in images.digests)
    return [Action(node.name, PHASE, f"import {names}", "", images=images, timeout_s=900)]
