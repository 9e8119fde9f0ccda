"""Define the node meter, a DaemonSet that reads CPU time, kubelet metrics and packet filters of every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from k8sdds.kubernetes.apply import read_manifest
from k8sdds.kubernetes.metrics import kubelet, packet_filters
from k8sdds.kubernetes.metrics.quantities import parse_time_s
from k8sdds.system import reading
from k8sdds.system.shapes import Shape, fits

NAME = "k8sdds-meter"
MANIFEST = "metrics/meter.yaml"
PROGRAM = "/usr/local/bin/k8sdds-meter"
LABELS = f"app.kubernetes.io/name={NAME}"
TICKS_PER_S = 100
"""Unit of /proc/stat for programs, which is the same on every Linux."""
FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")


def objects(namespace: str, filters: bool = False, image: str | None = None) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of the meter.

    Args:
        namespace: Where it runs. The name of its ClusterRole contains it, so that several meters can coexist.
        filters: Whether it can count packet filters. It then runs as root with NET_ADMIN on the nodes' own
            network, which needs a namespace with Pod Security `privileged`.
        image: Its image; None: that of the manifest.
    """
    manifests = read_manifest(MANIFEST)
    for manifest in manifests:
        if manifest["kind"].startswith("ClusterRole"):
            manifest["metadata"]["name"] = f"{NAME}-{namespace}"
        else:
            manifest["metadata"]["namespace"] = namespace
        if manifest["kind"] == "ClusterRoleBinding":
            manifest["roleRef"]["name"] = f"{NAME}-{namespace}"
            manifest["subjects"][0]["namespace"] = namespace
        if manifest["kind"] == "DaemonSet":
            pod = manifest["spec"]["template"]["spec"]
            if image:
                pod["containers"][0]["image"] = image
            if filters:
                _allow_filters(pod)
    return manifests


def _allow_filters(pod: dict[str, Any]) -> None:
    pod["hostNetwork"] = True
    pod["securityContext"].update(runAsNonRoot=False, runAsUser=0, runAsGroup=0)
    pod["containers"][0]["securityContext"]["capabilities"]["add"] = ["NET_ADMIN"]


def command(filters: bool = False) -> list[str]:
    """Return the command to run in a meter's pod; `parse` parses its output."""
    return [PROGRAM, "--rules"] if filters else [PROGRAM]


@dataclass(frozen=True)
class Reading:
    """The state of one node at one moment. Values that could not be read are None, see `missing`."""

    node: str
    at_s: float
    """Seconds since 1970, on the node's clock."""
    boot_id: str
    cpus: int
    stat: dict[str, float]
    """Seconds of all processors together since boot, by FIELDS."""
    resources: kubelet.Resources | None
    kubelet: kubelet.Usage | None
    """The kubelet process."""
    rules: packet_filters.RuleCounts | None
    missing: dict[str, str]
    """Value that could not be read → the reason."""


class Document(Shape):
    """What a meter prints, and a line of readings.jsonl."""

    node: str
    at: str
    boot_id: str
    cpus: Annotated[int, Field(ge=1, le=4096)]
    stat: str
    resource: str | None = None
    kubelet: str | None = None
    nft: dict[str, Any] | None = None
    iptables: str = ""
    lacks: dict[str, str] | None = None


def parse(document: str | dict[str, Any]) -> Reading:
    """Parse a meter's output, or a line of readings.jsonl.

    Raises:
        ValueError: the document is not a reading.
    """
    try:
        data = reading.json_object(document, "reading") if isinstance(document, str) else document
        if not fits(Document, data):
            raise ValueError("not a reading of a node: a value has another type")
        ticks = [int(count) for count in data["stat"].split()[1 : len(FIELDS) + 1]]
        return Reading(
            node=data["node"],
            at_s=parse_time_s(data["at"]),
            boot_id=data["boot_id"],
            cpus=data["cpus"],
            stat={name: count / TICKS_PER_S for name, count in zip(FIELDS, ticks, strict=True)},
            resources=kubelet.parse_resources(data["resource"]) if data.get("resource") else None,
            kubelet=kubelet.parse_process(data["kubelet"]) if data.get("kubelet") else None,
            rules=packet_filters.count(data["nft"], data.get("iptables", "")) if data.get("nft") else None,
            missing=data.get("lacks") or {},
        )
    except (reading.UnreadableError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a reading of a node: {error!r}") from error
