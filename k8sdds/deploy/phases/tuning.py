"""Settings of the operating system, as the profile's tuning sets want them."""

from __future__ import annotations

from k8sdds.deploy import tuning
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.model.profile import Node

PHASE = "tuning"


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Set what differs; put back what an earlier profile set and this one does not."""
    tuned = tuning.plan(wanted.profile.tuning, wanted.facts[node.name].all("tuning"))
    if not tuned.script:
        return []
    return [Action(node.name, PHASE, "; ".join(tuned.changes), tuned.script)]
