"""Define how long a step of a whole cluster may take: a base, and more for each node."""

from __future__ import annotations

READY_S = 180
"""Base until nodes, the agents of a network or a service are ready, including image downloads by the kubelets."""
PODS_S = 180
"""Base until the pods that a switch recreates have terminated, and again until they have joined the new network."""
KUBE_PROXY_S = 240
"""Base until all kube-proxies have restarted."""
METADATA_S = 120
"""Base until the nodes have their labels, or taints."""
SMOKE_PODS_S = 120
"""Base until the pods of the smoke test are ready."""
SMOKE_TEST_S = 300
"""Base of the whole smoke test, in addition to the time in which the pods probe each other."""
REMOVE_S = 90
"""Base until the API server has deleted objects."""
PER_NODE_S = 5
"""A restarted kube-proxy reaches one node after the other; in all other steps, nodes share the API server."""


def of_cluster(base_s: float, nodes: int) -> int:
    """Return the limit of a step of a cluster with so many nodes, in s."""
    return round(base_s + PER_NODE_S * nodes)
