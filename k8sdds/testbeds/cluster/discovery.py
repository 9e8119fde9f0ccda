"""Run discovery servers for a campaign: place them in its namespace and find their addresses.

k8sdds creates a server when a cell first needs one; it is deleted with the namespace. In a prepared namespace
k8sdds creates only pods, so the administrator applies deploy/discovery there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from k8sdds import discovery, middleware, versions
from k8sdds.kubernetes import objects
from k8sdds.model.trial import Cell, host_and_port
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.selection import sibling_image

READY_TIMEOUT_S = 90
POLL_S = 0.5
KINDS = ("Service", "StatefulSet")
"""The objects of the manifests that a campaign needs."""


class DiscoveryServers:
    """The discovery servers of a campaign, by middleware. Their image is pulled from the registry of `image`."""

    def __init__(
        self, namespace: CampaignNamespace, image: str, tolerations: Sequence[dict[str, str]] = ()
    ) -> None:
        self._client = namespace.client
        self._namespace = namespace
        self._image = image
        self._tolerations = tolerations
        self._statefulsets: dict[str, dict[str, Any]] = {}
        """By middleware."""

    def provide(self, cell: Cell) -> None:
        """Create the server that a cell needs, if it does not exist, and wait until it is ready.

        Raises:
            PrerequisiteError: it cannot be created or does not become ready.
        """
        if cell.discovery_kind != discovery.SERVER or not self._namespace.owned:
            return
        service = _service(cell)
        if cell.middleware not in self._statefulsets:
            self._statefulsets[cell.middleware] = self._create(cell.middleware, service)
        ready, _ = objects.wait_for_replicas(
            self._client, self._statefulsets[cell.middleware], READY_TIMEOUT_S
        )
        # Participants need only one server; do not wait for another that is being replaced.
        if ready < 1:
            raise PrerequisiteError(
                f"no {service.title} is ready after {READY_TIMEOUT_S} s",
                f"check that its image is on the nodes: kubectl -n {self._namespace.name} describe pods",
            )

    def _create(self, middleware_name: str, service: discovery.Service) -> dict[str, Any]:
        """Create a server's objects; return its StatefulSet."""
        if service.image is None:
            image = middleware.find(middleware_name).service_image()
        else:
            image = sibling_image(self._image, service.image)
        manifests = service.objects(self._namespace.name, image=image, tolerations=self._tolerations)
        needed = [manifest for manifest in manifests if manifest["kind"] in KINDS]
        for manifest in needed:
            manifest["metadata"]["labels"][versions.CAMPAIGN_LABEL] = self._namespace.campaign
        objects.create(self._client, needed)
        return needed[-1]

    def pod_patterns(self, cells: Iterable[Cell]) -> list[str]:
        """Return NAMESPACE/NAME of the pods of the servers that these cells use."""
        namespace = self._namespace.name
        return [
            f"{namespace}/{server.partition('.')[0]}"
            for cell in cells
            if cell.discovery_kind == discovery.SERVER
            for server in _service(cell).servers(namespace)
        ]

    def addresses(self, cell: Cell) -> tuple[str, ...]:
        """Return `HOST:PORT` of the servers for a cell's participants; empty if the cell uses no server.

        Call it before every trial: a server that was replaced has another address, and resolvers may cache the
        old one. A server that is not ready is returned by name, so that the others keep their ids.
        """
        if cell.discovery_kind != discovery.SERVER:
            return ()
        service = _service(cell)
        ready = self._wait_ready(service)
        return tuple(
            host_and_port(ready[pod], service.port) if (pod := server.partition(".")[0]) in ready else server
            for server in service.servers(self._namespace.name)
        )

    def _wait_ready(self, service: discovery.Service) -> dict[str, str]:
        """Wait until one server is ready, at most `READY_TIMEOUT_S`; return address by pod name."""
        end = time.monotonic() + READY_TIMEOUT_S
        selector = f"app.kubernetes.io/name={service.name}"
        while True:
            listed = self._client.get(self._namespace.pods, labelSelector=selector)["items"]
            ready = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in listed if pods.is_ready(pod)}
            if ready or time.monotonic() > end:
                return ready
            time.sleep(POLL_S)


def _service(cell: Cell) -> discovery.Service:
    service = middleware.find(cell.middleware).service
    assert service is not None  # the preflight check rejects `discovery: server` for other middlewares
    return service
