"""What the samples of a trial cost: CPU time per sample and per megabyte, and bytes on the wire."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds.campaign.trial_outputs import TrialOutputs
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, SUBSCRIBER, Role


def costs(seen: TrialOutputs) -> dict[str, float | None]:
    """The cost keys of trials.jsonl. CPU is that of the measured interval, by the pods' own counters.

    A pod's counter knows nothing of what a network does outside of it, such as a userspace ESP daemon:
    the machine's time per megabyte has that too.
    """
    pubs, subs = seen.pubs, seen.subs
    size = seen.trial.cell.payload_bytes
    sent, received = _sum(one["sent"] for one in pubs if one), _sum(one["received"] for one in subs if one)
    warm_up = _sum(one["warmup_received"] for one in subs if one) or 0
    megabytes = received * size / 1e6 if received else None
    delivered = ((received or 0) + warm_up) * size
    publishers, subscribers = _cpu_s(seen, PUBLISHER), _cpu_s(seen, SUBSCRIBER)
    # Of several machines only pub0's is known for sure: half a cost would look cheap.
    machine = (
        None
        if seen.measurement.elsewhere
        else (seen.meters_of(FIRST_PUBLISHER).get("machine") or {}).get("busy_s")
    )
    return {
        "publisher_cpu_us_per_sample": _ratio(publishers, sent, 1e6),
        "subscriber_cpu_us_per_sample": _ratio(subscribers, received, 1e6),
        "publisher_cpu_ms_per_mb": _ratio(publishers, megabytes, 1e3),
        "subscriber_cpu_ms_per_mb": _ratio(subscribers, megabytes, 1e3),
        "machine_cpu_ms_per_mb": _ratio(machine, megabytes, 1e3),
        "wire_bytes_per_payload_byte": _ratio(seen.measurement.sent_bytes, delivered, 1),
    }


def _cpu_s(seen: TrialOutputs, role: Role) -> float | None:
    found = [meters.get("cpu_s") for meters in seen.meters_of_role(role)]
    # A sum without one of its parts would look cheap.
    return None if not found or None in found else _sum(found)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ratio(part: float | None, whole: float | None, scale: float) -> float | None:
    return part / whole * scale if part is not None and whole else None
