"""Detect restarts of the pods that trials depend on: the agents of the pod network, and discovery servers.

Kubernetes replaces such a pod by itself when it is killed. An attempt that failed meanwhile failed because of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.system.errors import PrerequisiteError

Instances = dict[str, frozenset[str]]
"""NAMESPACE/NAME of a pod to its id and the ids of its containers, which change when it restarts."""


class ServicePods:
    """The pods that the trials of the current block depend on."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._patterns: tuple[str, ...] = ()
        self._instances: Instances | None = None

    def remember(self, patterns: Iterable[str]) -> None:
        """Remember the pods whose NAMESPACE/NAME matches one of these patterns, as they are now."""
        self._patterns = tuple(dict.fromkeys(patterns))
        self._instances = self._read()

    def restarted(self) -> str:
        """Return which pod restarted since it was remembered; empty: none, or this user may not see them.

        The pods are remembered again.
        """
        before, self._instances = self._instances, self._read()
        if before is None or self._instances is None:
            return ""
        changed = [name for name in before if before[name] != self._instances.get(name)]
        return f"pod {changed[0]} was restarted" if changed else ""

    def pod_ids(self) -> set[str]:
        """Return the ids of the remembered pods, and of their containers."""
        return {identity for instance in (self._instances or {}).values() for identity in instance}

    def _read(self) -> Instances | None:
        namespaces = dict.fromkeys(pattern.partition("/")[0] for pattern in self._patterns)
        try:
            pods = {
                f"{namespace}/{pod['metadata']['name']}": pod
                for namespace in namespaces
                for pod in self._list(namespace)
            }
        except PrerequisiteError:
            return None
        return {
            name: _instance(pod)
            for name, pod in pods.items()
            if any(fnmatchcase(name, pattern) for pattern in self._patterns)
        }

    def _list(self, namespace: str) -> list[dict[str, Any]]:
        try:
            listed: list[dict[str, Any]] = self._client.get(f"{CORE}/namespaces/{namespace}/pods")["items"]
            return listed
        except ApiError as error:
            if error.status != 403:
                raise
            return []  # this user may not see the network's agents


def _instance(pod: dict[str, Any]) -> frozenset[str]:
    containers = pod.get("status", {}).get("containerStatuses", [])
    running = [container for container in containers if "running" in container.get("state", {})]
    return frozenset([pod["metadata"]["uid"], *(container["containerID"] for container in running)])
