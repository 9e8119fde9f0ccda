"""metrics.k8s.io: what `kubectl top` shows, with the time and the window that it leaves out.

Needs `get` and `list` on `pods` and `nodes` of that API group.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from k8sdds.kubernetes.metrics.quantities import duration_s, quantity
from k8sdds.system.errors import PrerequisiteError

Get = Callable[[str], bytes]
"""Answers a raw path of the API server."""
PATH = "/apis/metrics.k8s.io/v1beta1"


@dataclass(frozen=True)
class Top:
    """What one node or pod used on average over a window."""

    name: str
    namespace: str
    """Empty for a node."""
    at: str
    """End of the window, UTC."""
    window_s: float
    cpu_cores: float
    memory_bytes: float
    """Working set, of all containers of a pod."""


def nodes(get: Get) -> list[Top]:
    """A reading of every node that the metrics server knows. PrerequisiteError where it says something else."""
    return read(get(f"{PATH}/nodes"))


def pods(get: Get, namespace: str) -> list[Top]:
    """A reading of every pod of a namespace."""
    return read(get(f"{PATH}/namespaces/{namespace}/pods"))


def read(document: bytes) -> list[Top]:
    """The readings in a NodeMetricsList or PodMetricsList. PrerequisiteError for anything else."""
    try:
        return [_top(item) for item in json.loads(document)["items"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrerequisiteError(
            f"the metrics API answered something else than metrics: {error!r}",
            "kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes",
        ) from error


def _top(item: dict[str, Any]) -> Top:
    used = [item["usage"]] if "usage" in item else [one["usage"] for one in item["containers"]]
    return Top(
        name=item["metadata"]["name"],
        namespace=item["metadata"].get("namespace", ""),
        at=item["timestamp"],
        window_s=duration_s(item["window"]),
        cpu_cores=sum(quantity(one["cpu"]) for one in used),
        memory_bytes=sum(quantity(one["memory"]) for one in used),
    )
