"""Clusters that were deployed from here, by their names: their network, and another one for them."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.deploy import network_install, profiles, record
from k8sdds.deploy.network_switch.switch import Progress, SwitchResult, current, switch
from k8sdds.kubernetes.kubectl import Kubectl
from k8sdds.system.ssh import Connections


def switch_cluster(
    name: str,
    network: str,
    options: Mapping[str, object] | None = None,
    progress: Progress = lambda line: None,
) -> SwitchResult:
    """Make this the cluster's network; `options` as a profile's network has them.

    Raises InputError and PrerequisiteError as `switch` does.
    """
    profile = profiles.deployed(name)
    chosen = network_install.choose_network(profile, network, **dict(options or {}))  # type: ignore[arg-type]
    with record.locked(name), Connections(profiles.targets(profile)) as connections:
        return switch(profile, chosen, connections, progress)


def current_of(name: str) -> str:
    """The network that is installed on the cluster; PrerequisiteError where there is not exactly one."""
    profile = profiles.deployed(name)
    head = profile.control_plane.name
    targets = [one for one in profiles.targets(profile) if one.name == head]
    with Connections(targets) as connections:
        return current(Kubectl(connections.hosts[head]))
