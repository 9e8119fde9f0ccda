"""Mark a machine as part of this cluster, before anything else is changed on it."""

from __future__ import annotations

from k8sdds.deploy.actions import IMAGES_BEFORE, STATE, Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts.probe import MARKER
from k8sdds.model.profile import Node

PHASE = "claim"
SOCKET = "/run/containerd/containerd.sock"


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Write the marker, once."""
    name = wanted.profile.name
    if wanted.facts[node.name].one.get("marker") == name:
        return []
    script = (
        f"mkdir -p {STATE}\nchmod 755 {STATE}\n: >{IMAGES_BEFORE}\n"
        f"[ ! -S {SOCKET} ] || ctr --namespace k8s.io images ls -q >{IMAGES_BEFORE}\n"
        f"echo {name} >{MARKER}.new\nmv {MARKER}.new {MARKER}\n"
    )
    return [Action(node.name, PHASE, f"mark it as part of {name}", script)]
