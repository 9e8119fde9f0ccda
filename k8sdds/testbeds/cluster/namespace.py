"""Create and delete the namespace of a campaign, and find what killed campaigns left on a cluster."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import permissions
from k8sdds.testbeds.cluster.permissions import NAMESPACES

SELECTOR = f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY},{versions.CAMPAIGN_LABEL}"
NODE_PROBES_SUFFIX = "-nodes"
"""Suffix of the name of a campaign's second namespace, for node probes."""


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

    @property
    def selector(self) -> str:
        """Label selector of the campaign's objects."""
        return f"{versions.CAMPAIGN_LABEL}={self.campaign}"

    @property
    def pods(self) -> str:
        """URL path of the namespace's pods."""
        return f"{CORE}/namespaces/{self.name}/pods"

    def delete(self) -> None:
        """Start to delete the namespace, or the campaign's pods in a prepared one. Does not wait."""
        if self.owned:
            self.client.delete(f"{NAMESPACES}/{self.name}")
        else:
            for pod in self.client.get(self.pods, labelSelector=self.selector)["items"]:
                self.client.delete(f"{self.pods}/{pod['metadata']['name']}", grace_s=0)


def manifest(campaign: str, name: str, privileged: bool) -> dict[str, Any]:
    """Return the manifest of a campaign's namespace.

    Args:
        campaign: The campaign's identifier.
        name: The campaign's full name.
        privileged: Whether pods on the nodes' own network or with capabilities are allowed; if not, Pod Security is
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
    client: KubernetesClient, campaign_name: str, prepared: str | None, privileged: bool
) -> CampaignNamespace:
    """Create a campaign's namespace, or use the prepared one.

    Leftovers of a killed process that ran the same campaign are deleted first.
    """
    campaign = identifier(campaign_name)
    if prepared is not None:
        namespace = CampaignNamespace(client, campaign, prepared, owned=False)
        namespace.delete()
        return namespace
    return _create(client, campaign, manifest(campaign, campaign_name, privileged))


def create_for_node_probes(namespace: CampaignNamespace, campaign_name: str) -> CampaignNamespace:
    """Create a second namespace of a campaign, which allows pods on the nodes' own network."""
    body = manifest(namespace.campaign, campaign_name, privileged=True)
    body["metadata"]["name"] += NODE_PROBES_SUFFIX
    return _create(namespace.client, namespace.campaign, body)


def _create(client: KubernetesClient, campaign: str, body: dict[str, Any]) -> CampaignNamespace:
    namespace = CampaignNamespace(client, campaign, body["metadata"]["name"], owned=True)
    path = f"{NAMESPACES}/{namespace.name}"
    if client.find(path) is not None:
        namespace.delete()
        wait_deleted(client, namespace.name)
    client.create(NAMESPACES, body)
    permissions.bind_campaign_role(client, namespace.name)
    return namespace


def wait_deleted(client: KubernetesClient, name: str, timeout_s: float = 90) -> None:
    """Wait until a namespace no longer exists.

    Raises:
        PrerequisiteError: it still exists after `timeout_s`.
    """
    query = {"fieldSelector": f"metadata.name={name}"}
    end = time.monotonic() + timeout_s
    while (remaining_s := end - time.monotonic()) > 0:
        listing = client.get(NAMESPACES, **query)
        if not listing["items"]:
            return
        version = listing["metadata"]["resourceVersion"]
        watched_s = max(1.0, remaining_s)
        for event in client.watch(NAMESPACES, for_s=watched_s, resourceVersion=version, **query):
            if event["type"] == "DELETED":
                return
        time.sleep(0.5)  # the watch may have ended at once
    raise PrerequisiteError(
        f"namespace {name} is still being deleted after {timeout_s:g} s",
        f"see its conditions: kubectl get namespace {name} -o yaml",
    )


@dataclass(frozen=True)
class Leftover:
    """Objects on a cluster of a campaign that may have ended."""

    namespace: CampaignNamespace
    campaign_name: str
    in_use: str
    """The process that still uses them; empty: none."""


def leftovers(client: KubernetesClient, prepared: str | None) -> list[Leftover]:
    """Return all campaigns that have objects on the cluster, or in a prepared namespace."""
    if prepared is None:
        listed = client.get(NAMESPACES, labelSelector=SELECTOR)["items"]
    else:
        listed = client.get(f"{CORE}/namespaces/{prepared}/pods", labelSelector=SELECTOR)["items"]
    by_key = {}
    for obj in listed:
        metadata = obj["metadata"]
        campaign = metadata["labels"][versions.CAMPAIGN_LABEL]
        namespace = CampaignNamespace(client, campaign, prepared or metadata["name"], owned=prepared is None)
        annotations = metadata.get("annotations", {})
        if "deletionTimestamp" not in metadata:
            by_key[campaign if prepared else namespace.name] = Leftover(
                namespace,
                annotations.get(versions.NAME_ANNOTATION, campaign),
                leases.process_in_use(annotations.get(versions.OWNER_ANNOTATION, "")),
            )
    return list(by_key.values())
