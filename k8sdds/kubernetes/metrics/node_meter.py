"""The meter on every node: its manifests in deploy/metrics, what is run in its pods, and what that says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from k8sdds.kubernetes.apply import read_manifest
from k8sdds.kubernetes.metrics import kubelet as resource
from k8sdds.kubernetes.metrics import packet_filters
from k8sdds.kubernetes.metrics.quantities import unix_s

NAME = "k8sdds-meter"
MANIFEST = "metrics/meter.yaml"
PROGRAM = "/usr/local/bin/k8sdds-meter"
LABELS = f"app.kubernetes.io/name={NAME}"
READY = ("daemonset", NAME)
"""Kind and name of the object whose numberReady says that every node has one."""
TICKS_PER_S = 100
"""Unit of /proc/stat, for programs the same on every Linux."""
FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")


def objects(namespace: str, filters: bool = False, image: str | None = None) -> list[dict[str, Any]]:
    """The Kubernetes objects. `filters`: able to count packet filters, on the nodes' own network as root with
    NET_ADMIN, for a namespace that is labelled `privileged`. The ClusterRole's name has the namespace in it,
    so that several can be there."""
    made = read_manifest(MANIFEST)
    for one in made:
        if one["kind"].startswith("ClusterRole"):
            one["metadata"]["name"] = f"{NAME}-{namespace}"
        else:
            one["metadata"]["namespace"] = namespace
        if one["kind"] == "ClusterRoleBinding":
            one["roleRef"]["name"] = f"{NAME}-{namespace}"
            one["subjects"][0]["namespace"] = namespace
        if one["kind"] == "DaemonSet":
            pod = one["spec"]["template"]["spec"]
            if image:
                pod["containers"][0]["image"] = image
            if filters:
                _allow_filters(pod)
    return made


def _allow_filters(pod: dict[str, Any]) -> None:
    pod["hostNetwork"] = True
    pod["securityContext"].update(runAsNonRoot=False, runAsUser=0, runAsGroup=0)
    pod["containers"][0]["securityContext"]["capabilities"]["add"] = ["NET_ADMIN"]


def command(filters: bool = False) -> list[str]:
    """What is run in a meter's pod; its standard output is for `read`."""
    return [PROGRAM, "--rules"] if filters else [PROGRAM]


@dataclass(frozen=True)
class Reading:
    """One node at one moment. What could not be read is None, and `lacks` says why."""

    node: str
    at_s: float
    """Seconds since 1970, on the node's clock."""
    boot_id: str
    cpus: int
    stat: dict[str, float]
    """Seconds of all processors together since the boot, by FIELDS."""
    resources: resource.Resources | None
    kubelet: resource.Usage | None
    rules: packet_filters.Rules | None
    lacks: dict[str, str]


def read(document: str | dict[str, Any]) -> Reading:
    """The reading in a meter's output, or in a line of readings.jsonl. ValueError for anything else."""
    try:
        data = json.loads(document) if isinstance(document, str) else document
        ticks = [int(word) for word in data["stat"].split()[1 : len(FIELDS) + 1]]
        return Reading(
            node=data["node"],
            at_s=unix_s(data["at"]),
            boot_id=data["boot_id"],
            cpus=data["cpus"],
            stat={name: one / TICKS_PER_S for name, one in zip(FIELDS, ticks, strict=True)},
            resources=resource.read(data["resource"]) if data.get("resource") else None,
            kubelet=resource.process(data["kubelet"]) if data.get("kubelet") else None,
            rules=packet_filters.count(data["nft"], data.get("iptables", "")) if data.get("nft") else None,
            lacks=data.get("lacks", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no reading of a node: {error!r}") from error
