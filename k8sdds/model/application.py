"""Define the format of application files: what an application sends, what it requires, and what may be chosen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator
from typing_extensions import override

from k8sdds.model import schedule_file
from k8sdds.model.axis import Different, OneOrMore, choices_of
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.graph import MAX_FLOWS as MAX_GRAPH_FLOWS
from k8sdds.model.graph import MAX_NODES, RATE_DIGITS, Graph, GraphError, GraphFlow, GraphNode
from k8sdds.model.graph import MIN_SAMPLE_BYTES as MIN_GRAPH_BYTES
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.settings import (
    MAX_BATCH_BYTES,
    MAX_PARTICIPANTS,
    MAX_SAMPLE_BYTES,
    MIN_SAMPLE_BYTES,
    SAME_NODE,
    Layout,
)
from k8sdds.model.trial import AXES, Cell
from k8sdds.system import units
from k8sdds.system.errors import InputError
from k8sdds.system.strict import Name, Remarks, Strict, Title, mistake
from k8sdds.system.yaml_text import nearest

MAX_FLOWS = 16
"""Most flows without `nodes`: each configuration is measured once for each of them."""
MIN_RATE_PERCENT = 98.0
"""Share of the offered rate that every flow requires, whatever else it requires."""
_DELAYS = {
    "mean": "delay_mean_us", "p50": "delay_p50_us", "p90": "delay_p90_us", "p99": "delay_p99_us",
    "p99.9": "delay_p999_us", "p99.99": "delay_p9999_us", "max": "delay_max_us",
}  # fmt: skip
QUANTITIES = _DELAYS | {
    "jitter": "delay_jitter_us", "blind": "blind_ms", "age mean": "age_mean_us", "age p99": "age_p99_us",
    "age max": "age_max_us",
}  # fmt: skip
"""Columns of the record that a flow may limit in time, by the name that users write."""
_BOUND = re.compile(r"\s*(?P<name>[a-z0-9. ]+?)\s*<=\s*(?P<limit>\d{1,9}(\.\d{1,9})?\s*(us|µs|ms|s))\s*")

Optimize = Literal["cpu", "delay"]
Need = Literal["none", "signed", "encrypted"]


@dataclass(frozen=True)
class Requirement:
    """A limit of a metric of one flow, or of all flows together."""

    flow: str
    """Name of the flow or chain; empty means all flows."""
    metric: str
    """Column of the record."""
    limit: float
    """In the metric's unit."""
    at_least: bool = False
    """Whether the metric must reach the limit instead of staying below it."""
    text: str = ""
    """As users read it, such as `p99 delay <= 10 ms`."""

    def describe(self) -> str:
        """Describe the requirement with its flow."""
        return f"{self.where}: {self.text}"

    @property
    def where(self) -> str:
        """What the requirement is about."""
        return self.flow or "all flows"


def parse_bound(text: str) -> tuple[str, float]:
    """Return the column and its limit, in the column's unit, of a text such as `p99 <= 10 ms`. Raises ValueError."""
    found = _BOUND.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a limit of the delay: write `QUANTITY <= NUMBER UNIT`, such as `p99 <= 10 ms`"
        )
    name = " ".join(found["name"].split())
    if name not in QUANTITIES:
        raise ValueError(f"{text!r}: unknown quantity {name!r} (known: {', '.join(QUANTITIES)})")
    limit_us = float(units.number("limit_us", found["limit"]))
    if limit_us <= 0:
        raise ValueError(f"{text!r}: the limit must be above 0")
    column = QUANTITIES[name]
    return column, limit_us / 1000 if column.endswith("_ms") else limit_us


def _is_bound(text: str) -> str:
    parse_bound(text)
    return text


def _limits_of_delay(name: str, bounds: list[str], what: str) -> list[Requirement]:
    """Return the limits of `delay` of a flow or chain; `what` is the word for its delay."""
    found = []
    for text in bounds:
        column, limit = parse_bound(text)
        shown = " ".join(text.split()).replace("<=", f"{what} <=" if column in _DELAYS.values() else "<=")
        found.append(Requirement(name, column, limit, text=shown))
    return found


FlowName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]


class Flow(Strict):
    """Samples of one kind, from publishers to subscribers, and what they require."""

    name: FlowName = Field(description="name of the flow")
    payload_bytes: int = Field(
        default=0,
        ge=MIN_SAMPLE_BYTES,
        le=MAX_SAMPLE_BYTES,
        description="size of a sample in bytes; required without `schedule`, which states that of the largest sample",
        json_schema_extra={"default": None},
    )
    rate: float = Field(
        default=0,
        gt=0,
        le=MAX_RATE,
        description="samples per second of each publisher; required without `schedule`, which states the mean, and"
        " `after`",
        json_schema_extra={"default": None},
    )
    schedule: str = Field(
        default="",
        max_length=4096,
        description="file with the time and the size of each sample, relative to the application, instead of"
        " `payload_bytes` and `rate`; `k8sdds docs perftest`",
    )
    schedule_sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of the file, which k8sdds fills in; a file with another content is refused",
    )
    after: Annotated[list[str], OneOrMore, Field(max_length=MAX_GRAPH_FLOWS)] = Field(
        default=[],
        description="with `nodes`, instead of `rate`: flows to which the node of this one subscribes; it publishes a"
        " sample when it has a new sample of each",
    )
    compute_ms: float = Field(
        default=0,
        ge=0,
        le=10_000,
        description="with `after`: CPU time that the node computes before it publishes the sample",
    )
    publishers: int = Field(
        default=1,
        ge=1,
        le=MAX_PARTICIPANTS,
        description="number of publishers; with `nodes`, one",
    )
    subscribers: int = Field(
        default=1,
        ge=1,
        le=MAX_PARTICIPANTS,
        description="number of subscribers; with `nodes`, those that list the flow",
    )
    reliability: Literal["reliable", "best-effort", "any"] = Field(
        default="reliable",
        description="whether lost samples must be sent again; `any`: k8sdds may choose",
    )
    batch_bytes: int | None = Field(
        default=None,
        ge=0,
        le=MAX_BATCH_BYTES,
        description="size of its batches in bytes, instead of the choice `batch_bytes`",
    )
    deadline_ms: float | None = Field(
        default=None,
        gt=0,
        description="a sample that arrives later after it was due counts as missed; default: one period of `rate`, of"
        " flows with `after` that of the first flow of the chain",
    )
    delay: Annotated[list[Annotated[str, AfterValidator(_is_bound)]], OneOrMore, Field(max_length=8)] = Field(
        default=[],
        description="limits of the delay from when a sample was due until a subscriber had it, such as"
        " `p99 <= 10 ms`: `mean`, `p50`, `p90`, `p99`, `p99.9`, `p99.99`, `max` or `jitter`; also of the age of the"
        " newest sample (`age mean`, `age p99`, `age max`) and of the longest time without a fresh one (`blind`);"
        " in us, ms or s",
    )
    missed_percent: float | None = Field(
        default=None, gt=0, le=100, description="largest share of the samples that may miss their deadline"
    )
    loss_percent: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="largest share of the samples that may be lost; for no loss at all: `reliability: reliable`",
    )

    @model_validator(mode="after")
    def _states_sizes_and_times_once(self) -> Flow:
        if self.after and self.schedule:
            raise mistake("its samples follow those of other flows: leave out schedule or after", "schedule")
        for name in ("payload_bytes", "rate"):
            if self.schedule and not self.schedule_sha256 and getattr(self, name):
                raise mistake(f"the schedule states sizes and times: leave out {name}", name)
            if not self.schedule and not getattr(self, name) and not (self.after and name == "rate"):
                after = ", or flows as `after`" if name == "rate" else ""
                raise mistake(f"this key is missing; or name a file as `schedule`{after}", name)
        if self.compute_ms and not self.after:
            raise mistake("has no effect without `after`", "compute_ms")
        if self.batch_bytes and self.batch(0) == 0:
            raise mistake(f"holds less than two samples of {self.payload_bytes} bytes", "batch_bytes")
        if self.schedule_sha256 and not (self.schedule and self.payload_bytes and self.rate):
            raise mistake("is filled in by k8sdds: leave it out", "schedule_sha256")
        return self

    @property
    def requirements(self) -> list[Requirement]:
        """What the flow requires: first that it reaches its rate, with `after` that of its inputs."""
        reached = f"{MIN_RATE_PERCENT:g} % of {self.rate:g} samples/s"
        found = [Requirement(self.name, "achieved_rate_percent", MIN_RATE_PERCENT, True, reached)]
        found += _limits_of_delay(self.name, self.delay, "delay")
        shares = (
            ("deadline_missed_percent", self.missed_percent, "missed deadlines"),
            ("lost_percent", self.loss_percent, "loss"),
        )
        return found + [
            Requirement(self.name, metric, limit, text=f"{title} <= {limit:g} %")
            for metric, limit, title in shares
            if limit is not None
        ]

    @property
    def sent(self) -> dict[str, Any]:
        """Keys of a sweep that measures it with any choices."""
        deadline = {"deadline_ms": self.deadline_ms} if self.deadline_ms else {}
        sizes = {"schedule"} if self.schedule else {"payload_bytes", "rate"}
        counts = self.model_dump(include={*sizes, "publishers", "subscribers"})
        return {"test": {"name": "paced", **deadline}, **counts}

    @property
    def payload_mbit(self) -> float:
        """The rate of the payload of all its publishers to one subscriber, in Mbit/s."""
        mean_bytes = schedule_file.read(self.schedule)[1].mean_bytes if self.schedule else self.payload_bytes
        return mean_bytes * 8e-6 * self.rate * self.publishers

    def batch(self, chosen: int) -> int:
        """Return the size of its batches in bytes if `batch_bytes` is chosen so; 0 if less than two samples fit."""
        size = chosen if self.batch_bytes is None else self.batch_bytes
        return size if size >= 2 * self.payload_bytes else 0

    def describe(self) -> str:
        """Describe what the flow sends."""
        size, file = f"{self.payload_bytes} B × {self.rate:g}/s", PurePath(self.schedule).name
        size = f"{self.payload_bytes} B after {', '.join(self.after)}" if self.after else size
        sent = f"{file} (up to {size})" if file else size
        return f"{sent}, {self.publishers} → {self.subscribers}, {self.reliability}"

    def measured(self) -> Flow:
        """Return the flow with what the file of its schedule states. Raises InputError."""
        if not self.schedule:
            return self
        sha256, schedule = schedule_file.read(self.schedule)
        if self.schedule_sha256 not in ("", sha256):
            raise InputError(
                f"{self.schedule} has the SHA-256 {sha256}, not {self.schedule_sha256}",
                "leave out schedule_sha256, or restore the file",
            )
        stated = {"payload_bytes": schedule.largest_bytes, "rate": schedule.rate, "schedule_sha256": sha256}
        return self.model_copy(update=stated)


class Node(Strict):
    """One process of an application: what it publishes, and what it subscribes to."""

    publishes: Annotated[list[str], OneOrMore, Field(max_length=MAX_GRAPH_FLOWS)] = Field(
        default=[], description="flows that it publishes; no other node publishes them"
    )
    subscribes: Annotated[list[str], OneOrMore, Field(max_length=MAX_GRAPH_FLOWS)] = Field(
        default=[], description="flows of other nodes to which it subscribes"
    )
    on: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$",
        max_length=40,
        description="name of the machine on which it runs, for all nodes or none: nodes with the same name share a node"
        " of the testbed, the first name is its first node, and so on",
    )


if TYPE_CHECKING:

    class _Ends(Strict):
        def __getattr__(self, name: str) -> Any: ...

else:
    # `from` is a keyword of Python.
    _Ends = create_model(
        "_Ends",
        __base__=Strict,
        **{
            "name": (FlowName, Field(description="name of the chain")),
            "from": (str, Field(description="flow with a rate at which the chain begins")),
            "to": (
                str,
                Field(description="flow whose samples follow from it, each from the first of its `after`"),
            ),
        },
    )


class Chain(_Ends):
    """Flows that follow from each other, such as from a sensor to an actuator."""

    delay: Annotated[list[Annotated[str, AfterValidator(_is_bound)]], OneOrMore, Field(max_length=8)] = Field(
        default=[],
        description="limits of the time from when the first sample was due until a subscriber had the last one that"
        " followed from it, such as `p99 <= 50 ms`: `mean`, `p50`, `p90`, `p99`, `p99.9`, `p99.99` or `max`",
    )
    missed_percent: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="largest share of the last samples that may be missing, because one of the chain was lost or not"
        " sent",
    )

    @model_validator(mode="after")
    def _limits_delays(self) -> Chain:
        for index, text in enumerate(self.delay):
            if parse_bound(text)[0] not in _DELAYS.values():
                raise mistake(f"{text!r}: a chain limits {', '.join(_DELAYS)}", "delay", index)
        return self

    @property
    def origin(self) -> str:
        """The flow at which it begins."""
        return str(getattr(self, "from"))

    @property
    def requirements(self) -> list[Requirement]:
        """What the chain requires."""
        found = _limits_of_delay(self.name, self.delay, "chain")
        if self.missed_percent is not None:
            text = f"missing samples <= {self.missed_percent:g} %"
            found.append(Requirement(self.name, "lost_percent", self.missed_percent, text=text))
        return found


if TYPE_CHECKING:

    class _Chosen(Strict):
        def __getattr__(self, name: str) -> Any: ...

else:
    _Chosen = create_model("_Chosen", __base__=Strict, **choices_of(Cell))

CHOICES = tuple(choices_of(Cell))
"""Keys of a sweep that an application may choose, the most important first."""


def _one_link(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError("an application has one link: measure others in campaigns of their own")
    return value


class Choices(_Chosen):
    """What may be chosen. A key that is left out has the values that make sense for the application."""

    # Parts of a level are no choice: only a level is known to give what `security` of the application needs.
    security: Annotated[list[str], OneOrMore, Different] = AXES["security"].choice_field


class Application(Strict):
    """An application file."""

    page: ClassVar[str] = "applications"

    name: Name = Field(description="name of the application")
    title: Title = Field(default="", description="what the application does")
    description: Remarks = Field(default="", description="remarks")
    flows: list[Flow] = Field(
        min_length=1,
        max_length=MAX_GRAPH_FLOWS,
        description=f"what the application sends; at most {MAX_FLOWS} unless `nodes` run them at once",
    )
    nodes: dict[FlowName, Node] = Field(
        default={},
        max_length=MAX_NODES,
        description="processes of the application by name, which run all flows at once, each in a pod of its own;"
        " default: each flow is measured alone",
    )
    chains: list[Chain] = Field(
        default=[],
        max_length=MAX_GRAPH_FLOWS,
        description="with `nodes` that run at once: flows that follow from each other",
    )
    cpu_percent: float | None = Field(
        default=None,
        gt=0,
        description="CPU budget of each node, in percent of one core: what all participants of all flows on a node may"
        " use, with their part of the softirqs, kernel threads and network daemons of its machine",
    )
    security: Need = Field(
        default="none",
        description="what samples need on the wire: `signed` (a receiver detects changes), `encrypted` (nobody else can"
        " read them: by DDS Security, or by a network that encrypts), or `none`",
    )
    optimize: Optimize = Field(
        default="cpu",
        description="what is best among the configurations that meet all requirements: the least CPU time of all"
        " nodes, or the smallest `delay` relative to its limits",
    )
    together: bool = Field(
        default=True,
        description="whether the other flows run while a flow is measured: all `nodes` at once, or without `nodes` as"
        " UDP streams of the same rate; otherwise each flow is measured alone",
    )
    choices: Choices = Field(default=Choices(), description="what k8sdds may choose")
    repetitions: int = Field(default=5, ge=1, le=1000, description="repetitions of each configuration")
    duration_s: float | None = Field(
        default=None,
        gt=0,
        le=86400,
        description="length of the measured interval of a trial, in seconds; default: as long as the required"
        " percentiles of all flows need",
    )
    warmup_s: float = Field(default=0.5, ge=0, le=3600, description="length of the warm-up, in seconds")
    layout: Layout = Field(
        default="auto", description="how participants are pinned to cores, as in an experiment"
    )
    link: Annotated[LinkChoice, BeforeValidator(_one_link)] = Field(
        default=LinkChoice(),
        description="links between the nodes: the name or file of a link, or a mapping, as in an experiment",
    )

    @model_validator(mode="before")
    @classmethod
    def _flows_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("flows"), dict):
            raise mistake("must be a list: begin each flow with `- name:`", "flows")
        return value

    @model_validator(mode="after")
    def _names_are_unique(self) -> Application:
        names = [flow.name for flow in self.flows]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise mistake(f"two flows are named {name!r}", "flows", index, "name")
        names += [chain.name for chain in self.chains]
        for index, chain in enumerate(self.chains):
            if chain.name in names[: len(self.flows) + index]:
                raise mistake(f"a flow or another chain is named {chain.name!r}", "chains", index, "name")
        return self

    @model_validator(mode="after")
    def _nodes_fit(self) -> Application:
        if not self.at_once:
            self._require_no_graph()
        if not self.nodes:
            return self
        for index, flow in enumerate(self.flows):
            limited = {parse_bound(text)[0] for text in flow.delay}
            if self.at_once and QUANTITIES["jitter"] in limited:
                why = "jitter is not measured when `nodes` run at once: limit p99 instead"
                raise mistake(why, "flows", index, "delay")
        try:
            # The folder of the application, to which schedules are relative, is not known yet.
            graph = self.graph(with_schedules=False)
        except GraphError as error:
            raise mistake(error.message, *error.keys) from error
        self._require_derived(graph)
        self._require_chains(graph)
        placed = [name for name, node in self.nodes.items() if node.on]
        for name in self.nodes if placed else ():
            if name not in placed:
                raise mistake(
                    f"{placed[0]} has a machine: state one for each node, or for none", "nodes", name, "on"
                )
        return self

    def _require_no_graph(self) -> None:
        if len(self.flows) > MAX_FLOWS:
            raise mistake(
                f"expected a list with at most {MAX_FLOWS} values, or `nodes` that run all at once", "flows"
            )
        for index, flow in enumerate(self.flows):
            if flow.after and not self.nodes:
                raise mistake("needs `nodes`, one of which publishes this flow", "flows", index, "after")
        if self.chains:
            raise mistake("needs `nodes` that run at once: otherwise each flow is measured alone", "chains")

    def _require_derived(self, graph: Graph) -> None:
        """Raise an error if a flow states what follows from `nodes` or `after`, but not the same."""
        measured = all(flow.schedule_sha256 or not flow.schedule for flow in self.flows)
        for index, flow in enumerate(self.flows):
            derived: dict[str, float] = {"publishers": 1, "subscribers": len(graph.subscribers(flow.name))}
            derived |= {"rate": graph.rate(flow.name)} if flow.after and measured else {}
            for key, value in derived.items():
                if key in flow.model_fields_set and getattr(flow, key) != value:
                    what = "`after`" if key == "rate" else "`nodes`"
                    raise mistake(
                        f"follows from {what}, which give {value:g}: leave it out", "flows", index, key
                    )

    def _require_chains(self, graph: Graph) -> None:
        known = [flow.name for flow in self.flows]
        for index, chain in enumerate(self.chains):
            for key, name in (("from", chain.origin), ("to", chain.to)):
                if name not in known:
                    raise mistake(f"there is no flow {name!r}{nearest(name, known)}", "chains", index, key)
            path = graph.chain(chain.to)
            if path[0] != chain.origin:
                shown = " → ".join(path)
                why = f"{chain.to} follows from {path[0]} ({shown}), by the first flow of each `after`: name that one"
                raise mistake(why, "chains", index, "from")

    def graph(
        self, reliability: str = "reliable", batch_bytes: int = 0, with_schedules: bool = True
    ) -> Graph:
        """Return the graph of its nodes; flows that accept any reliability, or do not state batches, have these.

        Without schedules, flows that have one send at a constant rate: what is known of it, or the least.

        Raises:
            GraphError: The nodes and flows contradict each other.
            InputError: The file of a schedule cannot be read.
        """
        flows = [
            GraphFlow(
                flow.name,
                flow.payload_bytes or MIN_GRAPH_BYTES,
                (reliability if flow.reliability == "any" else flow.reliability) == "reliable",
                # A deadline that is too long must not be too large for an integer.
                max(1, round(min(1000 * flow.deadline_ms, 1e15))) if flow.deadline_ms else 0,
                0 if flow.after else (flow.rate or 1) if flow.schedule else round(flow.rate, RATE_DIGITS),
                tuple(flow.after),
                round(1000 * flow.compute_ms),
                schedule_file.read(flow.schedule)[1].word() if flow.schedule and with_schedules else "",
                flow.batch(batch_bytes),
            )
            for flow in self.flows
        ]
        nodes = [
            GraphNode(name, tuple(own.publishes), tuple(own.subscribes)) for name, own in self.nodes.items()
        ]
        return Graph(tuple(flows), tuple(nodes)).with_deadlines()

    @property
    def placement(self) -> tuple[str | dict[str, int], int | None]:
        """Where participants of its nodes run, and on how many nodes of the testbed; `spread` if no node has `on`."""
        machines = list(dict.fromkeys(node.on for node in self.nodes.values() if node.on))
        if not machines:
            return "spread", None
        if len(machines) == 1:
            return SAME_NODE, None
        members = self.graph(with_schedules=False).members.items()
        return {name: machines.index(self.nodes[own.name].on) for name, own in members}, len(machines)

    @property
    def at_once(self) -> bool:
        """Whether its nodes run all flows at once, as one graph."""
        return bool(self.nodes) and self.together

    @property
    def accepts_any(self) -> bool:
        """Whether the reliability of a flow is a choice."""
        return any(flow.reliability == "any" for flow in self.flows)

    @property
    def cells(self) -> int:
        """The number of cells of a configuration: each flow, or all of them as one graph."""
        return 1 if self.at_once else len(self.flows)

    def measured(self) -> Self:
        """Return the application with what files, `nodes` and `after` state about its flows. Raises InputError."""
        known = self.with_flows(Flow.measured)
        if not self.nodes:
            return known
        try:
            graph = known.graph()
        except GraphError as error:
            raise InputError(f"{self.name}: {error.message}", "correct the file of the schedule") from error
        return known.with_flows(
            lambda flow: flow.model_copy(
                update={"rate": graph.rate(flow.name), "subscribers": len(graph.subscribers(flow.name))}
            )
        )

    def with_flows(self, change: Callable[[Flow], Flow]) -> Self:
        """Return the application with each of its flows changed."""
        return self.model_copy(update={"flows": [*map(change, self.flows)]})

    def with_schedules(self, place: Callable[[str], str]) -> Self:
        """Return the application with another place of each file with a recorded schedule."""
        return self.with_flows(
            lambda flow: flow.model_copy(update={"schedule": flow.schedule and place(flow.schedule)})
        )

    @property
    def requirements(self) -> Iterator[Requirement]:
        """All requirements of all flows, those of chains, then those of all together."""
        parts: list[Flow | Chain] = [*self.flows, *self.chains]
        for part in parts:
            yield from part.requirements
        if self.cpu_percent is not None:
            text = f"CPU of each node <= {self.cpu_percent:g} %"
            yield Requirement("", "node_cpu_percent", self.cpu_percent, text=text)


class Search(Strict):
    """How `k8sdds recommend` searches among the configurations of an application."""

    max_trials: int = Field(ge=1, le=100_000, description="most trials")
    family_error: float = Field(
        default=0.05,
        gt=0,
        lt=0.5,
        description="largest probability that the search drops any configuration that is not worse, by its tests,"
        " and that it states of one beyond a limit that it meets all requirements",
    )


class LeftOut(Strict):
    """A value of a choice that the testbed of a campaign does not have."""

    choice: str = Field(description="name of the choice, such as `network`")
    value: str = Field(description="the value")
    why: str = Field(description="what is missing")

    def describe(self) -> str:
        """Describe the value with the reason, which may name it."""
        return self.why if self.value in self.why else f"{self.value}: {self.why}"


class ApplicationExperiment(Experiment):
    """An experiment that measures the configurations of an application; `k8sdds run APPLICATION` writes it."""

    application: Application = Field(description="the application whose requirements are judged")
    search: Search | None = Field(
        default=None, description="how configurations are searched; missing: all are measured equally often"
    )
    left_out: list[LeftOut] = Field(
        default=[], description="values of choices that the testbed does not have; they are not in the sweeps"
    )

    @model_validator(mode="after")
    def _has_a_sweep_for_each_flow(self) -> ApplicationExperiment:
        if len(self.sweeps) != self.application.cells:
            raise mistake(
                "must have one sweep for each flow of the application, or one if its `nodes` run at once",
                "sweeps",
            )
        return self

    @override
    def with_schedules(self, place: Callable[[str], str]) -> Self:
        changed = super().with_schedules(place)
        return changed.model_copy(update={"application": changed.application.with_schedules(place)})

    @override
    def with_links(self, change: Callable[[LinkChoice], LinkChoice]) -> Self:
        changed = super().with_links(change)
        application = changed.application.model_copy(update={"link": changed.link[0]})
        return changed.model_copy(update={"application": application})

    def with_sweeps(self, sweeps: list[Sweep]) -> Self:
        """Return the experiment with other sweeps. If they do not have the baseline, their first network is one."""
        labels = [choice.display_name for sweep in sweeps for choice in sweep.networks]
        baseline = self.baseline if self.baseline in labels else next(iter(labels), self.baseline)
        return self.model_copy(update={"sweeps": sweeps, "baseline": baseline})
