"""Where a campaign's objects live: a namespace of its own, removed at the end, or one that was prepared."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import permissions

SELECTOR = f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY},{versions.CAMPAIGN_LABEL}"
BESIDE = "-nodes"
"""Ends the name of the namespace that a campaign has beside its own."""


def identifier(campaign: str) -> str:
    """A campaign's name as labels and names of objects may be: short, and its own."""
    clean = re.sub(r"[^a-z0-9-]+", "-", campaign.lower()).strip("-")
    return f"{clean[:28].strip('-')}-{hashlib.sha256(campaign.encode()).hexdigest()[:6]}"


def owner() -> str:
    """This process, for whoever finds its objects."""
    return f"{socket.gethostname()} {os.getpid()} {processes.start_time(os.getpid())}"


@dataclass(frozen=True)
class CampaignNamespace:
    """A campaign's namespace."""

    client: KubernetesClient
    campaign: str
    """The campaign's identifier."""
    namespace: str
    own: bool
    """Whether it ends with the campaign."""

    @property
    def selector(self) -> str:
        """Of the campaign's objects."""
        return f"{versions.CAMPAIGN_LABEL}={self.campaign}"

    @property
    def pods(self) -> str:
        """Path of its pods."""
        return f"{CORE}/namespaces/{self.namespace}/pods"

    def remove(self) -> None:
        """Begin to remove all of it; the cluster finishes that by itself."""
        if self.own:
            self.client.delete(f"{permissions.NAMESPACES}/{self.namespace}")
        else:
            for one in self.client.get(self.pods, labelSelector=self.selector)["items"]:
                self.client.delete(f"{self.pods}/{one['metadata']['name']}", grace_s=0)


def manifest(campaign: str, name: str, with_host: bool) -> dict[str, Any]:
    """A campaign's own namespace. Its pods must satisfy `restricted`, unless some use the node's network."""
    level = "privileged" if with_host else "restricted"
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
            "annotations": {versions.OWNER_ANNOTATION: owner(), versions.NAME_ANNOTATION: name},
        },
    }


def make(client: KubernetesClient, name: str, prepared: str | None, with_host: bool) -> CampaignNamespace:
    """The namespace of a campaign; what a killed process has left of the same campaign is removed first."""
    campaign = identifier(name)
    if prepared is not None:
        space = CampaignNamespace(client, campaign, prepared, own=False)
        space.remove()
        return space
    return _made(client, campaign, manifest(campaign, name, with_host))


def beside(space: CampaignNamespace, name: str) -> CampaignNamespace:
    """A second namespace of a campaign, for pods on the nodes' own network, that its own does not take."""
    wanted = manifest(space.campaign, name, with_host=True)
    wanted["metadata"]["name"] += BESIDE
    return _made(space.client, space.campaign, wanted)


def _made(client: KubernetesClient, campaign: str, wanted: dict[str, Any]) -> CampaignNamespace:
    space = CampaignNamespace(client, campaign, wanted["metadata"]["name"], own=True)
    path = f"{permissions.NAMESPACES}/{space.namespace}"
    if client.find(path) is not None:
        space.remove()
        await_gone(client, path)
    client.create(permissions.NAMESPACES, wanted)
    permissions.take(client, space.namespace)
    return space


def await_gone(client: KubernetesClient, path: str, timeout_s: float = 90) -> None:
    """Returns when a namespace is gone."""
    name = path.rpartition("/")[2]
    listed = client.get(permissions.NAMESPACES, fieldSelector=f"metadata.name={name}")
    if not listed["items"]:
        return
    version = listed["metadata"]["resourceVersion"]
    for event in client.watch(
        permissions.NAMESPACES,
        fieldSelector=f"metadata.name={name}",
        resourceVersion=version,
        for_s=timeout_s,
    ):
        if event["type"] == "DELETED":
            return
    raise PrerequisiteError(
        f"namespace {name} is still being removed after {timeout_s:g} s",
        "kubectl get namespace -o yaml tells why",
    )


@dataclass(frozen=True)
class Leftover:
    """What a campaign that may have ended left on a cluster."""

    space: CampaignNamespace
    name: str
    in_use: str
    """Who still works with it, or empty."""


def leftovers(client: KubernetesClient, prepared: str | None) -> list[Leftover]:
    """All campaigns that have something on the cluster, or in a prepared namespace."""
    if prepared is None:
        listed = client.get(permissions.NAMESPACES, labelSelector=SELECTOR)["items"]
    else:
        listed = client.get(f"{CORE}/namespaces/{prepared}/pods", labelSelector=SELECTOR)["items"]
    found = {}
    for one in listed:
        meta = one["metadata"]
        campaign = meta["labels"][versions.CAMPAIGN_LABEL]
        space = CampaignNamespace(client, campaign, prepared or meta["name"], own=prepared is None)
        notes = meta.get("annotations", {})
        if "deletionTimestamp" not in meta:
            key = campaign if prepared else space.namespace
            found[key] = Leftover(
                space,
                notes.get(versions.NAME_ANNOTATION, campaign),
                _in_use(notes.get(versions.OWNER_ANNOTATION, "")),
            )
    return list(found.values())


def _in_use(said: str) -> str:
    parts = said.split()
    if len(parts) != 3:
        return ""
    host, pid, started = parts
    if host != socket.gethostname():
        return f"process {pid} on {host}"
    alive = pid.isdigit() and started.isdigit() and processes.is_alive(int(pid), int(started))
    return f"process {pid}" if alive else ""
