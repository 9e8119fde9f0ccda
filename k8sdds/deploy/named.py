"""Clusters that were deployed from here, by their names: their network, and another one for them."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.deploy import networks, profiles, record
from k8sdds.deploy.control_plane import ControlPlane
from k8sdds.deploy.switching import Said, Switched, current, switch
from k8sdds.errors import InputError
from k8sdds.hosts import Connections
from k8sdds.model.profile import Profile


def switch_cluster(
    name: str,
    network: str,
    options: Mapping[str, object] | None = None,
    said: Said = lambda line: None,
) -> Switched:
    """Make this the cluster's network; `options` as a profile's network has them.

    Raises InputError and LackError as `switch` does.
    """
    profile = _profile(name)
    chosen = networks.asked(profile, network, **dict(options or {}))  # type: ignore[arg-type]
    with record.locked(name), Connections(profiles.targets(profile)) as connections:
        return switch(profile, chosen, connections, said)


def current_of(name: str) -> str:
    """The network that is installed on the cluster; LackError where there is not exactly one."""
    profile = _profile(name)
    head = profile.control_plane.name
    targets = [one for one in profiles.targets(profile) if one.name == head]
    with Connections(targets) as connections:
        return current(ControlPlane(connections.hosts[head]))


def _profile(name: str) -> Profile:
    known = record.read(name)
    if known is None:
        raise InputError(f"no cluster {name!r} was deployed from here", f"k8sdds deploy {name}")
    return Profile.model_validate(known["profile"])
