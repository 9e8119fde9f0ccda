"""Read the signs of the installed network from the API server, as far as this user's rights allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from k8sdds import versions
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.model.services import IPTABLES, ProxyMode
from k8sdds.networks import detection, plugin
from k8sdds.networks.cluster_install import Manifest
from k8sdds.networks.detection import DetectedNetwork
from k8sdds.networks.plugin import Signs
from k8sdds.system import reading, yaml_text
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster.nodes import NodeInfo

APPS = "/apis/apps/v1"
PROXY_CONFIG = f"{versions.KUBE_SYSTEM_NAMESPACE}/kube-proxy"
"""ConfigMap of kube-proxy, as kubeadm creates it."""


def detect(client: KubernetesClient, nodes: Sequence[NodeInfo]) -> DetectedNetwork:
    """Return the installed network. `nodes`: empty if this user may not list them."""
    signs = Signs(
        annotations={key: value for node in nodes for key, value in node.annotations.items()},
        labels={key: value for node in nodes for key, value in node.labels.items()},
        reasons=frozenset(node.network_reason for node in nodes),
        images=frozenset(image for node in nodes for image in node.images),
        daemonsets=_by_name(daemonsets(client)),
    )
    signs = replace(signs, config_maps=_config_maps(client, detection.config_maps(signs)))
    return detection.detect(signs)


def proxy_mode(client: KubernetesClient) -> ProxyMode | None:
    """Return the mode of kube-proxy; None: unknown, because another program runs or this user may not read it."""
    found = _config_maps(client, [PROXY_CONFIG]).get(PROXY_CONFIG, {})
    try:
        config = yaml_text.plain(yaml_text.load(found.get("config.conf", ""), PROXY_CONFIG))
    except reading.UnreadableError:
        return None
    if not isinstance(config, dict):
        return None
    # Without a mode, kube-proxy uses iptables on Linux.
    mode = config.get("mode") or IPTABLES
    return next((known for known in get_args(ProxyMode) if known == mode), None)


def _by_name(listed: Sequence[Manifest] | None) -> Mapping[str, Manifest] | None:
    """Return DaemonSets by name. Of several with one name, it returns one whose pods are ready."""
    if listed is None:
        return None
    return {item["metadata"]["name"]: item for item in sorted(listed, key=plugin.is_running)}


def daemonsets(client: KubernetesClient) -> list[Manifest] | None:
    """Return the DaemonSets of the cluster, or only those of kube-system; None: this user may not list them."""
    for namespace, path in (
        ("", f"{APPS}/daemonsets"),
        (versions.KUBE_SYSTEM_NAMESPACE, f"{APPS}/namespaces/{versions.KUBE_SYSTEM_NAMESPACE}/daemonsets"),
    ):
        if client.is_allowed("list", "apps", "daemonsets", namespace=namespace):
            listed: list[Manifest] = client.get(path)["items"]
            return listed
    return None


def _config_maps(client: KubernetesClient, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the ConfigMaps with these names (NAMESPACE/NAME) that exist and that this user may read."""
    found = {}
    for name in names:
        namespace, _, own_name = name.partition("/")
        if not client.is_allowed("get", "", "configmaps", namespace=namespace, name=own_name):
            continue
        try:
            config_map = client.find(f"{CORE}/namespaces/{namespace}/configmaps/{own_name}")
        except PrerequisiteError:
            continue
        if config_map is not None:
            found[name] = config_map.get("data") or {}
    return found
