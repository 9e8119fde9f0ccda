"""Let two new pods find each other over DDS, and measure when their endpoints have matched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from k8sdds import middleware
from k8sdds.middleware import Surroundings, qos_file
from k8sdds.model.measurement import Launch, ParticipantPaths
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.perftest import command, output
from k8sdds.testbeds.cluster.exec import ParticipantExec
from k8sdds.testbeds.cluster.pods import PERFTEST
from k8sdds.testbeds.cluster.trial_run import output_folder
from k8sdds.workloads.pod_start import PAIR

FOLDER = "matching"
"""Where the files of the two programs are, in the raw files of the attempt."""
TEST, DURATION_S, PAYLOAD_BYTES = "latency", 0.5, 64
"""What the programs do after they have matched, which proves that samples pass in both directions."""

Execute = Callable[[str, Launch, float], ParticipantExec]
"""(name of a pod, what to start there, deadline in seconds) → its execution."""


def measure(
    cell: Cell,
    dds: str,
    names: Mapping[Participant, str],
    endpoints: Mapping[str, Endpoint],
    folder: Path,
    execute: Execute,
) -> dict[str, Any]:
    """Start a publisher and a subscriber in two ready pods, and wait for their end.

    The programs start over the API server: without multicast, each needs the address of the other, which exists when
    the pod is ready.

    Args:
        cell: The cell of the pod-start test.
        dds: The middleware.
        names: The names of the pods.
        endpoints: Address and interface of each pod, by the name of its participant.
        folder: The attempt's raw files.
        execute: Runs a program in a pod.

    Returns:
        The time of the match (`matched_s`) by the monotonic clock of this machine and its error (`clock_error_s`), and
        the samples that arrived (`received`); or why they did not match (`failure`).
    """
    launches = _launches(cell, dds, endpoints, folder)
    trial = _trial(cell, dds)
    execs = [execute(names[launch.participant], launch, command.deadline_s(trial)) for launch in launches]
    with ThreadPoolExecutor(len(execs)) as executor:
        problems = list(executor.map(ParticipantExec.prepare, execs))
        if any(problems):
            for execution in execs:
                execution.abort()
            return {"failure": next(filter(None, problems))}
        for execution in execs:
            execution.start_at(time.time_ns())
        results = list(executor.map(ParticipantExec.finish, execs))
    # The realtime clock may be adjusted, so that it is compared with the monotonic one at once.
    monotonic_s = time.monotonic() - time.time()
    matched_ns, received = [], 0
    program = middleware.find(dds)
    for execution, result in zip(execs, results, strict=True):
        directory, role = execution.launch.directory, execution.launch.participant
        if result.code or result.lost:
            details = result.lost or result.message or program.error(directory)
            why = output.failure(result.code, details, program.exit_reasons).text
            return {"failure": f"{role}: {why}"}
        summary = output.read(directory / "stdout")
        if summary is None or summary["matched_at_ns"] is None:
            return {"failure": f"{role} reported no match"}
        matched_ns.append(summary["matched_at_ns"] - execution.offset_ns)
        received += summary["received"] or 0 if role.subscribes else 0
    error_ns = max(execution.uncertainty_ns for execution in execs)
    return {
        "matched_s": max(matched_ns) / 1e9 + monotonic_s,
        "clock_error_s": error_ns / 1e9,
        "received": received,
    }


def _trial(cell: Cell, dds: str) -> Trial:
    """Return what the programs measure: round trips of small samples on the network of a cell."""
    own = Cell(
        network=cell.network,
        network_options=cell.network_options,
        ip_families=cell.ip_families,
        test=TEST,
        middleware=dds,
        payload_bytes=PAYLOAD_BYTES,
    )
    return Trial(cell=own, testbed="cluster", repetition=0, duration_s=DURATION_S, warmup_s=0)


def _launches(cell: Cell, dds: str, endpoints: Mapping[str, Endpoint], folder: Path) -> list[Launch]:
    trial, program = _trial(cell, dds), middleware.find(dds)
    nonce = secrets.token_hex(8)
    domain = secrets.choice(command.DOMAINS)
    qos = qos_file(trial.cell)
    pod_qos = Path("/run/k8sdds/qos") / qos.name
    launches = []
    for participant in PAIR:
        directory = (folder / FOLDER / participant.name).resolve()
        directory.mkdir(parents=True)
        paths = ParticipantPaths(PERFTEST, Path(output_folder(directory)), pod_qos)
        started = program.command(trial, participant, Surroundings(endpoints, domain, paths, nonce=nonce))
        launches.append(
            Launch(participant, tuple(started.argv), directory, started.env, inputs={str(pod_qos): qos})
        )
    return launches
