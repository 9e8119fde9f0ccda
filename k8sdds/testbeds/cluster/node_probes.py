"""A pod beside the participants on each of their nodes, on the node's own network: it may look, and no more.

It has no rights, but whoever is in a node's network namespace may read its links, counters and routes. Where
the campaign's own namespace takes no such pods, they get one beside it. Where they may not be at all, what a
network does on the nodes is not proven, and every trial says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import datapath, namespace, pods
from k8sdds.testbeds.cluster.datapath import LinkCounters
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.pod_pool import PodPool
from k8sdds.testbeds.cluster.pods import Slot

NAME, ROLE = "witness", "wit"
MEMORY = (16 * pods.MIB, 64 * pods.MIB)


class NodeProbes:
    """The witnesses of a campaign, made when a proof first needs them."""

    def __init__(
        self, client: KubernetesClient, space: CampaignNamespace, with_host: bool, image: str, campaign: str
    ) -> None:
        """`with_host`: whether the campaign's namespace takes pods on the nodes' own network."""
        self._client = client
        self._space = space
        self._with_host = with_host
        self._image = image
        self._campaign = campaign
        self._crew: PodPool | None = None
        self._beside: CampaignNamespace | None = None
        self._have_looked = False
        self.lack = ""
        """Why nobody could look the last time; empty where somebody has."""

    def looks(self, nodes: Iterable[str], addresses: Sequence[str] = ()) -> dict[str, LinkCounters]:
        """Links of these nodes now, and their routes to addresses; none, with `lack`, where none may look."""
        if self.lack and not self._have_looked:
            return {}  # nor will it be possible later
        try:
            found = self._looks(sorted(set(nodes)), addresses)
        except PrerequisiteError as error:
            self.lack = error.message
            if self._crew is not None:
                self._crew.invalidate()
            return {}
        self.lack, self._have_looked = "", True
        return found

    def _looks(self, nodes: Sequence[str], addresses: Sequence[str]) -> dict[str, LinkCounters]:
        if self._crew is None:
            space = self._space
            if space.own and not self._with_host:
                space = self._beside = namespace.beside(space, self._campaign)
            self._crew = PodPool(self._client, space, self._image, MEMORY, self._campaign)
        slots = [Slot(NAME, ROLE, node, True, None) for node in nodes]
        self._crew.ensure(slots)
        said = self._crew.run_all([(slot, [*datapath.COMMAND, *addresses]) for slot in slots])
        found = {}
        for node, done in zip(nodes, said, strict=True):
            try:
                found[node] = datapath.read(done.stdout.decode(errors="replace"))
            except ValueError as error:
                why = " ".join(done.stderr.decode(errors="replace").split())[:200] or str(error)
                raise PrerequisiteError(f"links of node {node} cannot be read: {why}") from error
        return found

    def close(self) -> None:
        """Stop watching them, and remove the namespace beside the campaign's. Safe to call twice."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None
        if self._beside is not None:
            beside, self._beside = self._beside, None
            beside.remove()
