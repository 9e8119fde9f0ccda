"""Refuse to change a cluster on which a campaign runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.kubectl import Kubectl
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Host


def refuse(host: Host, force: bool, note: Callable[[str], None]) -> None:
    """Check that no campaign runs on a cluster. If the API server does not answer, a note says that this is unknown.

    Args:
        host: A control plane of the cluster.
        force: Whether to report running campaigns instead of refusing.
        note: Receives the reports.

    Raises:
        PrerequisiteError: A campaign holds a valid Lease.
    """
    try:
        objects = Kubectl(host).get(f"leases.{leases.GROUP} --all-namespaces -l {leases.SELECTOR}")
    except K8sddsError as error:
        note(f"whether a campaign is running on this cluster is unknown: {error.message}")
        return
    for campaign in leases.running(objects, datetime.now(UTC)):
        what = f"a campaign is running on this cluster: {campaign.describe()}"
        if not force:
            raise PrerequisiteError(
                what,
                "wait until it ends; --force changes the cluster now: the campaign stops if its network changes, and"
                " its results are disturbed otherwise",
            )
        note(f"{what}; it is disturbed because of --force")
