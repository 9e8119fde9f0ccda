"""The kubelet's own readings: /metrics/resource, and the process metrics of /metrics.

Both need `get` on `nodes/metrics` and nothing more; `nodes/proxy`, which would do too, lets one run commands
in every pod. The kubelet reads its cgroups each 10 to 15 s and says when: differences are only worth
something over a minute and more, and by the time of the readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Pod = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class Usage:
    """What something has used so far, and uses now. None where it was not said."""

    cpu_s: float | None = None
    cpu_at_s: float | None = None
    """When the CPU time was read, in seconds since 1970; None: at the time of the request."""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Resources:
    """/metrics/resource of one kubelet."""

    node: Usage
    pods: Mapping[Pod, Usage]


def read(text: str) -> Resources:
    """The resources in the kubelet's text. ValueError where it is no such text."""
    node: dict[str, float | None] = {}
    pods: dict[Pod, dict[str, float | None]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("node_"):
                into = node
            elif sample.name.startswith("pod_"):
                into = pods.setdefault((sample.labels["namespace"], sample.labels["pod"]), {})
            else:
                continue
            if sample.name.endswith("_cpu_usage_seconds_total"):
                into["cpu_s"], into["cpu_at_s"] = sample.value, sample.timestamp
            elif sample.name.endswith("_memory_working_set_bytes"):
                into["memory_bytes"] = sample.value
    return Resources(Usage(**node), {pod: Usage(**values) for pod, values in pods.items()})


def process(text: str) -> Usage:
    """A process's own account of itself (`process_…`): CPU time and resident memory."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = sample.value
    return Usage(
        cpu_s=found.get("process_cpu_seconds_total"),
        memory_bytes=found.get("process_resident_memory_bytes"),
    )
