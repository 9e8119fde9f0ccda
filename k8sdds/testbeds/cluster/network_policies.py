"""Create the NetworkPolicies of a block, wait until they are enforced, and delete them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes import objects
from k8sdds.model.trial import FIRST_PUBLISHER, Cell
from k8sdds.networks.policies import manifest, policy_name
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds import probing
from k8sdds.testbeds.cluster.fingerprints import probed_between
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.pod_pool import PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.fingerprint import Probed, packet_handling_of

TIMEOUT_S, TIMEOUT_PER_POLICY_S = 180, 0.5
"""How long the network's agents may take until all policies are enforced, or all are gone."""
POLL_S = 2.0


class Policies:
    """The NetworkPolicies in a campaign's namespace. They select the participants' pods."""

    def __init__(self, namespace: CampaignNamespace, pods: PodPool, probes: NodeProbes) -> None:
        self._client = namespace.client
        self._namespace = namespace
        self._pods = pods
        self._probes = probes
        self._count = 0
        """How many can exist."""
        self._verified = True
        """Whether they are in effect, and no others."""
        self._other_rules: int | None = None
        """Packet filter rules of the observed node without policies; None if unknown."""
        self.proof = ""
        """What was verified of the current policies; empty if there are none."""

    def provide(self, cell: Cell, slots: Mapping[str, Slot]) -> bool:
        """Create the policies of a cell, delete others, and wait until they are enforced. The pods must be ready.

        Returns whether there was anything to change. Raises PrerequisiteError if the policies are not enforced.
        """
        if self._verified and cell.policies == self._count:
            return False
        node = self._pods.pod(slots[FIRST_PUBLISHER.name]).node
        receiver = self._receiver(cell, slots, node)
        if not receiver:
            # Pods on one node, which only have to do without policies.
            return self.remove()
        with self._probes.observing(node) as place:
            path = probed_between(self._pods, slots[FIRST_PUBLISHER.name], slots[receiver])
            path = replace(path, node=place)
            direction = f"{node} to {receiver}"
            # What packets show is the same for any number of policies, so that all are removed in between.
            self._set(0)
            self._await(path, direction)
            if cell.policies:
                self._other_rules = _rules(path)
                self._set(cell.policies)
                self._await(path, direction)
                self.proof = probing.denial(cell.policies, node, receiver)
        self._verified = True
        return True

    def remove(self) -> bool:
        """Delete all policies. Return whether there were any."""
        if not self._count:
            return False
        self._set(0)
        return True

    def _receiver(self, cell: Cell, slots: Mapping[str, Slot], node: str) -> str:
        """Return a subscriber that is not on a node; empty if the placement has none, and the cell no policies."""
        for subscriber in cell.subscribing:
            if self._pods.pod(slots[subscriber.name]).node != node:
                return subscriber.name
        if cell.policies:
            raise PrerequisiteError(
                f"{cell.describe()}: no subscriber is on another node than {node}, so no policy can be tested",
                "place a subscriber on another node, or leave out policies",
            )
        return ""

    def _await(self, path: Probed, direction: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S + TIMEOUT_PER_POLICY_S * self._count
        while missing := self._missing(path):
            if time.monotonic() > deadline:
                what = (
                    f"{self._count} NetworkPolicies are not" if self._count else "NetworkPolicies are still"
                )
                raise PrerequisiteError(
                    f"{what} in effect for packets from {direction}: {missing}",
                    "check that the network's agents are ready and enforce policies, and that no policies of others"
                    " select the pods",
                )
            time.sleep(POLL_S)

    def _missing(self, path: Probed) -> str:
        """Return why the policies are not in effect yet; empty if they are."""
        rules, other = _rules(path), self._other_rules
        # A network without packet filter rules has as many as before.
        if rules is not None and other is not None and other < rules < other + self._count:
            return f"the node has {rules} packet filter rules, {other} without policies"
        assert path.node is not None
        answers = probing.answered(path.node, path.receiver, path.receiver_address)
        if (answers == 0) != bool(self._count):
            return f"{answers} of {probing.DATAGRAMS} datagrams of the node are answered"
        if not probing.answered(path.sender, path.receiver, path.receiver_address):
            return "the participant is not answered"
        return ""

    def _set(self, count: int) -> None:
        before, self.proof, self._verified = self._count, "", False
        self._count = max(before, count)
        in_threads(self._create, range(before, count))
        in_threads(self._delete, range(count, before))
        self._count = count

    def _create(self, number: int) -> None:
        objects.create(self._client, [self._manifest(number)])

    def _delete(self, number: int) -> None:
        one = self._manifest(number)
        self._client.delete(f"{objects.collection_path(self._client, one)}/{one['metadata']['name']}")

    def _manifest(self, number: int) -> dict[str, Any]:
        campaign = self._namespace.campaign
        pods = {versions.CAMPAIGN_LABEL: campaign, versions.KIND_LABEL: "pod"}
        # A prepared namespace can contain those of other campaigns.
        name = f"{policy_name(number)}-{campaign[-6:]}"
        return manifest(name, self._namespace.name, self._namespace.labels, pods)


def _rules(path: Probed) -> int | None:
    """Return the number of packet filter rules on the sender's node; None if unreadable."""
    assert path.node is not None
    rules = packet_handling_of(path.node, path.peer).rules
    return None if rules is None else len(rules)
