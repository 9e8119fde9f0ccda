"""One attempt in the pods: start all at one moment, see all end, and what was measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from k8sdds.model.measurement import Launch, Measurement, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER, Trial
from k8sdds.testbeds import core_layout, read_meters
from k8sdds.testbeds.cluster.exec import LOST, NOT_STARTED, Ending, ParticipantExec, files_of
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import OUTPUT

LEAD_S = 0.3
"""From the word to the agreed start: every pod must have it by then."""
LEAD_EACH_S = 0.005
"""The same for every further participant."""
WARN_SKEW_S = 0.25
"""Starts so far apart are told: discovery and warm-up are no longer the same for all."""


def output(directory: Path) -> str:
    """Where a participant writes in its pod: the trial and the attempt, as in the run folder."""
    trial, number = directory.parts[-3:-1]
    return f"{OUTPUT}/{trial}-{number}"


def options(layout: core_layout.Layout, participant: str) -> list[str]:
    """What the supervisor is told of cores: the participant's, and its own."""
    words = []
    cpus = layout.cpus.get(participant)
    if cpus:
        words += ["--cpus", ",".join(map(str, cpus))]
    if layout.harness:
        words += ["--own-cpus", ",".join(map(str, layout.harness))]
    return words


def lost(launches: Sequence[Launch], why: str) -> Measurement:
    """Of an attempt whose pods were not there."""
    outcomes = {one.participant.name: Outcome(one.participant, LOST, None, lost=why) for one in launches}
    return Measurement(outcomes=outcomes, sent_bytes=None, received_bytes={})


def attend(attended: Sequence[ParticipantExec]) -> dict[str, Ending]:
    """Prepare all, tell them one moment at which to start, see all end: the ending of each participant."""
    with ThreadPoolExecutor(len(attended)) as pool:
        late = {
            one.launch.participant.name: why
            for one, why in zip(
                attended, pool.map(lambda one: one.prepare(files_of(one.launch)), attended), strict=True
            )
            if why
        }
        if late:
            list(pool.map(ParticipantExec.abort, attended))
            said = "; ".join(f"{name}: {why}" for name, why in late.items())
            return {one.launch.participant.name: Ending(NOT_STARTED, said) for one in attended}
        start_ns = time.time_ns() + round((LEAD_S + LEAD_EACH_S * len(attended)) * 1e9)
        for one in attended:
            one.go(start_ns + one.offset_ns)
        ended = list(pool.map(ParticipantExec.finish, attended))
    return {one.launch.participant.name: ending for one, ending in zip(attended, ended, strict=True)}


def measurement(
    trial: Trial,
    members: dict[str, ReadyPod],
    attended: Sequence[ParticipantExec],
    endings: dict[str, Ending],
    layout: core_layout.Layout,
) -> Measurement:
    """Endings, meters and counters of an attempt as the testbed's answer."""
    outcomes = {}
    crossed: dict[str, dict[str, int]] = {}
    for one in attended:
        name = one.launch.participant.name
        meters = read_meters(one.launch.directory) if not endings[name].lost else None
        ending, interface = endings[name], members[name].interface
        outcomes[name] = Outcome(
            one.launch.participant, ending.code, meters, ending.message, interface, ending.lost
        )
        counters = ((meters or {}).get("attempt_interfaces") or {}).get(interface)
        if counters:
            crossed[name] = counters
    # Publishers that share the node's own interface share its counter too.
    sent = {
        (members[name].node, members[name].address): counters["tx_bytes"]
        for name, counters in crossed.items()
        if outcomes[name].participant.publishes
    }
    skew_s = _skew_s(attended, outcomes)
    warnings = []
    if skew_s is not None and skew_s > WARN_SKEW_S:
        warnings.append(f"start: participants started up to {skew_s:.2f} s apart")
    return Measurement(
        outcomes=outcomes,
        sent_bytes=sum(sent.values()) if sent else None,
        received_bytes={
            name: counters["rx_bytes"]
            for name, counters in crossed.items()
            if outcomes[name].participant.subscribes
        },
        includes_scheduling=layout.includes_scheduling,
        start_skew_s=skew_s,
        elsewhere=frozenset(
            name
            for name, member in members.items()
            if member.machine != members[FIRST_PUBLISHER.name].machine
        ),
        warnings=tuple(warnings),
    )


def _skew_s(attended: Sequence[ParticipantExec], outcomes: dict[str, Outcome]) -> float | None:
    """From the first start to the last one, by the pods' clocks as they were compared with ours."""
    starts = []
    for one in attended:
        meters = outcomes[one.launch.participant.name].meters or {}
        if meters.get("started_at_ns") is None:
            return None
        starts.append(meters["started_at_ns"] - one.offset_ns)
    doubt = max(one.uncertainty_ns for one in attended)
    return (max(starts) - min(starts) + doubt) / 1e9
