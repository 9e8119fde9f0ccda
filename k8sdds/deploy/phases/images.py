"""Import the images of k8sdds, which no registry provides, and those of the networks that the profile names."""

from __future__ import annotations

from k8sdds.deploy import bundled_networks
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.kubernetes import import_images
from k8sdds.deploy.phases.phase import Phase
from k8sdds.model.profile import Node


class Images(Phase):
    """Import the images of k8sdds and of other networks that a node does not have."""

    title = "images"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan one import of all missing images."""
        others: set[str] = set()
        if state.software.from_bundle:
            # With them, no network switch has to wait for an import.
            named = bundled_networks.required(state.profile)
            others = {image for network in named for image in network.images} - {*state.network.images}
        images = state.software.own_images(state.architecture(node.name), others)
        return import_images(
            state, node, self.title, images,
            lambda names: f"import {', '.join(name.rpartition('/')[2] for name in names)}",
        )  # fmt: skip
