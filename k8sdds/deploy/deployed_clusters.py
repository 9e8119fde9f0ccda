"""Query and switch the network of a deployed cluster by the cluster's name."""

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
    """Switch a cluster to another network.

    Args:
        name: The cluster.
        network: The network to install.
        options: Its options, with the keys of `network` in a profile.
        progress: Receives progress messages.

    Raises:
        InputError: The options do not fit the network, or the network does not fit the cluster.
        PrerequisiteError: A machine or the cluster failed; the same call again continues.
    """
    profile = profiles.deployed(name)
    pod_network = network_install.choose_network(profile, network, **dict(options or {}))  # type: ignore[arg-type]
    with record.locked(name), Connections(profiles.targets(profile)) as connections:
        return switch(profile, pod_network, connections, progress)


def current_network(name: str) -> str:
    """Return the network that is installed on a cluster.

    Raises:
        PrerequisiteError: No network is installed, or several after an interrupted switch.
    """
    profile = profiles.deployed(name)
    control_plane = profile.control_plane.name
    targets = [target for target in profiles.targets(profile) if target.name == control_plane]
    with Connections(targets) as connections:
        return current(Kubectl(connections.hosts[control_plane]))
