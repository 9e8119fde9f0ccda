"""Define the options of tests: what users write next to the name of a test. Each is declared once, as a field.

The columns of records, the keys of claims and the descriptions of trials are derived from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from k8sdds.model.axis import WORKLOAD, Axis, axes, counted, named, payload
from k8sdds.model.outages import Phase
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.services import CLUSTER_IP, MAX_SERVICES, ProxyMode, Via
from k8sdds.model.settings import MAX_PARTICIPANTS
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER, PUBLISHER, Cell, Participant
from k8sdds.system.strict import Strict, as_list, mistake

MAX_FLEET_MEMBERS = 1000
"""Most members of a role in a fleet; k8sdds-perftest has the same limit."""
USUAL_LATE_S = 2
"""How long after the kill of a discovery server the late member starts, unless an experiment sets another time."""
LINK_KINDS = ("link", "lossy")
"""What fails if it is the link of a node."""
MAX_FLOWS = 128
MAX_CONNECTIONS = 1000
"""Each is an open file, of which a process usually has at most 1024."""
MAX_OBJECT_BYTES = 8 << 20
"""Largest object: it is kept in memory, next to the other private files of the server."""
MAX_CONCURRENCY = 500
"""nginx has two open files for each request, of which a process usually has at most 1024."""
MAX_PODS = 100
MAX_GOALS = 5
MIN_RATE = 10.0

RATE: Final = "rate"
SUBSCRIBERS: Final = "subscribers"
MEMBERS: Final = "fleet_members"
"""What can be searched: the columns of trials with the values of its probes."""

AcceptedLoss = Annotated[float, Field(ge=0, lt=100)]
CapacityShare = Annotated[float, Field(gt=0, le=100)]
MatchTime = Annotated[float, Field(gt=0)]
IntervalWidth = Annotated[float, Axis(WORKLOAD, lambda v: f"intervals of {v:g} %"), Field(ge=1, le=50)]
INTERVAL_WIDTH: Any = Field(default=5, description="the search ends when an interval is at most this wide")


class NoOptions(Strict):
    """The options of a test that has none."""


class ThroughputOptions(Strict):
    """Options of the throughput test."""

    loaded_latency: Annotated[
        bool | None,
        Axis(
            WORKLOAD,
            lambda v: "timed samples" if v else "",
            recorded_as="Whether some samples were timed. Trials of schemas 1 and 2 that timed samples are read as if"
            " they had asked for it",
        ),
    ] = Field(
        default=None,
        description="whether to time about 200 samples, for the delay in full buffers; the answers are samples too"
        " and lower the rate, in the lab by up to 19 % (`k8sdds docs benchmarks`)",
    )

    @field_validator("loaded_latency")
    @classmethod
    def _unset(cls, value: bool | None) -> bool | None:
        """Return None for false: a test that does not ask for it has no such column, as in older records."""
        return value or None


class StreamOptions(Strict):
    """Options of tests of streams."""

    flows: Annotated[int, Axis(WORKLOAD, counted("flow"))] = Field(
        default=1,
        ge=1,
        le=MAX_FLOWS,
        description="number of streams at the same time, each on a socket of its own",
    )


class TcpStreamOptions(StreamOptions):
    """Options of the tcp-stream test."""

    mss: Annotated[
        int | None,
        Axis(
            WORKLOAD,
            lambda v: f"MSS {v:g} B",
            recorded_as="Largest TCP segment in bytes; null: as the MTU allowed",
        ),
    ] = Field(
        default=None,
        ge=88,
        le=9216,
        description="largest TCP segment in bytes; default: as the MTU allows",
    )


class ConnectionOptions(Strict):
    """Options of tests of transactions."""

    connections: Annotated[int, Axis(WORKLOAD, counted("connection"))] = Field(
        default=1,
        ge=1,
        le=MAX_CONNECTIONS,
        description="number of connections (for UDP: sockets) at the same time, each with one request under way",
    )


class HttpOptions(Strict):
    """Options of the http test."""

    object_bytes: Annotated[int, Axis(WORKLOAD, lambda v: f"objects of {payload(v)}")] = Field(
        default=1024, ge=1, le=MAX_OBJECT_BYTES, description="size of the object that each request returns"
    )
    concurrency: Annotated[int, Axis(WORKLOAD, lambda v: f"concurrency {v:g}")] = Field(
        default=1,
        ge=1,
        le=MAX_CONCURRENCY,
        description="number of connections at the same time, which stay open",
    )


class ServiceOptions(ConnectionOptions):
    """Options of the service test."""

    services: Annotated[int, Axis(WORKLOAD, counted("service"))] = Field(
        default=1,
        ge=1,
        le=MAX_SERVICES,
        description="number of Services, of which the client connects to one",
    )
    via: Annotated[Via, Axis(WORKLOAD, named("via"))] = Field(
        default=CLUSTER_IP,
        description="address that the client connects to: the cluster IP, the node port on its own node, or that of"
        " the pod, as DNS returns it for a headless Service",
    )
    proxy: Annotated[
        ProxyMode | None,
        Axis(
            WORKLOAD,
            lambda v: f"kube-proxy in {v} mode",
            recorded_as="Mode of kube-proxy: `iptables`, `nftables` or `ipvs`; missing: unknown",
        ),
    ] = Field(
        default=None,
        description="mode of kube-proxy; missing: that of the testbed, which is iptables in the lab",
    )


class PodStartOptions(Strict):
    """Options of the pod-start test."""

    pods: Annotated[int, Axis(WORKLOAD, counted("pod"))] = Field(
        default=1, ge=1, le=MAX_PODS, description="number of pods that are created at once"
    )
    dds: Annotated[str | None, Axis(WORKLOAD, named("dds"))] = Field(
        default=None,
        description="middleware with which two of the pods find each other, such as `fastdds`; null: none (clusters)",
    )


Members = Annotated[
    int,
    Axis(
        WORKLOAD,
        lambda v: f"{v} per process",
        column=MEMBERS,
        recorded_as="Members of a fleet in each process",
    ),
    Field(ge=1, le=MAX_FLEET_MEMBERS),
]


class DiscoveryOptions(Strict):
    """Options of the discovery test."""

    processes: Annotated[
        int, Axis(WORKLOAD, lambda v: f"{v} processes per pod", column="fleet_processes")
    ] = Field(default=1, ge=1, le=MAX_FLEET_MEMBERS, description="number of processes in each pod")
    members: Members = Field(
        default=10,
        description="number of members in each process: DDS participants, or sessions of Zenoh",
    )
    start_s: Annotated[
        float, Axis(WORKLOAD, lambda v: f"start over {v:g} s" if v else "", column="fleet_start_s")
    ] = Field(default=0, ge=0, description="time over which the members start; 0: all at once")
    steady_s: Annotated[float, Axis(WORKLOAD, lambda _: "", column="fleet_steady_s")] = Field(
        default=5, gt=0, description="last part of a trial, in which the fleet is at rest"
    )
    change: Annotated[
        Literal["none", "late", "restart-process", "restart-pod", "restart-server"],
        Axis(
            WORKLOAD,
            lambda v: "" if v == "none" else v,
            column="fleet_change",
            recorded_as="`none`; `late`: the last publishing member started later; `restart-process`, `restart-pod`:"
            " the last process of publishing members, or all of its pod, was killed and started again;"
            " `restart-server`: the discovery server was killed and started again, and the last publishing member"
            " started `fleet_late_s` after the kill",
        ),
    ] = Field(
        default="none",
        description="`late`: the last publishing member starts later; `restart-process`, `restart-pod`: the last"
        " process of publishing members, or all of its pod, is killed and starts again; `restart-server`: the discovery"
        " server is killed and starts again, and the last publishing member starts `late_s` after the kill",
    )
    change_s: Annotated[
        float | None,
        Axis(
            WORKLOAD,
            lambda _: "",
            column="fleet_change_s",
            recorded_as="When `fleet_change` happened, in seconds after the start of the fleet; null: in the middle"
            " of the time before `fleet_steady_s`",
        ),
    ] = Field(
        default=None,
        gt=0,
        description="when `change` happens; default: in the middle of the time before `steady_s`",
    )
    late_s: Annotated[
        float | None,
        Axis(
            WORKLOAD,
            lambda v: f"late by {v:g} s" if v else "",
            column="fleet_late_s",
            recorded_as="How long after the kill of the server the last publishing member started, if `fleet_change` is"
            f" `restart-server`; null: {USUAL_LATE_S} s",
        ),
    ] = Field(
        default=None,
        gt=0,
        description="with `restart-server`: how long after the kill the last publishing member starts; default:"
        f" {USUAL_LATE_S}",
    )
    gossip: Annotated[bool, Axis(WORKLOAD, lambda v: "gossip" if v else "", column="fleet_gossip")] = Field(
        default=False,
        description="whether the router of Zenoh introduces the members to each other, so that they connect to each"
        " other, instead of passing on all that they send",
    )
    super_client: Annotated[
        bool, Axis(WORKLOAD, lambda v: "super clients" if v else "", column="fleet_super_client")
    ] = Field(
        default=False,
        description="whether a discovery server of Fast DDS sends each member all that it knows of the others, and not"
        " only what the member matches",
    )
    index_limit: Annotated[
        int | None,
        Axis(
            WORKLOAD,
            lambda v: f"indexes up to {v}",
            column="fleet_index_limit",
            recorded_as="Last participant index that a process used (`cyclonedds`), and that others searched at an"
            " address; null: as many as there were",
        ),
    ] = Field(
        default=None,
        ge=1,
        le=MAX_FLEET_MEMBERS,
        description="last participant index that a process uses (`cyclonedds`), and that others search at an address;"
        " Cyclone DDS has 9, Fast DDS 3 by default. Default: as many as there are",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> DiscoveryOptions:
        if self.change_s is not None and self.change == "none":
            raise mistake("there is no change: leave it out, or set change", "change_s")
        if self.late_s is not None and not self.restarts_server:
            raise mistake("has no effect without `change: restart-server`", "late_s")
        return self

    @property
    def restarts_server(self) -> bool:
        """Whether the discovery server is killed and starts again."""
        return self.change == "restart-server"

    @property
    def ahead_s(self) -> float:
        """How long before the changed members start the discovery server is killed; 0: never."""
        return (self.late_s or USUAL_LATE_S) if self.restarts_server else 0


class PacedOptions(Strict):
    """Options of the paced test."""

    deadline_ms: Annotated[
        float | None,
        Axis(
            WORKLOAD,
            lambda v: f"deadline {v:g} ms",
            recorded_as="A sample that arrived later after it was due counted as missed; null: one period of `rate`,"
            " in bursts the time to the next burst",
        ),
    ] = Field(
        default=None,
        gt=0,
        description="a sample that arrives later after it was due counts as missed; default: one period of `rate`,"
        " in bursts the time to the next burst",
    )


class OutageOptions(PacedOptions):
    """Options of the outage test."""

    what: Annotated[
        Literal["link", "lossy", "server", "pod", "agent", "address"],
        Axis(WORKLOAD, lambda v: f"{v} outage", column="outage_what"),
    ] = Field(
        default="link",
        description="what fails: the `link` of a node, over which nothing passes any more; only a share of its packets"
        " (`lossy`); the discovery `server`, which is killed and starts again; the `pod` of a subscriber, which is"
        " killed and replaced by one at another address; the network's `agent` on a node; or the `address` of a node,"
        " which gets another one",
    )
    where: Annotated[
        Literal["publisher", "subscriber"], Axis(WORKLOAD, lambda v: f"at the {v}", column="outage_where")
    ] = Field(
        default="subscriber",
        description="whether the node or pod of the first publisher fails, or that of the first subscriber",
    )
    for_s: Annotated[float, Axis(WORKLOAD, lambda v: f"outage of {v:g} s", column="outage_for_s")] = Field(
        default=1, ge=0.1, le=30, description="how long the outage lasts, in seconds"
    )
    after_s: Annotated[float, Axis(WORKLOAD, lambda v: f"after {v:g} s", column="outage_after_s")] = Field(
        default=2,
        ge=0.5,
        le=600,
        description="when the outage begins, in seconds after the measured interval does",
    )
    drop_percent: Annotated[
        float | None,
        Axis(
            WORKLOAD,
            lambda v: f"{v:g} % dropped",
            column="outage_drop_percent",
            recorded_as="Share of the packets that were lost, each way, if `outage_what` is `lossy`",
        ),
    ] = Field(
        default=None,
        gt=0,
        lt=100,
        description="with `what: lossy`: share of the packets that are lost, each way",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> OutageOptions:
        if (self.what == "lossy") != (self.drop_percent is not None):
            needed = (
                "set it with `what: lossy`" if self.what == "lossy" else "has no effect without `what: lossy`"
            )
            raise mistake(needed, "drop_percent")
        if self.where == PUBLISHER and self.what in ("server", "pod"):
            why = (
                "has no effect"
                if self.what == "server"
                else "must be subscriber: new publishers begin a new schedule"
            )
            raise mistake(f"{why} with `what: {self.what}`", "where")
        return self

    @property
    def of_link(self) -> bool:
        """Whether the link of a node fails."""
        return self.what in LINK_KINDS

    @property
    def phase(self) -> Phase:
        """What happens to the link that fails."""
        at_us, for_us = round(self.after_s * 1e6), round(self.for_s * 1e6)
        return Phase(at_us, for_us, drop_percent=self.drop_percent or 100)

    @property
    def participant(self) -> Participant:
        """The participant whose node has the outage."""
        return FIRST_PUBLISHER if self.where == PUBLISHER else FIRST_SUBSCRIBER


class CapacityOptions(Strict):
    """Options of the capacity test."""

    loss_percent: Annotated[
        list[AcceptedLoss],
        BeforeValidator(as_list),
        Field(min_length=1, max_length=MAX_GOALS),
        Axis(WORKLOAD, lambda _: ""),
    ] = Field(
        default=[0, 0.5],
        description="accepted shares of the samples due that the worst subscriber does not receive; a capacity is"
        " searched for each",
    )
    p99_ms: Annotated[float | None, Axis(WORKLOAD, lambda v: f"p99 ≤ {v:g} ms")] = Field(
        default=10, gt=0, description="accepted 99th percentile of the delay in ms; `null`: any delay"
    )
    width_percent: IntervalWidth = INTERVAL_WIDTH
    max_subscribers: Annotated[
        int | None,
        Axis(
            WORKLOAD,
            lambda v: f"at most {v:g} subscribers",
            recorded_as="Largest number of subscribers that the search could reach, at a constant `rate`; null: it"
            " searched the highest rate",
        ),
    ] = Field(
        default=None,
        ge=2,
        le=MAX_PARTICIPANTS,
        description="search the largest number of subscribers, up to this one, at the `rate` of the sweep; default:"
        " search the highest rate",
    )
    min_rate: Annotated[float, Axis(WORKLOAD, lambda _: "")] = Field(
        default=MIN_RATE, ge=1, le=MAX_RATE, description="no lower rate is measured (samples per second)"
    )
    max_rate: Annotated[float, Axis(WORKLOAD, lambda _: "")] = Field(
        default=MAX_RATE, ge=1, le=MAX_RATE, description="no higher rate is measured (samples per second)"
    )
    latency_at_percent: Annotated[
        list[CapacityShare],
        BeforeValidator(as_list),
        Field(max_length=10),
        Axis(
            WORKLOAD,
            lambda _: "",
            recorded_as="Shares of the capacity by the smallest of `loss_percent` at which the delay was measured",
        ),
    ] = Field(
        default=[10, 50, 90],
        description="shares of the capacity by the smallest `loss_percent` at which the delay is measured",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> CapacityOptions:
        if len(set(self.loss_percent)) < len(self.loss_percent):
            raise mistake("a share is listed twice", "loss_percent")
        if self.min_rate > self.max_rate:
            raise mistake(f"min_rate {self.min_rate:g} is above max_rate {self.max_rate:g}", "min_rate")
        if self.max_subscribers and (self.min_rate, self.max_rate) != (MIN_RATE, MAX_RATE):
            raise mistake(
                "min_rate and max_rate limit a search for a rate: leave them out", "max_subscribers"
            )
        return self

    @property
    def searched(self) -> str:
        """The column with the values of the probes: `rate` or `subscribers`."""
        return SUBSCRIBERS if self.max_subscribers else RATE


class FleetCapacityOptions(DiscoveryOptions):
    """Options of the fleet capacity test: those of a discovery test, and what is searched."""

    members: Members = Field(default=1, description="number of members in each process of the first probe")
    matched_s: Annotated[
        list[MatchTime],
        BeforeValidator(as_list),
        Field(min_length=1, max_length=MAX_GOALS),
        Axis(WORKLOAD, lambda _: "", column="fleet_accepted_s"),
    ] = Field(
        default=[2],
        description="accepted times until all members have matched; the largest fleet is searched for each",
    )
    max_members: Annotated[
        int, Axis(WORKLOAD, lambda v: f"at most {v} per process", column="fleet_max_members")
    ] = Field(
        default=50, ge=2, le=MAX_FLEET_MEMBERS, description="no more members in each process are probed"
    )
    width_percent: IntervalWidth = INTERVAL_WIDTH

    @model_validator(mode="after")
    def _is_search(self) -> FleetCapacityOptions:
        if len(set(self.matched_s)) < len(self.matched_s):
            raise mistake("a time is listed twice", "matched_s")
        if self.members > self.max_members:
            raise mistake(f"members {self.members} is above max_members {self.max_members}", "members")
        return self

    @property
    def searched(self) -> str:
        """The column with the values of the probes."""
        return MEMBERS


OPTIONS: dict[str, type[Strict]] = {
    "throughput": ThroughputOptions,
    "tcp-stream": TcpStreamOptions,
    "udp-stream": StreamOptions,
    "tcp-rr": ConnectionOptions,
    "udp-rr": ConnectionOptions,
    "tcp-crr": ConnectionOptions,
    "http": HttpOptions,
    "service": ServiceOptions,
    "pod-start": PodStartOptions,
    "discovery": DiscoveryOptions,
    "paced": PacedOptions,
    "outage": OutageOptions,
    "capacity": CapacityOptions,
    "fleet-capacity": FleetCapacityOptions,
}
"""The options of each test that has some."""

OPTION_COLUMNS: dict[str, Axis] = {
    axis.column: axis for model in OPTIONS.values() for axis in axes(model).values()
}
"""The options of all tests, which are settings of a trial, by their column of the record."""

SearchOptions = CapacityOptions | FleetCapacityOptions

SEARCHES: dict[str, type[SearchOptions]] = {
    name: model for name, model in OPTIONS.items() if issubclass(model, SearchOptions)
}
"""The options of the tests whose trials are probes of a search. The result of these tests is that of the search, never
a mean of trials."""


def search_options(cell: Cell) -> SearchOptions:
    """Return the options of a cell of a test that finds a capacity."""
    return SEARCHES[cell.test](**cell.test_options)
