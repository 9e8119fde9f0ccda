"""The machines of a profile with `provider: local`: made, found and removed through k8sdds.nodes."""

from __future__ import annotations

from collections.abc import Callable

from k8sdds import nodes
from k8sdds.bundle import Bundle
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError
from k8sdds.system.paths import cache_folder
from k8sdds.system.ssh import Target

BUNDLE = "/bundle"
ARCHIVES = "/archives"
"""Where a local node sees, read-only, the bundle and the archives of images made from it."""


WATCHES = {True: 21, False: 7}
"""Inotify instances that Kubernetes takes on a control plane (API server 6, controllers 7, kubelet 7, and
kube-proxy), and on a worker."""


def standing(profile: Profile) -> dict[str, nodes.LocalNode]:
    """The machines of this profile that are known here, by name; running or stopped."""
    wanted = {node.name for node in profile.nodes}
    return {found.name: found for found in nodes.ls(profile.name) if found.name in wanted}


def complete(profile: Profile) -> bool:
    """Whether all machines of this profile run."""
    found = standing(profile)
    return all(node.name in found and found[node.name].state == "running" for node in profile.nodes)


def make(profile: Profile, bundle: Bundle, said: Callable[[str], None]) -> None:
    """Make what machines are missing and boot what is stopped. Raises InputError or PrerequisiteError."""
    archives = cache_folder() / "archives"
    archives.mkdir(exist_ok=True)
    shares = (nodes.Share(bundle.folder, BUNDLE), nodes.Share(archives, ARCHIVES))
    specs = [
        nodes.NodeSpec(node.name, shares=shares, watches=WATCHES[node.is_control_plane])
        for node in profile.nodes
    ]
    nodes.up(profile.name, specs, said)


def targets(profile: Profile) -> list[Target]:
    """How ssh reaches the machines, which must have been made; one that is stopped does not answer."""
    found = standing(profile)
    made = []
    for node in profile.nodes:
        one = found.get(node.name)
        if one is None:
            raise InputError(f"the local node {node.name} does not stand", f"k8sdds deploy {profile.name}")
        made.append(
            Target(
                one.name,
                one.address,
                one.user,
                one.port,
                one.key_file,
                one.known_hosts_file,
                one.proxy_command,
            )
        )
    return made


def remove(profile: Profile) -> list[str]:
    """Remove the machines with all that they wrote; their names."""
    return nodes.down(profile.name)
