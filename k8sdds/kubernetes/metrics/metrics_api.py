"""Read the metrics API (metrics.k8s.io): the values of `kubectl top`, with their time and window.

Needs the rights `get` and `list` on `pods` and `nodes` of that API group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from k8sdds.kubernetes.metrics.quantities import parse_duration_s, parse_quantity
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError

Get = Callable[[str], bytes]
"""Returns the API server's response for a URL path."""
PATH = "/apis/metrics.k8s.io/v1beta1"


@dataclass(frozen=True)
class AverageUsage:
    """Average resource use of a node or pod over a time window."""

    name: str
    namespace: str
    """Empty for a node."""
    at: str
    """End of the window, UTC."""
    window_s: float
    cpu_cores: float
    memory_bytes: float
    """Working set, summed over the containers of a pod."""


def nodes(get: Get) -> list[AverageUsage]:
    """Return the use of every node."""
    return parse(get(f"{PATH}/nodes"))


def pods(get: Get, namespace: str) -> list[AverageUsage]:
    """Return the use of every pod of a namespace."""
    return parse(get(f"{PATH}/namespaces/{namespace}/pods"))


def parse(document: bytes) -> list[AverageUsage]:
    """Parse a NodeMetricsList or PodMetricsList."""
    try:
        return [_parse_item(item) for item in reading.json_object(document, PATH)["items"]]
    except (reading.UnreadableError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrerequisiteError(
            f"the metrics API returned something else than metrics: {error!r}",
            "inspect its response: kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes",
        ) from error


def _parse_item(item: dict[str, Any]) -> AverageUsage:
    parts = [item["usage"]] if "usage" in item else [container["usage"] for container in item["containers"]]
    return AverageUsage(
        name=item["metadata"]["name"],
        namespace=item["metadata"].get("namespace", ""),
        at=item["timestamp"],
        window_s=parse_duration_s(item["window"]),
        cpu_cores=sum(parse_quantity(part["cpu"]) for part in parts),
        memory_bytes=sum(parse_quantity(part["memory"]) for part in parts),
    )
