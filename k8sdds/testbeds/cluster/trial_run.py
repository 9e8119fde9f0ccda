"""Run one attempt in the pods: start all participants at one moment and collect what they measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.testbeds import core_layout, read_meters
from k8sdds.testbeds.cluster.exec import ExecResult, ParticipantExec
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import OUTPUT

LEAD_S = 0.3
"""From sending the start time to the start: every pod must have received it by then."""
LEAD_PER_PARTICIPANT_S = 0.005
"""Added to `LEAD_S` for each participant."""
WARN_SKEW_S = 0.25
"""Start skew above which a trial gets a warning: discovery and warm-up then differ between participants."""


def output_folder(directory: Path) -> str:
    """Return a participant's output folder in its pod, named after the trial and the attempt."""
    trial, attempt = directory.parts[-3:-1]
    return f"{OUTPUT}/{trial}-{attempt}"


def core_options(layout: core_layout.Layout, participant: str) -> list[str]:
    """Return the supervisor's options for the cores of a participant and of the supervisor itself."""
    options = []
    cpus = layout.cpus.get(participant)
    if cpus:
        options += ["--cpus", ",".join(map(str, cpus))]
    if layout.harness:
        options += ["--own-cpus", ",".join(map(str, layout.harness))]
    return options


def run_participants(execs: Sequence[ParticipantExec]) -> dict[str, ExecResult]:
    """Prepare all participants, start them at one moment and wait until all have ended.

    If a participant does not get ready, none is started.
    """
    names = [execution.launch.participant.name for execution in execs]
    with ThreadPoolExecutor(len(execs)) as executor:
        problems = dict(zip(names, executor.map(ParticipantExec.prepare, execs), strict=True))
        if any(problems.values()):
            list(executor.map(ParticipantExec.abort, execs))
            message = "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)
            return {
                execution.launch.participant.name: ExecResult(NOT_STARTED, message, execution.unreachable)
                for execution in execs
            }
        start_ns = time.time_ns() + round((LEAD_S + LEAD_PER_PARTICIPANT_S * len(execs)) * 1e9)
        for execution in execs:
            execution.start_at(start_ns)
        return dict(zip(names, executor.map(ParticipantExec.finish, execs), strict=True))


def measurement(
    ready_pods: Mapping[str, ReadyPod],
    execs: Sequence[ParticipantExec],
    results: Mapping[str, ExecResult],
    layout: core_layout.Layout,
) -> Measurement:
    """Combine results, meters and interface counters of an attempt."""
    outcomes = {}
    counters: dict[str, dict[str, int]] = {}
    for execution in execs:
        participant = execution.launch.participant
        name, result = participant.name, results[participant.name]
        interface = ready_pods[name].interface
        meters = read_meters(execution.launch.directory) if not result.lost else None
        outcomes[name] = Outcome(participant, result.code, meters, result.message, interface, result.lost)
        interface_counters = ((meters or {}).get("attempt_interfaces") or {}).get(interface)
        if interface_counters:
            counters[name] = interface_counters
    # Publishers on the same node's own interface read the same counter: count it once.
    sent = {
        (ready_pods[name].node, ready_pods[name].address): values["tx_bytes"]
        for name, values in counters.items()
        if outcomes[name].participant.publishes
    }
    skew_s = _start_skew_s(execs, outcomes)
    warnings = []
    if skew_s is not None and skew_s > WARN_SKEW_S:
        warnings.append(f"start: participants started up to {skew_s:.2f} s apart")
    first_machine = ready_pods[FIRST_PUBLISHER.name].machine
    return Measurement(
        outcomes=outcomes,
        sent_bytes=sum(sent.values()) if sent else None,
        received_bytes={
            name: values["rx_bytes"]
            for name, values in counters.items()
            if outcomes[name].participant.subscribes
        },
        includes_scheduling=layout.includes_scheduling,
        start_skew_s=skew_s,
        elsewhere=frozenset(name for name, pod in ready_pods.items() if pod.machine != first_machine),
        warnings=tuple(warnings),
    )


def _start_skew_s(execs: Sequence[ParticipantExec], outcomes: Mapping[str, Outcome]) -> float | None:
    """Return the maximum time between the first and the last start, with the error of the compared clocks."""
    starts_ns: list[int] = []
    for execution in execs:
        meters = outcomes[execution.launch.participant.name].meters or {}
        if meters.get("started_at_ns") is None:
            return None
        starts_ns.append(meters["started_at_ns"] - execution.offset_ns)
    uncertainty_ns = max(execution.uncertainty_ns for execution in execs)
    return (max(starts_ns) - min(starts_ns) + uncertainty_ns) / 1e9
