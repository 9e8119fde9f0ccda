"""Readings of nodes and pods around the blocks of a campaign, as far as this user may have them.

The meter is a DaemonSet of the campaign's own namespace and goes with it. In a prepared namespace, and where
this user may not make it, there are only the readings of `kubectl top`; where no ClusterRole may be made for
it, the meter reads softirqs but no kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes import exec_stream, objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.kubernetes.metrics import metrics_api as top
from k8sdds.kubernetes.metrics import node_meter
from k8sdds.kubernetes.metrics.pod_startup import Startups
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import permissions, pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace

READY_S = 30
"""A node that is not ready by then goes without."""
WORKERS = 16


class Metering:
    """The meters of one campaign, and what they have said since somebody asked."""

    def __init__(
        self,
        client: KubernetesClient,
        space: CampaignNamespace,
        filters: bool,
        image: str = versions.TOOLS_IMAGE,
    ) -> None:
        """`filters`: the namespace lets pods use the nodes' own network, so packet filters can be counted."""
        self._client = client
        self._image = image
        self._space = space
        self._filters = filters
        self._made: dict[str, Any] | None = None
        """The meter's DaemonSet; empty where there is none."""
        self._lines: list[dict[str, Any]] = []
        self._startups = Startups()
        self._block: dict[str, Any] = {}

    def seen(self, pod: dict[str, Any], at_s: float) -> None:
        """An event of the campaign's pods, for their starts."""
        on_host = (pod.get("spec") or {}).get("hostNetwork", False)
        if versions.PARTICIPANT_LABEL in pod["metadata"].get("labels", {}) and not on_host:
            self._startups.seen(pod, at_s)

    def begins(self, block: int, networks: Sequence[str]) -> None:
        """The block's pods are ready: read every node."""
        if self._block.get("block") == block:
            return  # prepared once more, before any of its trials
        self._block = {"block": block, "network": " + ".join(sorted(set(networks)))}
        starts, self._startups = self._startups.facts(), Startups()
        if starts:
            self._lines.append({"kind": "starts", **self._block, "pods": starts})
        if self._made is None:
            self._make()
        self._read("before")

    def ends(self) -> list[dict[str, Any]]:
        """The block's trials are over: read every node again; all lines for the run folder."""
        if self._block:
            self._read("after")
            self._block = {}
        lines, self._lines = self._lines, []
        return lines

    # -- making it --------------------------------------------------------------------------------------

    def _make(self) -> None:
        self._made = {}
        wanted = node_meter.objects(self._space.namespace, self._filters, self._image)
        inside = [one for one in wanted if "namespace" in one["metadata"]]
        outside = [one for one in wanted if "namespace" not in one["metadata"]]
        if not self._space.own:
            self._lacks("nodes: in a prepared namespace k8sdds makes no meter")
            return
        refused = self._refused(inside)
        if refused:
            self._lacks(f"nodes: this user may not create {refused} in the campaign's namespace")
            return
        try:
            refused = self._refused(outside)
            if refused:
                self._lacks(
                    f"kubelets and the network's own pods: this user may not create {refused},"
                    " by which the meter would get `nodes/metrics`"
                )
            else:
                objects.create(self._client, self._owned(outside))
            objects.create(self._client, inside)
            self._made = inside[-1]
            objects.wait_for_replicas(self._client, self._made, READY_S)
        except PrerequisiteError as error:
            # What cannot be read is missing in a table; no reason to measure nothing.
            self._lacks(f"nodes: {error.message}")

    def _refused(self, wanted: list[dict[str, Any]]) -> str:
        """The kinds of these objects that this user may not make."""
        kinds = {
            self._client.resource(one["apiVersion"], one["kind"])
            for one in wanted
            if not objects.may_create(self._client, one)
        }
        return " and ".join(sorted(kinds))

    def _lacks(self, said: str) -> None:
        self._lines.append({"kind": "lack", **self._block, "said": said})

    def _owned(self, outside: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Objects that belong to no namespace, told to go with the campaign's own, whatever becomes of us."""
        found = self._client.get(f"{permissions.NAMESPACES}/{self._space.namespace}")
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": self._space.namespace}
        for one in outside:
            one["metadata"]["ownerReferences"] = [{**owner, "uid": found["metadata"]["uid"]}]
            one["metadata"]["labels"][versions.CAMPAIGN_LABEL] = self._space.campaign
        return outside

    def _ready(self) -> list[str]:
        listed = self._client.get(self._space.pods, labelSelector=node_meter.LABELS)["items"]
        return [one["metadata"]["name"] for one in listed if pods.is_ready(one)]

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self, when: str) -> None:
        # InstallOptions each time: pods of the meter are replaced where a node was away.
        with ThreadPoolExecutor(WORKERS) as pool:
            # Packet filters once: they are many lines, and the network is what it is.
            read = partial(self._node, filters=self._filters and when == "after")
            for line in pool.map(read, self._ready() if self._made else []):
                self._lines.append({**line, **self._block, "when": when})
        tops = [
            *self._top("nodes", top.nodes),
            *self._top("pods", lambda get: top.pods(get, self._space.namespace)),
        ]
        if tops:
            self._lines.append({"kind": "top", **self._block, "when": when, "tops": tops})

    def _node(self, pod: str, filters: bool) -> dict[str, Any]:
        argv = node_meter.command(filters)
        try:
            done = exec_stream.run_command(self._client, self._space.namespace, pod, argv)
            if done.code:
                raise PrerequisiteError(done.stderr.decode(errors="replace").strip() or f"code {done.code}")
            data = json.loads(done.stdout)
            node_meter.read(data)
            return {"kind": "node", **data}
        except (PrerequisiteError, ValueError) as error:
            return {"kind": "lack", "said": f"a node, by {pod}: {error}"}

    def _top(self, what: str, read: Any) -> list[dict[str, Any]]:
        try:
            return [asdict(one) for one in read(self._client.get_raw)]
        except PrerequisiteError as error:
            # No metrics server, or not for this user.
            self._lacks(f"what `kubectl top {what}` shows: {error.message}")
            return []
