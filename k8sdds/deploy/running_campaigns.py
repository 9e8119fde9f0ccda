"""Refuse to change a cluster on which a campaign runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime

from k8sdds.deploy import api_access, local_nodes
from k8sdds.kubernetes import leases
from k8sdds.model.profile import Profile
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Connections, Host

CONSEQUENCE = "stops if its network changes; otherwise its results are disturbed"
"""What a change of the cluster means for a campaign. The help of `--force` contains the same text."""
UNREADABLE = "cannot read which campaigns run on this cluster"

Note = Callable[[str], None]


def ask(refuse: Callable[[Note], None], note: Note, confirm: Callable[[], None]) -> None:
    """Ask the user to confirm a change, between two checks: a campaign can start while the user is asked."""
    note = functools.cache(note)  # the second check does not repeat the notes of the first
    refuse(note)
    confirm()
    refuse(note)


def refuse(host: Host, force: bool, note: Note, must_read: bool = False) -> None:
    """Check that no campaign runs on a cluster. A machine that is not a control plane yet has no cluster.

    `force` reports running campaigns instead of refusing. `must_read` refuses, too, if the campaigns cannot be read.
    """
    try:
        if not api_access.is_control_plane(host):
            return
        with api_access.administrator(host) as client:
            listed = client.get(f"{leases.LEASES}/leases", labelSelector=leases.SELECTOR)["items"]
    except K8sddsError as error:
        # The API server has another address on this machine, which no user knows.
        what = f"{UNREADABLE}: {host.name}: {error.message.removeprefix(f'{host.name}: ')}"
        if must_read and not force:
            remedy = (
                f"repair the API server, or change the cluster with --force: a running campaign {CONSEQUENCE}"
            )
            raise PrerequisiteError(what, remedy) from error
        note(what)
        return
    for campaign in leases.running(listed, datetime.now(UTC)):
        what = f"a campaign is running on this cluster: {campaign.describe()}"
        if not force:
            remedy = f"wait until it ends, or change the cluster with --force: the campaign {CONSEQUENCE}"
            raise PrerequisiteError(what, remedy)
        note(f"{what}; it {CONSEQUENCE}")


def refuse_on_local_nodes(profile: Profile, force: bool, note: Note) -> None:
    """Check as `refuse` does that no campaign runs on local nodes, some of which may be stopped or missing."""
    machines = local_nodes.existing(profile)
    if not machines:
        return
    name = profile.control_plane.name
    if name not in machines or machines[name].state != "running":
        note(f"{UNREADABLE}: the control plane {name} does not run")
        return
    with Connections([machines[name].target]) as connections:
        refuse(connections.hosts[name], force, note)
