"""A trial as perftest command lines, one per participant. Pure: nothing is started here."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.discovery import SERVICES, peers, server
from k8sdds.middleware.connext import command as connext
from k8sdds.model.security import Protection
from k8sdds.model.trial import DISCOVERY_SERVER, Cell, Endpoint, Participant, Trial
from k8sdds.security import file_names as credentials
from k8sdds.system.errors import InputError
from k8sdds.system.paths import native_program, private_folder, shared

DOMAINS = range(1, 100)
"""DDS domain ids in use: their UDP ports (7400 + 250 × domain) stay below Linux' ephemeral ports."""

PEER_TIMEOUT_S = 10
DISCOVERY_TIMEOUT_S = 20
LATENCY_COUNT = 1000
"""In a throughput test every so many samples are timed: PerfTest's 10000 leaves too few in seconds."""

DISCOVERY_PROGRAM = "fast-discovery-server"

RAW_LIMIT_BYTES = 65507
"""Largest payload of one UDP datagram over IPv4."""


def qos_file(cell: Cell) -> Path:
    """The QoS profile's file: one of qos/ by name, or the given path."""
    name = cell.qos_profile
    is_file = "/" in name or name.endswith(".xml")
    path = Path(name) if is_file else shared("qos") / f"{name}.xml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in shared("qos").glob("*.xml")))
        raise InputError(f"there is no QoS profile {name!r}", f"known: {known}; or name an XML file")
    return path.resolve()


def takes_qos(cell: Cell) -> bool:
    """Whether a QoS profile belongs to the cell: raw has no QoS, RTI PerfTest its own unless one is named."""
    return cell.middleware != "raw" and (cell.middleware != "connext" or bool(cell.qos))


def impossible(cell: Cell) -> str | None:
    """Why perftest cannot run this cell whatever the network, or None."""
    if cell.test == "latency" and cell.batch_bytes:
        return "a latency test never batches: batch_bytes must be 0"
    if cell.test == "latency" and cell.publishers > 1:
        return "a latency test has one publisher"
    if cell.middleware == "connext":
        why = connext.impossible(cell)
        if why:
            return why
    if cell.middleware == "raw":
        if cell.security != "none":
            return "raw has no DDS Security: security must be none"
        if cell.reliability == "reliable":
            return "raw sends plain UDP: reliability must be best-effort"
        if cell.payload_bytes > RAW_LIMIT_BYTES:
            return f"raw sends one datagram a sample: at most {RAW_LIMIT_BYTES} bytes"
        if cell.batch_bytes:
            return "raw does not batch: batch_bytes must be 0"
        if cell.qos:
            return "raw has no QoS"
    if cell.discovery != "auto" and cell.middleware == "raw":
        return "raw has no kinds of discovery: leave it out"
    if cell.discovery == "server":
        if cell.middleware not in SERVICES:
            return f"{cell.middleware} has no discovery server: discovery must be multicast or peers"
        if cell.security != "none":
            return "the discovery server has no credentials, so security must be none"
    if cell.batch_bytes and cell.batch_bytes < 2 * cell.payload_bytes:
        return f"batch_bytes {cell.batch_bytes} holds less than two samples of {cell.payload_bytes} bytes"
    return None


def command_line(
    trial: Trial,
    participant: Participant,
    endpoints: dict[str, Endpoint],
    domain: int,
    program: str,
    files: Path,
    qos: Path | None = None,
    protection: Protection | None = None,
    servers: Sequence[str] = (),
) -> list[str]:
    """The perftest command line of one participant, `pub0` or `sub3`. `files` is its folder; `qos` the
    campaign's copy of the QoS profile, else the profile is looked for where the user keeps it. Under a
    `protection` it finds its credentials in its private folder. `servers`: discovery servers that the testbed
    runs, else the one among the endpoints."""
    cell = trial.cell
    publishes, number = participant.publishes, participant.index
    argv = [program, "-pub" if publishes else "-sub", "-middleware", cell.middleware]
    argv += ["-domain", str(domain), "-transport", "UDPv4", "-nic", endpoints[participant.name].interface]
    argv += ["-dataLen", str(cell.payload_bytes), "-receive", cell.receive_mode]
    if cell.reliability == "best-effort":
        argv.append("-bestEffort")
    if cell.middleware != "raw":
        argv += ["-qosFile", str(qos or qos_file(cell))]
    if cell.transport == "multicast":
        argv.append("-multicast")
    if protection is not None:
        argv += secure_options(private_folder(participant.name), protection)
    argv += _discovery(cell, participant, endpoints, servers)
    if publishes:
        argv += _publisher(trial, number, files)
    else:
        argv += ["-sidMultiSubTest", str(number), "-numPublishers", str(cell.publishers)]
    argv += ["-timelineFile", str(files / "timeline.csv"), "-outputFormat", "json", "-noPrintIntervals"]
    argv += ["-discoveryTimeout", str(DISCOVERY_TIMEOUT_S), "-peerTimeout", str(PEER_TIMEOUT_S)]
    return argv


def _discovery(
    cell: Cell, participant: Participant, endpoints: dict[str, Endpoint], servers: Sequence[str]
) -> list[str]:
    """How the others are found. Who is found by multicast is named nowhere; raw finds nobody by itself."""
    if cell.discovery == "server":
        return server.options(
            servers or [f"{endpoints[DISCOVERY_SERVER.name].address}:{versions.FASTDDS_DISCOVERY_PORT}"]
        )
    kind = [] if cell.discovery == "auto" else ["-discovery", cell.discovery]
    if cell.discovery_kind == "multicast" and cell.middleware != "raw":
        return kind
    return kind + peers.options(participant.name, endpoints)


def service_line(service: Participant, endpoints: dict[str, Endpoint]) -> list[str]:
    """The command line of one of a cell's services."""
    assert service == DISCOVERY_SERVER
    return [
        DISCOVERY_PROGRAM,
        "-i",
        "0",
        "-l",
        endpoints[service.name].address,
        "-p",
        str(versions.FASTDDS_DISCOVERY_PORT),
    ]


def secure_options(folder: Path, protection: Protection) -> list[str]:
    """PerfTest's options for a participant whose credentials are in a folder, and ours for the second CA."""
    return [
        "-secureGovernanceFile", str(folder / credentials.GOVERNANCE),
        "-securePermissionsFile", str(folder / credentials.PERMISSIONS),
        "-secureCertAuthority", str(folder / credentials.IDENTITY_CA),
        "-securePermissionsAuthority", str(folder / credentials.PERMISSIONS_CA),
        "-secureCertFile", str(folder / credentials.CERTIFICATE),
        "-securePrivateKey", str(folder / credentials.KEY),
        "-secureEncryptionAlgorithm", f"aes-{protection.aes_bits}-gcm",
    ]  # fmt: skip


def _publisher(trial: Trial, number: int, files: Path) -> list[str]:
    cell = trial.cell
    argv = ["-pidMultiPubTest", str(number), "-numSubscribers", str(cell.subscribers)]
    argv += ["-warmUp", f"{trial.warmup_s:g}", "-executionTime", f"{trial.duration_s:g}"]
    argv += ["-histogramFile", str(files / "latency.hlog")]
    if cell.test == "latency":
        argv.append("-latencyTest")
    else:
        argv += ["-latencyCount", str(LATENCY_COUNT)]
        if cell.rate:
            argv += ["-pubRate", f"{_decimal(cell.rate)}:sleep"]
        if cell.batch_bytes:
            argv += ["-batchSize", str(cell.batch_bytes)]
    return argv


def _decimal(number: float) -> str:
    """A number without an exponent: 1500000, 0.5."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def refused_qos(cell: Cell) -> str | None:
    """What perftest itself says against the cell's QoS profile, or None. Starts nothing but the check."""
    argv = [native_program("k8sdds-perftest"), "-pub", "-check", "-middleware", cell.middleware]
    argv += ["-dataLen", str(cell.payload_bytes), "-qosFile", str(qos_file(cell))]
    argv += ["-bestEffort"] if cell.reliability == "best-effort" else []
    argv += ["-latencyTest"] if cell.test == "latency" else []
    argv += ["-batchSize", str(cell.batch_bytes)] if cell.batch_bytes else []
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    return done.stderr.strip().removeprefix("k8sdds-perftest: ") if done.returncode else None


def deadline_s(trial: Trial) -> float:
    """When an attempt that still runs is ended: all of its parts at their own limits would be longer."""
    return DISCOVERY_TIMEOUT_S + trial.warmup_s + trial.duration_s * 1.5 + 2 * PEER_TIMEOUT_S + 5


def backends() -> list[str]:
    """Middlewares whose backend is built, by the module files beside the program."""
    folder = Path(native_program("k8sdds-perftest")).parent
    prefix, suffix = "libk8sdds-perftest-", ".so"
    return sorted(file.name[len(prefix) : -len(suffix)] for file in folder.glob(f"{prefix}*{suffix}"))
