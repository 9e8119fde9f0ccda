"""Hold the Lease of a running campaign, renewed by a thread, and find those of other campaigns."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime

import urllib3

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import AUTHORIZATION_STATUSES, ApiError, KubernetesClient
from k8sdds.kubernetes.leases import RunningCampaign
from k8sdds.system.errors import PrerequisiteError

RETRY_S = 10
"""Interval after a renewal that failed."""


def running(client: KubernetesClient) -> list[RunningCampaign]:
    """Return the campaigns that run on the cluster; none if this user may not list Leases."""
    if not client.is_allowed("list", leases.GROUP, "leases"):
        return []
    listed = client.get(f"{leases.LEASES}/leases", labelSelector=leases.SELECTOR)["items"]
    return leases.running(listed, datetime.now(UTC))


class CampaignLease:
    """The Lease of this campaign. It expires if this process is killed."""

    def __init__(self, client: KubernetesClient, namespace: str, campaign: str, title: str) -> None:
        """Hold nothing yet.

        Args:
            client: The cluster.
            namespace: The campaign's namespace.
            campaign: The campaign's identifier.
            title: The campaign's full name.
        """
        self._client = client
        self._folder = leases.path(namespace)
        self._path = f"{self._folder}/{leases.name(campaign)}"
        self._campaign, self._title = campaign, title
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Create the Lease and renew it from now on. A user without the right to do so measures without it."""
        try:
            self._client.delete(self._path)  # left by a killed process of the same campaign
            self._create()
        except ApiError as error:
            if error.status not in AUTHORIZATION_STATUSES:
                raise
            return
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    @property
    def is_held(self) -> bool:
        """Whether the user had the right to create the Lease."""
        return self._thread is not None

    def _create(self) -> None:
        self._client.create(self._folder, leases.manifest(self._campaign, self._title, datetime.now(UTC)))

    def _renew(self) -> None:
        pause_s: float = leases.RENEW_S
        while not self._end.wait(pause_s):
            try:
                self._renew_once()
                pause_s = leases.RENEW_S
            except (PrerequisiteError, urllib3.exceptions.HTTPError, OSError):
                # The Lease is only a hint to others: the campaign goes on, and renews it when the API server is back.
                pause_s = RETRY_S

    def _renew_once(self) -> None:
        try:
            self._client.patch_once(self._path, leases.renewal(datetime.now(UTC)))
        except ApiError as error:
            if error.status != 404 or self._end.is_set():
                raise
            self._create()  # somebody deleted it

    def release(self) -> None:
        """Stop renewing and delete the Lease."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._end.set()
        with contextlib.suppress(PrerequisiteError):
            self._client.delete(self._path)
