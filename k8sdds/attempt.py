"""From what a testbed saw of an attempt to its record in trials.jsonl: the sums, and whether it is valid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from k8sdds.cost import costs
from k8sdds.model.trial import Trial
from k8sdds.perftest import output
from k8sdds.perftest.output import Summary
from k8sdds.store import SCHEMA
from k8sdds.testbeds import Measurement

SPAN_TOLERANCE = 0.1
"""Part of the measured time that a subscriber's first to last sample may differ from it. Its rate is samples
over that span (PerfTest's way), which says nothing where they came in a burst or were only a few."""
SPAN_SLACK_S = 0.1
"""The same as a time, for short trials: the first and last samples may wait that long for a core."""

MULTICAST_COPIES = 1.5
"""Multicast packets per sample and fragment that still count as one send to all (resends included)."""

DISTURBED_PERCENT = 10
"""User time of other processes, or time stolen by a hypervisor, from which a trial counts as disturbed, in
percent of one core. Undisturbed trials show below 3 %."""

MISSED = 0.1
"""Part by which a rate or a duration may be missed before it is told."""

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
    summaries = {name: output.read(folder / name / "stdout") for name in cell.participants}
    pubs = [summaries[name] for name in cell.participants if name.startswith("pub")]
    subs = [summaries[name] for name in cell.participants if name.startswith("sub")]
    meters = {name: outcome.meters or {} for name, outcome in measurement.outcomes.items()}
    reason = _failed(measurement, folder) or _judge(trial, pubs, subs, measurement, meters)
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
        "network_cpu_percent": measurement.daemons_cpu_percent,
        "valid": reason is None,
        "reason": reason,
        "warnings": [*measurement.warnings, *_disturbances(measurement, meters), *_missed(trial, pubs)],
    }
    paid = costs(trial, pubs, subs, measurement, meters)
    evidence = _evidence(subs, measurement, meters)
    numbers = base | _numbers(trial, pubs, subs) | _resources(meters) | paid | evidence
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
        "qos": Path(cell.qos_profile).stem if cell.middleware != "raw" else "none",
        "batch_bytes": cell.batch_bytes,
        "rate": cell.rate,
        "link": cell.link.model_dump(mode="json"),
        "layout": cell.layout,
        "cpu_quota": cell.cpu_quota,
        "receive_mode": cell.receive_mode,
        "repetition": trial.repetition,
        "duration_s": trial.duration_s,
        "warmup_s": trial.warmup_s,
    }


def _failed(measurement: Measurement, folder: Path) -> str | None:
    """The first cause among failed participants: one that lost its peer is a consequence, not a cause."""
    failures = []
    for name, outcome in measurement.outcomes.items():
        if outcome.exit_code:
            word, sentence = output.failure(outcome.exit_code, folder / name / "stderr", outcome.message)
            failures.append((word in ("peer-lost", "no-match"), f"{word}: {name}: {sentence}"))
    return min(failures)[1] if failures else None


def _judge(
    trial: Trial,
    pubs: list[Summary | None],
    subs: list[Summary | None],
    measurement: Measurement,
    meters: dict[str, dict[str, Any]],
) -> str | None:
    """Why an attempt whose participants all ended in order still proves nothing, or None."""
    cell = trial.cell
    if any(one is None for one in [*pubs, *subs]):
        return "no-report: a participant ended in order without a whole summary"
    received = sum(one["received"] or 0 for one in subs if one)
    lost = sum(one["lost"] or 0 for one in subs if one)
    if received == 0:
        return "no-samples: nothing was received"
    if cell.reliability == "reliable" and lost:
        return f"lost-samples: {lost} samples of a reliable trial did not arrive"
    if cell.test == "latency" and not _latency_count(pubs):
        return "no-samples: no round trip was timed"
    return (
        (_uneven(trial, pubs, subs) if cell.test == "throughput" else None)
        or _off_the_wire(trial, subs, measurement)
        or _wrong_transport(trial, pubs, meters)
    )


def _uneven(trial: Trial, pubs: list[Summary | None], subs: list[Summary | None]) -> str | None:
    """Samples must have come over the whole measured time for their rate to be one."""
    measured_s = max(one["measured_s"] or 0 for one in pubs if one)
    for index, one in enumerate(subs):
        if one is None:
            continue
        span_s = ((one["last_sample_monotonic_ns"] or 0) - (one["first_sample_monotonic_ns"] or 0)) / 1e9
        if abs(span_s - measured_s) > max(SPAN_TOLERANCE * measured_s, SPAN_SLACK_S):
            return (
                f"uneven: sub{index} got {one['received']} samples within {span_s:.3g} s of the"
                f" {measured_s:.3g} s measured, too few or too bunched for a rate; measure longer"
            )
    return None


def _latency_count(pubs: list[Summary | None]) -> int:
    return sum((one["latency_ns"] or {}).get("count", 0) for one in pubs if one)


def _off_the_wire(trial: Trial, subs: list[Summary | None], measurement: Measurement) -> str | None:
    """The links must have carried at least what was delivered: no shared memory, no shortcut."""
    for index, summary in enumerate(subs):
        # The links are read before the warm-up and after the end, so the warm-up's samples count too.
        samples = (summary["received"] or 0) + (summary["warmup_received"] or 0) if summary else 0
        delivered = samples * trial.cell.payload_bytes
        seen = measurement.received_bytes.get(f"sub{index}")
        if seen is None:
            return f"no-proof: the link of sub{index}'s node was not read"
        if seen < delivered:
            return f"not-on-wire: sub{index} got {delivered} bytes of samples, its node's link only {seen}"
        if measurement.decrypted_bytes is None:
            continue
        decrypted = measurement.decrypted_bytes[f"sub{index}"]
        if decrypted < delivered:
            return f"not-encrypted: sub{index} got {delivered} bytes of samples, its tunnels only {decrypted}"
    return None


def _wrong_transport(
    trial: Trial, pubs: list[Summary | None], meters: dict[str, dict[str, Any]]
) -> str | None:
    """Multicast must have left the publisher as multicast, once for all subscribers; unicast as unicast."""
    cell = trial.cell
    for index, summary in enumerate(pubs):
        network = meters.get(f"pub{index}", {}).get("network")
        if summary is None or not isinstance(network, dict) or network.get("ip_out_mcast_bytes") is None:
            return f"no-proof: the counters of pub{index} were not read"
        sent, multicast = summary["sent"] or 0, network["ip_out_mcast_bytes"]
        payload = sent * cell.payload_bytes
        if cell.transport == "multicast" and multicast < payload:
            return (
                f"not-on-wire: pub{index} sent {payload} bytes of samples, but only {multicast} as multicast"
            )
        if cell.transport == "unicast" and multicast > max(payload // 2, 100_000):
            return f"not-on-wire: pub{index} sent {multicast} bytes as multicast in a unicast trial"
        out = _pod_bytes(meters[f"pub{index}"], "tx_bytes")
        if (
            cell.transport == "multicast"
            and out is not None
            and cell.subscribers > 1
            and cell.publishers == 1
        ):
            limit = (payload + multicast) * MULTICAST_COPIES + 100_000
            if out - multicast > limit:
                return f"not-on-wire: pub{index} sent {out} bytes for {payload} bytes of multicast samples"
    return None


def _pod_bytes(meters: dict[str, Any], key: str) -> int | None:
    interface = (meters.get("interfaces") or {}).get("eth0")
    return interface.get(key) if isinstance(interface, dict) else None


def _numbers(trial: Trial, pubs: list[Summary | None], subs: list[Summary | None]) -> dict[str, Any]:
    """Throughput, counts and latencies; null where the test does not measure them."""
    throughput_test = trial.cell.test == "throughput"
    known = [one for one in subs if one is not None]
    first = next((one for one in pubs if one is not None), None)
    sent = _total(pubs, "sent")
    lost = _total(subs, "lost")
    expected = sent * trial.cell.subscribers if sent else None
    numbers: dict[str, Any] = {
        "throughput_mbps": _mean(one["throughput_mbps"] for one in known) if throughput_test else None,
        "samples_per_s": _mean(one["samples_per_s"] for one in known) if throughput_test else None,
        "measured_s": first["measured_s"] if first else None,
        "discovery_s": first["discovery_s"] if first else None,
        "middleware_version": (first["middleware"] or {}).get("version") if first else None,
        "sent": sent,
        "received": _total(subs, "received"),
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


def _resources(meters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """CPU in percent of one core, memory in bytes, by the supervisor's meters."""
    found: dict[str, Any] = {}
    for role, prefix in (("publisher", "pub"), ("subscriber", "sub")):
        own = [one for name, one in meters.items() if name.startswith(prefix)]
        found[f"{role}_cpu_percent"] = _mean(_percent(one, one.get("cpu_s")) for one in own)
        peak = _mean(one.get("memory_peak_bytes") for one in own)
        found[f"{role}_rss_bytes"] = None if peak is None else round(peak)
    first = meters.get("pub0", {})
    machine = first.get("machine") or {}
    cpus = machine.get("cpus") or 1
    for key, part in (("machine_cpu_percent", "busy_s"), ("softirq_percent", "softirq_s")):
        value = _percent(first, machine.get(part))
        found[key] = None if value is None else value / cpus
    return found


def _missed(trial: Trial, pubs: list[Summary | None]) -> list[str]:
    """What was asked for and not reached: the rate, the duration."""
    found = []
    for one in pubs:
        measured_s = one["measured_s"] if one else None
        if one is None or not measured_s or trial.cell.test != "throughput":
            continue
        rate = (one["sent"] or 0) / measured_s
        if trial.cell.rate and rate < (1 - MISSED) * trial.cell.rate:
            found.append(f"rate: {rate:.3g} of {trial.cell.rate:g} samples/s were sent")
        if measured_s > (1 + MISSED) * trial.duration_s:
            found.append(
                f"duration: the last write ended after {measured_s:.3g} s instead of {trial.duration_s:g}"
            )
    return found


def _disturbances(measurement: Measurement, meters: dict[str, dict[str, Any]]) -> list[str]:
    """What else ran on this machine while the trial measured, by the publisher's interval.

    Only user time is compared: the system time of pods includes softirqs, the machine's does not.
    """
    first = meters.get("pub0", {})
    machine = first.get("machine") or {}
    own = _percent(first, sum(one.get("cpu_user_s") or 0 for one in meters.values())) or 0
    busy = (_percent(first, machine.get("user_s")) or 0) + (_percent(first, machine.get("nice_s")) or 0)
    others = busy - own - (measurement.daemons_user_percent or 0)
    stolen = _percent(first, machine.get("steal_s")) or 0
    found = []
    if others > DISTURBED_PERCENT:
        found.append(f"disturbed: other processes used {others:.0f} % of a core while it measured")
    if stolen > DISTURBED_PERCENT:
        found.append(f"disturbed: the hypervisor took {stolen:.0f} % of a core while it measured")
    return found


def _percent(meters: dict[str, Any], seconds: float | None) -> float | None:
    duration = (meters.get("interval") or {}).get("duration_s")
    return seconds / duration * 100 if seconds is not None and duration else None


def _evidence(
    subs: list[Summary | None], measurement: Measurement, meters: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    delivered = {f"sub{index}": one["received"] for index, one in enumerate(subs) if one}
    drops = {
        key: _sum(_counter(one, "network", name) for one in meters.values()) for key, name in DROPS.items()
    }
    drops["interface_drops"] = _sum(
        (interface.get("rx_dropped") or 0) + (interface.get("tx_dropped") or 0)
        for one in meters.values()
        for interface in (one.get("interfaces") or {}).values()
    )
    return {
        "link_bytes": {
            "sent": measurement.sent_bytes,
            "received": measurement.received_bytes,
            "delivered_samples": delivered,
            **({} if measurement.decrypted_bytes is None else {"decrypted": measurement.decrypted_bytes}),
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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def interrupted(trial: Trial, number: int, folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The record of an attempt that the user's Ctrl-C ended."""
    return record(trial, number, Measurement({}, None, {}), folder, facts) | {
        "valid": False,
        "reason": "interrupted: the campaign was interrupted while this trial ran",
    }
