"""Find what limits a flow of a graph: CPU time, the network, or a queue in front of a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import Any, Literal

from k8sdds.analysis.flows import mbit_between
from k8sdds.model.graph import Graph
from k8sdds.results.aggregate import mean
from k8sdds.system.grouping import Row

FULL_PERCENT = 90
"""Use of a resource from which on it is full: what waits for it grows without bound as the use nears 100 %."""
THROTTLED_PERCENT = 1
"""Time in which a CPU limit stops a node, from which on it is a limit: the share of samples above a p99."""
DROPPED_PERCENT = 0.1
"""Share of the packets or datagrams that are dropped, at or above which what drops them is a limit."""
UNSENT_PERCENT = 1
"""Share of the samples of a flow that were late or never sent, from which on its publisher is a limit."""
SHOWN = 3
"""Nodes that one line names."""


@dataclass(frozen=True)
class Bottleneck:
    """A resource that was full while a flow was measured."""

    what: Literal["CPU", "network", "queue"]
    seen: str
    """What counters show, with numbers."""
    change: str
    """What to change, in the words of the application file."""

    @property
    def limits(self) -> str:
        """State which resource it is."""
        return {"CPU": "CPU time", "network": "The network", "queue": "A queue"}[self.what] + " limits it"


def find(graph: Graph, flows: Sequence[str], trials: Sequence[Row]) -> Bottleneck | None:
    """Return what limits flows that follow from each other, by trials of the whole graph; None if no counter shows it.

    What causes the most other effects is first: a node without CPU time also fills its queues.
    """
    path = _Path(graph, flows, with_counters(trials))
    on_cores = (_computing, _throttled, _busy_nodes, _busy_cores)
    on_the_way = (_links, _interfaces, _busy_machine, _buffers, _late)
    return next(chain.from_iterable(rule(path) for rule in (*on_cores, *on_the_way)), None)


def with_counters(trials: Sequence[Row]) -> list[Row]:
    """Return the trials that have the counters of nodes; those of earlier versions counted other CPU time."""
    return [
        trial
        for trial in trials
        if trial.get("by_flow")
        and any("cores_percent" in own for own in (trial.get("by_node") or {}).values())
    ]


def of_budget(trials: Sequence[Row]) -> Bottleneck | None:
    """Return the node of the testbed that uses the most CPU time, with the nodes of the graph that run there."""
    used: dict[str, list[float]] = defaultdict(list)
    known = with_counters(trials)
    for trial in known:
        for place, parts in (trial["nodes_cpu"] or {}).items():
            used[place].append(sum(parts.values()))
    if not used:
        return None
    busiest = max(used, key=lambda place: fmean(used[place]))
    own: dict[str, list[float]] = defaultdict(list)
    for trial in known:
        for name, node in trial["by_node"].items():
            if node["machine"] == busiest and node["cpu_percent"] is not None:
                own[name].append(node["cpu_percent"])
    most = sorted(own, key=lambda name: -fmean(own[name]))[:SHOWN]
    named = ", ".join(f"{name} {fmean(own[name]):.3g} %" for name in most)
    seen = (
        f"{busiest} uses {fmean(used[busiest]):.3g} % of a core, of it {named or 'its nodes an unknown part'}"
    )
    return Bottleneck("CPU", seen, "Run some of them on another machine (`on`), or lower sizes and rates")


@dataclass(frozen=True)
class _Path:
    """The nodes through which samples of flows that follow from each other pass."""

    graph: Graph
    flows: Sequence[str]
    trials: Sequence[Row]

    @cached_property
    def nodes(self) -> list[str]:
        ends = [node.name for node in self.graph.subscribers(self.flows[-1])]
        return list(dict.fromkeys([*(self.graph.publisher(flow).name for flow in self.flows), *ends]))

    @cached_property
    def machines(self) -> dict[str, str]:
        """The node of the testbed on which each node of the graph ran in the last trial."""
        last = self.trials[-1]["by_node"] if self.trials else {}
        return {node: own["machine"] for node, own in last.items() if own["machine"]}

    def readings(self, node: str) -> list[dict[str, Any]]:
        """Return what was read of a node in each trial."""
        return [own for trial in self.trials if (own := trial["by_node"].get(node))]

    def mean(self, node: str, key: str) -> float:
        return mean(own.get(key) for own in self.readings(node)) or 0.0

    def total(self, node: str, key: str) -> int:
        return sum(own.get(key) or 0 for own in self.readings(node))

    def dropped(self, node: str, key: str, of: str) -> int:
        """Return how many were dropped, if they are a relevant share of those that passed and those dropped."""
        return _relevant(self.total(node, key), self.total(node, of))

    @property
    def is_unicast(self) -> bool:
        return all(trial["transport"] == "unicast" for trial in self.trials)

    @property
    def less_traffic(self) -> str:
        """What to change so that less crosses the network."""
        change = "Lower sizes and rates, or run nodes that exchange much on one machine (`on`)"
        copies = any(len(self.graph.subscribers(flow)) > 1 for flow in self.flows)
        return f"{change}, or allow transport: multicast" if self.is_unicast and copies else change


def _relevant(dropped: int, passed: int) -> int:
    return dropped if 100 * dropped >= DROPPED_PERCENT * (dropped + passed) else 0


def _computing(path: _Path) -> Iterator[Bottleneck]:
    graph = path.graph
    for node in path.nodes:
        needed = {
            flow.name: 1e-4 * flow.compute_us * graph.rate(flow.name)
            for flow in graph.flows
            if graph.publisher(flow.name).name == node
        }
        if (percent := sum(needed.values())) >= FULL_PERCENT:
            most = max(needed, key=lambda flow: needed[flow])
            yield Bottleneck(
                "CPU",
                f"the one thread of {node} that computes and sends needs {percent:.0f} % of the time to compute",
                f"Shorten compute_ms of {most}, lower the rate that it follows, or publish it from a node of its own",
            )


def _throttled(path: _Path) -> Iterator[Bottleneck]:
    for node in path.nodes:
        if (percent := path.mean(node, "throttled_percent")) >= THROTTLED_PERCENT:
            seen = f"its CPU limit stopped {node} for {percent:.2g} % of the time"
            yield Bottleneck("CPU", seen, "Raise the CPU limit of its pod")


def _busy_nodes(path: _Path) -> Iterator[Bottleneck]:
    for node in path.nodes:
        if (percent := path.mean(node, "cpu_percent")) >= FULL_PERCENT:
            change = f"Publish flows of {node} from several nodes, or lower their sizes and rates"
            yield Bottleneck("CPU", f"{node} uses {percent:.0f} % of a core", change)


def _busy_cores(path: _Path) -> Iterator[Bottleneck]:
    for node in path.nodes:
        if (percent := path.mean(node, "cores_percent")) >= FULL_PERCENT:
            seen = f"{node} and the nodes on the same cores use {percent:.0f} % of these cores"
            change = "Run fewer nodes there (`on`), use a machine with more cores, or lower sizes and rates"
            yield Bottleneck("CPU", seen, change)


def _links(path: _Path) -> Iterator[Bottleneck]:
    change = path.less_traffic
    loads = mbit_between(path.graph, path.trials, path.machines, sent=True)
    rates = [rate for trial in path.trials if (rate := trial.get("link_rate_mbit"))]
    for machine in sorted({path.machines[node] for node in path.nodes if node in path.machines}):
        busier = max(sum(load for pair, load in loads.items() if pair[end] == machine) for end in (0, 1))
        if rates and path.is_unicast and busier >= FULL_PERCENT / 100 * max(rates):
            seen = f"samples of {busier:.3g} Mbit/s in one direction, without headers, fill the link of {machine}"
            yield Bottleneck("network", f"{seen}, which has {max(rates):g} Mbit/s", change)
        ways = [
            way
            for trial in path.trials
            for way in ((trial["link_conditions"] or {}).get(machine) or {}).values()
        ]
        dropped, lost, packets = (
            sum(way.get(key) or 0 for way in ways) for key in ("queue_drops", "lost", "packets")
        )
        if _relevant(dropped, packets):
            seen = f"the full queue of the link of {machine} dropped {dropped:,} packets"
            yield Bottleneck("network", seen, change)
        if _relevant(lost, packets):
            seen = f"the link of {machine} lost {lost:,} packets"
            yield Bottleneck("network", seen, "Send smaller samples, which need fewer packets")


def _interfaces(path: _Path) -> Iterator[Bottleneck]:
    for node in path.nodes:
        if packets := path.dropped(node, "interface_drops", "packets"):
            seen = f"the interface of {node} dropped {packets:,} packets"
            yield Bottleneck("network", seen, path.less_traffic)


def _busy_machine(path: _Path) -> Iterator[Bottleneck]:
    percent = mean(trial["machine_cpu_percent"] for trial in path.trials) or 0.0
    if percent >= FULL_PERCENT:
        change = "Stop other work on it, use more machines or cores, or lower sizes and rates"
        seen = f"the machine of the first publisher uses {percent:.0f} % of all of its cores"
        yield Bottleneck("CPU", seen, change)


def _buffers(path: _Path) -> Iterator[Bottleneck]:
    for node in path.nodes:
        for key, way in (("receive_buffer_errors", "receives"), ("send_buffer_errors", "sends")):
            if dropped := path.dropped(node, key, "datagrams"):
                seen = f"the socket buffers of {node} had no room for {dropped:,} datagrams that it {way}"
                change = "Allow a tuning set with larger socket buffers, or send smaller samples"
                yield Bottleneck("queue", seen, change)


def _late(path: _Path) -> Iterator[Bottleneck]:
    for flow in path.flows:
        node = path.graph.publisher(flow).name
        own = [trial["by_flow"][flow] for trial in path.trials]
        due = sum(_due(path.graph, flow, node, trial["by_flow"]) for trial in path.trials)
        waited = due - sum((each["sent"] or 0) - (each.get("late") or 0) for each in own)
        if due and (percent := 100 * waited / due) >= UNSENT_PERCENT:
            seen = f"{node} sent {percent:.2g} % of the samples of {flow} more than a period late, or never"
            change = f"Publish the flows of {node} from several nodes"
            if path.graph.flow(flow).reliable:
                change += f", or make {flow} best-effort if it may lose some"
            yield Bottleneck("queue", seen, change)


def _due(graph: Graph, flow: str, node: str, by_flow: Mapping[str, Any]) -> int:
    """Return how many samples of a flow its publisher could send: no more than it received of each input."""
    inputs = (by_flow[name]["subscribers"].get(node, {}).get("received") for name in graph.flow(flow).after)
    counts = [by_flow[flow]["scheduled"], *inputs]
    return min((count for count in counts if count is not None), default=0)
