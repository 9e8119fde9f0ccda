"""Whether an attempt proves anything: why it does not, and what disturbed it."""

from __future__ import annotations

from k8sdds.campaign.trial_outputs import TrialOutputs, percent
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, SUBSCRIBER, Participant
from k8sdds.perftest import output
from k8sdds.perftest.output import Summary

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


def reason(seen: TrialOutputs) -> str | None:
    """Why an attempt is invalid, a word and a sentence; None where it is valid."""
    return _failed(seen) or _unproven(seen)


def warnings(seen: TrialOutputs) -> list[str]:
    """What speaks against a valid attempt without making it invalid."""
    return [*seen.measurement.warnings, *_disturbances(seen), *_missed(seen)]


def _failed(seen: TrialOutputs) -> str | None:
    """The first cause among failed participants: one that lost its peer is a consequence, not a cause."""
    failures = []
    for name, outcome in seen.measurement.outcomes.items():
        if outcome.lost:
            failures.append((False, f"pod-lost: {name}: {outcome.lost}"))
        elif outcome.exit_code:
            word, sentence = output.failure(outcome.exit_code, seen.folder / name / "stderr", outcome.message)
            failures.append((word in ("peer-lost", "no-match"), f"{word}: {name}: {sentence}"))
    return min(failures)[1] if failures else None


def _unproven(seen: TrialOutputs) -> str | None:
    """Why an attempt whose participants all ended in order still proves nothing, or None."""
    cell = seen.trial.cell
    if any(one is None for one in [*seen.pubs, *seen.subs]):
        return "no-report: a participant ended in order without a whole summary"
    received = sum(one["received"] or 0 for one in seen.subs if one)
    lost = sum(one["lost"] or 0 for one in seen.subs if one)
    if received == 0:
        return "no-samples: nothing was received"
    if cell.reliability == "reliable" and lost:
        return f"lost-samples: {lost} samples of a reliable trial did not arrive"
    if cell.test == "latency" and not any(_timed(one) for one in seen.pubs):
        return "no-samples: no round trip was timed"
    return (
        (_uneven(seen) if cell.test == "throughput" else None)
        or _off_the_wire(seen)
        or _wrong_transport(seen)
    )


def _uneven(seen: TrialOutputs) -> str | None:
    """Samples must have come over the whole measured time for their rate to be one."""
    measured_s = max(one["measured_s"] or 0 for one in seen.pubs if one)
    for index, one in enumerate(seen.subs):
        if one is None or "first_sample_monotonic_ns" not in one.data:
            continue  # RTI PerfTest does not report when samples arrived
        span_s = ((one["last_sample_monotonic_ns"] or 0) - (one["first_sample_monotonic_ns"] or 0)) / 1e9
        if abs(span_s - measured_s) > max(SPAN_TOLERANCE * measured_s, SPAN_SLACK_S):
            return (
                f"uneven: {Participant(SUBSCRIBER, index)} got {one['received']} samples within {span_s:.3g} s of the"
                f" {measured_s:.3g} s measured, too few or too bunched for a rate; measure longer"
            )
    return None


def _timed(summary: Summary | None) -> bool:
    """Whether it has latencies; RTI PerfTest does not count them."""
    values = summary["latency_ns"] if summary is not None else None
    return bool(values) and values is not None and values.get("count") != 0


def _sent(summary: Summary, subs: list[Summary | None]) -> int:
    """Samples that a publisher sent; at least those that one subscriber got, where it does not say."""
    if summary["sent"] is not None:
        return int(summary["sent"])
    return max((one["received"] or 0 for one in subs if one), default=0)


def _off_the_wire(seen: TrialOutputs) -> str | None:
    """The links must have carried at least what was delivered: no shared memory, no shortcut."""
    for index, summary in enumerate(seen.subs):
        # The links are read before the warm-up and after the end, so the warm-up's samples count too.
        samples = (summary["received"] or 0) + (summary["warmup_received"] or 0) if summary else 0
        delivered = samples * seen.trial.cell.payload_bytes
        name = Participant(SUBSCRIBER, index).name
        carried = seen.measurement.received_bytes.get(name)
        if carried is None:
            return f"no-proof: the link of {name}'s node was not read"
        if carried < delivered:
            return f"not-on-wire: {name} got {delivered} bytes of samples, its node's link only {carried}"
        through = (seen.measurement.carried_bytes or {}).get(name)
        if through is not None and through < delivered:
            return (
                f"not-on-network: {name} got {delivered} bytes of samples, the links that are the network"
                f" on its node only {through}"
            )
        if seen.measurement.decrypted_bytes is None:
            continue
        decrypted = seen.measurement.decrypted_bytes[name]
        if decrypted < delivered:
            return f"not-encrypted: {name} got {delivered} bytes of samples, its tunnels only {decrypted}"
    return None


def _wrong_transport(seen: TrialOutputs) -> str | None:
    """Multicast must have left the publisher as multicast, once for all subscribers; unicast as unicast."""
    cell = seen.trial.cell
    for index, summary in enumerate(seen.pubs):
        participant = Participant(PUBLISHER, index)
        network = seen.meters_of(participant).get("network")
        if summary is None or not isinstance(network, dict) or network.get("ip_out_mcast_bytes") is None:
            return f"no-proof: the counters of {participant} were not read"
        sent, multicast = _sent(summary, seen.subs), network["ip_out_mcast_bytes"]
        payload = sent * cell.payload_bytes
        if cell.transport == "multicast" and multicast < payload:
            return f"not-on-wire: {participant} sent {payload} bytes of samples, but only {multicast} as multicast"
        if cell.transport == "unicast" and multicast > max(payload // 2, 100_000):
            return f"not-on-wire: {participant} sent {multicast} bytes as multicast in a unicast trial"
        out = seen.pod_bytes(participant, "tx_bytes")
        if (
            cell.transport == "multicast"
            and out is not None
            and cell.subscribers > 1
            and cell.publishers == 1
        ):
            limit = (payload + multicast) * MULTICAST_COPIES + 100_000
            if out - multicast > limit:
                return f"not-on-wire: {participant} sent {out} bytes for {payload} bytes of multicast samples"
    return None


def _missed(seen: TrialOutputs) -> list[str]:
    """What was asked for and not reached: the rate, the duration."""
    asked, duration_s = seen.trial.cell.rate, seen.trial.duration_s
    found = []
    for one in seen.pubs:
        measured_s = one["measured_s"] if one else None
        if one is None or not measured_s or seen.trial.cell.test != "throughput":
            continue
        rate = (one["sent"] or 0) / measured_s
        if asked and one["sent"] is not None and rate < (1 - MISSED) * asked:
            found.append(f"rate: {rate:.3g} of {asked:g} samples/s were sent")
        if measured_s > (1 + MISSED) * duration_s:
            found.append(f"duration: the last write ended after {measured_s:.3g} s instead of {duration_s:g}")
    return found


def _disturbances(seen: TrialOutputs) -> list[str]:
    """What else ran on this machine while the trial measured, by the publisher's interval.

    Only user time is compared: the system time of pods includes softirqs, the machine's does not.
    """
    first = seen.meters_of(FIRST_PUBLISHER)
    machine = first.get("machine") or {}
    here = [one for name, one in seen.meters.items() if name not in seen.measurement.elsewhere]
    own = percent(first, sum(one.get("cpu_user_s") or 0 for one in here)) or 0
    busy = (percent(first, machine.get("user_s")) or 0) + (percent(first, machine.get("nice_s")) or 0)
    others = busy - own - (seen.measurement.daemons_user_percent or 0)
    stolen = percent(first, machine.get("steal_s")) or 0
    found = []
    if others > DISTURBED_PERCENT:
        found.append(f"disturbed: other processes used {others:.0f} % of a core while it measured")
    if stolen > DISTURBED_PERCENT:
        found.append(f"disturbed: the hypervisor took {stolen:.0f} % of a core while it measured")
    return found
