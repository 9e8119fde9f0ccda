"""Decide whether an attempt is valid, and find what disturbed it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from k8sdds import middleware, workloads
from k8sdds.analysis import link_conditions
from k8sdds.analysis import profile as profiles
from k8sdds.analysis.profile import Profile
from k8sdds.campaign import background
from k8sdds.model.ip_families import ETHERNET_HEADER_BYTES, IP_AND_UDP_HEADERS_BYTES
from k8sdds.model.measurement import OutsideCpu
from k8sdds.model.reason import DISTURBED, NO_MATCH, PART_FAILED, PEER_LOST, Reason
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER, Participant
from k8sdds.perftest import output
from k8sdds.perftest.output import Summary
from k8sdds.system import processes, reading
from k8sdds.workloads import TrialOutputs
from k8sdds.workloads.outputs import cpu_interval_s, machine_percent, percent

MULTICAST_COPIES = 1.5
"""Multicast packets per sample and fragment that still count as one send to all, resent samples included."""

MULTICAST_SLACK_BYTES = 100_000
"""Multicast of discovery and heartbeats that is not counted as samples."""

LOCAL_SLACK_BYTES = 100_000
"""What a pod may receive from each subscriber on its node, itself included, without the network: discovery."""

CPU_INTERVAL_TOLERANCE = 0.02
"""Fraction by which the interval of CPU times may differ from that of the samples without a warning."""

MEMORY_SHARE, MEMORY_SLACK_BYTES = 0.01, 100_000
"""What interfaces may carry in a trial by shared memory: a share of the samples' bytes, and bytes of discovery."""

UPLINK_SHARE, UPLINK_SLACK_BYTES = 0.5, 1_000_000
"""What the link to other nodes may carry while all participants are on one node: less than the samples, and what a node
of a cluster exchanges anyway."""

DISTURBED_PERCENT = 10
"""CPU time of other processes, or time stolen by a hypervisor, from which a trial counts as disturbed, in percent of
one core."""


def reason(outputs: TrialOutputs, profile: Profile | Reason | None = None) -> Reason | None:
    """Return why an attempt is not valid, or None if it is.

    `profile` is that of a trial with a profile, or why there is none.
    """
    failed = _failed(outputs)
    is_result = failed is not None and _is_result(failed, outputs)
    # What the summaries, counters and meters of a failed participant contain depends on when it failed.
    wrong = _other_links(outputs) if is_result else failed or _not_verified(outputs)
    cell = outputs.trial.cell
    return (
        wrong
        or (_not_captured(outputs) if cell.capture else None)
        or (profile if isinstance(profile, Reason) else None)
    )


def _is_result(failed: Reason, outputs: TrialOutputs) -> bool:
    return workloads.find(outputs.trial.cell.test).is_result(failed, outputs)


def warnings(outputs: TrialOutputs) -> list[str]:
    """Return the disturbances of a valid attempt, each as `code: explanation`."""
    workload = workloads.find(outputs.trial.cell.test)
    return [
        *([str(failed)] if (failed := _failed(outputs)) and _is_result(failed, outputs) else []),
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


def _failed(outputs: TrialOutputs) -> Reason | None:
    """Return the first cause among failed participants: a failure without its peer is a consequence, not a cause."""
    program = middleware.program_of(outputs.trial.cell)
    loads = [load.name for load in outputs.trial.cell.loads]
    failures = []
    for name, outcome in outputs.measurement.outcomes.items():
        # Too much memory is a failure of what is measured.
        if outcome.lost and outcome.exit_code != output.OUT_OF_MEMORY:
            failures.append((0, Reason(PART_FAILED, f"{name}: {outcome.lost}")))
        # If none was started, all have the same message, and the background need not be the cause.
        elif name in loads and outcome.exit_code not in (0, output.NOT_STARTED):
            why = outcome.message or background.error(outputs, name)
            failures.append((0, Reason("background", f"{name}: {why}")))
        elif outcome.exit_code:
            details = outcome.message or outcome.lost or program.error(outputs.folder / name)
            failure = output.failure(outcome.exit_code, details, program.exit_reasons)
            # A supervisor that is stopped at its barrier has nothing to report.
            unexplained = outcome.exit_code == output.NOT_STARTED and not outcome.message
            killed = processes.was_killed(outcome.exit_code) or unexplained
            rank = 0 if killed else 2 if failure.code in (PEER_LOST, NO_MATCH) else 1
            code = PART_FAILED if killed else failure.code
            failures.append((rank, Reason(code, f"{name}: {failure.text}")))
    return min(failures)[1] if failures else None


def _not_verified(outputs: TrialOutputs) -> Reason | None:
    """Return why an attempt without failed participants is not valid, or None."""
    cell = outputs.trial.cell
    workload = workloads.find(cell.test)
    if None in outputs.summaries.values():
        what = f"a participant exited normally without a complete summary{_reported(outputs)}"
        return Reason("no-report", what)
    lost = sum(summary["lost"] or 0 for summary in outputs.subscribers)
    arrived = any(outputs.delivered_bytes(participant) for participant in outputs.summaries)
    if not _accepts_loss(outputs):
        if not arrived:
            return Reason("no-samples", "nothing was received")
        if cell.reliability == "reliable" and lost and middleware.of(cell) and not workload.loss_is_result:
            return Reason("lost-samples", f"{lost} samples of a reliable trial did not arrive")
    return (
        (workload.invalid(outputs) if arrived else None)
        or (None if workload.loss_is_result else _missing_instances(outputs))
        or _other_links(outputs)
        or (_carried(outputs) if cell.uses_network else _not_in_memory(outputs))
        or _not_as_requested(outputs)
        or background.invalid(outputs)
    )


def _accepts_loss(outputs: TrialOutputs) -> bool:
    """Return whether every loss is a result, also of a reliable trial.

    A writer that keeps the last samples replaces those that an impaired link held up: how many is the question.
    """
    cell = outputs.trial.cell
    return bool(
        cell.link.exceeds_short_keys and middleware.of(cell) and outputs.trial.max_loss_percent == 100
    )


def _reported(outputs: TrialOutputs) -> str:
    """Return the error that a tool reported although it exited normally, as iperf3 does; empty if there is none.

    Clients come first: a server may also report that it was stopped.
    """
    cell = outputs.trial.cell
    if middleware.of(cell):
        return ""
    program = middleware.program_of(cell)
    errors = (program.error(outputs.folder / participant.name) for participant in outputs.summaries)
    return next((f": {error}" for error in errors if error), "")


def _not_captured(outputs: TrialOutputs) -> Reason | None:
    """Check that a packet capture holds samples, and that all became as many IP fragments."""
    counts = outputs.measurement.ip_fragments
    if not counts:
        return Reason("no-fragments", "the capture holds no whole sample")
    return (
        Reason("fragments", f"samples became {counts} IP fragments in one trial") if len(counts) > 1 else None
    )


def profile_of(outputs: TrialOutputs) -> Profile | Reason:
    """Return the profile of an attempt, or why it has none that shows anything."""
    try:
        profile = profiles.read(outputs.folder)
    except FileNotFoundError:
        # What prevented the profile is among the warnings of the testbed.
        return Reason("no-profile", "none was written; see the warnings")
    except (OSError, reading.UnreadableError) as error:
        return Reason("no-profile", reading.one_line(str(error), 300))
    if profile.samples >= profiles.MIN_SAMPLES:
        return profile
    return Reason(
        "no-profile", f"{profile.samples} samples, fewer than {profiles.MIN_SAMPLES}; measure longer"
    )


def execution(outputs: TrialOutputs) -> dict[str, dict[str, Any]]:
    """Return by participant what the supervisor read from the kernel, and the DSCP of the participant's sockets."""
    result = {}
    for participant, summary in outputs.summaries.items():
        seen = outputs.meters_of(participant).get("execution") or {}
        transport = (summary["transport"] if summary else None) or {}
        result[participant.name] = {**seen, "dscp": transport.get("dscp")}
    return result


def _not_as_requested(outputs: TrialOutputs) -> Reason | None:
    """Check that scheduler, locked memory and DSCP were in effect in every participant."""
    cell = outputs.trial.cell
    for name, seen in execution(outputs).items():
        threads = list(seen.get("threads") or {})
        if cell.realtime_priority and threads != [f"fifo {cell.realtime_priority}"]:
            return Reason("not-real-time", f"the threads of {name} ran as {', '.join(threads) or 'unknown'}")
        if cell.lock_memory and not seen.get("locked_bytes"):
            return Reason("not-locked", f"{name} locked {seen.get('locked_bytes') or 0} bytes of memory")
        if cell.dscp and seen["dscp"] != [cell.dscp]:
            return Reason("not-marked", f"the sockets of {name} have the DSCP {seen['dscp']}")
    return None


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


def _other_links(outputs: TrialOutputs) -> Reason | None:
    """Check that the emulated links did what was requested."""
    link, seen = outputs.trial.cell.link, outputs.measurement.links
    if seen is None:
        needed = link.engine != "auto" and outputs.trial.cell.crosses_links
        return Reason("no-proof", "the statistics of the links were not read") if needed else None
    why = link_conditions.differing(link, seen, outputs.trial.duration_s)
    return Reason("link", why) if why else None


def _carried(outputs: TrialOutputs) -> Reason | None:
    return _not_on_links(outputs) or _not_on_node(outputs) or _wrong_transport(outputs)


def _not_in_memory(outputs: TrialOutputs) -> Reason | None:
    """Check that no interface of the publishers, loopback included, carried the samples of a trial without network."""
    received = sum(summary["received"] or 0 for summary in outputs.subscribers)
    limit = received * outputs.trial.cell.payload_bytes * MEMORY_SHARE + MEMORY_SLACK_BYTES
    for participant in outputs.summaries:
        if not participant.publishes:
            continue
        interfaces = outputs.meters_of(participant).get("interfaces")
        if not isinstance(interfaces, dict) or "lo" not in interfaces:
            return Reason("no-proof", f"the interfaces of {participant} were not read")
        carried = sum(counters["tx_bytes"] for counters in interfaces.values())
        if carried > limit:
            return Reason("not-in-memory", f"the interfaces of {participant} carried {carried} bytes")
    return None


def _missing_instances(outputs: TrialOutputs) -> Reason | None:
    """Check that samples of each instance of a topic with a key arrived, if no sample may be lost."""
    cell = outputs.trial.cell
    if not cell.instances or cell.reliability != "reliable":
        return None
    written = min([cell.instances, *(summary["sent"] or 0 for summary in outputs.publishers)])
    for participant, summary in outputs.summaries_of(SUBSCRIBER).items():
        received = (summary["instances"] or {}).get("received")
        if received is not None and received < written:
            return Reason(
                "missing-instances", f"{participant} received samples of {received} of {written} instances"
            )
    return None


def _not_on_links(outputs: TrialOutputs) -> Reason | None:
    """Check that the links carried at least what was delivered, and the network's own links what the pods received.

    No shared memory, no shortcut. Traffic of others adds to the counters, so these are lower bounds.
    """
    measurement = outputs.measurement
    for participant in outputs.summaries:
        delivered = _delivered_bytes(outputs, participant)
        if delivered is None:
            continue
        name = participant.name
        on_link = measurement.received_bytes.get(name)
        if on_link is None:
            return Reason("no-proof", f"the link of {name}'s node was not read")
        if on_link < delivered:
            return Reason(
                "not-on-wire", f"{name} got {delivered} bytes of samples, its node's link only {on_link}"
            )
    for names, arrived in _arrived_bytes(outputs).items():
        for counters, code, links in (
            (measurement.carried_bytes, "not-on-network", "the network's links"),
            (measurement.decrypted_bytes, "not-encrypted", "the tunnels"),
        ):
            carried = (counters or {}).get(names[0])
            if carried is not None and carried < arrived:
                what = f"{', '.join(names)} got {arrived} bytes, {links} of the node only {carried}"
                return Reason(code, what)
    return None


def _delivered_bytes(outputs: TrialOutputs, participant: Participant) -> int | None:
    """Return the payload that a participant received between the readings of the links; None if it receives none."""
    received = outputs.delivered_bytes(participant)
    # The links are read before the warm-up and after the end, so the samples of the warm-up count too.
    return None if received is None else received + (outputs.warmup_bytes(participant) or 0)


def _arrived_bytes(outputs: TrialOutputs) -> dict[tuple[str, ...], int]:
    """Return the fewest bytes that crossed the links of each node for its receivers, by their names.

    Unicast packets cross them once for each receiver on the node, multicast packets once. Ethernet, IP and UDP headers
    of each packet do not count: offloads change how often headers are counted, and tunnels do not count Ethernet's.
    """
    cell, measurement = outputs.trial.cell, outputs.measurement
    headers = ETHERNET_HEADER_BYTES + IP_AND_UDP_HEADERS_BYTES[cell.ip_family]
    on_node: dict[Hashable, dict[str, int]] = defaultdict(dict)
    for participant in outputs.summaries:
        delivered = _delivered_bytes(outputs, participant)
        if delivered is not None:
            node = measurement.nodes.get(participant.name, participant.name)
            on_node[node][participant.name] = delivered
    arrived = {}
    for receivers in on_node.values():
        for name in receivers:
            outcome = measurement.outcomes[name]
            seen = (outputs.meters.get(name, {}).get("attempt_interfaces") or {}).get(outcome.interface)
            if seen and middleware.of(cell):
                in_udp = seen["rx_bytes"] - headers * seen["rx_packets"]
                receivers[name] = max(receivers[name], in_udp - LOCAL_SLACK_BYTES * len(receivers))
        once = max(receivers.values())
        arrived[tuple(receivers)] = sum(receivers.values()) if cell.transport == "unicast" else once
    return arrived


def _not_on_node(outputs: TrialOutputs) -> Reason | None:
    """Check that the link between nodes carried none of the samples of participants on one node."""
    uplink_bytes = outputs.measurement.uplink_bytes
    if uplink_bytes is None:
        return None
    delivered = sum(outputs.delivered_bytes(participant) or 0 for participant in outputs.summaries)
    if uplink_bytes > max(delivered * UPLINK_SHARE, UPLINK_SLACK_BYTES):
        return Reason("not-on-node", f"the link to other nodes carried {uplink_bytes} bytes")
    return None


def _wrong_transport(outputs: TrialOutputs) -> Reason | None:
    """Check that samples left the publisher as multicast, once for all subscribers, or as unicast."""
    cell = outputs.trial.cell
    for participant, summary in outputs.summaries.items():
        if not participant.publishes:
            continue
        network = outputs.meters_of(participant).get("network")
        if summary is None or not isinstance(network, dict) or network.get("ip_out_mcast_bytes") is None:
            return Reason("no-proof", f"the counters of {participant} were not read")
        multicast = network["ip_out_mcast_bytes"]
        payload = _sent(summary, outputs) * cell.payload_bytes
        if cell.transport == "unicast" and multicast > max(payload // 2, MULTICAST_SLACK_BYTES):
            return Reason(
                "not-on-wire", f"{participant} sent {multicast} bytes as multicast in a unicast trial"
            )
        if cell.transport == "unicast":
            continue
        if multicast < payload:
            what = f"{participant} sent {payload} bytes of samples, only {multicast} as multicast"
            return Reason("not-on-wire", what)
        out = outputs.pod_bytes(participant, "tx_bytes")
        if out is not None and cell.subscribers > 1 and cell.publishers == 1:
            limit = (payload + multicast) * MULTICAST_COPIES + MULTICAST_SLACK_BYTES
            if out - multicast > limit:
                return Reason(
                    "not-on-wire", f"{participant} sent {out} bytes for {payload} bytes of multicast samples"
                )
    return None


def _sent(publisher: Summary, outputs: TrialOutputs) -> int:
    """Return the samples that a publisher sent; if that is unknown, the most that a subscriber received."""
    if publisher["sent"] is not None:
        return int(publisher["sent"])
    return max((summary["received"] or 0 for summary in outputs.subscribers), default=0)


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
        samples_s = _samples_s(summary, participant.publishes) if summary is not None else None
        if cpu_s and samples_s and abs(cpu_s - samples_s) > CPU_INTERVAL_TOLERANCE * samples_s:
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
    # The network's daemons spend most of their time in user mode, if they spend any.
    return busy - own - sum(spent.network for spent in _outside_first(outputs))


def _outside_first(outputs: TrialOutputs) -> list[OutsideCpu]:
    _, machine = outputs.measurement.nodes.get(FIRST_PUBLISHER.name, ("", ""))
    return [outputs.measurement.outside[machine]] if machine in outputs.measurement.outside else []
