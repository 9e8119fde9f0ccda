"""Run one attempt in the pods: start all participants at one moment and collect what they measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER, Participant
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.results import arrivals
from k8sdds.testbeds import core_layout, interface_bytes, read_meters
from k8sdds.testbeds.cluster.exec import ExecResult, ParticipantExec
from k8sdds.testbeds.cluster.pod_pool import ReadyPod

LEAD_S = 0.3
"""From sending the start time to the start: every pod must have received it by then."""
LEAD_PER_PARTICIPANT_S = 0.005
"""Added to `LEAD_S` for each participant."""
LISTEN_TIMEOUT_S, LISTEN_POLL_S = 15.0, 0.02
"""How long a server may take until it listens, and the time between two checks."""
WARN_SKEW_S = 0.25
"""Start skew above which a trial gets a warning: discovery and warm-up then differ between participants."""


def run_participants(
    execs: Sequence[ParticipantExec],
    is_listening: Callable[[ParticipantExec], bool],
    at_start: Callable[[], None],
    lead_s: float | None = None,
    failing: AbstractContextManager[None] | None = None,
) -> dict[str, ExecResult]:
    """Prepare all participants, start them at one moment and wait until all have ended.

    Servers start before and are stopped after the others. If a participant does not get ready, no other is started.
    `is_listening` returns whether a server that was started listens on its socket. `at_start` is called when all are
    ready, right before they start. `lead_s`: from sending the start time to the start; by default, until all pods have
    received it. An outage runs in `failing`.
    """
    servers = [execution for execution in execs if execution.launch.listens]
    others = [execution for execution in execs if not execution.launch.listens]
    with ThreadPoolExecutor(len(execs)) as executor:
        problems = dict(zip(map(_name, execs), executor.map(ParticipantExec.prepare, execs), strict=True))
        if any(problems.values()):
            list(executor.map(ParticipantExec.abort, execs))
            return _not_started(execs, problems)
        if problems := _start_servers(servers, is_listening):
            list(executor.map(ParticipantExec.abort, others))
            _end(servers, executor)
            return _not_started(execs, problems)
        at_start()
        if lead_s is None:
            lead_s = LEAD_S + LEAD_PER_PARTICIPANT_S * len(execs)
        start_ns = time.time_ns() + round(lead_s * 1e9)
        with failing or nullcontext():
            for execution in execs:
                execution.start_at(start_ns)
            results = dict(zip(map(_name, others), executor.map(ParticipantExec.finish, others), strict=True))
        return results | _end(servers, executor)


def _name(execution: ParticipantExec) -> str:
    return execution.launch.participant.name


def _not_started(execs: Sequence[ParticipantExec], problems: Mapping[str, str]) -> dict[str, ExecResult]:
    message = "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)
    return {_name(execution): ExecResult(NOT_STARTED, message, execution.unreachable) for execution in execs}


def _start_servers(
    servers: Sequence[ParticipantExec], is_listening: Callable[[ParticipantExec], bool]
) -> dict[str, str]:
    """Start each server when the previous one listens. Return why a server does not; empty if all do."""
    for execution in servers:
        execution.start_at(time.time_ns())
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        while not is_listening(execution):
            if time.monotonic() > deadline:
                return {_name(execution): f"does not listen on {execution.launch.listens}"}
            time.sleep(LISTEN_POLL_S)
    return {}


def _end(servers: Sequence[ParticipantExec], executor: ThreadPoolExecutor) -> dict[str, ExecResult]:
    """Stop the servers and fetch their files. A server that was running until now has succeeded."""
    for execution in servers:
        execution.end()
    results = {}
    for execution, result in zip(servers, executor.map(ParticipantExec.finish, servers), strict=True):
        stopped = (read_meters(execution.launch.directory) or {}).get("ended_by") == "signal"
        results[_name(execution)] = replace(result, code=0) if stopped and not result.lost else result
    return results


def measurement(
    ready_pods: Mapping[str, ReadyPod],
    execs: Sequence[ParticipantExec],
    results: Mapping[str, ExecResult],
    layout: core_layout.Layout,
    senders: Collection[Participant],
    on_loopback: bool = False,
    later: ParticipantExec | None = None,
) -> Measurement:
    """Combine results, meters and interface counters of an attempt, in which the `senders` publish.

    `on_loopback`: all use the network of one node. `later`: the one that started after the others, in an outage.
    """
    outcomes = {}
    for execution in execs:
        participant = execution.launch.participant
        name, result = participant.name, results[participant.name]
        interface = "lo" if on_loopback else ready_pods[name].interface
        meters = read_meters(execution.launch.directory) if not result.lost else None
        outcomes[name] = Outcome(participant, result.code, meters, result.message, interface, result.lost)
    sent_bytes, received_bytes = interface_bytes(
        outcomes,
        {name: (ready_pods[name].node, ready_pods[name].address) for name in outcomes},
        senders,
    )
    if later is not None and (name := _name(later)) in received_bytes:
        received_bytes[name] += _received_before(later, outcomes[name].interface)
    skew_s = _start_skew_s([execution for execution in execs if execution is not later], outcomes)
    warnings = []
    if skew_s is not None and skew_s > WARN_SKEW_S:
        warnings.append(f"start: participants started up to {skew_s:.2f} s apart")
    first_machine = ready_pods[FIRST_PUBLISHER.name].machine
    return Measurement(
        outcomes=outcomes,
        sent_bytes=sent_bytes,
        received_bytes=received_bytes,
        includes_scheduling=layout.includes_scheduling,
        start_skew_s=skew_s,
        nodes={name: (ready_pods[name].node, ready_pods[name].machine) for name in outcomes},
        elsewhere=frozenset(name for name, pod in ready_pods.items() if pod.machine != first_machine),
        warnings=tuple(warnings),
    )


def _received_before(later: ParticipantExec, interface: str) -> int:
    """Return the bytes that the pod of a participant had received when the participant was killed."""
    directory = later.launch.directory
    meters = read_meters(directory.parent / arrivals.KILLED / directory.name) or {}
    received: int = ((meters.get("attempt_interfaces") or {}).get(interface) or {}).get("rx_bytes", 0)
    return received


def _start_skew_s(execs: Sequence[ParticipantExec], outcomes: Mapping[str, Outcome]) -> float | None:
    """Return the maximum time between the first and the last start, with the error of the compared clocks."""
    starts_ns: list[int] = []
    started_together = [execution for execution in execs if not execution.launch.listens]
    for execution in started_together:
        meters = outcomes[execution.launch.participant.name].meters or {}
        if meters.get("started_at_ns") is None:
            return None
        starts_ns.append(meters["started_at_ns"] - execution.offset_ns)
    uncertainty_ns = max(execution.uncertainty_ns for execution in started_together)
    return (max(starts_ns) - min(starts_ns) + uncertainty_ns) / 1e9
