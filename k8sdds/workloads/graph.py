"""The graph workload: the nodes of an application publish and subscribe to all of its flows at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds.model import graph
from k8sdds.model.graph import Graph, GraphFlow
from k8sdds.model.reason import NO_SAMPLES, Reason
from k8sdds.model.trial import SUBSCRIBER, Cell
from k8sdds.perftest.command import Load
from k8sdds.results import aggregate, histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads import latencies, paced
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import RATE_MISSED, Workload

if TYPE_CHECKING:
    from k8sdds.results.hdr import Histogram

Entry = Mapping[str, Any]
"""What one node reports about one flow (docs/reference/perftest.md)."""

DELAY, CHAIN = ("one_way", "one_way_realtime"), ("chain", "chain_realtime")
"""First parts of the tags of delays, by one clock or by those of several machines; the flow follows after a colon."""
SHOWN = 3
"""Flows that one line names."""
_COUNTS = ("sent", "scheduled", "late", "received", "lost", "duplicates", "out_of_order", "deadline_missed")
"""Counts that add up over flows."""
_REFUSED = {
    "schedule": "", "rate_profile": "constant", "batch_bytes": 0, "instances": 0, "topics": 1, "writers": 1, "qos": "",
    "security": "none", "capture": False, "policies": 0,
}  # fmt: skip
"""Settings that graphs do not have, with the value that means none."""


class GraphTest(Workload):
    """Delay of each sample of each flow from when it was due, and of each chain of flows from when its origin was."""

    name = "graph"
    metrics: tuple[str, ...] = (
        "delay_p90_us", "delay_mean_us", "delay_p50_us", "delay_p99_us", "delay_p999_us", "delay_p9999_us",
        "delay_max_us", "deadline_missed_percent", "achieved_rate_percent",
    )  # fmt: skip
    columns: tuple[str, ...] = ("by_flow",)
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
        whole = graph.parse(outputs.trial.cell.graph)
        own = {flow.name: _of_flow(whole, flow, outputs) for flow in whole.flows}
        record.by_flow = own
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
        complete = all(each["delay_count"] for each in own.values())
        _set_delays(record, outputs, DELAY, list(own), complete)

    @override
    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        whole = graph.parse(outputs.trial.cell.graph)
        for flow in whole.flows:
            if wrong := _uncounted(whole, flow, outputs):
                return wrong
        if not any(tag.partition(":")[0] in DELAY for tag in outputs.latencies):
            return Reason(NO_SAMPLES, "no delay was measured")
        return None

    @override
    def warnings(self, outputs: TrialOutputs) -> list[str]:
        warnings = []
        for flow in graph.parse(outputs.trial.cell.graph).flows:
            sent = publisher_entry(outputs, flow.name) or {}
            missing = max(sent.get("not_sent") or 0, sent.get("late") or 0)
            if missing > RATE_MISSED * (sent.get("samples") or 0):
                warnings.append(
                    f"rate: {flow.name}: {sent['late']} of {sent['samples']} samples were written more than one period"
                    f" late, {sent['not_sent']} were not sent"
                )
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
        if record.delay_p90_us is not None:
            parts.append(f"p90 delay {number(record.delay_p90_us / 1000)} ms")
        return ", ".join(parts)


def entries(outputs: TrialOutputs, flow: str, role: str) -> dict[str, Entry]:
    """Return what nodes with a role reported about a flow, by the name of the node."""
    nodes = outputs.trial.cell.graph_nodes
    return {
        nodes[participant].name: entry
        for participant, summary in outputs.summaries.items()
        if summary is not None
        for entry in summary["flows"] or ()
        if entry["flow"] == flow and entry["role"] == role
    }


def publisher_entry(outputs: TrialOutputs, flow: str) -> Entry | None:
    """Return what the publishing node reported about a flow; None if it did not."""
    return next(iter(entries(outputs, flow, "publisher").values()), None)


def _uncounted(whole: Graph, flow: GraphFlow, outputs: TrialOutputs) -> Reason | None:
    """Check that each node reported a flow, that the counts add up, and that a reliable flow lost nothing."""
    sent = publisher_entry(outputs, flow.name)
    if sent is None:
        return Reason(
            "no-report", f"{whole.publisher(flow.name).name} did not report what it sent of {flow.name}"
        )
    found = entries(outputs, flow.name, "subscriber")
    trial = outputs.trial
    may_lose = not flow.reliable or (trial.cell.link.exceeds_short_keys and trial.max_loss_percent == 100)
    for node in whole.subscribers(flow.name):
        entry = found.get(node.name)
        if entry is None:
            return Reason("no-report", f"{node.name} did not report what it received of {flow.name}")
        received, lost = entry["received"], entry["lost"]
        if received + lost != sent["sent"]:
            what = f"{node.name} received {received} samples of {flow.name} and lost {lost}; {sent['sent']} were sent"
            return Reason("miscounted", what)
        if lost and not may_lose:
            return Reason("lost-samples", f"{node.name} lost {lost} samples of the reliable flow {flow.name}")
    return None


def _of_flow(whole: Graph, flow: GraphFlow, outputs: TrialOutputs) -> dict[str, Any]:
    """Return the metrics of a flow by name, those of its `chain`, its `publisher`, and the counts of `subscribers`."""
    sent = publisher_entry(outputs, flow.name) or {}
    found = entries(outputs, flow.name, "subscriber")
    expected = len(whole.subscribers(flow.name))
    record = Metrics()
    record.sent, record.scheduled, record.late = (sent.get(key) for key in ("sent", "samples", "late"))
    for name in ("received", "lost", "duplicates", "out_of_order", "gaps"):
        setattr(record, name, aggregate.total(entry[name] for entry in found.values()))
    record.lost_percent = aggregate.ratio(record.lost, (record.sent or 0) * expected, 100)
    record.achieved_rate_percent = aggregate.ratio(record.sent, record.scheduled, 100)
    # No subscriber had what the publisher did not send.
    unsent = sent.get("not_sent") or 0
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
    chain = Metrics()
    _set_delays(record, outputs, DELAY, [flow.name], complete)
    _set_delays(chain, outputs, CHAIN, [flow.name], complete)
    return {
        "publisher": whole.publisher(flow.name).name,
        **record.model_dump(include=record.model_fields_set),
        "chain": chain.model_dump(include=chain.model_fields_set),
        "subscribers": {
            name: {key: entry[key] for key in ("received", "lost", "missed")} for name, entry in found.items()
        },
    }


def _set_delays(
    record: Metrics, outputs: TrialOutputs, kinds: tuple[str, str], flows: Sequence[str], complete: bool
) -> None:
    """Set the percentiles of delays of flows, by the tags of these kinds; unless each subscriber got a sample, none."""
    logged = {kind: _logged(outputs, kind, flows) for kind in kinds}
    delays = histograms.merged(one for one in logged.values() if one is not None)
    if delays is None or not complete:
        latencies.set_percentiles(record, "delay", 0, dict.fromkeys(histograms.QUANTITIES))
        return
    values = histograms.quantities_us(delays)
    tags = [f"{kind}:{flow}" for kind in kinds for flow in flows]
    missing = 0.0 if outputs.trial.cell.link.loses_packets else record.lost_percent or 0.0
    episodes = histograms.episodes(outputs.folder, tags, values)
    latencies.set_percentiles(record, "delay", delays.total, values, missing, episodes)
    if (realtime := logged[kinds[1]]) and (why := _clock_problem(outputs, realtime, flows)):
        for quantity in values:
            setattr(record, f"delay_{quantity}_us", None)
            record.missing = (record.missing or {}) | {f"delay_{quantity}_us": why}


def _logged(outputs: TrialOutputs, kind: str, flows: Sequence[str]) -> Histogram | None:
    tags = (f"{kind}:{flow}" for flow in flows)
    return histograms.merged(outputs.latencies[tag] for tag in tags if tag in outputs.latencies)


def _clock_problem(outputs: TrialOutputs, delays: Histogram, flows: Sequence[str]) -> str:
    """Return why delays between the realtime clocks of several machines do not count; empty if they do."""
    steps = (
        entry["clock_step_ns"] or 0
        for flow in flows
        for entry in entries(outputs, flow, "subscriber").values()
    )
    return paced.clock_problem(outputs.measurement.clock_error, delays, max(steps, default=0) / 1000)
