"""A participant's pod as a manifest, and what the state of a pod means. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.model.trial import PUBLISHER, SHORT_ROLES, SUBSCRIBER, Cell, Participant

SUPERVISOR = "/opt/k8sdds/k8sdds-supervisor"
PERFTEST = "/opt/k8sdds/k8sdds-perftest"
OUTPUT = "/out"
MIB = 2**20


FINAL = ("ErrImageNeverPull", "InvalidImageName", "ImagePullBackOff", "CrashLoopBackOff", "RunContainerError",
         "CreateContainerConfigError", "CreateContainerError", "StartError")  # fmt: skip
"""Why a container waits when waiting longer does not help."""


@dataclass(frozen=True)
class Slot:
    """What tells one pod from another: trials that need the same share it for a whole block."""

    participant: str
    role: str
    """The role's short name, for a label: `pub` or `sub`."""
    node: str
    """Empty: wherever the scheduler puts it, apart from the other kind."""
    host: bool
    cpu_quota: float | None

    @classmethod
    def of(cls, participant: Participant, node: str, host: bool, cpu_quota: float | None) -> Slot:
        """Return the slot of a participant."""
        return cls(participant.name, participant.short_role, node, host, cpu_quota)


def memory_bytes(cells: Iterable[Cell]) -> tuple[int, int]:
    """(request, limit) that the largest sample of these cells needs, with the middleware's queues."""
    largest = max((cell.payload_bytes for cell in cells), default=0)
    return 64 * MIB + 8 * largest, 512 * MIB + 128 * largest


def pod(
    name: str,
    slot: Slot,
    image: str,
    campaign: str,
    memory: tuple[int, int],
    network: str = "",
    parts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The manifest of a slot's pod. On a pod network it satisfies Pod Security `restricted`.

    `parts`: `volumes` and `volumeMounts` beside its own.
    """
    more = parts or {}
    request, limit = (f"{math.ceil(size / MIB)}Mi" for size in memory)
    limits = {"memory": limit}
    if slot.cpu_quota:
        limits["cpu"] = f"{round(slot.cpu_quota * 1000)}m"
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "ClusterFirstWithHostNet" if slot.host else "ClusterFirst",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": versions.UNPRIVILEGED_USER,
            "runAsGroup": versions.UNPRIVILEGED_USER,
            "fsGroup": versions.UNPRIVILEGED_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": _affinity(slot, campaign),
        "containers": [
            {
                "name": "participant",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": [SUPERVISOR, "pause"],
                # What it said last, such as `exec format error`, is the reason why it ended.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {"requests": {"cpu": "50m", "memory": request}, "limits": limits},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "output", "mountPath": OUTPUT},
                    {"name": "private", "mountPath": "/run/k8sdds"},
                    *more.get("volumeMounts", []),
                ],
            }
        ],
        "volumes": [
            {"name": "output", "emptyDir": {}},
            # Keys of participants: in memory, gone with the pod.
            {"name": "private", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            *more.get("volumes", []),
        ],
    }
    if slot.host:
        spec["hostNetwork"] = True
    labels = {
        versions.MANAGED_BY_LABEL: versions.MANAGED_BY,
        versions.CAMPAIGN_LABEL: campaign,
        versions.PARTICIPANT_LABEL: slot.participant,
        versions.ROLE_LABEL: slot.role,
        versions.KIND_LABEL: "host" if slot.host else "pod",
    }
    if network:
        labels[versions.NETWORK_LABEL] = network
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


_OPPOSITE = {SHORT_ROLES[PUBLISHER]: SHORT_ROLES[SUBSCRIBER], SHORT_ROLES[SUBSCRIBER]: SHORT_ROLES[PUBLISHER]}


def _affinity(slot: Slot, campaign: str) -> dict[str, Any]:
    if slot.node:
        # By the field, not by the label, which need not be the node's name. The scheduler still sees to
        # taints and resources, and says why a pod waits.
        field = {"key": "metadata.name", "operator": "In", "values": [slot.node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    other = _OPPOSITE[slot.role]
    kind = "host" if slot.host else "pod"

    def beside(**labels: str) -> dict[str, Any]:
        named = {
            versions.CAMPAIGN_LABEL: campaign,
            **{f"k8sdds.io/{key}": value for key, value in labels.items()},
        }
        return {"labelSelector": {"matchLabels": named}, "topologyKey": "kubernetes.io/hostname"}

    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return {
        # Where a participant is on one network, there it shall be on the others, to be compared.
        "podAffinity": {
            preferred: [{"weight": 100, "podAffinityTerm": beside(participant=slot.participant)}],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [beside(role=other, kind=kind)],
            preferred: [{"weight": 50, "podAffinityTerm": beside(role=slot.role, kind=kind)}],
        },
    }


def is_ready(data: dict[str, Any]) -> bool:
    """Whether commands can run in a pod."""
    status = data.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    going = "deletionTimestamp" not in data["metadata"]
    return going and status.get("phase") == "Running" and conditions.get("Ready") == "True"


def trouble(data: dict[str, Any]) -> str:
    """Why a pod will not become ready by waiting; empty where it still may."""
    status = data.get("status", {})
    if "deletionTimestamp" in data["metadata"]:
        return "it is being deleted"
    for container in status.get("containerStatuses", []):
        state = container.get("state", {})
        waiting, ended = state.get("waiting", {}), state.get("terminated", {})
        if waiting.get("reason") in FINAL:
            return _sentence(waiting)
        if ended:
            return f"its container ended with code {ended.get('exitCode')}: {_sentence(ended)}"
    if status.get("phase") in ("Failed", "Succeeded"):
        return _sentence(status) or f"it is {status['phase']}"
    return ""


def unscheduled(data: dict[str, Any]) -> str:
    """Why no node takes a pod, as the scheduler says; empty where it has one."""
    for one in data.get("status", {}).get("conditions", []):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return str(one.get("message") or one.get("reason") or "")
    return ""


def _sentence(state: dict[str, Any]) -> str:
    parts = [str(state[key]) for key in ("reason", "message") if state.get(key)]
    said = ": ".join(parts)
    if "exec format error" in said:
        said += " (the image is for another architecture than the node's)"
    return said
