"""What a campaign on a cluster records of it: its version, and of each node what the API and its pods say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import permissions
from k8sdds.testbeds.cluster.nodes import Node, one_kernel
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.selection import SelectedTestbed

NODE_INFO = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
POD_FACTS = (
    "boot_id", "kernel", "cpu_model", "cpu_count", "cpu_governor", "memory_bytes", "clocksource", "sysctls",
)  # fmt: skip


def facts(
    client: KubernetesClient,
    chosen: SelectedTestbed,
    nodes: Sequence[Node],
    members: Sequence[ReadyPod],
    installed: str | None,
) -> dict[str, Any]:
    """`nodes` as far as this user may see them; `members`: pods that are ready."""
    version = client.get("/version")
    known = {
        node.name: {
            "boot_id": node.boot_id,
            "architecture": node.arch,
            **{key: node.info.get(key) for key in NODE_INFO},
        }
        for node in nodes
    }
    for member in members:
        known.setdefault(member.node, {}).update(
            {key: value for key, value in member.facts.items() if key in POD_FACTS}
        )
    kernels = {one.get("kernelVersion") or one.get("kernel") for one in known.values()}
    models = {one.get("cpu_model") for one in known.values()} - {None}
    return {
        "server_version": version.get("gitVersion"),
        "nodes": known,
        "one_kernel": one_kernel(nodes),
        "kernel": kernels.pop() if len(kernels) == 1 else None,
        "cpu_model": models.pop() if len(models) == 1 else None,
        "installed_network": installed,
        "image": chosen.image,
        "cluster_uid": _uid(client),
        "reached": {key: value for key, value in asdict(chosen).items() if value},
        "api_calls": dict(client.calls),
    }


def _uid(client: KubernetesClient) -> str | None:
    """What tells this cluster from others, where this user may know it."""
    try:
        found = client.find(f"{permissions.NAMESPACES}/{versions.KUBE_SYSTEM_NAMESPACE}")
    except PrerequisiteError:
        return None
    return found["metadata"]["uid"] if found else None
