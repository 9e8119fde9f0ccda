"""Write the command lines of RTI PerfTest for a trial, and reject what it cannot run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from k8sdds import workloads
from k8sdds.discovery import MULTICAST, SERVER
from k8sdds.middleware.connext import options
from k8sdds.middleware.connext.settings import Settings
from k8sdds.model.ip_families import IP_AND_UDP_HEADERS_BYTES
from k8sdds.model.measurement import ParticipantPaths
from k8sdds.model.message_size import LONGEST_MESSAGE_BYTES
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER, Cell, Endpoint, Participant, Trial
from k8sdds.perftest import command
from k8sdds.system.errors import InputError
from k8sdds.workloads.program import Surroundings

BATCH_BYTES = 8192
"""Default batch size of PerfTest in a throughput test. Its `-help` prints another one."""
LARGE_BYTES = 65470
"""PerfTest sends larger samples as unbounded sequences. It never batches them and rejects `-batchSize`."""
INDEXES = 5
"""Participants that Connext contacts at one address by default."""
LATENCY_FILE = "latency.csv"


SETTINGS = frozenset(
    {
        "reliability", "qos", "batch_bytes", "message_bytes", "instances", "discovery", "receive_mode", "publish_mode",
    }
)  # fmt: skip
_WRITERS = "RTI PerfTest has one topic and one writer in a publisher: topics and writers must be 1"
_PROCESS = "RTI PerfTest neither locks memory nor marks packets: leave out lock_memory and dscp"
REFUSALS = {
    "security": "RTI PerfTest takes one authority for identities and permissions, and k8sdds has two: security must be"
    " none with connext",
    "flow_bytes": "the flow controllers of RTI PerfTest are fixed: leave out flow_bytes, or define one in the QoS"
    " profile",
    "middleware_config": "RTI PerfTest reads its XML from the QoS profile: give `qos` instead of middleware_config",
    "fragment_bytes": "RTI PerfTest has no option for the length of fragments: fragment_bytes must be default",
    "lock_memory": _PROCESS,
    "dscp": _PROCESS,
    "topics": _WRITERS,
    "writers": _WRITERS,
}


def unsupported(cell: Cell) -> str | None:
    """Return why no release of RTI PerfTest can run this cell, whose settings it has, or None."""
    workload = workloads.find(cell.test)
    load = workload.load(cell)
    if load.on_schedule or workload.finds_capacity:
        return f"RTI PerfTest does not time samples from when they are due: test must not be {cell.test}"
    if cell.link.outages:
        return "RTI PerfTest does not mark its measured interval, from which outages count: leave out link.outages"
    if cell.rate and load.round_trips:
        return "RTI PerfTest sends pings without a rate: rate must be 0 with test latency"
    if cell.receive_mode == "spin":
        return "RTI PerfTest does not receive by spinning: receive_mode must be listener or waitset"
    if cell.ip_family != "ipv4":
        return "k8sdds runs RTI PerfTest by IPv4: ip_families must begin with ipv4"
    if cell.rate != int(cell.rate):
        return f"RTI PerfTest sends whole samples per second: rate {cell.rate:g} is not whole"
    if cell.batch_bytes and cell.payload_bytes > LARGE_BYTES:
        return f"RTI PerfTest does not batch samples above {LARGE_BYTES} bytes: batch_bytes must be 0"
    return None


def check(trial: Trial, settings: Settings) -> None:
    """Write a trial's command lines without running them."""
    if trial.duration_s != int(trial.duration_s):
        raise InputError(
            f"RTI PerfTest measures whole seconds: duration_s {trial.duration_s:g} is not whole",
            "change duration_s",
        )
    unused = Endpoint("192.0.2.1", "eth0", None, 1500)
    endpoints = {participant.name: unused for participant in trial.cell.participants}
    surroundings = Surroundings(endpoints, 1, ParticipantPaths(settings.program, Path(".")))
    for participant in (FIRST_PUBLISHER, Participant(SUBSCRIBER)):
        command_line(trial, participant, surroundings, settings)


def command_line(
    trial: Trial, participant: Participant, surroundings: Surroundings, settings: Settings
) -> list[str]:
    """Return the command line of a participant.

    Without a QoS profile, PerfTest uses the QoS that is built into it. With the discovery `server`, the environment
    names the servers.
    """
    cell, paths, endpoint = trial.cell, surroundings.paths, surroundings.endpoints[participant.name]
    args = [command.role_option(participant)]
    args += command.transport_options(surroundings.domain, endpoint.interface)
    args += ["-dataLen", str(cell.payload_bytes)]
    args += _size_options(cell, endpoint)
    args += ["-bestEffort"] if cell.reliability == "best-effort" else []
    args += ["-useReadThread"] if cell.receive_mode == "waitset" else []
    args += command.key_options(cell)
    args += ["-qosFile", str(paths.inputs.qos)] if paths.inputs.qos else ["-noXmlQos"]
    args += ["-multicast"] if cell.transport == "multicast" else []
    # A list of peers would keep PerfTest from listening to multicast.
    if cell.discovery_kind not in (MULTICAST, SERVER):
        for peer in _peers(participant.name, surroundings.endpoints):
            args += ["-peer", peer]
    args += command.identity_options(trial, participant)
    if participant.publishes:
        args += ["-asynchronous"] if cell.publish_mode == "asynchronous" else []
        args += ["-executionTime", str(int(trial.duration_s))]
        args += _load_options(cell, settings.version, paths.files)
    args += ["-outputFormat", "csv", "-noPrintIntervals", *settings.user_options]
    reason = options.refusal(args, settings.version, participant.role)
    if reason:
        raise InputError(reason, "leave it out of K8SDDS_CONNEXT_OPTIONS" if settings.user_options else "")
    return [settings.program, *args]


def environment(settings: Settings, servers: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a participant; `servers` has `HOST:PORT` of the discovery servers.

    They relay only the participants' first announcements. A list without a multicast address also keeps the participant
    from listening to multicast.
    """
    peers = ",".join(f"rtps@udpv4://{server}" for server in servers)
    return settings.environment() | ({"NDDS_DISCOVERY_PEERS": peers} if servers else {})


def _size_options(cell: Cell, endpoint: Endpoint) -> list[str]:
    match cell.message_bytes:
        case "auto" | "default":
            return []
        case "mtu":
            if endpoint.mtu_bytes is None:
                raise InputError(
                    f"message_bytes mtu: the MTU of the pod with the address {endpoint.address} is unknown",
                    "give message_bytes as a number",
                )
            size = min(endpoint.mtu_bytes - IP_AND_UDP_HEADERS_BYTES[cell.ip_family], LONGEST_MESSAGE_BYTES)
        case "max":
            size = LONGEST_MESSAGE_BYTES
        case number:
            size = number
    return ["-messageSizeMax", str(size)]


def _load_options(cell: Cell, version: options.Version, files: Path) -> list[str]:
    load = workloads.find(cell.test).load(cell)
    if load.round_trips:
        # With `-latencyTest`, PerfTest rejects options of batching.
        file = ["-latencyFile", str(files / LATENCY_FILE)] if options.has("-latencyFile", version) else []
        return ["-latencyTest", *file]
    args = ["-latencyCount", str(command.LATENCY_COUNT)] if load.loaded_latency else []
    args += ["-pubRate", f"{int(load.rate)}:sleep"] if load.rate else []
    if load.batch_bytes or cell.payload_bytes <= BATCH_BYTES // 2:
        args += ["-batchSize", str(load.batch_bytes)]
    return args


def _peers(participant: str, endpoints: Mapping[str, Endpoint]) -> list[str]:
    """Return each address of the other participants once.

    An address that more participants share than Connext contacts by default has the highest participant index
    in front: `8@10.0.0.9`.
    """
    count = Counter(endpoint.address for endpoint in endpoints.values())
    others = dict.fromkeys(endpoint.address for name, endpoint in endpoints.items() if name != participant)
    return [f"{count[address] - 1}@{address}" if count[address] > INDEXES else address for address in others]
