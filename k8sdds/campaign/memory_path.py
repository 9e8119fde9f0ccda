"""Find which way the samples of a trial by shared memory took: memory, the network, or none."""

from __future__ import annotations

import re

from k8sdds import middleware
from k8sdds.model.reason import NO_MATCH, Reason
from k8sdds.model.trial import SUBSCRIBER
from k8sdds.workloads import TrialOutputs

MEMORY, NETWORK, NOTHING = "memory", "network", "nothing"
"""Values of `samples_by`."""

MEMORY_SHARE, MEMORY_SLACK_BYTES = 0.01, 100_000
"""What interfaces may carry in a trial by shared memory: a share of the samples' bytes, and bytes of discovery."""


def found_peer(exit_reason: str) -> bool:
    """Return whether k8sdds-perftest ended after it had found a peer whose samples did not arrive."""
    return re.search(r"\(matched (?:writers|readers) [1-9]", exit_reason) is not None


def sent_by_tcp(exit_reason: str) -> bool:
    """Return whether k8sdds-perftest ended because Zenoh sent samples by the network."""
    return "by TCP instead of shared memory" in exit_reason


def taken(outputs: TrialOutputs) -> str | Reason:
    """Return the way that samples took, or why it is unknown."""
    reasons = [summary.exit_reason for summary in outputs.summaries.values() if summary]
    if any(map(sent_by_tcp, reasons)):
        return NETWORK
    if not any(summary["received"] for summary in outputs.subscribers):
        found = any(map(found_peer, reasons))
        return NOTHING if found else Reason(NO_MATCH, "the participants did not discover each other")
    carried = _carried_bytes(outputs)
    if isinstance(carried, Reason):
        return carried
    limit, delivered = _limit_bytes(outputs), _delivered_bytes(outputs)
    if outputs.trial.cell.shows_path and delivered < 2 * limit:
        what = f"{delivered:,} bytes were delivered, too few to tell memory from the network"
        return Reason("no-proof", f"{what}; measure longer or larger samples")
    return MEMORY if max(carried.values()) <= limit else NETWORK


def is_result(failed: Reason, outputs: TrialOutputs) -> bool:
    """Return whether a failure of participants is the result of a trial that shows which way samples take."""
    if not outputs.trial.cell.shows_path:
        return False
    way = taken(outputs)
    return (way == NOTHING and failed.code == NO_MATCH) or (way == NETWORK and sent_by_tcp(failed.text))


def invalid(outputs: TrialOutputs) -> Reason | None:
    """Check that the way is known, and that it is memory unless the trial shows which way samples take.

    No interface of the publishers, loopback included, may have carried samples that were to stay in memory.
    """
    way = taken(outputs)
    if isinstance(way, Reason):
        return way
    if way == MEMORY or outputs.trial.cell.shows_path:
        return None
    carried = _carried_bytes(outputs)
    if isinstance(carried, Reason):
        return None
    name = max(carried, key=lambda name: carried[name])
    return Reason("not-in-memory", f"the interfaces of {name} carried {carried[name]} bytes")


def _limit_bytes(outputs: TrialOutputs) -> float:
    """Return how much the interfaces of a publisher carry at most if samples stay in memory."""
    received = sum(summary["received"] or 0 for summary in outputs.subscribers)
    references = received * middleware.find(outputs.trial.cell.middleware).reference_bytes
    return _delivered_bytes(outputs) * MEMORY_SHARE + references + MEMORY_SLACK_BYTES


def _delivered_bytes(outputs: TrialOutputs) -> int:
    return sum(outputs.delivered_bytes(it) or 0 for it in outputs.summaries_of(SUBSCRIBER))


def _carried_bytes(outputs: TrialOutputs) -> dict[str, int] | Reason:
    """Return what the interfaces of each publisher sent, by its name, or why it is unknown."""
    carried = {}
    for participant in outputs.summaries:
        if not participant.publishes:
            continue
        interfaces = outputs.meters_of(participant).get("interfaces")
        if not isinstance(interfaces, dict) or "lo" not in interfaces:
            return Reason("no-proof", f"the interfaces of {participant} were not read")
        carried[participant.name] = sum(counters["tx_bytes"] for counters in interfaces.values())
    return carried
