"""A trial as command lines of RTI PerfTest, one per participant, and what it cannot do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from k8sdds.discovery import MULTICAST, PEERS, SERVER, cloud
from k8sdds.middleware.connext import options
from k8sdds.middleware.connext.settings import Settings
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER, Cell, Endpoint, Participant, Trial
from k8sdds.system.errors import InputError

BATCH_BYTES = 8192
"""What PerfTest collects in a throughput test unless told otherwise, whatever its help says."""
LARGE_BYTES = 65470
"""Longer samples are unbounded sequences, which it never batches and does not want to be told so."""
INDEXES = 5
"""Participants that Connext looks for at one address unless told otherwise."""
LATENCY_COUNT = 1000
"""In a throughput test every so many samples are timed, as k8sdds-perftest does."""
LATENCY_FILE = "latency.csv"


def impossible(cell: Cell) -> str | None:
    """Why RTI PerfTest cannot run this cell, whichever release, or None."""
    if cell.receive_mode == "spin":
        return "RTI PerfTest does not receive by spinning: receive_mode must be listener or waitset"
    if cell.security != "none":
        return (
            "RTI PerfTest takes one authority for identities and permissions, and k8sdds makes two:"
            " security must be none with connext"
        )
    if cell.rate and cell.rate != int(cell.rate):
        return f"RTI PerfTest sends whole samples per second: rate {cell.rate:g} is none"
    if cell.batch_bytes and cell.payload_bytes > LARGE_BYTES:
        return f"RTI PerfTest does not batch samples above {LARGE_BYTES} bytes: batch_bytes must be 0"
    return None


def check(trial: Trial, settings: Settings) -> None:
    """Make a trial's command lines as a test. Raises InputError where this release cannot run it."""
    if trial.duration_s != int(trial.duration_s):
        raise InputError(
            f"RTI PerfTest measures whole seconds: duration_s {trial.duration_s:g} is none",
            "change duration_s",
        )
    endpoints = {one.name: Endpoint("192.0.2.1", "eth0", None) for one in trial.cell.participants}
    for participant in (FIRST_PUBLISHER, Participant(SUBSCRIBER)):
        command_line(trial, participant, endpoints, 1, settings, Path("."), None, PEERS)


def command_line(
    trial: Trial,
    participant: Participant,
    endpoints: Mapping[str, Endpoint],
    domain: int,
    settings: Settings,
    files: Path,
    qos: Path | None,
    kind: str,
) -> list[str]:
    """The command line of `pub0` or `sub3`. `files`: its folder; `qos`: RTI's QoS file, None: the built-in.

    `kind` of discovery: `multicast`, `peers`, or `server`, with which the environment names the services.
    InputError where this release cannot do what the trial asks for.
    """
    cell, publishes = trial.cell, participant.publishes
    words = ["-pub" if publishes else "-sub", "-domain", str(domain), "-transport", "UDPv4"]
    words += ["-nic", endpoints[participant.name].interface, "-dataLen", str(cell.payload_bytes)]
    words += ["-bestEffort"] if cell.reliability == "best-effort" else []
    words += ["-useReadThread"] if cell.receive_mode == "waitset" else []
    words += ["-qosFile", str(qos)] if qos else ["-noXmlQos"]
    # A list of peers would keep it from listening to multicast.
    words += ["-multicast"] if cell.transport == "multicast" else []
    if kind not in (MULTICAST, SERVER):
        for peer in _peers(participant.name, endpoints):
            words += ["-peer", peer]
    number = str(participant.index)
    if publishes:
        words += ["-pidMultiPubTest", number, "-numSubscribers", str(cell.subscribers)]
        words += ["-executionTime", str(int(trial.duration_s)), *_test(cell, settings.version, files)]
    else:
        words += ["-sidMultiSubTest", number, "-numPublishers", str(cell.publishers)]
    words += ["-outputFormat", "csv", "-noPrintIntervals", *settings.more]
    why = options.refusal(words, settings.version, "publisher" if publishes else "subscriber")
    if why:
        raise InputError(why, "leave it out of K8SDDS_CONNEXT_OPTIONS" if settings.more else "")
    return [settings.program, *words]


def environment(settings: Settings, servers: Sequence[str] = ()) -> dict[str, str]:
    """The variables of a participant; `servers` where discovery is by server."""
    return settings.environment() | (cloud.environment(servers) if servers else {})


def _test(cell: Cell, version: options.Version, files: Path) -> list[str]:
    if cell.test == "latency":
        # It refuses to be told of batches in a latency test.
        told = ["-latencyFile", str(files / LATENCY_FILE)] if options.has("-latencyFile", version) else []
        return ["-latencyTest", *told]
    words = ["-latencyCount", str(LATENCY_COUNT)]
    if cell.rate:
        words += ["-pubRate", f"{int(cell.rate)}:sleep"]
    if cell.batch_bytes or cell.payload_bytes <= BATCH_BYTES // 2:
        words += ["-batchSize", str(cell.batch_bytes)]
    return words


def _peers(participant: str, endpoints: Mapping[str, Endpoint]) -> list[str]:
    """Each address of the others once, with how many indexes to look at where more share it than usual."""
    here = Counter(endpoint.address for endpoint in endpoints.values())
    others = dict.fromkeys(endpoint.address for name, endpoint in endpoints.items() if name != participant)
    return [f"{here[one] - 1}@{one}" if here[one] > INDEXES else one for one in others]
