"""Define graphs: applications whose nodes publish and subscribe to all of their flows at the same time. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from k8sdds.model import schedule_file
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.settings import MAX_BATCH_BYTES, MAX_PARTICIPANTS, MAX_SAMPLE_BYTES
from k8sdds.system.yaml_text import nearest

MAX_FLOWS = 500
MAX_NODES = MAX_PARTICIPANTS
MAX_BYTES = 4 << 20
"""Largest text. k8sdds-perftest has the same limits."""
MIN_SAMPLE_BYTES = 36
"""Smallest sample, which carries when its origin was due."""
MIN_RATE = 0.001
"""Least samples per second of a flow."""
RATE_DIGITS = 6
"""Digits after the decimal point of a rate."""
MAX_DEADLINE_US = 10**12
HEADER = "graph 1"
"""First statement of a text: the version of the format."""
_NAME = re.compile(r"[a-z0-9_-]{1,60}")


class GraphError(ValueError):
    """A graph that contradicts itself; `keys` lead to the place in the application file: `flows`, 2, `after`."""

    def __init__(self, message: str, *keys: str | int) -> None:
        super().__init__(message)
        self.message, self.keys = message, keys


@dataclass(frozen=True)
class GraphFlow:
    """Samples of one node for one or more others."""

    name: str
    payload_bytes: int
    """Size of a sample; with a schedule, of the largest one."""
    reliable: bool
    deadline_us: int
    rate: float = 0
    """Samples per second, with a schedule the mean; 0 if samples follow from others."""
    after: tuple[str, ...] = ()
    """Flows of which each sample needs a new one."""
    compute_us: int = 0
    """CPU time between the last of these samples and its own."""
    schedule: str = ""
    """When samples are due and their sizes (`Schedule.word`), if they have no constant rate and size."""
    batch_bytes: int = 0
    """Bytes to collect before sending; 0: none."""

    def text(self) -> str:
        """Return its statement."""
        if self.schedule:
            what = f"schedule {self.schedule}"
        elif self.after:
            what = f"bytes {self.payload_bytes} after {','.join(self.after)} compute_us {self.compute_us}"
        else:
            what = f"bytes {self.payload_bytes} rate {decimal(self.rate)}"
        reliability = "reliable" if self.reliable else "best-effort"
        batch = f" batch {self.batch_bytes}" if self.batch_bytes else ""
        return f"flow {self.name} {what} {reliability} deadline_us {self.deadline_us}{batch}"

    @property
    def mean_bytes(self) -> float:
        """The mean size of a sample."""
        return schedule_file.of_word(self.schedule).mean_bytes if self.schedule else self.payload_bytes

    def due_within(self, duration_s: float) -> float:
        """Return how many samples of a flow that follows no other are due before a duration has passed."""
        if self.schedule:
            return schedule_file.of_word(self.schedule).due_within(duration_s)
        return self.rate * duration_s


@dataclass(frozen=True)
class GraphNode:
    """One process, which is one participant in a pod of its own."""

    name: str
    publishes: tuple[str, ...] = ()
    subscribes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return its statement."""
        lists = (("subscribes", self.subscribes), ("publishes", self.publishes))
        return " ".join([f"node {self.name}", *(f"{key} {','.join(names)}" for key, names in lists if names)])


@dataclass(frozen=True)
class Graph:
    """The flows and nodes of an application, in the order of its file. Raises GraphError if they do not fit."""

    flows: tuple[GraphFlow, ...]
    nodes: tuple[GraphNode, ...]

    def __post_init__(self) -> None:
        # Each check relies on those before it.
        for wrong in chain(_node_errors(self), _flow_errors(self), _size_errors(self)):
            raise wrong
        try:
            _ = self._ordered
        except CycleError as error:
            # Each flow of the cycle needs the one before it.
            cycle = error.args[1]
            index = [flow.name for flow in self.flows].index(cycle[-1])
            why = f"flow {cycle[-1]} needs its own samples: {' after '.join(reversed(cycle))}"
            raise GraphError(why, "flows", index, "after") from error

    def text(self) -> str:
        """Return the file that every node of the graph reads."""
        return "\n".join([HEADER, *(flow.text() for flow in self.flows), *(n.text() for n in self.nodes), ""])

    def flow(self, name: str) -> GraphFlow:
        """Return the flow with a name."""
        return self._by_name[name]

    def publisher(self, flow: str) -> GraphNode:
        """Return the node that publishes a flow."""
        return self._publishing[flow][0]

    def subscribers(self, flow: str) -> list[GraphNode]:
        """Return the nodes that subscribe to a flow."""
        return self._subscribing[flow]

    def chain(self, flow: str) -> list[str]:
        """Return the flows from the origin of a flow to itself: each is the first of those that the next one needs."""
        names = [flow]
        while after := self.flow(names[0]).after:
            names.insert(0, after[0])
        return names

    def rate(self, flow: str) -> float:
        """Return the samples per second of a flow: at most those of each flow of which it needs samples."""
        return self._rates[flow]

    def due_within(self, duration_s: float) -> dict[str, float]:
        """Return how many samples of each flow are due before a duration has passed if all of its inputs arrive."""
        return self._least(lambda flow: flow.due_within(duration_s))

    @property
    def samples_per_s(self) -> float:
        """The samples per second of all flows."""
        return sum(self.rate(flow.name) for flow in self.flows)

    @property
    def reliable(self) -> bool:
        """Whether lost samples of any flow are sent again."""
        return any(flow.reliable for flow in self.flows)

    @property
    def largest_bytes(self) -> int:
        """The size of the largest sample."""
        return max(flow.payload_bytes for flow in self.flows)

    @property
    def batch_bytes(self) -> int:
        """The size of the largest batch; 0 without batches."""
        return max(flow.batch_bytes for flow in self.flows)

    @cached_property
    def senders(self) -> tuple[GraphNode, ...]:
        """The nodes that run as publishers: those that subscribe to nothing.

        If every node subscribes, the first one with a rate. A trial needs a publisher and a subscriber.
        """
        pure = tuple(node for node in self.nodes if not node.subscribes)
        timed = {flow.name for flow in self.flows if not flow.after}
        return pure or (next(node for node in self.nodes if timed & set(node.publishes)),)

    @cached_property
    def receivers(self) -> tuple[GraphNode, ...]:
        """All other nodes, which run as subscribers, whether they also publish or not."""
        return tuple(node for node in self.nodes if node not in self.senders)

    @cached_property
    def members(self) -> Mapping[str, GraphNode]:
        """The node of each participant, by the participant's name."""
        senders = {f"pub{index}": node for index, node in enumerate(self.senders)}
        return senders | {f"sub{index}": node for index, node in enumerate(self.receivers)}

    @cached_property
    def _by_name(self) -> Mapping[str, GraphFlow]:
        return {flow.name: flow for flow in self.flows}

    @cached_property
    def _publishing(self) -> Mapping[str, list[GraphNode]]:
        return {flow.name: [] for flow in self.flows} | _by_flow(self.nodes, lambda node: node.publishes)

    @cached_property
    def _subscribing(self) -> Mapping[str, list[GraphNode]]:
        return {flow.name: [] for flow in self.flows} | _by_flow(self.nodes, lambda node: node.subscribes)

    @cached_property
    def _ordered(self) -> tuple[str, ...]:
        """The flows, each after those of which it needs samples. Raises CycleError."""
        return tuple(TopologicalSorter({flow.name: flow.after for flow in self.flows}).static_order())

    @cached_property
    def _rates(self) -> Mapping[str, float]:
        return self._least(lambda flow: flow.rate)

    def _least(self, of: Callable[[GraphFlow], float]) -> dict[str, float]:
        """Return a number of each flow: its own, or the least of the flows of which it needs samples."""
        least: dict[str, float] = {}
        for flow in map(self.flow, self._ordered):
            least[flow.name] = min(least[name] for name in flow.after) if flow.after else of(flow)
        return least

    def with_deadlines(self) -> Graph:
        """Return the graph with one period of its origin as the deadline of each flow that has none."""

        def period_us(flow: GraphFlow) -> int:
            return max(1, round(1e6 / self.rate(self.chain(flow.name)[0])))

        flows = (replace(flow, deadline_us=flow.deadline_us or period_us(flow)) for flow in self.flows)
        return Graph(tuple(flows), self.nodes)


def _by_flow(
    nodes: Iterable[GraphNode], flows_of: Callable[[GraphNode], Sequence[str]]
) -> dict[str, list[GraphNode]]:
    found: dict[str, list[GraphNode]] = {}
    for node in nodes:
        for name in flows_of(node):
            found.setdefault(name, []).append(node)
    return found


def _node_errors(graph: Graph) -> Iterator[GraphError]:
    for node in graph.nodes:
        for key in ("publishes", "subscribes"):
            for index, why in _listed_wrongly(getattr(node, key), graph):
                yield GraphError(f"node {node.name}: {why}", "nodes", node.name, key, index)
        if both := sorted({*node.publishes} & {*node.subscribes}):
            why = f"node {node.name} publishes and subscribes to {both[0]}: samples go to other nodes"
            yield GraphError(why, "nodes", node.name, "subscribes")
        if not (node.publishes or node.subscribes):
            why = f"node {node.name} has neither `publishes` nor `subscribes`: add one, or leave it out"
            yield GraphError(why, "nodes", node.name)


def _listed_wrongly(names: Sequence[str], graph: Graph) -> Iterator[tuple[int, str]]:
    """Return the index of each name that is no flow or was listed before, with the reason."""
    known = [flow.name for flow in graph.flows]
    for index, name in enumerate(names):
        if name not in graph._by_name:
            yield index, f"there is no flow {name[:60]!r}{nearest(name[:60], known)}"
        elif names.index(name) < index:
            yield index, f"{name} is listed twice"


def _flow_errors(graph: Graph) -> Iterator[GraphError]:
    for index, flow in enumerate(graph.flows):
        smallest = min(schedule_file.of_word(flow.schedule).sizes) if flow.schedule else flow.payload_bytes
        if smallest < MIN_SAMPLE_BYTES:
            why = f"a sample of a graph has at least {MIN_SAMPLE_BYTES} bytes, which carry its times"
            yield GraphError(why, "flows", index, "schedule" if flow.schedule else "payload_bytes")
        if not (flow.after or MIN_RATE <= flow.rate <= MAX_RATE):
            why = (
                f"a flow of a graph has {MIN_RATE:g} to {MAX_RATE:,.0f} samples per second, not {flow.rate:g}"
            )
            yield GraphError(why, "flows", index, "rate")
        if flow.deadline_us > MAX_DEADLINE_US:
            why = f"a deadline in a graph is at most {MAX_DEADLINE_US // 1000:,} ms"
            yield GraphError(why, "flows", index, "deadline_ms")
        publishing = [node.name for node in graph._publishing[flow.name]]
        if len(publishing) != 1:
            names = f"the nodes {' and '.join(publishing[:2])} publish" if publishing else "no node publishes"
            why = f"{names} flow {flow.name}: list it in `publishes` of exactly one node"
            yield GraphError(why, "flows", index, "name")
        if not graph.subscribers(flow.name):
            why = (
                f"no node subscribes to flow {flow.name}: list it in `subscribes` of a node, or leave it out"
            )
            yield GraphError(why, "flows", index, "name")
        if flow.name in flow.after:
            yield GraphError(f"flow {flow.name} needs its own samples: leave it out", "flows", index, "after")
        for place, why in _listed_wrongly(flow.after, graph):
            yield GraphError(f"flow {flow.name}: {why}", "flows", index, "after", place)
        publisher = graph.publisher(flow.name)
        for place, name in enumerate(flow.after):
            if name not in publisher.subscribes:
                what = f"node {publisher.name}, which publishes {flow.name}, does not subscribe to {name}"
                why = f"{what}: add {name} to its `subscribes`"
                yield GraphError(why, "flows", index, "after", place)


def _size_errors(graph: Graph) -> Iterator[GraphError]:
    if len(graph.text()) > MAX_BYTES:
        yield GraphError(
            f"a graph has at most {MAX_BYTES:,} bytes: shorten schedules, leave out nodes, or shorten names",
            "nodes",
        )


def decimal(number: float) -> str:
    """Return a number without an exponent: 1500000, 0.5."""
    return f"{number:.{RATE_DIGITS}f}".rstrip("0").rstrip(".")


def digest(text: str) -> str:
    """Return the SHA-256 by which records name a text; empty without one."""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def normalized(text: str) -> str:
    """Return the text of a graph without comments, as ids have it. Raises ValueError."""
    return parse(text).text() if text else ""


@lru_cache(maxsize=256)
def parse(text: str) -> Graph:
    """Return what the text of a graph states. Raises ValueError.

    The first statement is `graph 1`. `flow NAME bytes N rate HZ|after A,B [compute_us N] reliable|best-effort
    deadline_us N [batch N]` and `node NAME [publishes A,B] [subscribes A,B]` follow, in any order; `schedule WORD`
    replaces `bytes` and `rate`. A comment lasts from `#` to the end of the line.
    """
    if len(text.encode()) > MAX_BYTES:
        raise ValueError(f"a graph has at most {MAX_BYTES:,} bytes")
    flows: list[GraphFlow] = []
    nodes: list[GraphNode] = []
    begun = False
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        try:
            match words:
                case []:
                    pass
                case ["graph", "1"] if not begun:
                    begun = True
                case _ if not begun:
                    raise ValueError(f"expected `{HEADER}`")
                case ["flow", name, *rest]:
                    flows.append(_flow(_named(name, [flow.name for flow in flows], MAX_FLOWS), rest))
                case ["node", name, *rest]:
                    nodes.append(_node(_named(name, [node.name for node in nodes], MAX_NODES), rest))
                case _:
                    raise ValueError("expected `flow NAME …` or `node NAME …`")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    if not flows or len(nodes) < 2:
        raise ValueError(f"a graph has a flow and two nodes at least, not {len(flows)} and {len(nodes)}")
    return Graph(tuple(flows), tuple(nodes))


def _named(name: str, taken: Sequence[str], most: int) -> str:
    if len(taken) >= most:
        raise ValueError(f"a graph has at most {MAX_FLOWS} flows and {MAX_NODES} nodes")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:40]!r} is not a name: use a-z, 0-9, - and _")
    if name in taken:
        raise ValueError(f"{name} is stated twice")
    return name


def _pairs(words: Sequence[str], flags: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the words of a statement as keys with values; a flag has the value `yes`. Raises ValueError."""
    found: dict[str, str] = {}
    rest = iter(words)
    for key in rest:
        if key not in (*flags, *keys) or key in found:
            raise ValueError(f"unexpected {key[:40]!r}")
        value = "yes" if key in flags else next(rest, "")
        if not value:
            raise ValueError(f"{key} has no value")
        found[key] = value
    return found


def _flow(name: str, words: Sequence[str]) -> GraphFlow:
    found = _pairs(
        words,
        ("reliable", "best-effort"),
        ("bytes", "rate", "after", "schedule", "compute_us", "deadline_us", "batch"),
    )
    if ("rate" in found) + ("after" in found) + ("schedule" in found) != 1:
        raise ValueError(f"flow {name} has one of `rate`, `after` and `schedule`")
    if "schedule" in found and "bytes" in found:
        raise ValueError(f"flow {name}: the schedule states the sizes: leave out bytes")
    if "compute_us" in found and "after" not in found:
        raise ValueError(f"flow {name}: only a flow with `after` has compute_us")
    if ("reliable" in found) == ("best-effort" in found):
        raise ValueError(f"flow {name} is `reliable` or `best-effort`")
    schedule = schedule_file.of_word(found["schedule"]) if "schedule" in found else None
    found |= {"bytes": str(schedule.largest_bytes)} if schedule else {}
    if needed := [key for key in ("bytes", "deadline_us") if key not in found]:
        raise ValueError(f"flow {name} needs {needed[0]}")
    return GraphFlow(
        name,
        _whole(found, "bytes", MIN_SAMPLE_BYTES, MAX_SAMPLE_BYTES),
        "reliable" in found,
        _whole(found, "deadline_us", 1, MAX_DEADLINE_US),
        schedule.rate if schedule else _rate(found["rate"]) if "rate" in found else 0,
        tuple(found["after"].split(",")) if "after" in found else (),
        _whole(found | {"compute_us": found.get("compute_us", "0")}, "compute_us", 0, 10**7),
        schedule.word() if schedule else "",
        _whole(found, "batch", 1, MAX_BATCH_BYTES) if "batch" in found else 0,
    )


def _node(name: str, words: Sequence[str]) -> GraphNode:
    found = _pairs(words, (), ("publishes", "subscribes"))
    lists = {key: tuple(value.split(",")) for key, value in found.items()}
    return GraphNode(name, lists.get("publishes", ()), lists.get("subscribes", ()))


def _whole(found: Mapping[str, str], key: str, least: int, most: int) -> int:
    text = found.get(key, "")
    if not re.fullmatch(r"[0-9]{1,13}", text) or not least <= int(text) <= most:
        raise ValueError(f"{key} is a whole number from {least:,} to {most:,}, not {text[:40]!r}")
    return int(text)


def _rate(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,9})?", text) or not MIN_RATE <= float(text) <= MAX_RATE:
        raise ValueError(f"rate is a number from {MIN_RATE:g} to {MAX_RATE:,.0f}, not {text[:40]!r}")
    return round(float(text), RATE_DIGITS)
