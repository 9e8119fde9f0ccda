"""From what was seen of an attempt to its record in trials.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from k8sdds.campaign import validity
from k8sdds.campaign.resource_cost import costs
from k8sdds.campaign.trial_outputs import TrialOutputs, percent
from k8sdds.model.measurement import Measurement
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, SUBSCRIBER, Participant, Trial
from k8sdds.perftest import command
from k8sdds.perftest.output import Summary
from k8sdds.results.run_folder import SCHEMA

DROPS = {
    "udp_receive_buffer_errors": "udp_rcvbuf_errors",
    "udp_send_buffer_errors": "udp_sndbuf_errors",
    "ip_reassembly_fails": "ip_reasm_fails",
}
"""Key in trials.jsonl to the supervisor's counter."""


def record(
    trial: Trial, number: int, measurement: Measurement, folder: Path, facts: dict[str, Any]
) -> dict[str, Any]:
    """One attempt as docs/results.md describes it. `facts`: what the campaign and testbed know of it."""
    cell = trial.cell
    seen = TrialOutputs.of(trial, measurement, folder)
    reason = validity.reason(seen)
    base = {
        "schema": SCHEMA,
        "trial_id": trial.trial_id,
        "cell_id": cell.cell_id,
        "attempt": number,
        "testbed": trial.testbed,
        **description(trial),
        **facts,
        "includes_scheduling": measurement.includes_scheduling,
        "cpu_mhz": measurement.cpu_mhz,
        "start_skew_s": measurement.start_skew_s,
        "api_calls": measurement.api_calls,
        "network_cpu_percent": measurement.daemons_cpu_percent,
        "valid": reason is None,
        "reason": reason,
        "warnings": validity.warnings(seen),
    }
    numbers = base | _numbers(seen) | _resources(seen) | costs(seen) | _evidence(seen)
    return numbers | _captured(measurement, numbers) if cell.capture else numbers


def description(trial: Trial) -> dict[str, Any]:
    """The keys of trials.jsonl that say what was to be measured."""
    cell = trial.cell
    return {
        "network": cell.network,
        "network_label": cell.network_label,
        "network_options": cell.network_options,
        "test": cell.test,
        "payload_bytes": cell.payload_bytes,
        "publishers": cell.publishers,
        "subscribers": cell.subscribers,
        "nodes": cell.node_count,
        "placement": cell.placement,
        "reliability": cell.reliability,
        "transport": cell.transport,
        "middleware": cell.middleware,
        "security": cell.security,
        "qos": Path(cell.qos_profile).stem if command.takes_qos(cell) else "none",
        "batch_bytes": cell.batch_bytes,
        "rate": cell.rate,
        "link": cell.link.model_dump(mode="json"),
        "layout": cell.layout,
        "cpu_quota": cell.cpu_quota,
        "discovery": cell.discovery,
        "receive_mode": cell.receive_mode,
        "repetition": trial.repetition,
        "duration_s": trial.duration_s,
        "warmup_s": trial.warmup_s,
    }


def _numbers(seen: TrialOutputs) -> dict[str, Any]:
    """Throughput, counts and latencies; null where the test does not measure them."""
    cell, pubs, subs = seen.trial.cell, seen.pubs, seen.subs
    throughput_test = cell.test == "throughput"
    known = [one for one in subs if one is not None]
    first = next((one for one in pubs if one is not None), None)
    sent = _total(pubs, "sent")
    lost, received = _total(subs, "lost"), _total(subs, "received")
    # Where the publisher does not say, a lost tail is not known of.
    expected = sent * cell.subscribers if sent is not None else (received or 0) + (lost or 0)
    numbers: dict[str, Any] = {
        "throughput_mbps": _mean(one["throughput_mbps"] for one in known) if throughput_test else None,
        "samples_per_s": _mean(one["samples_per_s"] for one in known) if throughput_test else None,
        "measured_s": first["measured_s"] if first else None,
        "discovery_s": first["discovery_s"] if first else None,
        "handshake_s": _longest(one["handshake_s"] for one in [*pubs, *subs] if one),
        "middleware_version": (first["middleware"] or {}).get("version") if first else None,
        "sent": sent,
        "received": received,
        "lost": lost,
        "duplicates": _total(subs, "duplicates"),
        "out_of_order": _total(subs, "out_of_order"),
        "lost_percent": lost / expected * 100 if expected and lost is not None else None,
    }
    timed = first if len(pubs) == 1 else None
    for quantity in ("mean", "p50", "p90", "p99", "p9999", "max"):
        value = timed.latency_us("latency_ns", quantity) if timed and not throughput_test else None
        numbers[f"latency_{quantity}_us"] = _finite(value)
    for quantity in ("p50", "p90"):
        value = timed.latency_us("loaded_latency_ns", quantity) if timed and throughput_test else None
        numbers[f"loaded_latency_{quantity}_us"] = _finite(value)
    return numbers


def _resources(seen: TrialOutputs) -> dict[str, Any]:
    """CPU in percent of one core, memory in bytes, by the supervisor's meters."""
    found: dict[str, Any] = {}
    for role in (PUBLISHER, SUBSCRIBER):
        own = seen.meters_of_role(role)
        found[f"{role}_cpu_percent"] = _mean(percent(one, one.get("cpu_s")) for one in own)
        peak = _mean(one.get("memory_peak_bytes") for one in own)
        found[f"{role}_rss_bytes"] = None if peak is None else round(peak)
    first = seen.meters_of(FIRST_PUBLISHER)
    machine = first.get("machine") or {}
    cpus = machine.get("cpus") or 1
    for key, part in (("machine_cpu_percent", "busy_s"), ("softirq_percent", "softirq_s")):
        value = percent(first, machine.get(part))
        found[key] = None if value is None else value / cpus
    return found


def _evidence(seen: TrialOutputs) -> dict[str, Any]:
    measurement, meters = seen.measurement, seen.meters
    delivered = {
        Participant(SUBSCRIBER, index).name: one["received"] for index, one in enumerate(seen.subs) if one
    }
    drops = {
        key: _sum(_counter(one, "network", name) for one in meters.values()) for key, name in DROPS.items()
    }
    drops["interface_drops"] = _sum(
        (interface.get("rx_dropped") or 0) + (interface.get("tx_dropped") or 0)
        for participant, one in meters.items()
        for name, interface in (one.get("interfaces") or {}).items()
        # A pod on the node's network sees all of the node's interfaces; in others there is just one.
        if name in ("lo", measurement.outcomes[participant].interface)
    )
    return {
        "link_bytes": {
            "sent": measurement.sent_bytes,
            "received": measurement.received_bytes,
            "delivered_samples": delivered,
            **({} if measurement.decrypted_bytes is None else {"decrypted": measurement.decrypted_bytes}),
            **({} if measurement.carried_bytes is None else {"carried": measurement.carried_bytes}),
        },
        "drops": drops,
    }


def _captured(measurement: Measurement, numbers: dict[str, Any]) -> dict[str, Any]:
    """What a trial with a capture says: the fragments of a sample. Its times are no measurement."""
    counts = measurement.ip_fragments
    lack = (
        "no-fragments: the capture holds no whole sample" if not counts
        else f"fragments: samples became {counts} IP fragments in one trial" if len(counts) > 1 else None
    )  # fmt: skip
    disturbed = ("latency_", "loaded_latency_", "throughput_", "samples_per_s")
    return {name: None for name in numbers if name.startswith(disturbed)} | {
        "ip_fragments_per_sample": None if lack else counts[0],
        "valid": numbers["valid"] and lack is None,
        "reason": numbers["reason"] or lack,
    }


def _counter(meters: dict[str, Any], group: str, name: str) -> int | None:
    return (meters.get(group) or {}).get(name)


def _total(summaries: list[Summary | None], key: str) -> int | None:
    values = [one[key] for one in summaries if one is not None and one[key] is not None]
    return sum(values) if values else None


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _finite(fmean(known)) if known else None


def _longest(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return max(known) if known and None not in known else None  # type: ignore[type-var]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def interrupted(trial: Trial, number: int, folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The record of an attempt that the user's Ctrl-C ended."""
    return record(trial, number, Measurement({}, None, {}), folder, facts) | {
        "valid": False,
        "reason": "interrupted: the campaign was interrupted while this trial ran",
    }
