"""Read each kind of evidence about a trial in a lab network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from k8sdds import workloads
from k8sdds.model.measurement import Launch, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER, Trial
from k8sdds.testbeds import interface_bytes
from k8sdds.testbeds.evidence import Counters, ProfileReading, Reading
from k8sdds.testbeds.lab import capture, facts, services
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.topology import ports
from k8sdds.testbeds.machine_cpu import Usage, between

MACHINE = "lab"
"""Name of this machine among those of the participants."""


def readings(
    lab_network: LabNetwork, trial: Trial, launches: Sequence[Launch], deadline_s: float
) -> list[Reading]:
    """Return the kinds of evidence that a trial needs."""
    cell, folder = trial.cell, launches[0].directory.parent
    participants = [launch.participant for launch in launches]
    senders = sorted({lab_network.node_of(one.name) for one in participants if one.publishes})
    receivers = {
        one.name: lab_network.node_of(one.name) for one in participants if one.publishes or one.subscribes
    }
    stays = cell.uses_network and not cell.crosses_links
    found: list[Reading] = [
        OneNodeBytes(lab_network, senders) if stays else LinkBytes(lab_network, senders, receivers)
    ]
    if cell.link.bond:
        found.append(MemberBytes(lab_network, senders, ports(cell.link)))
    if cell.crosses_links and lab_network.plan.datapath.encryption_proof is not None:
        found.append(DecryptedBytes(lab_network, receivers))
    if "conntrack_entries" in workloads.find(cell.test).metrics:
        found.append(TrackedConnections(lab_network, senders))
    if lab_network.plan.key.services:
        found.append(ServiceConnections(lab_network, senders))
    if cell.capture:
        found.append(Fragments(lab_network, folder / capture.FILE, cell.payload_bytes))
    if cell.profile:
        found.append(ProfileReading(trial, folder, lab_network.owner_of, deadline_s))
    return [*found, MachineUsage(lab_network)]


class LinkBytes(Counters[tuple[str, str]]):
    """Bytes that the links of the publishers' nodes sent, and those of all participants' nodes received."""

    def __init__(self, lab_network: LabNetwork, senders: Sequence[str], receivers: Mapping[str, str]) -> None:
        super().__init__()
        self._lab_network, self._senders, self._receivers = lab_network, senders, receivers

    @override
    def read(self) -> Mapping[tuple[str, str], int]:
        wanted = {(node, "tx") for node in self._senders} | {
            (node, "rx") for node in self._receivers.values()
        }
        return {(node, way): self._lab_network.link_bytes(node, way) for node, way in wanted}

    @override
    def fields(
        self, gained: Mapping[tuple[str, str], int], outcomes: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        return {
            "sent_bytes": sum(gained[node, "tx"] for node in self._senders),
            "received_bytes": {name: gained[node, "rx"] for name, node in self._receivers.items()},
        }


class OneNodeBytes(Counters[tuple[str, str]]):
    """Bytes that the node of all participants exchanged with others, and those that their interfaces carried."""

    def __init__(self, lab_network: LabNetwork, nodes: Sequence[str]) -> None:
        super().__init__()
        self._lab_network, self._nodes = lab_network, nodes

    @override
    def read(self) -> Mapping[tuple[str, str], int]:
        return {
            (node, way): self._lab_network.link_bytes(node, way)
            for node in self._nodes
            for way in ("tx", "rx")
        }

    @override
    def fields(
        self, gained: Mapping[tuple[str, str], int], outcomes: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        outcomes = self._lab_network.with_interfaces(outcomes)
        namespaces = {name: self._lab_network.namespace_of(name) for name in outcomes}
        sent_bytes, received_bytes = interface_bytes(outcomes, namespaces)
        return {
            "outcomes": outcomes,
            "sent_bytes": sent_bytes,
            "received_bytes": received_bytes,
            "uplink_bytes": sum(gained.values()),
        }


class MemberBytes(Counters[tuple[str, str]]):
    """Bytes that each member of a bonded link of the publishers' nodes sent."""

    def __init__(self, lab_network: LabNetwork, senders: Sequence[str], members: Sequence[str]) -> None:
        super().__init__()
        self._lab_network, self._senders, self._members = lab_network, senders, members

    @override
    def read(self) -> Mapping[tuple[str, str], int]:
        return {
            (node, member): self._lab_network.link_bytes(node, "tx", member)
            for node in self._senders
            for member in self._members
        }

    @override
    def fields(
        self, gained: Mapping[tuple[str, str], int], outcomes: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        return {
            "member_bytes": {
                node: [gained[node, member] for member in self._members] for node in self._senders
            }
        }


class DecryptedBytes(Counters[str]):
    """Bytes that the tunnels of the participants' nodes decrypted."""

    def __init__(self, lab_network: LabNetwork, receivers: Mapping[str, str]) -> None:
        super().__init__()
        self._lab_network, self._receivers = lab_network, receivers

    @override
    def read(self) -> Mapping[str, int]:
        return {node: self._lab_network.decrypted_bytes(node) or 0 for node in self._receivers.values()}

    @override
    def fields(self, gained: Mapping[str, int], outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return {"decrypted_bytes": {name: gained[node] for name, node in self._receivers.items()}}


class TrackedConnections(Counters[str]):
    """Entries that the connection tracking of the publishers' nodes gained."""

    def __init__(self, lab_network: LabNetwork, senders: Sequence[str]) -> None:
        super().__init__()
        self._lab_network, self._senders = lab_network, senders

    @override
    def read(self) -> Mapping[str, int]:
        return {node: self._lab_network.conntrack_entries(node) for node in self._senders}

    @override
    def fields(self, gained: Mapping[str, int], outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return {"conntrack_entries": sum(max(entries, 0) for entries in gained.values())}


class ServiceConnections(Counters[str]):
    """Connections that the rule of the measured Service translated on the publishers' nodes."""

    def __init__(self, lab_network: LabNetwork, senders: Sequence[str]) -> None:
        super().__init__()
        self._lab_network, self._senders = lab_network, senders

    @override
    def read(self) -> Mapping[str, int]:
        plan, sandbox = self._lab_network.plan, self._lab_network.sandbox
        return {node: services.connections(plan, sandbox, node) for node in self._senders}

    @override
    def fields(self, gained: Mapping[str, int], outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        wanted = self._lab_network.plan.key.services
        return {"service_connections": sum(gained.values()), "proxy_mode": wanted.proxy if wanted else None}


class Fragments(Reading):
    """Numbers of IP fragments per sample on the publisher's link, from captured packets."""

    def __init__(self, lab_network: LabNetwork, pcap: Path, payload_bytes: int) -> None:
        self._lab_network, self._pcap, self._payload_bytes = lab_network, pcap, payload_bytes

    @override
    def recording(self) -> AbstractContextManager[None]:
        node = self._lab_network.node_of(FIRST_PUBLISHER.name)
        return capture.capturing(self._lab_network.sandbox.enter(node), "eth0", self._pcap)

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return {"ip_fragments": tuple(capture.fragments_per_sample(self._pcap, self._payload_bytes))}


class MachineUsage(Reading):
    """What this machine spent outside of the participants' pods, and its state right after the attempt."""

    def __init__(self, lab_network: LabNetwork) -> None:
        self._lab_network = lab_network
        self._before: Usage | None = None

    @override
    def before(self) -> None:
        self._before = self._lab_network.usage()

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        after = self._lab_network.usage()
        spent = between(self._before, after) if self._before and after else None
        return {
            "outside": {MACHINE: replace(spent, separate_interrupts=facts.separate_interrupts())}
            if spent
            else {},
            "cpu_mhz": facts.cpu_mhz(),
            "warnings": facts.throttling(),
        }
