"""Read each kind of evidence about a trial in a lab network."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from k8sdds import workloads
from k8sdds.model.measurement import Launch, Outcome
from k8sdds.model.packet_kinds import COMMAND, FILE, KindCounts
from k8sdds.model.services import ServiceSet
from k8sdds.model.trial import (
    DISCOVERY_SERVER,
    FIRST_PUBLISHER,
    PUBLISHER,
    SUBSCRIBER,
    Cell,
    Participant,
    Role,
    Trial,
)
from k8sdds.networks import packets
from k8sdds.results import link_statistics
from k8sdds.system import cgroups, reading
from k8sdds.system.files import write_atomically
from k8sdds.testbeds import interface_bytes
from k8sdds.testbeds.evidence import Compared, ProfileReading, Reading, measured_us
from k8sdds.testbeds.lab import facts, netem, services
from k8sdds.testbeds.lab.emulator import LinkEmulator
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.places import LabPlace
from k8sdds.testbeds.lab.topology import ports, queued, services_of
from k8sdds.testbeds.machine_cpu import Usage, between
from k8sdds.testbeds.probing import Stop

CAPTURE = "capture.pcap"
CAPTURE_OPTIONS = ("--interface", "eth0", "--count", "3000", "--snap", "64", "--deadline", str(24 * 3600))
"""Options of a capture. It need not cover the trial: so many packets are enough for hundreds of samples."""
_UDP = 17
COUNTED: tuple[Role, ...] = (PUBLISHER, SUBSCRIBER, DISCOVERY_SERVER.role)
"""Whose packets are counted by kind; the first in a pod names it."""
MACHINE = "lab"
"""Name of this machine among those of the participants."""
Queues = Mapping[tuple[str, str], netem.Counters | None]
"""What the queues of links have counted, by node and direction."""


def readings(
    lab_network: LabNetwork, trial: Trial, launches: Sequence[Launch], deadline_s: float, core: int | None
) -> list[Reading]:
    """Return the kinds of evidence that a trial needs. `core` is one on which no participant runs, if there is one."""
    cell, folder, workload = trial.cell, launches[0].directory.parent, workloads.find(trial.cell.test)
    participants = [launch.participant for launch in launches]
    publishing = cell.publishing
    senders = sorted({lab_network.node_of(one.name) for one in participants if one in publishing})
    receivers = {
        one.name: lab_network.node_of(one.name) for one in participants if one.publishes or one.subscribes
    }
    stays = cell.uses_network and not cell.crosses_links
    found: list[Reading] = [
        _one_node_bytes(lab_network, senders, publishing)
        if stays
        else _link_bytes(lab_network, senders, receivers)
    ]
    if cell.link.bond:
        found.append(_member_bytes(lab_network, senders, ports(cell.link)))
    if cell.crosses_links and lab_network.plan.datapath.encryption_proof is not None:
        found.append(_decrypted_bytes(lab_network, receivers))
    if "conntrack_entries" in workload.metrics:
        found.append(_tracked_connections(lab_network, senders))
    if wanted := services_of(lab_network.plan.cell):
        found.append(_service_connections(lab_network, senders, wanted))
    if cell.capture:
        found.append(Fragments(lab_network, folder / CAPTURE, cell.payload_bytes))
    if cell.profile:
        found.append(ProfileReading(trial, folder, lab_network.owner_of, deadline_s))
    if recorded := recorded_stops(lab_network, cell, core):
        found.append(recorded)
    if workload.counts_kinds:
        found.append(PacketKinds(lab_network, launches, core))
    found.append(_machine_usage(lab_network))
    # Last, so that its statistics begin right before the participants start.
    if lab_network.emulator:
        found.append(LinkConditions(lab_network.emulator, folder))
    elif where := queued(lab_network.plan.topology, cell.link):
        found.append(queue_conditions(lab_network, where))
    return found


def _gained(
    read: Callable[[], Mapping[Any, int]],
    fields: Callable[[Mapping[Any, int], Mapping[str, Outcome]], Mapping[str, Any]],
) -> Reading:
    """Read counters, of which only the differences are evidence: `fields` gets what they gained."""

    def differences(
        before: Mapping[Any, int] | None,
        read: Callable[[], Mapping[Any, int]],
        outcomes: Mapping[str, Outcome],
    ) -> Mapping[str, Any]:
        after = read()
        before = after if before is None else before
        return fields({key: value - before[key] for key, value in after.items()}, outcomes)

    return Compared(read, differences)


def _link_bytes(lab_network: LabNetwork, senders: Sequence[str], receivers: Mapping[str, str]) -> Reading:
    """Read what the links of the publishers' nodes sent, and those of all participants' nodes received."""
    ways = {*((node, "tx") for node in senders), *((node, "rx") for node in receivers.values())}
    return _gained(
        lambda: {(node, way): lab_network.link_bytes(node, way) for node, way in ways},
        lambda gained, _: {
            "sent_bytes": sum(gained[node, "tx"] for node in senders),
            "received_bytes": {name: gained[node, "rx"] for name, node in receivers.items()},
        },
    )


def _one_node_bytes(
    lab_network: LabNetwork, senders: Sequence[str], publishing: Sequence[Participant]
) -> Reading:
    """Read what the node of all participants exchanged with others, and what their interfaces carried."""

    def fields(gained: Mapping[Any, int], outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        outcomes = lab_network.with_interfaces(outcomes)
        namespaces = {name: lab_network.namespace_of(name) for name in outcomes}
        sent_bytes, received_bytes = interface_bytes(outcomes, namespaces, publishing)
        return {
            "outcomes": outcomes,
            "sent_bytes": sent_bytes,
            "received_bytes": received_bytes,
            "uplink_bytes": sum(gained.values()),
        }

    ways = [(node, way) for node in senders for way in ("tx", "rx")]
    return _gained(lambda: {(node, way): lab_network.link_bytes(node, way) for node, way in ways}, fields)


def _member_bytes(lab_network: LabNetwork, senders: Sequence[str], members: Sequence[str]) -> Reading:
    """Read what each member of a bonded link of the publishers' nodes sent."""
    both = [(node, member) for node in senders for member in members]
    return _gained(
        lambda: {(node, member): lab_network.link_bytes(node, "tx", member) for node, member in both},
        lambda gained, _: {
            "member_bytes": {node: [gained[node, member] for member in members] for node in senders}
        },
    )


def _decrypted_bytes(lab_network: LabNetwork, receivers: Mapping[str, str]) -> Reading:
    """Read what the tunnels of the participants' nodes decrypted."""
    return _gained(
        lambda: {node: lab_network.decrypted_bytes(node) or 0 for node in receivers.values()},
        lambda gained, _: {"decrypted_bytes": {name: gained[node] for name, node in receivers.items()}},
    )


def _tracked_connections(lab_network: LabNetwork, senders: Sequence[str]) -> Reading:
    """Read the entries of the connection tracking of the publishers' nodes."""
    return _gained(
        lambda: {node: lab_network.conntrack_entries(node) for node in senders},
        lambda gained, _: {"conntrack_entries": sum(max(entries, 0) for entries in gained.values())},
    )


def _service_connections(lab_network: LabNetwork, senders: Sequence[str], wanted: ServiceSet) -> Reading:
    """Read the connections that the rule of the measured Service translated on the publishers' nodes."""
    plan, sandbox = lab_network.plan, lab_network.sandbox
    return _gained(
        lambda: {node: services.connections(plan, sandbox, node) for node in senders},
        lambda gained, _: {"service_connections": sum(gained.values()), "proxy_mode": wanted.proxy},
    )


class Fragments(Reading):
    """Numbers of IP fragments per sample on the publisher's link, from captured packets."""

    def __init__(self, lab_network: LabNetwork, pcap: Path, payload_bytes: int) -> None:
        self._lab_network, self._pcap, self._payload_bytes = lab_network, pcap, payload_bytes

    @override
    @contextmanager
    def recording(self) -> Iterator[None]:
        node = self._lab_network.node_of(FIRST_PUBLISHER.name)
        place = LabPlace(node, self._lab_network.sandbox.enter(node))
        with place.running([place.supervisor, "capture", *CAPTURE_OPTIONS]) as stop:
            yield
            self._pcap.write_bytes(stop())

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return {"ip_fragments": tuple(fragments_per_sample(self._pcap, self._payload_bytes))}


class Stops(Reading):
    """When CPU limits stopped participants. A process outside of their pods reads it on a core that they do not use."""

    def __init__(self, folders: Mapping[str, Path], core: int) -> None:
        """Read nothing yet. `folders`: participant to its cgroup with the limit."""
        self._folders, self._core = folders, core
        self._found: Any = None

    @override
    @contextmanager
    def recording(self) -> Iterator[None]:
        place = LabPlace(MACHINE, ())
        options = ["--own-cpus", str(self._core), "--deadline", str(24 * 3600)]
        options += [word for folder in self._folders.values() for word in ("--cgroup", str(folder))]
        with place.running([place.supervisor, "stops", *options]) as stop:
            yield
            self._found = json.loads(stop())

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        stops = {
            name: [(begin, end) for begin, end in own]
            for name, own in zip(self._folders, self._found, strict=True)
            if own is not None
        }
        return {"stops": stops}


def recorded_stops(lab_network: LabNetwork, cell: Cell, core: int | None) -> Stops | None:
    """Return the reading of the stops by CPU limits.

    None without limits, if slow samples are not timed, or if no `core` is free to read it.
    """
    if (
        core is None
        or not cell.cpu_quota
        or cell.graph
        or not workloads.find(cell.test).load(cell).on_schedule
    ):
        return None
    found = {one.name: cgroups.limited(lab_network.cgroups.get(one.name, ())) for one in cell.participants}
    limited = {name: folder for name, folder in found.items() if folder}
    return Stops(limited, core) if limited else None


class PacketKinds(Reading):
    """The packets that leave each pod, by kind and over time. The raw folder of its first participant keeps them."""

    def __init__(self, lab_network: LabNetwork, launches: Sequence[Launch], core: int | None) -> None:
        """Count nothing yet. `core`: where no participant runs; None if there is no such core."""
        self._lab_network = lab_network
        self._options = [] if core is None else ["--own-cpus", str(core)]
        self._first: dict[str, Launch] = {}
        """The first participant by network namespace, which several share without pods."""
        counted = [launch for launch in launches if launch.participant.role in COUNTED]
        for launch in sorted(counted, key=lambda one: (COUNTED.index(one.participant.role), one.participant)):
            self._first.setdefault(lab_network.namespace_of(launch.participant.name), launch)
        self._kinds: dict[str, KindCounts] = {}

    @override
    @contextmanager
    def recording(self) -> Iterator[None]:
        with ExitStack() as stack:
            running = [
                (launch, stack.enter_context(self._counting(launch))) for launch in self._first.values()
            ]
            yield
            for launch, stop in running:
                printed = stop()
                counts = KindCounts.of(reading.json_object(printed, COMMAND))
                assert counts is not None, f"{COMMAND} is of the same version"
                write_atomically(launch.directory / FILE, printed)
                self._kinds[launch.participant.name] = counts

    def _counting(self, launch: Launch) -> AbstractContextManager[Stop]:
        name = launch.participant.name
        place = LabPlace(name, self._lab_network.enter(name))
        interface = self._lab_network.plan.datapath.attachments[name].interface
        return place.running([place.supervisor, COMMAND, "--interface", interface, *self._options])

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return {"kinds": self._kinds}


class LinkConditions(Reading):
    """What the emulated links did to packets. The raw folder keeps all of it, with its course over time."""

    def __init__(self, emulator: LinkEmulator, folder: Path) -> None:
        self._emulator, self._folder = emulator, folder

    @override
    def before(self) -> None:
        self._emulator.start()

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        statistics = self._emulator.stop()
        write_atomically(self._folder / link_statistics.FILE, json.dumps(statistics))
        read = link_statistics.LinkStatistics.model_validate(statistics)
        return {"links": link_statistics.summary(read, measured_us(outcomes))}


def queue_conditions(lab_network: LabNetwork, where: Mapping[tuple[str, str], tuple[str, str]]) -> Reading:
    """Read what the kernel's queues do to the packets of links."""

    def read() -> Queues:
        shown = {
            key: lab_network.sandbox.run(["tc", "-s", "-j", "qdisc", "show", "dev", device], netns=place)
            for key, (place, device) in where.items()
        }
        return {key: netem.counters(text) for key, text in shown.items()}

    def fields(
        before: Queues | None, read: Callable[[], Queues], _: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        after = read()
        found: dict[str, dict[str, Any]] = defaultdict(dict)
        for (node, direction), now in after.items():
            first = (before or after)[node, direction]
            counted = now.summary(first) if now and first else {}
            found[node][direction] = link_statistics.UNKNOWN | counted
        return {"links": dict(found)}

    return Compared(read, fields)


def _machine_usage(lab_network: LabNetwork) -> Reading:
    """Read what this machine spends outside of the participants' pods, and its state right after the attempt."""

    def fields(
        before: Usage | None, read: Callable[[], Usage | None], _: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        after = read() if before else None
        spent = between(before, after) if before and after else None
        own = spent and replace(spent, separate_interrupts=facts.separate_interrupts())
        return {
            "outside": {MACHINE: own} if own else {},
            "cpu_mhz": facts.cpu_mhz(),
            "warnings": facts.throttling(),
        }

    return Compared(lab_network.usage, fields)


def fragments_per_sample(path: Path, payload_bytes: int) -> list[int]:
    """Return the distinct fragment counts of UDP datagrams of at least `payload_bytes` in a pcap file.

    Incomplete datagrams are left out, and an incomplete last record ends the file.
    """
    parts: dict[bytes, dict[int, tuple[int, bool]]] = defaultdict(dict)
    counts = set()
    try:
        captured = list(packets.read_pcap(path.read_bytes()))
    except ValueError:
        return []
    for packet in captured:
        fragment = packets.fragment_of(packet)
        if fragment.protocol != _UDP:
            continue
        key = fragment.datagram
        parts[key][fragment.offset_bytes] = (fragment.size_bytes, fragment.more_follow)
        size = _complete_bytes(parts[key])
        if size:
            fragments = parts.pop(key)
            if size - 8 >= payload_bytes:
                counts.add(len(fragments))
    return sorted(counts)


def _complete_bytes(parts: dict[int, tuple[int, bool]]) -> int:
    """Return the size of a datagram from its fragments, offset to (length, more follow); 0 if incomplete."""
    end = 0
    while end in parts:
        length, more = parts[end]
        end += length
        if not more:
            return end
    return 0
