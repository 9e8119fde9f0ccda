"""Apply the profile's tuning sets to the operating system."""

from __future__ import annotations

from k8sdds.deploy import tuning
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import Phase
from k8sdds.model.profile import Node


class Tuning(Phase):
    """Apply settings that differ, and restore those that only an earlier profile set."""

    title = "tuning"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan one action with all changes of settings."""
        tuned = tuning.plan(state.profile.tuning, state.facts[node.name].all("tuning"))
        if not tuned.script:
            return []
        return [Action(node.name, self.title, "; ".join(tuned.changes), tuned.script)]
