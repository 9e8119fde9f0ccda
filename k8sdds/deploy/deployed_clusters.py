"""Query and switch the network of a deployed cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from k8sdds.deploy import facts, network_install, profiles, record, running_campaigns
from k8sdds.deploy.deploy import survey
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.network_switch.switch import (
    Progress,
    SwitchResult,
    current,
    run_smoke_test,
    switch,
)
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.system.ssh import Connections


def switch_cluster(name: str, network: str, options: Mapping[str, object]) -> SwitchResult:
    """Switch a cluster to another network. `options` have the keys of `network` in a profile."""
    profile = profiles.deployed(name)
    pod_network = network_install.choose_network(profile, network, **options)  # type: ignore[arg-type]
    # An engine of the profile is not part of a trial that does not name it.
    pod_network = pod_network.model_copy(update={"engine": options.get("engine")})
    with record.locked(name), Connections(profiles.targets(profile)) as connections:
        return switch(profile, pod_network, connections)


def switch_and_verify(
    profile: Profile,
    network: PodNetwork,
    accept_new_host_keys: bool,
    progress: Progress,
    dry_run: bool = False,
    confirm: Callable[[SwitchResult], None] = lambda planned: None,
    force: bool = False,
) -> SwitchResult:
    """Switch the cluster of a profile to another network and run the smoke test on it.

    With `dry_run`, only return what would be done. If this is not nothing, `confirm` receives it, and raises to prevent
    it. `force` switches although a campaign is running on the cluster, or this cannot be read.
    """
    desired = network_install.with_network(profile, network)
    profiles.password(desired)
    targets = profiles.targets(desired)
    with record.locked(profile.name), Connections(targets, accept_new_host_keys) as connections:
        # Check that the machines support the new network before the old one is removed.
        survey(desired, connections).raise_problems(desired)
        planned = switch(profile, network, connections, dry_run=True)
        if dry_run:
            return planned
        if planned.changed:
            host = connections.hosts[profile.control_plane.name]
            refuse = partial(running_campaigns.refuse, host, force, must_read=True)
            running_campaigns.ask(refuse, progress, lambda: confirm(planned))
        result = switch(profile, network, connections, progress)
        if result.changed:
            progress("verifying that the nodes exchange datagrams")
            run_smoke_test(desired, connections)
    return result


def machines(name: str) -> Mapping[str, Facts]:
    """Return the facts of the machines of a cluster that can be reached."""
    with Connections(profiles.targets(profiles.deployed(name))) as connections:
        gathered, _ = facts.gather(connections)
    return gathered


def current_network(name: str) -> tuple[str, str | None]:
    """Return the network that is installed on a cluster, and its engine; None for the plugin's own."""
    profile = profiles.deployed(name)
    control_plane = profile.control_plane.name
    targets = profiles.targets(profile, [control_plane])
    with Connections(targets) as connections:
        return current(connections.hosts[control_plane])
