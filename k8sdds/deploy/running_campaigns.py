"""Refuse to change a cluster on which a campaign runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.kubectl import Kubectl
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Host


def refuse(host: Host, force: bool, note: Callable[[str], None]) -> None:
    """Check that no campaign runs on a cluster.

    A cluster whose API server does not answer runs none.

    Args:
        host: A control plane of the cluster.
        force: Whether to report running campaigns instead of refusing.
        note: Receives the report.

    Raises:
        PrerequisiteError: A campaign holds a valid Lease.
    """
    objects = []
    with contextlib.suppress(K8sddsError):
        objects = Kubectl(host).get(f"leases.{leases.GROUP} --all-namespaces -l {leases.SELECTOR}")
    campaigns = leases.running(objects, datetime.now(UTC))
    for campaign in campaigns:
        what = f"a campaign is running on this cluster: {campaign.describe()}"
        if not force:
            raise PrerequisiteError(
                what, "wait until it ends, or go on with --force: the campaign then stops with an error"
            )
        note(f"{what}; it is disturbed because of --force")
