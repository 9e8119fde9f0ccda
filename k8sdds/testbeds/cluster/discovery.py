"""Discovery services of a campaign: made in its own namespace when a trial first needs one, gone with it.

In a prepared namespace k8sdds makes nothing but pods: there the administrator applies deploy/discovery too.
"""

from __future__ import annotations

import time
from typing import Any

from k8sdds import discovery, middleware, versions
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.trial import Cell
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.selection import beside

READY_S = 90
KINDS = ("Service", "StatefulSet")
"""A campaign needs no more of the manifests."""


def _service(cell: Cell) -> discovery.Service:
    service = middleware.find(cell.middleware).service
    assert service is not None  # preflight checks reject `discovery: server` for other middlewares
    return service


class Services:
    """The discovery services of one campaign, by middleware."""

    def __init__(self, client: KubernetesClient, space: CampaignNamespace, image: str) -> None:
        """`image`: the participants' own; ours for services are from where it is from."""
        self._client = client
        self._image = image
        self._space = space
        self._made: dict[str, dict[str, Any]] = {}
        """Middleware to its StatefulSet."""

    def servers(self, cell: Cell) -> tuple[str, ...]:
        """Where the cell's participants ask for the others; nothing unless they discover by server.

        InstallOptions before every trial: a server that was lost comes back with another address, and a resolver may
        remember the old one. A name stands for one that is not there, so that the others keep their ids.
        """
        if cell.discovery_kind != discovery.SERVER:
            return ()
        service = _service(cell)
        there = self._addresses(service)
        return tuple(
            f"{there[name]}:{service.port}" if (name := one.partition(".")[0]) in there else one
            for one in service.servers(self._space.namespace)
        )

    def _addresses(self, service: discovery.Service) -> dict[str, str]:
        """Ready servers by the names of their pods; returns when there is one, or the time is over."""
        path, query = self._space.pods, {"labelSelector": f"app.kubernetes.io/name={service.name}"}
        end = time.monotonic() + READY_S
        while True:
            listed = self._client.get(path, **query)
            ready = [one for one in listed["items"] if pods.is_ready(one)]
            left = end - time.monotonic()
            if ready or left <= 0:
                return {one["metadata"]["name"]: one["status"]["podIP"] for one in ready}
            version = listed["metadata"]["resourceVersion"]
            for event in self._client.watch(path, for_s=max(1.0, left), resourceVersion=version, **query):
                if event["type"] == "ERROR" or pods.is_ready(event["object"]):
                    break

    def provide(self, cell: Cell) -> None:
        """Returns when the cell's service runs; one that is there stays. PrerequisiteError where it does not come."""
        if cell.discovery_kind != discovery.SERVER:
            return
        if not self._space.own:
            return
        service = _service(cell)
        if cell.middleware not in self._made:
            image = middleware.find(cell.middleware).service_image()
            if service.image is not None:
                image = beside(self._image, service.image)
            made = service.objects(self._space.namespace, image=image)
            wanted = [one for one in made if one["kind"] in KINDS]
            for one in wanted:
                one["metadata"]["labels"][versions.CAMPAIGN_LABEL] = self._space.campaign
            objects.create(self._client, wanted)
            self._made[cell.middleware] = wanted[-1]
        self._await(service, self._made[cell.middleware])

    def _await(self, service: discovery.Service, statefulset: dict[str, Any]) -> None:
        ready, _ = objects.wait_for_replicas(self._client, statefulset, READY_S)
        # One is enough for participants to meet; a second that is being replaced is no reason to wait on.
        if ready < 1:
            raise PrerequisiteError(
                f"no {service.title} is ready after {READY_S} s",
                f"kubectl -n {self._space.namespace} describe pods; is its image on the nodes?",
            )
