"""Define the node meter, a DaemonSet that reads CPU time, kubelet metrics and packet filters of every node.

The kubelet's metrics are /metrics/resource, and the process metrics in /metrics. Reading them needs only `get` on
`nodes/metrics`. `nodes/proxy` would also allow it, but lets a user run commands in every pod. The kubelet reads
cgroups every 10 to 15 s and reports when it did. Differences between two readings are meaningful only over a minute
or more, and only with the kubelet's own timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from prometheus_client.parser import text_string_to_metric_families
from pydantic import Field

from k8sdds.kubernetes.apply import read_manifest
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
    """Return the Kubernetes objects of the meter, whose ClusterRole has a name of its own in each namespace.

    With `filters`, it can count packet filters. It then runs as root with NET_ADMIN on the nodes' own network, which
    needs a namespace with Pod Security `privileged`.
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
                pod["hostNetwork"] = True
                pod["securityContext"].update(runAsNonRoot=False, runAsUser=0, runAsGroup=0)
                pod["containers"][0]["securityContext"]["capabilities"]["add"] = ["NET_ADMIN"]
    return manifests


def command(filters: bool = False) -> list[str]:
    """Return the command to run in a meter's pod; `parse` parses its output."""
    return [PROGRAM, "--rules"] if filters else [PROGRAM]


Pod = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class Usage:
    """Accumulated CPU time and current memory of a node, pod or process; None if not reported."""

    cpu_s: float | None = None
    cpu_at_s: float | None = None
    """When the CPU time was read, in seconds since 1970; None means at the time of the request."""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Resources:
    """The content of a kubelet's /metrics/resource."""

    node: Usage
    pods: Mapping[Pod, Usage]


def parse_resources(text: str) -> Resources:
    """Parse /metrics/resource. Raises ValueError if the text is not in Prometheus format."""
    node: dict[str, float | None] = {}
    pods: dict[Pod, dict[str, float | None]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("node_"):
                values = node
            elif sample.name.startswith("pod_"):
                values = pods.setdefault((sample.labels["namespace"], sample.labels["pod"]), {})
            else:
                continue
            if sample.name.endswith("_cpu_usage_seconds_total"):
                at_s = sample.timestamp
                values["cpu_s"], values["cpu_at_s"] = sample.value, None if at_s is None else float(at_s)
            elif sample.name.endswith("_memory_working_set_bytes"):
                values["memory_bytes"] = sample.value
    return Resources(Usage(**node), {pod: Usage(**values) for pod, values in pods.items()})


def parse_process(text: str) -> Usage:
    """Parse a process's metrics about itself (`process_*`): CPU time and resident memory."""
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return Usage(
        cpu_s=values.get("process_cpu_seconds_total"),
        memory_bytes=values.get("process_resident_memory_bytes"),
    )


@dataclass(frozen=True)
class RuleCounts:
    """Numbers of chains and rules."""

    nft_chains: int = 0
    """In nftables, including those that iptables-nft created."""
    nft_rules: int = 0
    legacy_chains: int = 0
    """In the legacy kernel interface of iptables, IPv4 and IPv6."""
    legacy_rules: int = 0


def count_rules(nft: Any, iptables: str) -> RuleCounts:
    """Count chains and rules, from `nft --json list ruleset` and `iptables-legacy-save`. Raises ValueError."""
    if not isinstance(nft, dict) or not isinstance(nft.get("nftables"), list):
        raise ValueError(f"not an nftables rule set: {json.dumps(nft)[:80]}")
    kinds = [next(iter(entry), "") for entry in nft["nftables"] if isinstance(entry, dict)]
    lines = iptables.splitlines()
    return RuleCounts(
        nft_chains=kinds.count("chain"),
        nft_rules=kinds.count("rule"),
        legacy_chains=sum(line.startswith(":") for line in lines),
        legacy_rules=sum(line.startswith("-A ") for line in lines),
    )


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
    resources: Resources | None
    kubelet: Usage | None
    """The kubelet process."""
    rules: RuleCounts | None
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
    """Parse a meter's output, or a line of readings.jsonl. Raises ValueError."""
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
            resources=parse_resources(data["resource"]) if data.get("resource") else None,
            kubelet=parse_process(data["kubelet"]) if data.get("kubelet") else None,
            rules=count_rules(data["nft"], data.get("iptables", "")) if data.get("nft") else None,
            missing=data.get("lacks") or {},
        )
    except (reading.UnreadableError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a reading of a node: {error!r}") from error
