"""Take the fingerprints of the networks of a campaign, each once, between two pods on different nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from k8sdds.model.ip_families import IpFamily
from k8sdds.model.placement import crossing
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.results.fingerprint import Fingerprint, unobserved
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import fingerprint
from k8sdds.testbeds.cluster.blocks import prepared_options
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_settings import require_path_mtu
from k8sdds.testbeds.cluster.pod_pool import PodPlace, PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.fingerprint import Probed


class Fingerprints:
    """The fingerprints of a campaign's networks."""

    def __init__(self, pods: PodPool, probes: NodeProbes) -> None:
        self._pods = pods
        self._probes = probes
        self._taken: dict[tuple[str, str, IpFamily], Fingerprint] = {}

    def of(self, cell: Cell) -> Fingerprint | None:
        """Return the fingerprint of a cell's network; None if it was not taken."""
        return self._taken.get(_key(cell))

    def is_encrypted(self, cell: Cell) -> bool:
        """Return whether the fingerprint of a cell's network shows that its packets cannot be read."""
        taken = self.of(cell)
        return taken is not None and taken.cleartext is False

    def take(self, cell: Cell, slots: Mapping[str, Slot]) -> None:
        """Take the fingerprint of a cell's network, whose pods must be ready, unless it is known."""
        if self.of(cell) or not cell.crosses_links:
            return
        places = {one: self._pods.pod(slots[one.name]).node for one in cell.participants}
        pair = crossing(cell, places)
        if pair is None:
            return  # the pods of another cell may be on different nodes
        sender, receiver = (slots[one.name] for one in pair)
        source = self._pods.pod(sender)
        try:
            taken = self._take_between(sender, receiver)
        except PrerequisiteError as error:
            taken = unobserved(error.message)
        if find(cell.network).encryption and taken.cleartext:
            raise PrerequisiteError(
                f"{cell.network_label}: packets between nodes are not encrypted: their content was read on"
                f" {taken.uplink} of {source.node}",
                "check that the network's agents have the same key, and that no other network is installed",
            )
        require_path_mtu(cell, source.mtu_bytes, taken.path_mtu_bytes)
        self._taken[_key(cell)] = taken

    def _take_between(self, sender: Slot, receiver: Slot) -> Fingerprint:
        probed = probed_between(self._pods, sender, receiver)
        with contextlib.ExitStack() as stack:
            try:
                node = stack.enter_context(self._probes.observing(self._pods.pod(sender).node))
            except PrerequisiteError as error:
                return fingerprint.observe(replace(probed, node_unavailable=error.message))
            return fingerprint.observe(replace(probed, node=node))


def probed_between(pods: PodPool, sender: Slot, receiver: Slot) -> Probed:
    """Return two pods as what a network is observed between, without the sender's node."""
    source, target = pods.pod(sender), pods.pod(receiver)
    return Probed(
        sender=PodPlace(pods, sender),
        sender_address=source.address,
        sender_interface=source.interface,
        mtu_bytes=source.mtu_bytes or LINK_MTU,
        receiver=PodPlace(pods, receiver),
        receiver_address=target.address,
        receiver_interface=target.interface,
        peer=target.node_address,
        node=None,
    )


def _key(cell: Cell) -> tuple[str, str, IpFamily]:
    """Return the key of a fingerprint: the packets of a family on a network with its options."""
    return cell.network, repr(prepared_options(cell)), cell.ip_family
