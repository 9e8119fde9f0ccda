"""Run a publisher and a subscriber in two ready pods, and time when they match."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds import middleware
from k8sdds.middleware import Surroundings
from k8sdds.model.measurement import Inputs, Launch, ParticipantPaths
from k8sdds.model.reason import Reason
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.perftest import command, output
from k8sdds.testbeds.cluster import trial_run
from k8sdds.testbeds.cluster.exec import ParticipantExec, output_folder
from k8sdds.testbeds.cluster.pods import PERFTEST
from k8sdds.workloads.pod_start import PAIR

FOLDER = "matching"
"""Where the files of the two programs are, below the folder of a match."""
TEST, DURATION_S, PAYLOAD_BYTES = "latency", 0.5, 64
"""What the programs do after they have matched, which proves that samples pass in both directions."""

Execute = Callable[[str, Launch, float], ParticipantExec]
"""(name of a pod, what to start there, deadline in seconds) → its execution."""


@dataclass(frozen=True)
class Programs:
    """What the publisher and the subscriber run."""

    cell: Cell
    pods: Mapping[Participant, str]
    """Names of their pods."""
    endpoints: Mapping[str, Endpoint]
    """By name of the participant."""
    domain: int
    servers: Sequence[str] = ()
    """`HOST:PORT` of discovery servers."""


@dataclass(frozen=True)
class Match:
    """How a publisher and a subscriber found each other."""

    matched_s: float
    """When they matched, by the monotonic clock of this machine."""
    clock_error_s: float
    """Error of this time."""
    received: int
    """Samples that arrived at the subscriber."""


def cell(**settings: Any) -> Cell:
    """Return a cell with these settings, in which the programs exchange small samples."""
    return Cell(test=TEST, payload_bytes=PAYLOAD_BYTES, **settings)


def match(programs: Programs, folder: Path, execute: Execute) -> Match | Reason:
    """Start a publisher and a subscriber in two ready pods, and wait for their end; return why they failed, if so.

    The programs start over the API server: without multicast, each needs the address of the other, which exists when
    the pod is ready. Their files are below `folder`.
    """
    trial = Trial(cell=programs.cell, testbed="cluster", repetition=0, duration_s=DURATION_S, warmup_s=0)
    program = middleware.find(programs.cell.middleware)
    execs = [
        execute(programs.pods[launch.participant], launch, command.deadline_s(trial))
        for launch in _launches(trial, programs, folder)
    ]
    results = trial_run.run_participants(execs, lambda _: True, lambda: None, lead_s=0)
    # The realtime clock may be adjusted, so that it is compared with the monotonic one at once.
    monotonic_s = time.monotonic() - time.time()
    matched_ns, received = [], 0
    for execution in execs:
        directory, role = execution.launch.directory, execution.launch.participant
        result = results[role.name]
        if result.code or result.lost:
            details = result.lost or result.message or program.error(directory)
            failure = output.failure(result.code, details, program.exit_reasons)
            return Reason(failure.code, f"{role}: {failure.text}")
        summary = output.read(directory / "stdout")
        if summary is None or summary["matched_at_ns"] is None:
            return Reason("no-summary", f"{role} reported no match")
        matched_ns.append(summary["matched_at_ns"] - execution.offset_ns)
        received += summary["received"] or 0 if role.subscribes else 0
    clock_error_s = max(execution.uncertainty_ns for execution in execs) / 1e9
    return Match(max(matched_ns) / 1e9 + monotonic_s, clock_error_s, received)


def _launches(trial: Trial, programs: Programs, folder: Path) -> list[Launch]:
    program = middleware.find(trial.cell.middleware)
    qos = program.qos_file(trial.cell) if program.takes_qos(trial.cell) else None
    nonce = secrets.token_hex(8)
    pod_qos = Path("/run/k8sdds/qos") / qos.name if qos else None
    inputs = {str(pod_qos): qos} if qos else {}
    launches = []
    for participant in PAIR:
        directory = (folder / FOLDER / participant.name).resolve()
        directory.mkdir(parents=True)
        paths = ParticipantPaths(PERFTEST, Path(output_folder(directory)), Inputs(qos=pod_qos))
        around = Surroundings(
            programs.endpoints, programs.domain, paths, servers=programs.servers, nonce=nonce
        )
        started = program.command(trial, participant, around)
        launches.append(Launch(participant, tuple(started.argv), directory, started.env, inputs=inputs))
    return launches
