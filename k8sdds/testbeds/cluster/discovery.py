"""Run discovery servers for a campaign: place them in its namespace and find their addresses.

k8sdds creates a server when a cell first needs one; it is deleted with the namespace. In a prepared namespace
k8sdds creates only pods, so the administrator applies deploy/discovery there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from k8sdds import discovery, middleware, versions, workloads
from k8sdds.kubernetes import objects
from k8sdds.model.trial import Cell, host_and_port
from k8sdds.system.errors import PrerequisiteError, Problem
from k8sdds.testbeds.cluster import placement, pods
from k8sdds.testbeds.cluster.blocks import on_host
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.selection import sibling_image

READY_TIMEOUT_S = 90
POLL_S = 0.5
KINDS = ("Service", "StatefulSet")
"""The objects of the manifests that a campaign needs."""


def problems(cells: Iterable[Cell], prepared: str | None) -> list[Problem]:
    """Return why cells cannot use the servers of a prepared namespace. Without one, the list is empty."""
    if prepared is None:
        return []
    cells = list(cells)
    found = []
    if any(map(workloads.restarted_fleet, cells)):
        why = f"restart-server: k8sdds restarts only servers that it created, not those of {prepared}"
        found.append(Problem(why, "use another change, or measure without --namespace", input=True))
    elsewhere = {
        _service_of(cell).title
        for cell in cells
        if cell.discovery_kind == discovery.SERVER
        and (placement.places_service(cell) or (_service_of(cell).relays and on_host(cell)))
    }
    return found + [
        Problem(
            f"{title} of the prepared namespace {prepared} is where its administrator placed it, on the pod network",
            "leave out `discovery` of placement, and the network host",
            input=True,
        )
        for title in sorted(elsewhere)
    ]


def _service_of(cell: Cell) -> discovery.Service:
    service = middleware.find(cell.middleware).service
    assert service is not None  # the preflight check rejects `discovery: server` for other middlewares
    return service


@dataclass
class DiscoveryServers:
    """The discovery servers of a campaign."""

    namespace: CampaignNamespace
    image: str
    """An image from whose registry theirs is pulled."""
    tolerations: Sequence[dict[str, str]] = ()
    nodes: Sequence[NodeInfo] | None = None
    """Those that can run pods; None if they are not known."""
    restarts: bool = False
    """Whether trials kill the servers in their pods."""
    _statefulsets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name of the service, which middlewares may share."""
    pods: dict[str, str] = field(default_factory=dict)
    """Node of each ready server of the last cell whose `addresses` were read, by the id of its pod."""

    def provide(self, cell: Cell) -> None:
        """Create the server that a cell needs, if it does not exist, and wait until it is ready."""
        if cell.discovery_kind != discovery.SERVER:
            return
        if not self.namespace.owned:
            return  # its administrator created the server
        service = self._service(cell)
        if service.name not in self._statefulsets:
            self._statefulsets[service.name] = self._create(cell.middleware, service)
        statefulset = self._statefulsets[service.name]
        ready, _ = objects.wait_for_replicas(self.namespace.client, statefulset, READY_TIMEOUT_S)
        # Participants need only one server; do not wait for another that is being replaced.
        if ready < 1:
            raise PrerequisiteError(
                f"no {service.title} is ready after {READY_TIMEOUT_S} s",
                f"inspect its pods: kubectl -n {self.namespace.name} describe pods; if its image cannot be pulled:"
                f" {self.namespace.pull_remedy(objects.image(statefulset))}",
            )

    def _create(self, middleware_name: str, service: discovery.Service) -> dict[str, Any]:
        """Create a server's objects; return its StatefulSet."""
        if service.image is None:
            image = middleware.find(middleware_name).service_image()
        else:
            image = sibling_image(self.image, service.image)
        manifests = service.objects(self.namespace.name, image=image, tolerations=self.tolerations)
        needed = [manifest for manifest in manifests if manifest["kind"] in KINDS]
        for manifest in needed:
            manifest["metadata"]["labels"][versions.CAMPAIGN_LABEL] = self.namespace.campaign
        (statefulset,) = (manifest for manifest in needed if manifest["kind"] == "StatefulSet")
        pod = statefulset["spec"]["template"]["spec"]
        if self.restarts:
            # Otherwise, the server is process 1, which commands in its container cannot kill.
            pod["shareProcessNamespace"] = True
        self.namespace.pull_with_login(pod)
        objects.create(self.namespace.client, needed)
        return statefulset

    def pod_patterns(self, cells: Iterable[Cell]) -> list[str]:
        """Return NAMESPACE/NAME of the pods of the servers that these cells use."""
        namespace = self.namespace.name
        return [
            f"{namespace}/{server.partition('.')[0]}"
            for cell in cells
            if cell.discovery_kind == discovery.SERVER
            for server in self._service(cell).servers(namespace)
        ]

    def addresses(self, cell: Cell) -> tuple[str, ...]:
        """Return `HOST:PORT` of the servers for a cell's participants; empty if the cell uses no server.

        Call it before every trial: a server that was replaced has another address, and resolvers may cache the
        old one. A server that is not ready is returned by name, so that the others keep their ids.
        """
        self.pods = {}
        if cell.discovery_kind != discovery.SERVER:
            return ()
        service = self._service(cell)
        ready = self._wait_ready(service)
        return tuple(
            host_and_port(ready[pod], service.port) if (pod := server.partition(".")[0]) in ready else server
            for server in service.servers(self.namespace.name)
        )

    def _wait_ready(self, service: discovery.Service) -> dict[str, str]:
        """Wait until one server is ready, at most `READY_TIMEOUT_S`; return address by pod name."""
        end = time.monotonic() + READY_TIMEOUT_S
        selector = f"app.kubernetes.io/name={service.name}"
        while True:
            listed = self.namespace.client.get(self.namespace.pods, labelSelector=selector)["items"]
            running = [pod for pod in listed if pods.is_ready(pod)]
            self.pods = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in running}
            ready = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in running}
            if ready or time.monotonic() > end:
                return ready
            time.sleep(POLL_S)

    def _service(self, cell: Cell) -> discovery.Service:
        """Return the service of a cell. Samples pass a router on the network of the participants."""
        service = _service_of(cell)
        return service.at(placement.of_service(cell, self.nodes), service.relays and on_host(cell))
