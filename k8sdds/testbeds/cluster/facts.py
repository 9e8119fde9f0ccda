"""Record the provenance of a campaign on a cluster: its version, and facts of each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.networks.detection import DetectedNetwork
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import detection, permissions
from k8sdds.testbeds.cluster.nodes import NodeInfo, one_kernel
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.machine_cpu import SEPARATE_INTERRUPTS
from k8sdds.testbeds.selection import SelectedTestbed

NODE_INFO = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
POD_FACTS = (
    "boot_id", "kernel", "cpu_model", "cpu_count", "cpu_governor", "memory_bytes", "clocksource", "sysctls",
    SEPARATE_INTERRUPTS,
)  # fmt: skip


def facts(
    client: KubernetesClient,
    selected: SelectedTestbed,
    nodes: Sequence[NodeInfo],
    ready_pods: Iterable[ReadyPod],
    installed: DetectedNetwork,
) -> dict[str, Any]:
    """Return the facts for campaign.json.

    Args:
        client: The cluster.
        selected: How the cluster was selected.
        nodes: The nodes; empty: this user may not list them.
        ready_pods: Pods whose supervisors reported facts of their nodes.
        installed: The installed pod network.
    """
    node_facts: dict[str, dict[str, Any]] = {
        node.name: {
            "boot_id": node.boot_id,
            "architecture": node.arch,
            **{key: node.info.get(key) for key in NODE_INFO},
        }
        for node in nodes
    }
    for pod in ready_pods:
        node_facts.setdefault(pod.node, {}).update(
            {key: value for key, value in pod.facts.items() if key in POD_FACTS}
        )
    kernels = {node.get("kernelVersion") or node.get("kernel") for node in node_facts.values()}
    models = {node.get("cpu_model") for node in node_facts.values()} - {None}
    return {
        "server_version": client.get("/version").get("gitVersion"),
        "nodes": node_facts,
        "one_kernel": one_kernel(nodes),
        "kube_proxy": detection.proxy_mode(client),
        "kernel": kernels.pop() if len(kernels) == 1 else None,
        "cpu_model": models.pop() if len(models) == 1 else None,
        "installed_network": installed.name,
        "installed_network_facts": {
            "title": installed.title,
            "version": installed.version or None,
            "signs": list(installed.signs),
            "remains": list(installed.remains),
            "secondary": list(installed.secondary),
        },
        "image": selected.image,
        "cluster_uid": _cluster_uid(client),
        "reached": {key: value for key, value in asdict(selected).items() if value},
        "api_calls": dict(client.calls),
    }


def _cluster_uid(client: KubernetesClient) -> str | None:
    """Return the UID of kube-system, which identifies a cluster; None: this user may not read it."""
    try:
        namespace = client.find(f"{permissions.NAMESPACES}/{versions.KUBE_SYSTEM_NAMESPACE}")
    except PrerequisiteError:
        return None
    return namespace["metadata"]["uid"] if namespace else None
