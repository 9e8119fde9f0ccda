"""The graph workload: the nodes of an application publish and subscribe to all of its flows at the same time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds.model import graph
from k8sdds.model.graph import Graph, GraphFlow
from k8sdds.model.reason import NO_SAMPLES, Reason
from k8sdds.model.trial import AXES, PUBLISHER, SUBSCRIBER, Cell, Trial
from k8sdds.perftest.command import Load
from k8sdds.results import aggregate, histograms
from k8sdds.results.metrics import Metrics
from k8sdds.workloads import latencies, paced
from k8sdds.workloads.outputs import TrialOutputs, spin_percent
from k8sdds.workloads.protocol import RATE_MISSED, Workload

if TYPE_CHECKING:
    from k8sdds.results.hdr import Histogram

Entry = Mapping[str, Any]
"""What one node reports about one flow (docs/reference/perftest.md)."""

DELAY, CHAIN = ("one_way", "one_way_realtime"), ("chain", "chain_realtime")
"""First parts of the tags of delays, by one clock or by those of several machines; the flow follows after a colon."""
_MERGED = tuple(f"delay_{quantity}_us" for quantity in histograms.QUANTITIES)
"""Delays of all flows together, which a record does not have."""
SHOWN = 3
"""Flows that one line names."""
_COUNTS = ("sent", "scheduled", "late", "received", "lost", "duplicates", "out_of_order", "deadline_missed")
"""Counts that add up over flows."""
_REFUSED = {axis.name: axis.default for axis in AXES.values() if axis.graph == "refused"} | {"capture": False}
"""Settings that graphs do not have, with the value that means none."""


class GraphTest(Workload):
    """Delay of each sample of each flow from when it was due, and of each chain of flows from when its origin was."""

    name = "graph"
    metrics: tuple[str, ...] = (
        "delay_p90_us", "delay_mean_us", "delay_p50_us", "delay_p99_us", "delay_p999_us", "delay_p9999_us",
        "delay_max_us", "deadline_missed_percent", "achieved_rate_percent",
    )  # fmt: skip
    columns: tuple[str, ...] = ("by_flow", "by_node")
    measured_by = SUBSCRIBER
    mode = "graph"
    runs_graphs = True
    # Of a reliable flow it is not: `invalid` checks each flow.
    loss_is_result = True

    @override
    def unsupported(self, cell: Cell) -> str | None:
        if not cell.graph:
            return "a graph test needs `graph`, a text with flows and nodes, or `nodes` of an application"
        for name, usual in _REFUSED.items():
            if getattr(cell, name) != usual:
                return f"a graph has no {name}: leave it out"
        return None if cell.uses_network else "nodes of a graph run on several nodes: leave out shared-memory"

    @override
    def load(self, cell: Cell) -> Load:
        return Load(on_schedule=True)

    @override
    def timed_per_s(self, cell: Cell) -> float | None:
        whole = graph.parse(cell.graph)
        return sum(whole.rate(flow.name) * len(whole.subscribers(flow.name)) for flow in whole.flows)

    @override
    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        whole, reports = graph.parse(outputs.trial.cell.graph), _reports(outputs)
        own = {flow.name: _of_flow(whole, flow, outputs, reports) for flow in whole.flows}
        record.by_flow = own
        record.by_node = _by_node(outputs)
        for name in _COUNTS:
            setattr(record, name, aggregate.total(each[name] for each in own.values()))
        copies = {flow.name: len(whole.subscribers(flow.name)) for flow in whole.flows}
        sent, due = (
            sum((each[name] or 0) * copies[flow] for flow, each in own.items())
            for name in ("sent", "scheduled")
        )
        record.lost_percent = aggregate.ratio(record.lost, sent, 100)
        record.achieved_rate_percent = aggregate.ratio(record.sent, record.scheduled, 100)
        record.deadline_missed_percent = aggregate.ratio(record.deadline_missed, due, 100)
        realtime = any(tag.startswith(f"{DELAY[1]}:") for tag in outputs.latencies)
        record.delay_method = paced.SYNCHRONIZED_CLOCKS if realtime else paced.SHARED_CLOCK
        record.missing = dict.fromkeys(_MERGED, histograms.EACH_FLOW)

    @override
    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        whole, reports = graph.parse(outputs.trial.cell.graph), _reports(outputs)
        for flow in whole.flows:
            wrong = _not_reported(whole, flow, reports) or _miscounted(whole, flow, reports)
            if wrong := wrong or _lost(flow, reports[flow.name], outputs.trial):
                return wrong
        if not any(tag.partition(":")[0] in DELAY for tag in outputs.latencies):
            return Reason(NO_SAMPLES, "no delay was measured")
        return None

    @override
    def warnings(self, outputs: TrialOutputs) -> list[str]:
        warnings = []
        for name, reports in _reports(outputs).items():
            if not (sent := reports.sent):
                continue
            due = reports.scheduled
            unsent = due - sent["sent"]
            if max(unsent, sent["late"]) > RATE_MISSED * due:
                late = f"{sent['late']} of {due} samples were written more than one period late"
                warnings.append(f"rate: {name}: {late}, {unsent} were not sent")
        return warnings

    @override
    def shown(self, delay_method: str | None) -> tuple[str, ...]:
        return ()

    @override
    def describe(self, record: Metrics) -> str:
        flows = record.by_flow or {}
        if record.sent is None:
            return "flows unknown"
        parts = [f"{len(flows)} flows, {record.sent} samples sent"]
        lost = {name: own["lost"] for name, own in flows.items() if own.get("lost")}
        missed = {name: own["deadline_missed"] for name, own in flows.items() if own.get("deadline_missed")}
        for what, counts in (("lost", lost), ("missed the deadline", missed)):
            worst = sorted(counts, key=lambda name: -counts[name])
            named = ", ".join(f"{name} {counts[name]}" for name in worst[:SHOWN])
            parts.append(f"{sum(counts.values())} {what}{f' ({named})' if named else ''}")
        return ", ".join(parts)


@dataclass
class Reports:
    """What nodes reported about a flow."""

    due: float
    """Samples that are due in the trial if all inputs of the flow arrive."""
    sent: Entry = field(default_factory=dict)
    """Of the node that publishes it; empty without a report."""
    received: dict[str, Entry] = field(default_factory=dict)
    """Of each node that subscribes to it, by the name of the node."""

    @property
    def scheduled(self) -> int:
        """How many samples were due: as many as the node reported, or as the rates of the flow's inputs give.

        A node knows only of inputs that arrived. Those that were lost, or never sent, make its own count too small.
        """
        return max(self.sent.get("samples") or 0, math.floor(self.due))


def _reports(outputs: TrialOutputs) -> dict[str, Reports]:
    cell = outputs.trial.cell
    due = graph.parse(cell.graph).due_within(outputs.trial.duration_s)
    nodes, found = cell.graph_nodes, {flow: Reports(samples) for flow, samples in due.items()}
    for participant, summary in outputs.summaries.items():
        for entry in (summary["flows"] or ()) if summary is not None else ():
            if (reports := found.get(entry["flow"])) is None:
                continue
            if entry["role"] == PUBLISHER:
                reports.sent = entry
            else:
                reports.received[nodes[participant].name] = entry
    return found


def _by_node(outputs: TrialOutputs) -> dict[str, dict[str, Any]]:
    """Return what each node of the graph used in the measured interval, and what its pod dropped."""
    found: dict[str, dict[str, Any]] = {}
    cores: dict[str, tuple[str | None, tuple[int, ...]]] = {}
    for participant, node in outputs.trial.cell.graph_nodes.items():
        meters = outputs.meters_of(participant)
        place, machine = outputs.measurement.nodes.get(participant.name, (None, None))
        cores[node.name] = machine, tuple(meters.get("cpus") or ())
        spun = spin_percent(outputs.summaries.get(participant)) or 0.0
        found[node.name] = {"machine": place} | _of_node(meters, spun)
    for name, own in found.items():
        sharing = [found[other]["cpu_percent"] for other in found if cores[other] == cores[name]]
        own["cores_percent"] = aggregate.ratio(aggregate.complete_total(sharing), len(cores[name][1]))
    return found


def _of_node(meters: Mapping[str, Any], spun_percent: float) -> dict[str, Any]:
    """Return a node's part of `by_node` by the readings of its supervisor; None for what they do not have.

    `spun_percent` is how long it spun until samples were due, in percent of a core.
    """
    network, duration_s = meters.get("network") or {}, (meters.get("interval") or {}).get("duration_s")
    interfaces = [
        own for name, own in (meters.get("interfaces") or {}).items() if name != "lo" and own is not None
    ]
    counted = {
        key: aggregate.total(own.get(key) for own in interfaces)
        for key in ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "tx_dropped", "rx_dropped")
    }
    megabits = (duration_s or 0) * 1e6 / 8
    used = aggregate.ratio(meters.get("cpu_s"), duration_s, 100)
    return {
        "cpu_percent": None if used is None else max(used - spun_percent, 0.0),
        "throttled_percent": aggregate.ratio(meters.get("throttled_s"), duration_s, 100),
        "rss_bytes": meters.get("memory_peak_bytes"),
        "sent_mbps": aggregate.ratio(counted["tx_bytes"], megabits),
        "received_mbps": aggregate.ratio(counted["rx_bytes"], megabits),
        "packets": aggregate.total([counted["tx_packets"], counted["rx_packets"]]),
        "interface_drops": aggregate.total([counted["tx_dropped"], counted["rx_dropped"]]),
        "datagrams": network.get("udp_in_datagrams"),
        "receive_buffer_errors": network.get("udp_rcvbuf_errors"),
        "send_buffer_errors": network.get("udp_sndbuf_errors"),
    }


def _not_reported(whole: Graph, flow: GraphFlow, reports: Mapping[str, Reports]) -> Reason | None:
    """Check that each node of a flow reported what it sent or received of it."""
    own = reports[flow.name]
    if not own.sent:
        publisher = whole.publisher(flow.name).name
        return Reason("no-report", f"{publisher} did not report what it sent of {flow.name}")
    for node in whole.subscribers(flow.name):
        if node.name not in own.received:
            return Reason("no-report", f"{node.name} did not report what it received of {flow.name}")
    return None


def _miscounted(whole: Graph, flow: GraphFlow, reports: Mapping[str, Reports]) -> Reason | None:
    """Check that the counts of a flow, which each of its nodes has for itself, do not contradict each other."""
    own, name, publisher = reports[flow.name], flow.name, whole.publisher(flow.name).name
    sent, samples = own.sent["sent"], own.sent["samples"]
    if sent + own.sent["not_sent"] != samples:
        unsent = own.sent["not_sent"]
        return Reason(
            "miscounted", f"{publisher} sent {sent} of {samples} samples of {name}, and {unsent} not"
        )
    if not flow.after and abs(samples - own.due) > 1:
        return Reason("miscounted", f"{samples} samples of {name} were due at {publisher}, not {own.due:g}")
    if len(flow.after) == 1 and publisher in (inputs := reports[flow.after[0]].received):
        arrived = inputs[publisher]["received"]
        if arrived != samples:
            what = f"{publisher} received {arrived} samples of {flow.after[0]}"
            return Reason("miscounted", f"{what}, so that {samples} of {name} were due")
    for node, entry in own.received.items():
        received, lost = entry["received"], entry["lost"]
        if received + lost != sent:
            what = f"{node} received {received} samples of {name} and lost {lost}; {sent} were sent"
            return Reason("miscounted", what)
        if entry["publisher"] != publisher or entry["sent"] not in (None, sent):
            what = (
                f"{node} received {name} from {entry['publisher']}, which announced {entry['sent']} samples"
            )
            return Reason("miscounted", f"{what}; {publisher} sent {sent}")
    return None


def _lost(flow: GraphFlow, reports: Reports, trial: Trial) -> Reason | None:
    """Check that a reliable flow lost nothing."""
    if not flow.reliable or trial.may_lose:
        return None
    for node, entry in reports.received.items():
        if entry["lost"]:
            what = f"{node} lost {entry['lost']} samples of the reliable flow {flow.name}"
            return Reason("lost-samples", what)
    return None


def _unsent_percent(flows: Iterable[str], reports: Mapping[str, Reports]) -> float:
    """Return the share of samples that the nodes of a chain of flows did not send although its inputs arrived."""
    sent = [(reports[flow].sent.get("sent"), reports[flow].sent.get("samples")) for flow in flows]
    return 100 - 100 * math.prod(aggregate.ratio(*pair) or 0.0 for pair in sent)


def _of_flow(
    whole: Graph, flow: GraphFlow, outputs: TrialOutputs, reports: Mapping[str, Reports]
) -> dict[str, Any]:
    """Return the metrics of a flow by name, those of its `chain`, its `publisher`, and the counts of `subscribers`."""
    own = reports[flow.name]
    sent, found = own.sent, own.received
    expected = len(whole.subscribers(flow.name))
    record = Metrics()
    record.sent, record.late = sent.get("sent"), sent.get("late")
    record.scheduled = own.scheduled if sent else None
    for name in ("received", "lost", "duplicates", "out_of_order", "gaps"):
        setattr(record, name, aggregate.total(entry[name] for entry in found.values()))
    record.lost_percent = aggregate.ratio(record.lost, (record.sent or 0) * expected, 100)
    record.achieved_rate_percent = aggregate.ratio(record.sent, record.scheduled, 100)
    # No subscriber had what the publisher did not send.
    unsent = (record.scheduled or 0) - (record.sent or 0)
    record.deadline_missed = aggregate.total(entry["missed"] + unsent for entry in found.values())
    record.deadline_missed_percent = aggregate.ratio(
        record.deadline_missed, (record.scheduled or 0) * expected, 100
    )
    for quantity in ("mean", "p99", "max"):
        ages = [(entry.get("age") or {}).get(quantity) for entry in found.values()]
        setattr(record, f"age_{quantity}_us", aggregate.ratio(aggregate.complete_max(ages), 1000))
    blind = aggregate.complete_max(entry.get("blind") for entry in found.values())
    record.blind_ms = aggregate.ratio(blind, 1e6)
    complete = len(found) == expected and all(entry["received"] for entry in found.values())
    chain = _chain_of(own, expected, record)
    lossy = outputs.trial.cell.link.loses_packets
    missing = chain.lost_percent if flow.after else record.lost_percent
    missing = _unsent_percent([flow.name] if flow.after else [], reports) if lossy else missing or 0.0
    _set_delays(record, outputs, DELAY, flow.name, own, missing if complete else None)
    missing = _unsent_percent(whole.chain(flow.name), reports) if lossy else chain.lost_percent or 0.0
    _set_delays(chain, outputs, CHAIN, flow.name, own, missing if complete else None)
    return {
        "publisher": whole.publisher(flow.name).name,
        **record.model_dump(include=record.model_fields_set),
        "chain": {"of_flows": whole.chain(flow.name)} | chain.model_dump(include=chain.model_fields_set),
        "subscribers": {
            name: {key: entry[key] for key in ("received", "lost", "missed")} for name, entry in found.items()
        },
    }


def _chain_of(reports: Reports, copies: int, own: Metrics) -> Metrics:
    """Return the counts of the chain to a flow with so many subscribers, by what was counted of the flow itself.

    `sent` is how many samples the origin leads to, `lost` are all that did not arrive.

    Those are samples that were lost, or not sent, at any flow of the chain.
    """
    chain = Metrics()
    chain.sent = reports.scheduled
    chain.received = own.received
    chain.lost = None if own.received is None else max(chain.sent * copies - own.received, 0)
    chain.lost_percent = aggregate.ratio(chain.lost, chain.sent * copies, 100)
    return chain


def _set_delays(
    record: Metrics,
    outputs: TrialOutputs,
    kinds: tuple[str, str],
    flow: str,
    reports: Reports,
    missing_percent: float | None,
) -> None:
    """Set the percentiles of delays of a flow, by the tags of these kinds.

    `missing_percent` is the share of samples without a delay, which may have been the slowest; None if a subscriber got
    no sample.
    """
    tags = [f"{kind}:{flow}" for kind in kinds]
    delays = histograms.merged(outputs.latencies[tag] for tag in tags if tag in outputs.latencies)
    if delays is None or missing_percent is None:
        latencies.set_percentiles(record, "delay", 0, dict.fromkeys(histograms.QUANTITIES))
        return
    values = histograms.quantities_us(delays)
    episodes = [one for tag in tags for one in outputs.logged.get(f"{tag}{histograms.EPISODES}", ())]
    above = histograms.episodes_above(episodes, values)
    latencies.set_percentiles(record, "delay", delays.total, values, missing_percent, above)
    realtime = outputs.latencies.get(tags[1])
    if realtime and (why := _clock_problem(outputs, realtime, reports)):
        for quantity in values:
            setattr(record, f"delay_{quantity}_us", None)
            record.missing = (record.missing or {}) | {f"delay_{quantity}_us": why}


def _clock_problem(outputs: TrialOutputs, delays: Histogram, reports: Reports) -> str:
    """Return why delays between the realtime clocks of several machines do not count; empty if they do."""
    steps = (entry["clock_step_ns"] or 0 for entry in reports.received.values())
    return paced.clock_problem(outputs.measurement.clock_error, delays, max(steps, default=0) / 1000)
