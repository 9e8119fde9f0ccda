"""Mark a machine as part of the cluster before anything else is changed on it."""

from __future__ import annotations

from k8sdds.deploy.actions import IMAGES_BEFORE, STATE, Action, Effect
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts.probe import MARKER
from k8sdds.deploy.phases.phase import Phase
from k8sdds.deploy.phases.runtime import CONTAINERD_SOCKET
from k8sdds.model.profile import Node


class Claim(Phase):
    """Write the marker file, and list the images that the machine had before."""

    title = "claim"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to write the marker if it is missing."""
        name = state.profile.name
        if state.facts[node.name].values.get("marker") == name:
            return []
        script = (
            f"mkdir -p {STATE}\nchmod 755 {STATE}\n: >{IMAGES_BEFORE}\n"
            f"[ ! -S {CONTAINERD_SOCKET} ] || ctr --namespace k8s.io images ls -q >{IMAGES_BEFORE}\n"
            f"echo {name} >{MARKER}.new\nmv {MARKER}.new {MARKER}\n"
        )
        return [
            Action(node.name, self.title, f"mark it as part of {name}", script, effect=Effect(marker=name))
        ]
