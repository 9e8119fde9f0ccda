"""Compare the objects of installed networks with those of the desired one. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.kubernetes import apply
from k8sdds.kubernetes.apply import Object


def agent_to_restore(before: Sequence[Object], desired: Sequence[Object]) -> Object | None:
    """Return the DaemonSet of the network that these objects install, or None if it cannot be restored.

    An interrupted switch may have left several networks, or one without its agent. The same network is restored only if
    it was whole and had other options.

    Args:
        before: The objects of networks before a switch.
        desired: The objects that the switch installs.
    """
    old, new = network_names(before), network_names(desired)
    agents = [manifest for manifest in before if manifest["kind"] == "DaemonSet"]
    if len(agents) != 1 or len(old) != 1:
        return None
    if old == new:
        installed, wanted = hashes(before), hashes(without_namespaces(desired))
        return agents[0] if installed.keys() == wanted.keys() and installed != wanted else None
    return agents[0]


def network_names(objects: Sequence[Object]) -> set[str]:
    """Return the networks of these objects."""
    labels = (manifest["metadata"].get("labels", {}) for manifest in objects)
    return {own[versions.NETWORK_LABEL] for own in labels if versions.NETWORK_LABEL in own}


def without_namespaces(objects: Sequence[Object]) -> list[Object]:
    """Return the objects that remain a network's own: a namespace is shared by all."""
    return [manifest for manifest in objects if manifest["kind"] != "Namespace"]


def hashes(objects: Sequence[Object]) -> dict[str, str]:
    """Return the hash in each object's annotation by the object's identity; empty without annotation."""
    return {
        apply.identity(manifest): manifest["metadata"]
        .get("annotations", {})
        .get(versions.SHA256_ANNOTATION, "")
        for manifest in objects
    }
