"""Find what may have affected a valid attempt: each is a warning in its record."""

from __future__ import annotations

from k8sdds import middleware, workloads
from k8sdds.campaign import background, validity
from k8sdds.model.measurement import OutsideCpu
from k8sdds.model.reason import DISTURBED
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER
from k8sdds.perftest.output import Summary
from k8sdds.workloads import TrialOutputs
from k8sdds.workloads.outputs import cpu_interval_s, machine_percent, percent

CPU_INTERVAL_TOLERANCE = 0.02
"""Fraction by which the interval of CPU times may differ from that of the samples without a warning."""

DISTURBED_PERCENT = 10
"""CPU time of other processes, or time stolen by a hypervisor, from which a trial counts as disturbed, in percent of
one core."""


def warnings(outputs: TrialOutputs) -> list[str]:
    """Return the disturbances of a valid attempt, each as `code: explanation`."""
    workload = workloads.find(outputs.trial.cell.test)
    return [
        *([str(failure)] if (failure := validity.accepted_failure(outputs)) else []),
        *outputs.measurement.warnings,
        *([] if workload.loss_is_result else _lossy(outputs)),
        *_disturbances(outputs),
        *_fragmented(outputs),
        *_early_ends(outputs),
        *_cpu_intervals(outputs),
        *_cut_logs(outputs),
        *workload.warnings(outputs),
        *background.warnings(outputs),
    ]


def _lossy(outputs: TrialOutputs) -> list[str]:
    """Return a warning for each subscriber that lost more samples than the experiment accepts.

    The loss is a result: if such attempts were repeated, the attempts that lost least by chance would count.
    """
    limit = outputs.trial.max_loss_percent
    warnings = []
    for participant, summary in outputs.summaries_of(SUBSCRIBER).items():
        lost = summary["lost"] or 0
        lost_percent = 100 * lost / max(lost + (summary["received"] or 0), 1)
        if lost_percent > limit:
            warnings.append(
                f"loss: {participant} lost {lost_percent:.3g} % of the samples; max_loss_percent is {limit:g}"
            )
    return warnings


def _fragmented(outputs: TrialOutputs) -> list[str]:
    """Return a warning if IP fragmented messages that were to fit the MTU."""
    if outputs.trial.cell.message_bytes != "mtu":
        return []
    created = {
        name: (meters.get("network") or {}).get("ip_frag_creates") for name, meters in outputs.meters.items()
    }
    return [
        f"fragmented: {name} created {count} IP fragments, although message_bytes is mtu"
        for name, count in created.items()
        if count
    ]


def _early_ends(outputs: TrialOutputs) -> list[str]:
    """Return a warning if PerfTest's limit of the number of samples (`-numIter`) ended a measurement."""
    counted = [
        str(participant)
        for participant, summary in outputs.summaries.items()
        if summary is not None and summary["ended_by"] == "count"
    ]
    if not counted:
        return []
    return [
        f"early-end: {', '.join(counted)} reached PerfTest's maximum number of samples before the end of the"
        f" {outputs.trial.duration_s:g} s; set a shorter duration_s"
    ]


def _cut_logs(outputs: TrialOutputs) -> list[str]:
    """Return a warning for each participant whose log is incomplete: most often, others sent it malformed packets."""
    dropped = {name: meters.get("stderr_dropped_bytes") for name, meters in outputs.meters.items()}
    return [
        f"log: {name} wrote so much to stderr that {bytes_} bytes of it were not kept"
        for name, bytes_ in dropped.items()
        if bytes_
    ]


def _cpu_intervals(outputs: TrialOutputs) -> list[str]:
    """Return a warning for each participant whose CPU time was read over another interval than its samples.

    The meters of tools are read over the requested interval, and their workloads check the measured one.
    """
    if middleware.of(outputs.trial.cell) is None:
        return []
    warnings = []
    for participant, summary in outputs.summaries.items():
        cpu_s = cpu_interval_s(outputs.meters_of(participant))
        # A node of a graph may receive few samples, but sends others during the whole interval.
        sends = participant.publishes or bool(outputs.trial.cell.graph)
        samples_s = _samples_s(summary, sends) if summary is not None else None
        if cpu_s and samples_s is not None and abs(cpu_s - samples_s) > CPU_INTERVAL_TOLERANCE * samples_s:
            warnings.append(
                f"cpu-interval: the CPU time of {participant} covers {cpu_s:.3g} s, its samples {samples_s:.3g} s"
            )
    return warnings


def _samples_s(summary: Summary, publishes: bool) -> float | None:
    """Return the time from a participant's first to its last sample."""
    first, last = summary["first_sample_monotonic_ns"], summary["last_sample_monotonic_ns"]
    if publishes or first is None or last is None:
        measured_s: float | None = summary["measured_s"]
        return measured_s
    return float(last - first) / 1e9


def _disturbances(outputs: TrialOutputs) -> list[str]:
    """Return the CPU time that other processes used on the first publisher's machine."""
    first = outputs.meters_of(FIRST_PUBLISHER)
    seen = [(spent.others, "the attempt") for spent in _outside_first(outputs)]
    others, when = max([(_user_time_of_others(outputs), "the measured interval"), *seen])
    stolen = machine_percent(first, "steal_s") or 0
    disturbances = []
    if others > DISTURBED_PERCENT:
        disturbances.append(f"{DISTURBED}: other processes used {others:.0f} % of a core during {when}")
    if stolen > DISTURBED_PERCENT:
        disturbances.append(
            f"{DISTURBED}: the hypervisor took {stolen:.0f} % of a core during the measured interval"
        )
    return disturbances


def _user_time_of_others(outputs: TrialOutputs) -> float:
    """Return the user time of other processes in the measured interval, in percent of one core.

    It includes processes that the testbed does not see, such as those outside of a node that is a container. Their
    system time is unknown: that of pods includes softirqs, that of the machine does not.
    """
    first = outputs.meters_of(FIRST_PUBLISHER)
    own_meters = [
        meters for name, meters in outputs.meters.items() if name not in outputs.measurement.elsewhere
    ]
    own = percent(first, sum(meters.get("cpu_user_s") or 0 for meters in own_meters)) or 0
    busy = (machine_percent(first, "user_s") or 0) + (machine_percent(first, "nice_s") or 0)
    # The network's daemons and `k8sdds-link` spend most of their time in user mode, if they spend any.
    return busy - own - sum(spent.network + spent.links for spent in _outside_first(outputs))


def _outside_first(outputs: TrialOutputs) -> list[OutsideCpu]:
    _, machine = outputs.measurement.nodes.get(FIRST_PUBLISHER.name, ("", ""))
    return [outputs.measurement.outside[machine]] if machine in outputs.measurement.outside else []
