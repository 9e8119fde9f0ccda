"""Collect metrics of nodes and pods before and after each block, as far as this user's rights allow.

The node meter is a DaemonSet in the campaign's namespace and is deleted with it. In a prepared namespace, or
without the right to create it, only the metrics of `kubectl top` are collected. Without the right to create a
ClusterRole, the meter reads the nodes but not the kubelets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes import exec_stream, objects
from k8sdds.kubernetes.metrics import metrics_api, node_meter
from k8sdds.kubernetes.metrics.pod_startup import PodStarts
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds.cluster import permissions, pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace

READY_TIMEOUT_S = 30
"""Nodes whose meter is not ready after this time are not read."""


class MetricsCollector:
    """Collects the lines of readings.jsonl for the blocks of a campaign.

    To count `packet_filters`, the namespace must allow pods on the nodes' own network.
    """

    def __init__(self, namespace: CampaignNamespace, packet_filters: bool, image: str) -> None:
        self._client = namespace.client
        self._namespace = namespace
        self._packet_filters = packet_filters
        self._image = image
        self._daemonset: dict[str, Any] | None = None
        """The node meter; empty if it could not be created; None if not tried yet."""
        self._lines: list[dict[str, Any]] = []
        self._pod_starts = PodStarts()
        self._block: dict[str, Any] = {}
        """Fields of the current block, for each line."""

    def observe_pod(self, pod: dict[str, Any], at_s: float) -> None:
        """Record an event of one of the campaign's pods; a listener for `PodWatch`."""
        on_host = (pod.get("spec") or {}).get("hostNetwork", False)
        if versions.PARTICIPANT_LABEL in pod["metadata"].get("labels", {}) and not on_host:
            self._pod_starts.observe(pod, at_s)

    def start_block(self, block: int, networks: Sequence[str]) -> None:
        """Read every node before the trials of a block, whose pods must be ready."""
        if self._block.get("block") == block:
            return  # the block is prepared again before its first trial
        self._block = {"block": block, "network": " + ".join(sorted(set(networks)))}
        starts, self._pod_starts = self._pod_starts.facts(), PodStarts()
        if starts:
            self._lines.append({"kind": "starts", **self._block, "pods": starts})
        if self._daemonset is None:
            self._create()
        self._read("before")

    def finish_block(self) -> list[dict[str, Any]]:
        """Read every node after the trials of a block; return all new lines for readings.jsonl."""
        if self._block:
            self._read("after")
            self._block = {}
        lines, self._lines = self._lines, []
        return lines

    # -- creating the node meter ------------------------------------------------------------------------

    def _create(self) -> None:
        self._daemonset = {}
        manifests = node_meter.objects(self._namespace.name, self._packet_filters, self._image)
        namespaced = [manifest for manifest in manifests if "namespace" in manifest["metadata"]]
        cluster_wide = [manifest for manifest in manifests if "namespace" not in manifest["metadata"]]
        if not self._namespace.owned:
            self._add_missing("nodes: k8sdds creates no meter in a prepared namespace")
            return
        forbidden = self._forbidden(namespaced)
        if forbidden:
            self._add_missing(f"nodes: this user may not create {forbidden} in the campaign's namespace")
            return
        try:
            forbidden = self._forbidden(cluster_wide)
            if forbidden:
                self._add_missing(
                    f"kubelets and the network's own pods: this user may not create {forbidden},"
                    " which give the meter the right `nodes/metrics`"
                )
            else:
                objects.create(self._client, self._owned(cluster_wide))
            (daemonset,) = (manifest for manifest in namespaced if manifest["kind"] == "DaemonSet")
            self._namespace.pull_with_login(daemonset["spec"]["template"]["spec"])
            objects.create(self._client, namespaced)
            self._daemonset = daemonset
            ready, _ = objects.wait_for_replicas(self._client, daemonset, READY_TIMEOUT_S)
            if not ready:
                remedy = self._namespace.pull_remedy(objects.image(daemonset))
                self._add_missing(
                    f"nodes: no meter is ready after {READY_TIMEOUT_S} s; if its image cannot be pulled: {remedy}"
                )
        except PrerequisiteError as error:
            # Missing metrics leave gaps in a table; they must not stop a campaign.
            self._add_missing(f"nodes: {error.message}")

    def _forbidden(self, manifests: list[dict[str, Any]]) -> str:
        """Return the resources of these objects that this user may not create."""
        resources = {
            self._client.resource(manifest["apiVersion"], manifest["kind"])
            for manifest in manifests
            if not objects.may_create(self._client, manifest)
        }
        return " and ".join(sorted(resources))

    def _add_missing(self, message: str) -> None:
        self._lines.append({"kind": "lack", **self._block, "said": message})

    def _owned(self, manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Make the campaign's namespace own cluster-wide objects, so that they are deleted with it."""
        name = self._namespace.name
        uid = self._client.get(f"{permissions.NAMESPACES}/{name}")["metadata"]["uid"]
        for manifest in manifests:
            owner = {"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid}
            manifest["metadata"]["ownerReferences"] = [owner]
            manifest["metadata"]["labels"][versions.CAMPAIGN_LABEL] = self._namespace.campaign
        return manifests

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self, when: str) -> None:
        # List the meter's pods each time: they are replaced after a node was unavailable.
        meter_pods = self._ready_meter_pods() if self._daemonset else []
        # Packet filters are long lists that do not change within a block: read them once.
        read = partial(self._read_node, packet_filters=self._packet_filters and when == "after")
        self._lines += [{**line, **self._block, "when": when} for line in in_threads(read, meter_pods)]
        usage = [
            *self._read_top("nodes", metrics_api.nodes),
            *self._read_top("pods", lambda get: metrics_api.pods(get, self._namespace.name)),
        ]
        if usage:
            self._lines.append({"kind": "top", **self._block, "when": when, "tops": usage})

    def _ready_meter_pods(self) -> list[str]:
        listed = self._client.get(self._namespace.pods, labelSelector=node_meter.LABELS)["items"]
        return [pod["metadata"]["name"] for pod in listed if pods.is_ready(pod)]

    def _read_node(self, pod: str, packet_filters: bool) -> dict[str, Any]:
        argv = node_meter.command(packet_filters)
        try:
            result = exec_stream.run_command(self._client, self._namespace.name, pod, argv)
            if result.code:
                message = result.stderr.decode(errors="replace").strip()
                raise PrerequisiteError(message or f"exit code {result.code}")
            document = reading.json_object(result.stdout, f"the meter in pod {pod}")
            node_meter.parse(document)
            return {"kind": "node", **document}
        except (PrerequisiteError, reading.UnreadableError, ValueError) as error:
            return {"kind": "lack", "said": f"the node of pod {pod}: {error}"}

    def _read_top(
        self, resource: str, read: Callable[[metrics_api.Get], list[metrics_api.AverageUsage]]
    ) -> list[dict[str, Any]]:
        try:
            return [asdict(usage) for usage in read(self._client.get_raw)]
        except PrerequisiteError as error:
            # The cluster has no metrics server, or this user may not read its metrics.
            self._add_missing(f"metrics of `kubectl top {resource}`: {error.message}")
            return []
