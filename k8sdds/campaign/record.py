"""Build the record of an attempt from the outputs of its participants and the facts of the testbed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from k8sdds import middleware, workloads
from k8sdds.analysis import profile as profiles
from k8sdds.analysis.profile import Profile
from k8sdds.campaign import background, cpu_limits, disturbances, memory_path, node_cpu, validity
from k8sdds.model import graph
from k8sdds.model.axis import DDS, axes
from k8sdds.model.impairments import with_files
from k8sdds.model.measurement import Measurement
from k8sdds.model.reason import DAMAGED, Reason
from k8sdds.model.trial import AXES, FIRST_PUBLISHER, PUBLISHER, SUBSCRIBER, Cell, Participant, Role, Trial
from k8sdds.results import aggregate
from k8sdds.results.columns import GROUPS
from k8sdds.results.metrics import DISTURBED_BY_CAPTURE, METRICS
from k8sdds.results.record import TrialRecord, impossible_value
from k8sdds.system.strict import explain
from k8sdds.workloads import TrialOutputs
from k8sdds.workloads.outputs import cpu_interval_s, machine_percent, percent, spin_percent

DROPS = {
    "udp_receive_buffer_errors": "udp_rcvbuf_errors",
    "udp_send_buffer_errors": "udp_sndbuf_errors",
    "ip_reassembly_fails": "ip_reasm_fails",
}
"""Key of `drops` in trials.jsonl to the supervisor's counter."""


def record(
    trial: Trial,
    number: int,
    measurement: Measurement | None,
    folder: Path,
    facts: dict[str, Any],
    reason: Reason | None = None,
) -> TrialRecord:
    """Return the record of an attempt, whose raw files are in a folder.

    `measurement` is None if the attempt ended before; `reason` is why it is not valid, if the measurement does not show
    it. `facts` are further keys from the campaign and the testbed. A value of the wrong type becomes None, with a
    warning, so that it never costs a measurement.
    """
    cell, measurement = trial.cell, measurement or Measurement({}, None, {})
    outputs = _outputs(trial, measurement, folder)
    identity = {"trial_id": trial.trial_id, "cell_id": cell.cell_id, "attempt": number}
    record, invalid_facts = _validated({**identity, "testbed": trial.testbed, **description(trial), **facts})
    _set_surroundings(record, measurement)
    record.valid = True
    profile = validity.profile_of(outputs) if cell.profile else None
    if reason := reason or validity.reason(outputs, profile):
        record.invalidate(replace(reason, text=_named(cell, reason.text)))
    record.warnings = [*(_named(cell, text) for text in disturbances.warnings(outputs)), *invalid_facts]
    _set_counts(record, outputs)
    workload = workloads.find(cell.test)
    workload.measure(record, outputs)
    if workload.tcp:
        record.tcp_congestion_control = _congestion_control(outputs)
    _set_resources(record, outputs)
    _set_costs(record, outputs)
    _set_evidence(record, outputs)
    _set_special(record, outputs)
    if cell.profile:
        # The recording disturbed all metrics.
        _remove_metrics(record, GROUPS)
    if isinstance(profile, Profile):
        _set_profile(record, outputs, profile)
    if record.valid and (why := impossible_value(record.values())):
        record.invalidate(Reason(DAMAGED, why))
    return record


def _named(cell: Cell, text: str) -> str:
    """Return a message in which the name of its node in a graph follows that of each participant."""
    for participant, node in cell.graph_nodes.items():
        text = re.sub(rf"\b{participant}\b", f"{participant} ({node.name})", text)
    return text


def _set_surroundings(record: TrialRecord, measurement: Measurement) -> None:
    """Set what the testbed observed apart from the participants."""
    record.includes_scheduling = measurement.includes_scheduling
    record.cpu_mhz = measurement.cpu_mhz
    record.proxy = record.proxy or measurement.proxy_mode
    record.start_skew_s = measurement.start_skew_s
    record.api_calls = measurement.api_calls
    record.network_cpu_percent = aggregate.total(spent.network for spent in measurement.outside.values())


def _set_special(record: TrialRecord, outputs: TrialOutputs) -> None:
    """Set what only trials with certain settings have."""
    cell = outputs.trial.cell
    if cell.realtime_priority or middleware.locks_memory(cell) or cell.dscp:
        record.execution = validity.execution(outputs)
    if not cell.uses_network and record.valid:
        way = memory_path.taken(outputs)
        record.samples_by = way if isinstance(way, str) else None
        if not record.received:
            # What is missing follows from the way, not from the length of the trial.
            _remove_metrics(record, GROUPS)
            record.missing = record.tail_episodes = None
    if cell.background:
        record.background_load = background.observed(outputs)
    if cell.capture:
        # The capture disturbed the times.
        _remove_metrics(record, DISTURBED_BY_CAPTURE)
        counts = outputs.measurement.ip_fragments
        record.ip_fragments_per_sample = counts[0] if len(counts) == 1 else None


def _outputs(trial: Trial, measurement: Measurement, folder: Path) -> TrialOutputs:
    program = middleware.program_of(trial.cell)
    program.convert(trial, folder)
    summaries = {
        participant: program.summary(trial, participant, folder) for participant in trial.cell.participants
    }
    return TrialOutputs(trial, measurement, folder, summaries)


def _validated(values: dict[str, Any]) -> tuple[TrialRecord, list[str]]:
    """Return a record with these values, and a warning for each value that was replaced by None."""
    try:
        return TrialRecord(**values), []
    except ValidationError as error:
        invalid = {str(details["loc"][0]): explain(details) for details in error.errors()}
    warnings = [
        f"facts: {key} is null because {values[key]!r} is not valid: {message}"
        for key, message in invalid.items()
    ]
    return TrialRecord(**values | dict.fromkeys(invalid)), warnings


def description(trial: Trial) -> dict[str, Any]:
    """Return the keys of trials.jsonl that define what was to be measured."""
    cell = trial.cell
    return {
        "network": cell.network,
        "network_label": cell.network_label,
        "network_options": cell.network_options,
        "security_options": cell.security_options or None,
        "test": cell.test,
        **_test_options(cell),
        **_settings(cell),
        **({"profiled": True} if cell.profile else {}),
        "repetition": trial.repetition,
        "duration_s": trial.duration_s,
        "warmup_s": trial.warmup_s,
    }


def _test_options(cell: Cell) -> dict[str, Any]:
    options = workloads.find(cell.test).options(**cell.test_options)
    columns = axes(type(options))
    values = options.model_dump(mode="json", exclude_none=True)
    return {columns[name].column: value for name, value in values.items()}


def _settings(cell: Cell) -> dict[str, Any]:
    """Return the settings of a cell; without those of a middleware if the test runs another program."""
    implementation = middleware.of(cell)
    settings = {
        name: axis.recorded(value)
        for name, axis in AXES.items()
        if name not in ("network", "test")
        and axis.is_recorded(value := getattr(cell, name))
        # Tests of other programs are known to be without DDS Security.
        and (implementation or axis.scope != DDS or name == "security")
    }
    # Where a file is says nothing about the trial.
    named = with_files(cell.link, lambda part: {"file": Path(part.file).name})
    settings["link"] = AXES["link"].recorded(named)
    settings["nodes"] = cell.node_count
    if implementation:
        settings["qos"] = Path(cell.qos_profile).stem if implementation.takes_qos(cell) else "none"
    if cell.middleware_config:
        settings["middleware_config"] = middleware.config_name(cell)
    if cell.schedule:
        settings["schedule"] = Path(cell.schedule).name
    if cell.graph:
        settings["graph"] = graph.digest(cell.graph)
    return settings


def _set_counts(record: TrialRecord, outputs: TrialOutputs) -> None:
    publishers, subscribers = outputs.publishers, outputs.subscribers
    first = publishers[0] if publishers else None
    if first:
        record.measured_s = first["measured_s"]
        record.discovery_s = first["discovery_s"]
        record.middleware_version = (first["middleware"] or {}).get("version")
        transport = first["transport"] or {}
        record.effective_message_bytes = transport.get("max_message_bytes")
        record.effective_fragment_bytes = transport.get("fragment_bytes")
        batch_bytes = (first["qos"] or {}).get("batch_bytes")
        if batch_bytes is not None and not outputs.trial.cell.graph:
            record.batch_bytes = batch_bytes
    record.handshake_s = aggregate.complete_max(
        summary["handshake_s"] for summary in [*publishers, *subscribers]
    )
    record.sent = aggregate.total(summary["sent"] for summary in publishers)
    record.received = aggregate.total(summary["received"] for summary in subscribers)
    record.lost = aggregate.total(summary["lost"] for summary in subscribers)
    record.duplicates = aggregate.total(summary["duplicates"] for summary in subscribers)
    record.out_of_order = aggregate.total(summary["out_of_order"] for summary in subscribers)
    record.foreign_samples = aggregate.total(
        summary["foreign_samples"] for summary in [*publishers, *subscribers]
    )
    record.instances_received = aggregate.complete_min(
        (summary["instances"] or {}).get("received") for summary in subscribers
    )
    if record.sent is not None:
        expected = record.sent * outputs.trial.cell.subscribers
    else:
        # Without the number of sent samples, samples lost at the end cannot be counted.
        expected = (record.received or 0) + (record.lost or 0)
    record.lost_percent = record.lost / expected * 100 if expected and record.lost is not None else None


def _set_resources(record: TrialRecord, outputs: TrialOutputs) -> None:
    if not outputs.trial.cell.graph:
        _set_resources_of_roles(record, outputs)
    everyone = [*outputs.meters_of_role(PUBLISHER), *outputs.meters_of_role(SUBSCRIBER)]
    if workloads.find(outputs.trial.cell.test).starts_fleets:
        # The supervisor reads the memory of the process that starts the others.
        record.publisher_rss_bytes = record.subscriber_rss_bytes = None
        everyone = []
    peak = aggregate.complete_total(readings.get("memory_peak_bytes") for readings in everyone)
    record.total_rss_bytes = None if peak is None else round(peak)
    services = [outputs.meters_of(service) for service in outputs.trial.cell.services]
    record.service_cpu_percent = node_cpu.of_services(outputs)
    service_peak = aggregate.complete_total(readings.get("memory_peak_bytes") for readings in services)
    record.service_rss_bytes = None if service_peak is None else round(service_peak)
    record.service_network_bytes = aggregate.total(
        _network_bytes(outputs, service) for service in outputs.trial.cell.services
    )
    record.nodes_cpu = node_cpu.by_node(outputs)
    record.node_cpu_percent = node_cpu.busiest(record.nodes_cpu)
    record.total_cpu_percent = node_cpu.total(record.nodes_cpu)
    record.throttling = cpu_limits.throttling(outputs)
    record.throttled_periods_percent = cpu_limits.throttled_percent(record.throttling)
    record.stopped_percent = cpu_limits.stopped_percent(outputs)
    record.slow_stopped_percent, record.slow_stopped_by_chance_percent = cpu_limits.slow_stopped_percents(
        outputs
    )
    record.pacer_cpu_percent = aggregate.mean(
        spin_percent(outputs.summaries.get(one)) for one in outputs.trial.cell.publishing
    )
    first = outputs.meters_of(FIRST_PUBLISHER)
    cpus = (first.get("machine") or {}).get("cpus") or 1
    record.machine_cpu_percent = aggregate.ratio(machine_percent(first, "busy_s"), cpus)
    record.softirq_percent = aggregate.ratio(machine_percent(first, "softirq_s"), cpus)


def _set_resources_of_roles(record: TrialRecord, outputs: TrialOutputs) -> None:
    """Set what publishers and subscribers used. Most nodes of a graph do both, so it has neither."""
    publishers, subscribers = outputs.meters_of_role(PUBLISHER), outputs.meters_of_role(SUBSCRIBER)
    record.publisher_cpu_percent = _cpu_percent(publishers)
    record.publisher_cpu_interval_s = _interval_s(publishers)
    record.publisher_rss_bytes = _memory_bytes(publishers)
    record.subscriber_cpu_percent = _cpu_percent(subscribers)
    record.subscriber_cpu_interval_s = _interval_s(subscribers)
    record.subscriber_rss_bytes = _memory_bytes(subscribers)


def _network_bytes(outputs: TrialOutputs, service: Participant) -> int | None:
    """Return the bytes that the interface of a service's pod received and sent in the attempt."""
    if service.name not in outputs.measurement.outcomes:
        return None
    both = [outputs.pod_bytes(service, key) for key in ("rx_bytes", "tx_bytes")]
    return None if None in both else sum(filter(None, both))


def _congestion_control(outputs: TrialOutputs) -> str | None:
    used = {
        str(meters["tcp_congestion_control"])
        for meters in outputs.meters.values()
        if meters.get("tcp_congestion_control")
    }
    return ", ".join(sorted(used)) or None


def _cpu_percent(meters: list[dict[str, Any]]) -> float | None:
    return aggregate.mean(percent(readings, readings.get("cpu_s")) for readings in meters)


def _interval_s(meters: list[dict[str, Any]]) -> float | None:
    return aggregate.mean(cpu_interval_s(readings) for readings in meters)


def _memory_bytes(meters: list[dict[str, Any]]) -> int | None:
    peak = aggregate.mean(readings.get("memory_peak_bytes") for readings in meters)
    return None if peak is None else round(peak)


def _set_costs(record: TrialRecord, outputs: TrialOutputs) -> None:
    """Set the costs per sample and per payload byte.

    The CPU time comes from the pods' own counters over the measured interval. These counters exclude a
    network's work outside of pods, such as a userspace ESP daemon; the machine's time per megabyte includes it.
    """
    measured_bytes = sum(outputs.delivered_bytes(participant) or 0 for participant in outputs.summaries)
    megabytes = measured_bytes / 1e6 if measured_bytes else None
    publishers, subscribers = _cpu_s(outputs, PUBLISHER), _cpu_s(outputs, SUBSCRIBER)
    machine = None
    loaded = outputs.trial.cell.background
    if not outputs.measurement.elsewhere and not loaded:
        # With several machines only the first publisher's is metered: a part of the cost would look cheap.
        busy_s = (outputs.meters_of(FIRST_PUBLISHER).get("machine") or {}).get("busy_s")
        machine = _in_measured_interval(outputs, FIRST_PUBLISHER, busy_s)
    if outputs.trial.cell.graph:
        # Most nodes do both.
        return
    record.publisher_cpu_us_per_sample = aggregate.ratio(publishers, record.sent, 1e6)
    record.subscriber_cpu_us_per_sample = aggregate.ratio(subscribers, record.received, 1e6)
    record.publisher_cpu_ms_per_mb = aggregate.ratio(publishers, megabytes, 1e3)
    record.subscriber_cpu_ms_per_mb = aggregate.ratio(subscribers, megabytes, 1e3)
    record.machine_cpu_ms_per_mb = aggregate.ratio(machine, megabytes, 1e3)
    sent_again = aggregate.complete_total(summary["retransmitted_bytes"] for summary in outputs.publishers)
    record.retransmitted_bytes_per_payload_byte = aggregate.ratio(sent_again, measured_bytes)
    if outputs.trial.cell.uses_network and not loaded:
        delivered = sum(outputs.attempt_bytes(one) or 0 for one in outputs.summaries_of(SUBSCRIBER))
        record.wire_bytes_per_payload_byte = aggregate.ratio(outputs.measurement.sent_bytes, delivered)


def _cpu_s(outputs: TrialOutputs, role: Role) -> float | None:
    """Return the CPU time of all participants with a role in their measured interval."""
    return aggregate.complete_total(
        _in_measured_interval(outputs, outcome.participant, (outcome.meters or {}).get("cpu_s"))
        for outcome in outputs.measurement.outcomes.values()
        if outcome.participant.role == role
    )


def _in_measured_interval(
    outputs: TrialOutputs, participant: Participant, seconds: float | None
) -> float | None:
    """Return a time from a participant's meters as the time in the participant's measured interval.

    The meters of a tool are read over the requested interval, which the tool may exceed, as wrk does by up to 0.1 s.
    """
    metered_s = cpu_interval_s(outputs.meters_of(participant))
    summary = outputs.summaries[participant]
    measured_s: float | None = summary["measured_s"] if summary is not None else None
    if middleware.of(outputs.trial.cell) is None and seconds and metered_s and measured_s:
        return seconds * measured_s / metered_s
    return seconds


def _set_evidence(record: TrialRecord, outputs: TrialOutputs) -> None:
    """Set the bytes on the links and the places where samples were dropped."""
    measurement = outputs.measurement
    loads = [load.name for load in outputs.trial.cell.loads]
    meters = {name: readings for name, readings in outputs.meters.items() if name not in loads}
    samples, payload = {}, {}
    is_middleware = middleware.of(outputs.trial.cell) is not None
    for participant, summary in outputs.summaries.items():
        if summary is not None and summary["delivered_bytes"] is not None:
            payload[participant.name] = summary["delivered_bytes"]
        if (
            summary is not None
            and participant.subscribes
            and (is_middleware or participant.name not in payload)
        ):
            samples[participant.name] = summary["received"]
    receivers = {p.name for p in outputs.summaries if p.subscribes or p.name in payload}

    def of_receivers(counters: dict[str, int]) -> dict[str, int]:
        return {name: count for name, count in counters.items() if name in receivers}

    record.link_bytes = {
        "sent": measurement.sent_bytes,
        "received": of_receivers(measurement.received_bytes),
        "delivered_samples": samples,
    }
    decrypted = measurement.decrypted_bytes
    further = {
        "delivered_bytes": payload or None,
        "decrypted": None if decrypted is None else of_receivers(decrypted),
        "carried": measurement.carried_bytes,
        "uplink": measurement.uplink_bytes,
        "members": measurement.member_bytes,
    }
    record.link_bytes |= {key: value for key, value in further.items() if value is not None}
    record.link_conditions = dict(measurement.links) if measurement.links else None
    record.drops = {
        key: aggregate.total((readings.get("network") or {}).get(counter) for readings in meters.values())
        for key, counter in DROPS.items()
    } | {"interface_drops": aggregate.total(_interface_drops(outputs, meters))}
    record.ip_fragments_created = aggregate.total(
        (readings.get("network") or {}).get("ip_frag_creates")
        for readings in map(outputs.meters_of, outputs.trial.cell.publishing)
    )
    record.ip_fragments_per_sent_sample = aggregate.ratio(record.ip_fragments_created, record.sent)


def _interface_drops(outputs: TrialOutputs, meters: dict[str, dict[str, Any]]) -> Iterable[int]:
    for participant, readings in meters.items():
        # A pod on the node's network sees all interfaces of the node; other pods have one besides `lo`.
        counted = ("lo", outputs.measurement.outcomes[participant].interface)
        for name, interface in (readings.get("interfaces") or {}).items():
            if name in counted:
                yield (interface.get("rx_dropped") or 0) + (interface.get("tx_dropped") or 0)


def _set_profile(record: TrialRecord, outputs: TrialOutputs, profile: Profile) -> None:
    """Set where the CPU time went."""
    counters = [
        outputs.pod_bytes(participant, f"{direction}_packets")
        for participant in outputs.trial.cell.publishing
        for direction in ("tx", "rx")
        if participant.name in outputs.measurement.outcomes
    ]
    record.profile = profiles.summary(profile, aggregate.total(counters) or None).model_dump()
    attributed = record.profile["attributed_percent"]
    if attributed is not None and attributed < profiles.MIN_ATTRIBUTED_PERCENT:
        unattributed = f"profile: {100 - attributed:.1f} % of the samples belong to no component, more than"
        limit = 100 - profiles.MIN_ATTRIBUTED_PERCENT
        record.warnings = [*(record.warnings or []), f"{unattributed} {limit} %"]


def _remove_metrics(record: TrialRecord, groups: Sequence[str]) -> None:
    for metric in METRICS.values():
        if metric.group in groups:
            setattr(record, metric.name, None)
