"""Verify that packets between participants take the path of the network under test.

Before a network is measured, its pods exchange unfragmented packets of MTU size and, if needed, multicast.
The link counters of the nodes must show that these packets took the network's path. In each trial, the same counters
must have grown by at least the bytes that arrived at the subscribers (`campaign.validity`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from k8sdds.kubernetes.exec_stream import CommandResult, ExecStream, StreamLost
from k8sdds.model.ip_families import IP_AND_UDP_HEADERS_BYTES, IpFamily
from k8sdds.model.settings import HOST
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, host_and_port
from k8sdds.networks import UNKNOWN, find
from k8sdds.networks.cluster_install import PathEvidence
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import datapath
from k8sdds.testbeds.cluster.datapath import LinkCounters, PathEnd
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.cluster.pod_pool import ADMITTING_POLICY, PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot

PROBE = "/usr/local/bin/k8sdds-probe"
FIRST_PORT = 17000
GROUPS: dict[IpFamily, str] = {"ipv4": "239.255.77.1", "ipv6": "ff05::7701"}
WHOLE_PACKETS = 40
"""Packets in each direction, so that their bytes stand out from other traffic in a link's counters."""
MULTICAST_PACKETS = 3
READY_TIMEOUT_S = 30
"""Until all listeners printed `ready`. A small, busy node takes seconds to start a command in a pod."""
LISTEN_S = READY_TIMEOUT_S + 10
LISTEN_PER_PAIR_S = 0.2
"""Added to `LISTEN_S` for each pair, because not all pairs are probed at the same time."""
REPLY_TIMEOUT_S = 8
ELSEWHERE: dict[IpFamily, str] = {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}
"""An address for documentation (RFC 5737), whose route shows the link to other machines. No packet is sent there."""
ENCRYPTED = "encrypted: the content of captured packets cannot be read"
UNPROVEN = "unproven"
"""First word of the warning on trials whose path could not be verified."""


@dataclass(frozen=True)
class PathProof:
    """What was verified about the path between the participants of a cell."""

    path: str
    """Description of the path between their nodes."""
    unproven: str = ""
    """What could not be verified, and why."""
    links: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node to its links that carry the network, for nodes whose links could be read."""

    def describe(self) -> str:
        """Return the proof in one line."""
        return "; ".join(filter(None, (self.path, f"not proven: {self.unproven}" if self.unproven else "")))


Key = tuple[tuple[Slot, ...], tuple[str, ...], bool]
"""Slots, the nodes of their pods, and whether multicast is included."""


@dataclass
class PathVerifier:
    """Verifies paths, once for the same pods on the same network."""

    pods: PodPool
    probes: NodeProbes
    interface: str = ""
    """The nodes' link that pod networks must use; empty means any."""
    is_encrypted: Callable[[Cell], bool] = lambda _: False
    """Returns whether captured packets of a cell's network could not be read."""
    deployed: bool = True
    """Whether k8sdds installed the networks, so that it knows how they are configured."""
    nodes: Sequence[NodeInfo] = ()
    """The cluster's nodes."""
    _proofs: dict[Key, PathProof] = field(default_factory=dict)
    _last: dict[str, LinkCounters] = field(default_factory=dict)
    """Last link counters by node."""

    def verify(self, cell: Cell, slots: Mapping[str, Slot]) -> None:
        """Verify the path between a cell's pods, which must be ready. Samples in shared memory take no path."""
        if not cell.uses_network:
            return
        key = self._key(cell, slots)
        if key not in self._proofs:
            verify = self._verify if cell.crosses_links else self._verify_on_node
            self._proofs[key] = verify(cell, slots, multicast=key[-1])
        # A switch of the pod network does not change the path on the nodes' own network, but forgets all counters.
        if unread := self._proofs[key].links.keys() - self._last.keys():
            self._last = {**self._last, **self.probes.read_counters(sorted(unread))}

    def proof(self, cell: Cell, slots: Mapping[str, Slot]) -> PathProof | None:
        """Return the proof for a cell, whose pods must be ready; None if not verified yet."""
        proof, evidence = self._proofs.get(self._key(cell, slots)), _path_evidence(cell, self.deployed)
        if not cell.crosses_links or proof is None or evidence is None:
            return proof
        # What the links do not show, the fingerprint may: it is observed after the path was verified.
        if proof.unproven == evidence.unverified != "" and self.is_encrypted(cell):
            return replace(proof, path=f"{proof.path}; {ENCRYPTED}", unproven="")
        return proof

    def _key(self, cell: Cell, slots: Mapping[str, Slot]) -> Key:
        # If the scheduler selects nodes, a replacement pod may run on another node.
        nodes = tuple(self.pods.pod(slot).node for slot in slots.values())
        return tuple(slots.values()), nodes, "multicast" in (cell.transport, cell.discovery_kind)

    def forget(self, slots: Collection[Slot]) -> None:
        """Discard the proofs of these slots, because their pods will be replaced."""
        self._keep(lambda slot: slot not in slots)

    def forget_pod_networks(self) -> None:
        """Discard the proofs of pod networks, because another one will be installed."""
        self._keep(lambda slot: slot.host)
        self._last = {}

    def _keep(self, is_kept: Callable[[Slot], bool]) -> None:
        self._proofs = {key: proof for key, proof in self._proofs.items() if all(map(is_kept, key[0]))}

    def counters(self, cell: Cell, slots: Mapping[str, Slot]) -> tuple[dict[str, Any], str]:
        """Return the bytes on the links since the last reading, as a field of a measurement; and why it is unknown.

        `carried_bytes`: bytes received on the node of each subscriber. `uplink_bytes`: bytes that the node of all
        participants exchanged with others. The field is None if it is unknown, and on the nodes' own network, because
        the counters of the participants' interfaces are those of the links.
        """
        field = "carried_bytes" if cell.crosses_links else "uplink_bytes"
        proof = self.proof(cell, slots)
        if proof is None or (cell.crosses_links and cell.network == HOST):
            return {field: None}, ""
        if not proof.links:
            return {field: None}, proof.unproven
        nodes = self._receiving_nodes(cell, slots)
        before, now = self._last, self.probes.read_counters(nodes.values())
        self._last = {**before, **now} if now else {}
        if not now:
            return {field: None}, self.probes.unavailable
        if not set(nodes.values()) <= before.keys() & proof.links.keys():
            return {field: None}, "the links of the nodes were not read before this trial"
        moved = {
            node: datapath.moved_bytes(before[node], now[node], proof.links[node]) for node in nodes.values()
        }
        if cell.crosses_links:
            return {field: {name: moved[node][1] for name, node in nodes.items()}}, proof.unproven
        return {field: sum(sum(both) for both in moved.values())}, proof.unproven

    def _receiving_nodes(self, cell: Cell, slots: Mapping[str, Slot]) -> dict[str, str]:
        """Return the node of each subscriber that receives from another node, or of all if samples cross no link."""
        places = {one: self.pods.pod(slots[one.name]).node for one in cell.participants}
        return {
            other.name: places[other]
            for one, other in cell.pairs
            if not cell.crosses_links or places[one] != places[other]
        }

    def _verify_on_node(self, cell: Cell, slots: Mapping[str, Slot], multicast: bool) -> PathProof:
        """Verify that packets between pods on one node stay there."""
        ready_pods = {name: self.pods.pod(slot) for name, slot in slots.items()}
        node = ready_pods[FIRST_PUBLISHER.name].node
        if elsewhere := [name for name, pod in ready_pods.items() if pod.node != node]:
            raise PrerequisiteError(
                f"{cell.describe()}: {', '.join(elsewhere)} is not on {node}",
                "try again, or change the placement",
            )
        self._exchange_packets(cell, slots, ready_pods, multicast)
        exchanged = f"whole packets of {ready_pods[FIRST_PUBLISHER.name].mtu_bytes} bytes pass on one node"
        others = (other.address for other in self.nodes if other.name != node and other.address)
        other = next(others, ELSEWHERE[cell.ip_family])
        addresses = list(dict.fromkeys(pod.address for pod in ready_pods.values()))
        counters = self.probes.read_counters([node], [other, *addresses]).get(node)
        if counters is None:
            return PathProof(exchanged, f"that they stay on it, because {self.probes.unavailable}")
        uplink = counters.routes.get(other, "")
        self._last = {**self._last, node: counters}
        leaving = [address for address in addresses if counters.routes.get(address, uplink) == uplink]
        if leaving:
            raise PrerequisiteError(
                f"{cell.network_label}: packets for {leaving[0]}, a pod of {node}, leave it by {uplink or 'no link'}",
                "use a network whose pods on one node reach each other without the link between nodes",
            )
        return PathProof(f"{exchanged}, not by {uplink}", links={node: (uplink,)})

    def _verify(self, cell: Cell, slots: Mapping[str, Slot], multicast: bool) -> PathProof:
        ready_pods = {name: self.pods.pod(slot) for name, slot in slots.items()}
        # One participant represents its node: packets of all its pods take the same path.
        evidence = _path_evidence(cell, self.deployed)
        direct = evidence is not None and evidence.on_node_link
        addresses = {pod.node: pod.node_address if direct else pod.address for pod in ready_pods.values()}
        before = self.probes.read_counters(addresses, list(addresses.values()))
        sent_bytes = self._exchange_packets(cell, slots, ready_pods, multicast)
        exchanged = f"whole packets of {ready_pods[FIRST_PUBLISHER.name].mtu_bytes} bytes pass"
        after = self.probes.read_counters(addresses, list(addresses.values())) if before else {}
        if not after:
            return PathProof(
                exchanged, f"which links of the nodes carry it, because {self.probes.unavailable}"
            )
        self._last = {**self._last, **after}
        if evidence is None:
            # Nothing is known of the network that could be compared. Its fingerprint shows what carries the packets.
            named = (
                "" if cell.network == UNKNOWN else f"; only its running agent shows that it is {cell.network}"
            )
            return PathProof(f"{exchanged}; what carries them is observed, not known in advance{named}")
        ends = {node: PathEnd(node, addresses[node], before[node], after[node]) for node in addresses}
        paths: dict[str, None] = {}
        links: dict[str, tuple[str, ...]] = {}
        interface = "" if cell.network == HOST else self.interface
        for a, b in _node_pairs(cell, ready_pods):
            if deviation := datapath.deviation(evidence, ends[a], ends[b], sent_bytes, interface):
                raise PrerequisiteError(
                    f"{cell.network_label}: the installed network is not {find(cell.network).title}: {deviation}",
                    "check whether another network is installed, or whether it uses a fallback;"
                    " name the installed network with --pod-network",
                )
            paths[datapath.describe(evidence, ends[a], ends[b])] = None
            for node, peer in ((a, b), (b, a)):
                names = datapath.path_links(evidence, after[node], addresses[peer])
                links[node] = tuple(dict.fromkeys([*links.get(node, ()), *names]))
        return PathProof(f"{', '.join(paths)}; {exchanged}", evidence.unverified, links)

    def _exchange_packets(
        self, cell: Cell, slots: Mapping[str, Slot], ready_pods: Mapping[str, ReadyPod], multicast: bool
    ) -> int:
        """Send unfragmented packets of MTU size from each publisher to its subscribers and await replies.

        Returns the minimum number of bytes sent in each direction. Raises PrerequisiteError if a subscriber does not
        reply.
        """
        publishers = [publisher.name for publisher in cell.publishing]
        ports = {subscriber.name: FIRST_PORT + n for n, subscriber in enumerate(cell.subscribing)}
        pairs = [(publisher.name, subscriber.name) for publisher, subscriber in cell.pairs]
        group, headers = GROUPS[cell.ip_family], IP_AND_UDP_HEADERS_BYTES[cell.ip_family]
        sizes = {name: (ready_pods[name].mtu_bytes or 1500) - headers for name in publishers}
        listen_s = round(LISTEN_S + LISTEN_PER_PAIR_S * len(pairs))
        listen = [PROBE, "listen", "--for", str(listen_s), "--group", group, "--udp"]
        requests = []
        for pub, sub in pairs:
            port = ports[sub]
            address = host_and_port(ready_pods[sub].address, port)
            whole = ["--whole", "--bytes", str(sizes[pub]), "--count", str(WHOLE_PACKETS)]
            requests.append((pub, sub, f"whole packets of {sizes[pub] + headers} bytes", [address, *whole]))
            if multicast:
                several = ["--count", str(MULTICAST_PACKETS), "--interface", ready_pods[pub].interface]
                requests.append((pub, sub, "multicast", [host_and_port(group, port), *several]))
        ask, timeout = [PROBE, "ask"], ["--timeout", str(REPLY_TIMEOUT_S)]
        listeners = [(slots[name], [*listen, str(port)]) for name, port in ports.items()]
        with self.pods.background(listeners) as streams:
            _wait_until_ready(streams, ports)
            commands = [(slots[pub], [*ask, *options, *timeout]) for pub, _, _, options in requests]
            results = self.pods.run_all(commands, REPLY_TIMEOUT_S + 10)
        for (pub, sub, packets, _), result in zip(requests, results, strict=True):
            if result.code:
                raise PrerequisiteError(
                    f"{cell.network_label}: {sub} does not answer {pub} by {packets}: {_probe_message(result)}",
                    self._remedy(slots[sub]),
                )
        return WHOLE_PACKETS * min(sizes.values())

    def _remedy(self, slot: Slot) -> str:
        """Return what to do if a pod does not answer."""
        agents = "check that the network's agent is ready on both nodes: kubectl get pods -A -o wide"
        policies = [] if slot.host else self.pods.policies_of_others()
        others = [name for name in policies if name != ADMITTING_POLICY]
        if not others:
            return agents
        admit = (
            "" if ADMITTING_POLICY in policies else " (k8sdds init rights --like network-policy admits it)"
        )
        return f"one of these NetworkPolicies may refuse it: {', '.join(others)}{admit}; or {agents}"


def _wait_until_ready(streams: Iterable[ExecStream], subscribers: Iterable[str]) -> None:
    end = time.monotonic() + READY_TIMEOUT_S
    for stream, name in zip(streams, subscribers, strict=True):
        try:
            stream.wait_ready(end)
        except (StreamLost, TimeoutError) as error:
            raise PrerequisiteError(
                f"{PROBE} does not start in the pod of {name}: {error or f'nothing in {READY_TIMEOUT_S} s'}",
                "check the node and the image: kubectl describe pods; then run the same command again",
            ) from error


def _path_evidence(cell: Cell, deployed: bool) -> PathEvidence | None:
    """Return the path that the cell's network must have; None if k8sdds does not know it in this configuration."""
    install = find(cell.network).install_for(cell.network_options.get("engine"))
    return install.path if install is not None and (deployed or not install.path.varies) else None


def _node_pairs(cell: Cell, ready_pods: Mapping[str, ReadyPod]) -> list[tuple[str, str]]:
    """Return the nodes of each publisher and each subscriber, each pair of nodes once."""
    pairs = ((ready_pods[pub.name].node, ready_pods[sub.name].node) for pub, sub in cell.pairs)
    return list(dict.fromkeys((node, other) for node, other in pairs if node != other))


def _probe_message(result: CommandResult) -> str:
    try:
        report: Mapping[str, object] = reading.json_object(result.stdout, "probe")
        return f"{report['received']} of {report['sent']} came back; {report['last_error']}"
    except (reading.UnreadableError, KeyError):
        return reading.one_line(result.stderr.decode(errors="replace"), 300) or f"exit code {result.code}"
