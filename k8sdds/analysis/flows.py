"""Separate the trials of graphs, each of which measures all flows at the same time, into rows of flows and chains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.model.graph import Graph
from k8sdds.model.trial import AXES
from k8sdds.results import tidy
from k8sdds.results.aggregate import mean, ratio
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row

COLUMNS = (
    "sent", "scheduled", "late", "received", "lost", "duplicates", "out_of_order", "deadline_missed", "gaps",
)  # fmt: skip
"""Counts of a flow, before its metrics in the table of flows."""
_OF_GRAPHS = ("graph", *(name for name, axis in AXES.items() if axis.graph == "stated"))
"""Settings of a trial that are those of all flows together."""
_SETTINGS = ("middleware", *(name for name in CONDITION if name not in (*_OF_GRAPHS, "middleware")))
_ALL_KNOWN: Row = dict.fromkeys(("missing", "tail_episodes"))
"""What a flow or chain has of which every percentile is known."""
_NO_METRICS: Row = dict.fromkeys(METRICS)


def of_flow(row: Row, flow: str) -> Row:
    """Return a trial of a graph in which the results of a flow replace those of all."""
    own: Row = row["by_flow"][flow]
    return row | _ALL_KNOWN | own | {"subscribers": len(own["subscribers"])}


def of_chain(row: Row, last: str) -> Row:
    """Return a trial of a graph with no metrics but those of the chain to a flow."""
    own: Row = row["by_flow"][last]["chain"]
    return of_flow(row, last) | _NO_METRICS | _ALL_KNOWN | own


def names(row: Row) -> Iterator[tuple[str, str]]:
    """Yield each flow of a trial of a graph, and each chain of several flows, as its last flow and its name."""
    for flow, own in (row.get("by_flow") or {}).items():
        yield flow, flow
        if len(chain := own["chain"].get("of_flows") or ()) > 1:
            yield flow, " → ".join(chain)


def separate(trials: Iterable[Row]) -> list[Row]:
    """Return trials, and a row for each flow and each chain of those of graphs, whose name is `flow`.

    A row has no metrics but those of its flow or chain. As in `tidy.best`, a percentile that one trial of a cell does
    not have has no mean of the others.
    """
    rows = list(trials)
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        for last, name in names(row):
            own = of_flow(row | _NO_METRICS, last) if name == last else of_chain(row, last)
            by_name.setdefault(name, []).append(own | {"flow": name})
    return [*rows, *(row for own in by_name.values() for row in tidy.comparable(own))]


def mbit_between(
    graph: Graph, trials: Sequence[Row], machines: Mapping[str, str], sent: bool = False
) -> dict[tuple[str, str], float]:
    """Return the payload that flows deliver from each machine to each other one, or that is sent, in Mbit/s."""
    loads: dict[tuple[str, str], float] = defaultdict(float)
    for flow in graph.flows:
        source = machines.get(graph.publisher(flow.name).name)
        for node in graph.subscribers(flow.name):
            end = machines.get(node.name)
            if source and end and source != end:
                per_s = [_per_s(row, flow.name, "" if sent else node.name) for row in trials]
                loads[source, end] += 8e-6 * flow.mean_bytes * (mean(per_s) or 0)
    return loads


def _per_s(trial: Row, flow: str, subscriber: str) -> float | None:
    """Return how many samples of a flow a subscriber received per second, or without one, how many were sent."""
    own = trial["by_flow"][flow]
    count = own["subscribers"].get(subscriber, {}).get("received") if subscriber else own["sent"]
    return ratio(count, trial["measured_s"] or trial["duration_s"])


def table(trials: Sequence[Row], run: str) -> list[Row]:
    """Return a row for each flow and each chain of each trial of a graph, and one for each subscriber of a flow.

    That of a subscriber has its counts, because delays are those of all subscribers of a flow.
    """
    rows: list[Row] = []
    for trial in trials:
        first = {
            "run": run, "trial_id": trial["trial_id"], "repetition": trial["repetition"],
            "network": trial[UNIT], **{name: trial[name] for name in _SETTINGS},
        }  # fmt: skip
        for last, name in names(trial):
            own = trial["by_flow"][last]
            measured = own if name == last else own["chain"]
            values = {column: measured[column] for column in (*COLUMNS, *METRICS) if column in measured}
            kind = {"kind": "flow" if name == last else "chain", "flow": name, "publisher": own["publisher"]}
            rows.append(first | kind | {"subscriber": "all"} | values)
            for subscriber, counts in own["subscribers"].items() if name == last else ():
                rows.append(
                    first | kind | {"subscriber": subscriber, "received": counts["received"]}
                    | {"lost": counts["lost"], "deadline_missed": counts["missed"]}
                )  # fmt: skip
    return rows
