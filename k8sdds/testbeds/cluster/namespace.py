"""Create and delete the namespace of a campaign, hold its Lease, and find other campaigns on a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import urllib3

from k8sdds import versions
from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import AUTHORIZATION_STATUSES, CORE, ApiError, KubernetesClient
from k8sdds.kubernetes.leases import RunningCampaign
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import image_login, permissions
from k8sdds.testbeds.cluster.permissions import NAMESPACES

NODE_PROBES_SUFFIX = "-nodes"
"""Suffix of the name of a campaign's second namespace, for node probes."""
RETRY_S = 10
"""Interval after a renewal of a Lease that failed."""


def identifier(campaign: str) -> str:
    """Return a short, unique form of a campaign's name that is valid in labels and object names."""
    clean = re.sub(r"[^a-z0-9-]+", "-", campaign.lower()).strip("-")
    return f"{clean[:28].strip('-')}-{hashlib.sha256(campaign.encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class CampaignNamespace:
    """The namespace that a campaign's pods are created in."""

    client: KubernetesClient
    campaign: str
    """The campaign's identifier."""
    name: str
    owned: bool
    """Whether k8sdds created it and deletes it with the campaign; False: an administrator prepared it."""
    title: str
    """The campaign's full name."""
    logins: dict[str, Any] | None = field(default=None, repr=False)
    """Logins to the registries of its images; None if k8sdds has none."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the campaign's objects."""
        return {versions.MANAGED_BY_LABEL: versions.MANAGED_BY, versions.CAMPAIGN_LABEL: self.campaign}

    @property
    def selector(self) -> str:
        """Label selector of the campaign's objects."""
        return f"{versions.CAMPAIGN_LABEL}={self.campaign}"

    @property
    def pods(self) -> str:
        """URL path of the namespace's pods."""
        return f"{CORE}/namespaces/{self.name}/pods"

    def pull_with_login(self, spec: dict[str, Any]) -> None:
        """Let a pod, given by its `spec`, pull its images with the logins."""
        if self.logins:
            spec["imagePullSecrets"] = [{"name": image_login.NAME}]

    def pull_remedy(self, image: str) -> str:
        """Return how to fix a failed pull. `image`: the name of the image, or a message that contains it."""
        if versions.LOCAL_REGISTRY in image:
            return (
                "no registry has this image: load it with `k8sdds images load`, or push it and set --image; see k8sdds"
                " docs your-cluster"
            )
        login = f"use {image_login.OPTION}" if self.owned else image_login.in_prepared(self.name)
        return f"check the name of the image; if its registry requires a login, {login}"

    def delete(self) -> None:
        """Start to delete the namespace, or the campaign's pods in a prepared one. Does not wait."""
        if self.owned:
            self.client.delete(f"{NAMESPACES}/{self.name}")
        else:
            for pod in self.client.get(self.pods, labelSelector=self.selector)["items"]:
                self.client.delete(f"{self.pods}/{pod['metadata']['name']}", grace_s=0)


def manifest(campaign: str, name: str, privileged: bool) -> dict[str, Any]:
    """Return the manifest of a campaign's namespace.

    `privileged`: whether pods on the nodes' own network or with capabilities are allowed; if not, Pod Security is
    `restricted`.
    """
    level = "privileged" if privileged else "restricted"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": f"k8sdds-{campaign}",
            "labels": {
                versions.MANAGED_BY_LABEL: versions.MANAGED_BY,
                versions.CAMPAIGN_LABEL: campaign,
                "pod-security.kubernetes.io/enforce": level,
                "pod-security.kubernetes.io/warn": level,
            },
            "annotations": {versions.OWNER_ANNOTATION: leases.owner(), versions.NAME_ANNOTATION: name},
        },
    }


def create(
    client: KubernetesClient,
    title: str,
    prepared: str | None,
    privileged: bool,
    created: Callable[[str], None] = lambda _: None,
    logins: dict[str, Any] | None = None,
) -> CampaignNamespace:
    """Create a campaign's namespace, or use the prepared one.

    Leftovers of a killed process that ran the same campaign are deleted first. `created` is called with the name as
    soon as the namespace exists; if the rights there cannot be granted, the namespace is deleted again.
    `logins` to the registries of the images become a Secret.
    """
    campaign = identifier(title)
    if prepared is not None:
        namespace = CampaignNamespace(client, campaign, prepared, owned=False, title=title)
        namespace.delete()
        return namespace
    body = manifest(campaign, title, privileged)
    return _create(
        CampaignNamespace(client, campaign, body["metadata"]["name"], True, title, logins), body, created
    )


def create_for_node_probes(namespace: CampaignNamespace) -> CampaignNamespace:
    """Create a second namespace of a campaign, which allows pods on the nodes' own network."""
    body = manifest(namespace.campaign, namespace.title, privileged=True)
    body["metadata"]["name"] += NODE_PROBES_SUFFIX
    return _create(replace(namespace, name=body["metadata"]["name"], owned=True), body)


def _create(
    namespace: CampaignNamespace, body: dict[str, Any], created: Callable[[str], None] = lambda _: None
) -> CampaignNamespace:
    client = namespace.client
    if client.find(f"{NAMESPACES}/{namespace.name}") is not None:
        namespace.delete()
        wait_deleted(client, namespace.name)
    client.create(NAMESPACES, body)
    try:
        created(namespace.name)
        permissions.bind_campaign_role(client, namespace.name)
        if namespace.logins:
            secret = image_login.secret(namespace.logins, namespace.labels)
            client.create(f"{NAMESPACES}/{namespace.name}/secrets", secret)
    except BaseException:  # also Ctrl-C, because the caller does not know the namespace yet
        namespace.delete()
        raise
    return namespace


def wait_deleted(client: KubernetesClient, name: str, timeout_s: float = 90) -> None:
    """Wait until a namespace no longer exists."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if client.find(f"{NAMESPACES}/{name}") is None:
            return
        time.sleep(0.5)
    raise PrerequisiteError(
        f"namespace {name} is still being deleted after {timeout_s:g} s",
        f"see its conditions: kubectl get namespace {name} -o yaml",
    )


@dataclass(frozen=True)
class Leftover:
    """Objects on a cluster of a campaign that may have ended."""

    namespace: CampaignNamespace
    in_use: str
    """The process that still uses them; empty if there is none."""


def leftovers(client: KubernetesClient, prepared: str | None) -> list[Leftover]:
    """Return all campaigns that have objects on the cluster, or in a prepared namespace."""
    path = f"{CORE}/namespaces/{prepared}/pods" if prepared else NAMESPACES
    by_key = {}
    for obj in client.get(path, labelSelector=leases.SELECTOR)["items"]:
        metadata = obj["metadata"]
        campaign = metadata["labels"][versions.CAMPAIGN_LABEL]
        annotations = metadata.get("annotations", {})
        title = annotations.get(versions.NAME_ANNOTATION, campaign)
        name = prepared or metadata["name"]
        namespace = CampaignNamespace(client, campaign, name, owned=prepared is None, title=title)
        if "deletionTimestamp" not in metadata:
            in_use = leases.process_in_use(annotations.get(versions.OWNER_ANNOTATION, ""))
            by_key[campaign if prepared else name] = Leftover(namespace, in_use)
    return list(by_key.values())


def running(client: KubernetesClient) -> list[RunningCampaign]:
    """Return the campaigns that run on the cluster; none if this user may not list Leases."""
    listed = permissions.readable(client, f"{leases.LEASES}/leases", labelSelector=leases.SELECTOR)
    return leases.running(listed["items"], datetime.now(UTC)) if listed else []


class CampaignLease:
    """The Lease of this campaign, which a thread renews. It expires if this process is killed."""

    def __init__(self, namespace: CampaignNamespace) -> None:
        self._namespace = namespace
        self._client = namespace.client
        self._folder = leases.path(namespace.name)
        self._path = f"{self._folder}/{leases.name(namespace.campaign)}"
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
        lease = leases.manifest(self._namespace.campaign, self._namespace.title, datetime.now(UTC))
        self._client.create(self._folder, lease)

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
