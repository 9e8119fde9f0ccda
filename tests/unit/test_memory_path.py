"""Which way samples of trials by shared memory took is a result, if their pods may not share memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.campaign import memory_path, validity
from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.reason import Reason
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.workloads import TrialOutputs

PUB, SUB = Participant.named("pub0"), Participant.named("sub0")
ARRIVED = ({"sent": 1000}, {"received": 1000})
MATCHED = "no peer: 0 of 1 publishers started (matched writers 1, readers 1) within -discoveryTimeout"
ALONE = "no peer: 0 of 1 subscribers ready (matched readers 0, writers 0) within -discoveryTimeout"
BY_TCP = (
    "middleware error: a sample came by TCP instead of shared memory; give all participants the same /dev/shm"
)


def ended(reason: str) -> dict[str, Any]:
    return {"sent": 0, "received": 0, "exit": {"reason": reason}}


def outputs(
    summaries: tuple[dict[str, Any], dict[str, Any]],
    codes: tuple[int, int] = (0, 0),
    tx_bytes: int = 0,
    **changes: Any,
) -> TrialOutputs:
    """Return the outputs of a trial by shared memory; `changes` are those of its cell."""
    usual = {"network": "host", "test": "throughput", "payload_bytes": 1024, "middleware": "fastdds"}
    cell = Cell(**usual | {"transport": "shared-memory"} | changes)
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=2, warmup_s=0)
    meters = {"interfaces": {"lo": {"tx_bytes": tx_bytes}}}
    outcomes = {one.name: Outcome(one, code, meters) for one, code in zip((PUB, SUB), codes, strict=True)}
    read = {one: Summary(summary) for one, summary in zip((PUB, SUB), summaries, strict=True)}
    return TrialOutputs(trial, Measurement(outcomes, None, {}), Path(), read)


OPEN = ({"dev_shm": "own"}, {"users": "other"}, {"network": "flannel-vxlan"})
"""Changes of a cell whose pods may not share memory."""


@pytest.mark.parametrize("changes", [{}, *OPEN])
@pytest.mark.parametrize(("tx_bytes", "way"), [(1000, memory_path.MEMORY), (2_000_000, memory_path.NETWORK)])
def test_interfaces_show_which_way_samples_took(changes: dict[str, Any], tx_bytes: int, way: str) -> None:
    found = outputs(ARRIVED, tx_bytes=tx_bytes, **changes)
    assert memory_path.taken(found) == way
    wrong = memory_path.invalid(found)
    if way == memory_path.MEMORY or changes:
        assert wrong is None
    else:
        assert wrong == Reason("not-in-memory", "the interfaces of pub0 carried 2000000 bytes")


@pytest.mark.parametrize("matched", [0, 1])
def test_that_no_sample_arrives_at_peers_that_matched_is_a_result(matched: int) -> None:
    reasons = [ALONE, ALONE]
    reasons[matched] = MATCHED
    summaries = (ended(reasons[0]), ended(reasons[1]))
    for changes in OPEN:
        found = outputs(summaries, (3, 3), **changes)
        assert memory_path.taken(found) == memory_path.NOTHING and validity.accepted_failure(found)
        assert validity.reason(found) is None
    shared = outputs(summaries, (3, 3))
    assert validity.accepted_failure(shared) is None
    assert (wrong := validity.reason(shared)) and wrong.code == "no-match"


def test_participants_that_did_not_discover_each_other_have_no_result() -> None:
    found = outputs((ended(ALONE), ended(ALONE)), (3, 3), dev_shm="own")
    assert validity.accepted_failure(found) is None
    assert (wrong := validity.reason(found)) and wrong.code == "no-match"


def test_samples_of_zenoh_that_come_by_tcp_are_a_result() -> None:
    summaries = (ended("peer lost: subscriber 0 exited with code 6"), ended(BY_TCP))
    lost = Reason("middleware", f"sub0: the middleware failed: {BY_TCP}")
    for changes in OPEN:
        found = outputs(summaries, (4, 6), middleware="zenoh", **changes)
        assert memory_path.taken(found) == memory_path.NETWORK and memory_path.is_result(lost, found)
    assert not memory_path.is_result(lost, outputs(summaries, (4, 6), middleware="zenoh"))
    other = Reason("middleware", "sub0: the middleware failed: /dev/shm has 0 bytes free")
    assert not memory_path.is_result(other, outputs(summaries, (4, 6), middleware="zenoh", dev_shm="own"))


def test_few_samples_do_not_show_their_way() -> None:
    few = ({"sent": 50}, {"received": 50})
    for changes in OPEN:
        wrong = memory_path.invalid(outputs(few, tx_bytes=60_000, **changes))
        assert wrong and wrong.code == "no-proof" and "51,200 bytes were delivered" in wrong.text
    assert memory_path.invalid(outputs(few, tx_bytes=60_000)) is None


def test_unread_interfaces_prove_nothing() -> None:
    found = outputs(ARRIVED, dev_shm="own")
    found.measurement.outcomes["pub0"].meters.clear()  # type: ignore[union-attr]
    assert (wrong := memory_path.invalid(found)) and wrong.code == "no-proof"
