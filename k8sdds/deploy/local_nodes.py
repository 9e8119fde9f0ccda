"""Create, find and delete the machines of a profile with `provider: local`."""

from __future__ import annotations

from collections.abc import Callable

from k8sdds import nodes
from k8sdds.bundle import Bundle
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError
from k8sdds.system.paths import cache_folder
from k8sdds.system.ssh import Target

BUNDLE = "/bundle"
"""Where local nodes mount the bundle, read-only."""
ARCHIVES = "/archives"
"""Where local nodes mount the archives of images made from the bundle, read-only."""
INOTIFY_INSTANCES = {True: 19, False: 5}
"""Inotify instances that Kubernetes needs on a control plane (API server 6, controller manager 7, kubelet 5,
kube-proxy 1), and on a worker, whose kubelet watches no folder for static pods."""


def existing(profile: Profile) -> dict[str, nodes.LocalNode]:
    """Return the machines of a profile that exist, by name, running or stopped."""
    names = {node.name for node in profile.nodes}
    return {node.name: node for node in nodes.ls(profile.name) if node.name in names}


def all_running(profile: Profile) -> bool:
    """Return whether all machines of a profile run."""
    machines = existing(profile)
    return all(node.name in machines and machines[node.name].state == "running" for node in profile.nodes)


def create(profile: Profile, bundle: Bundle, note: Callable[[str], None]) -> None:
    """Create missing machines, and boot those that are stopped."""
    archives = cache_folder() / "archives"
    archives.mkdir(exist_ok=True)
    shares = (nodes.SharedFolder(bundle.folder, BUNDLE), nodes.SharedFolder(archives, ARCHIVES))
    specs = [
        nodes.NodeSpec(
            node.name,
            shares=shares,
            watches=INOTIFY_INSTANCES[node.is_control_plane],
            ip_families=profile.kubernetes.ip_families,
        )
        for node in profile.nodes
    ]
    nodes.up(profile.name, specs, note)


def have_mounted(profile: Profile, bundle: Bundle) -> bool:
    """Return whether all machines of a profile that exist have mounted this bundle.

    A machine keeps the bundle with which it was created.
    """
    share = nodes.SharedFolder(bundle.folder, BUNDLE)
    return all(share in node.shares for node in existing(profile).values())


def targets(profile: Profile) -> list[Target]:
    """Return how SSH reaches the machines, which must exist. A stopped machine does not answer."""
    machines = existing(profile)
    for node in profile.nodes:
        if node.name not in machines:
            raise InputError(
                f"the local node {node.name} does not exist", f"run: k8sdds deploy {profile.name}"
            )
    return [machines[node.name].target for node in profile.nodes]
