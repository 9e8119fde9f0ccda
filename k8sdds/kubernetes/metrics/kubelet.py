"""Parse the kubelet's metrics: /metrics/resource, and the process metrics in /metrics.

Reading them needs only `get` on `nodes/metrics`. `nodes/proxy` would also allow it, but lets a user run
commands in every pod. The kubelet reads cgroups every 10 to 15 s and reports when it did. Differences between
two readings are meaningful only over a minute or more, and only with the kubelet's own timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Pod = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class Usage:
    """Accumulated CPU time and current memory of a node, pod or process; None: not reported."""

    cpu_s: float | None = None
    cpu_at_s: float | None = None
    """When the CPU time was read, in seconds since 1970; None: at the time of the request."""
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
                values["cpu_s"], values["cpu_at_s"] = sample.value, sample.timestamp
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
