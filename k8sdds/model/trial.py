"""Define participants, cells and trials, with stable ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from k8sdds.model import ip_families as ip
from k8sdds.model import message_size
from k8sdds.model.axis import (
    DDS,
    LOAD,
    MACHINE,
    NETWORK,
    PROCESS,
    WORKLOAD,
    Axis,
    axes,
    counted,
    named,
    payload,
)
from k8sdds.model.background import Background
from k8sdds.model.ip_families import IpFamilies, IpFamily
from k8sdds.model.link import STANDARD_MTU, Link
from k8sdds.model.link_choice import LinkChoices
from k8sdds.model.message_size import FragmentBytes, MessageBytes
from k8sdds.model.rate_profile import CONSTANT, MAX_RATE
from k8sdds.model.security import NONE, SecurityChoice
from k8sdds.model.settings import (
    DEFAULT_MIDDLEWARE,
    DEFAULT_TEST,
    MAX_BATCH_BYTES,
    MAX_INSTANCES,
    MAX_NODES,
    MAX_PARTICIPANTS,
    MAX_WRITERS,
    NO_TUNING,
    SAME_NODE,
    SHARED_MEMORY,
    Discovery,
    Layout,
    NetworkChoice,
    Number,
    Placement,
    PublishMode,
    RateProfile,
    ReceiveMode,
    Reliability,
    TestChoice,
    Transport,
)
from k8sdds.system.strict import Strict

MAX_LOSS_PERCENT = 50.0
"""Share of lost best-effort samples above which the trial is not valid, unless the experiment sets another one."""

Role = Literal["publisher", "subscriber", "discovery", "load", "standby"]
"""What a process of a trial does. `discovery`: a discovery server, which neither publishes nor subscribes. `load`: a
part of the background. `standby`: a pod for a participant whose pod is killed."""

PUBLISHER: Final = "publisher"
SUBSCRIBER: Final = "subscriber"

SHORT_ROLES: dict[Role, str] = {
    "publisher": "pub",
    "subscriber": "sub",
    "discovery": "discovery",
    "load": "load",
    "standby": "standby",
}
"""The name of a role in pod names, folders, labels and JSON keys. Network interfaces are named after pods, so
the names are short."""


@dataclass(frozen=True, order=True)
class Participant:
    """One process of a trial, in a pod of its own."""

    role: Role
    index: int = 0

    @property
    def name(self) -> str:
        """The name of its pod, folder and JSON key: `pub0`, `sub3`, `discovery`."""
        return self.short_role if self.role in ("discovery", "standby") else f"{self.short_role}{self.index}"

    @property
    def short_role(self) -> str:
        """`pub`, `sub` or `discovery`."""
        return SHORT_ROLES[self.role]

    @property
    def publishes(self) -> bool:
        """Whether it is a publisher."""
        return self.role == PUBLISHER

    @property
    def subscribes(self) -> bool:
        """Whether it is a subscriber."""
        return self.role == SUBSCRIBER

    def __str__(self) -> str:
        return self.name

    @classmethod
    def named(cls, name: str) -> Participant:
        """Return the participant with this name. Raises ValueError if no participant has such a name."""
        for role, short in SHORT_ROLES.items():
            number = name.removeprefix(short)
            index = int(number) if number.isdecimal() else 0
            if cls(role, index).name == name:
                return cls(role, index)
        raise ValueError(f"no participant is named {name!r}")


FIRST_PUBLISHER, FIRST_SUBSCRIBER = Participant(PUBLISHER), Participant(SUBSCRIBER)
DISCOVERY_SERVER, STANDBY = Participant("discovery"), Participant("standby")
LOAD_SOURCE, LOAD_SINK = Participant("load", 0), Participant("load", 1)
"""Pods of the background: on the node of the first publisher, and on that of the first subscriber."""


def participants(publishers: int, subscribers: int) -> list[Participant]:
    """Return so many publishers, then so many subscribers."""
    return [Participant(PUBLISHER, i) for i in range(publishers)] + [
        Participant(SUBSCRIBER, i) for i in range(subscribers)
    ]


MAX_DEFAULT_NODES = 10
"""Nodes of a lab by default; the study's cluster had ten workers."""


IP_FAMILIES = "ip_families"
"""Option of a network with the IP families of its nodes and pods."""
MTU_OF_LINKS = "link_mtu"
"""Option of a network with the MTU of the nodes' links."""
POLICIES = "policies"
"""Option of a network with the number of NetworkPolicies that select the pods."""
TUNING = "tuning"
"""Option of a network with the tuning set of its nodes."""

NetworkMode = tuple[str, tuple[tuple[str, object], ...]]
"""Name and sorted options of a network."""


EXEMPT = {
    "network_options": "options of `network`",
    "label": "name of `network` in tables and figures",
    "test_options": "options of `test`, which declare themselves as settings",
    "security_options": "parts of `security`",
    "capture": "a trial with it has no times, so that it is compared with nothing",
    "profile": "a trial with it never enters statistics",
}
"""Fields of a cell that are not settings of their own, with the reason."""


class Cell(Strict):
    """One combination of a sweep, fully specified: each of its settings is declared here, and only here.

    The order is that of columns and descriptions, the most interesting to readers first. Ids leave out fields with
    their default value. Therefore a default never changes.
    """

    network: Annotated[
        str,
        Axis(
            NETWORK,
            str,
            key="networks",
            values=NetworkChoice,
            choice=[],
            choice_as="networks; default: those of `flannel-vxlan`, `flannel-hostgw`, `kube-router` and"
            " `weavenet` that the testbed has, with `security: encrypted` also those that encrypt. `host`, which is"
            " pods in the network of their node, only if it is listed",
        ),
    ] = Field(description="names of networks, or mappings with options")
    network_options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None
    test: Annotated[str, Axis(WORKLOAD, named("test"), values=TestChoice, sweep_default=DEFAULT_TEST)] = (
        Field(description="name of a test, or a mapping with `name` and its options")
    )
    test_options: dict[str, Any] = Field(default_factory=dict)
    payload_bytes: Annotated[int, Number, Axis(WORKLOAD, payload, sweep_default=1024)] = Field(
        ge=1,
        le=64 * 1024 * 1024,
        description="size of a sample in bytes (PerfTest's `-dataLen`, at least 28); in other tests the size of a"
        " write, a datagram, or a request and its response",
    )
    transport: Annotated[
        Transport,
        Axis(
            WORKLOAD,
            lambda v: "shared memory without network" if v == SHARED_MEMORY else v,
            choice=[],
            choice_as="default: `unicast`, and `multicast` if a flow has several subscribers",
            in_captions=True,
        ),
    ] = Field(
        default="unicast",
        description="whether a publisher sends a copy to each subscriber, or one for all. `shared-memory`: no network,"
        " all participants on one node (`fastdds`, network `host`)",
    )
    reliability: Annotated[Reliability, Axis(DDS, str, in_captions=True)] = Field(
        default="reliable", description="whether lost samples are sent again"
    )
    publishers: Annotated[int, Number, Axis(WORKLOAD, counted("publisher"))] = Field(
        default=1, ge=1, le=MAX_PARTICIPANTS, description="number of publishers"
    )
    subscribers: Annotated[int, Number, Axis(WORKLOAD, counted("subscriber"))] = Field(
        default=1, ge=1, le=MAX_PARTICIPANTS, description="number of subscribers"
    )
    middleware: Annotated[
        str,
        Axis(
            DDS,
            str,
            choice=["cyclonedds", "fastdds"],
            choice_as="implementations of DDS",
            in_captions=True,
            any_in_claims=True,
        ),
    ] = Field(
        default=DEFAULT_MIDDLEWARE,
        description="`cyclonedds`, `fastdds`, `connext` (RTI PerfTest, which you provide) or UDP without DDS: `raw`,"
        " `raw-single`, `raw-connected`, `raw-mmsg`, `raw-gso`",
    )
    security: Annotated[
        str,
        Axis(
            DDS,
            named("security", NONE, "no security"),
            values=SecurityChoice,
            choice=[],
            choice_as="levels of DDS Security, from `security/`; default: those that give what `security` of the"
            " application needs",
            recorded_as="`none`, the name of a level in `security/`, or the label of a combination whose parts are in"
            " campaign.json",
        ),
    ] = Field(
        default=NONE,
        description="`none`, a level in `security/`, or parts such as `{rtps: SIGN, payload: ENCRYPT}`",
    )
    security_options: dict[str, Any] = Field(default_factory=dict)
    qos: Annotated[
        str,
        Axis(
            DDS,
            named("qos"),
            several=False,
            in_captions=True,
            any_in_claims=True,
            follows=("reliability", "middleware"),
            usual=lambda row: _recorded_qos(row),
            recorded_as="Name of the QoS profile: its file name without folder and extension",
        ),
    ] = Field(default="", description="name of a profile in `qos/`, or a file; default: by reliability")
    middleware_config: Annotated[
        str,
        Axis(
            DDS,
            lambda v: f"config {PurePath(v).name}",
            since=2,
            several=False,
            any_in_claims=True,
            recorded_as="Name of the user's configuration file of the middleware, of which the run folder holds a copy",
        ),
    ] = Field(
        default="",
        description="XML file with settings of the middleware's own (`cyclonedds`, `fastdds`), relative to the"
        " experiment; `k8sdds docs middleware-config`",
    )
    """The file as the user named it. Its content, not its place, is part of the ids."""
    middleware_config_sha256: Annotated[
        str,
        Axis(
            DDS,
            lambda v: f"SHA-256 {v[:12]}",
            since=2,
            key=None,
            any_in_claims=True,
            follows=("middleware_config",),
        ),
    ] = Field(default="", description="SHA-256 of `middleware_config`")
    rate: Annotated[
        float, Number, Axis(WORKLOAD, lambda v: f"{v:g} samples/s" if v else "unlimited rate")
    ] = Field(
        default=0,
        ge=0,
        le=MAX_RATE,
        description="samples per second; 0: as fast as possible, in a latency test each after the reply to"
        " the previous one",
    )
    rate_profile: Annotated[RateProfile, Axis(WORKLOAD, lambda v: f"{v} rate", since=2)] = Field(
        default=CONSTANT,
        description="when the samples of a paced test are due: `constant`; `ramp:FROM` (from FROM samples per second to"
        " `rate` in `duration_s`); `burst:N` (N samples at a time, `rate` on average); or `on-off:ON:OFF` (`rate` for"
        " ON seconds, then nothing for OFF seconds)",
    )
    batch_bytes: Annotated[
        int,
        Number,
        Axis(
            DDS,
            lambda v: f"batches of {payload(v)}" if v else "no batching",
            choice=[0],
            choice_as="size of a batch in bytes; 0: no batching. A flow of which less than two samples fit has"
            " none",
            recorded_as="Size of the batches in which the middleware collected samples, in bytes; 0: no batching. A"
            " batch from the QoS profile counts, and one that PerfTest disabled, because a sample fills more than half"
            " of it, does not",
            recorded_by="publisher",
        ),
    ] = Field(default=0, ge=0, le=MAX_BATCH_BYTES, description="size of a batch in bytes; 0: no batching")
    message_bytes: Annotated[
        MessageBytes,
        Axis(
            DDS,
            lambda v: message_size.describe("messages", v, "auto"),
            since=2,
            choice=[],
            choice_as="largest message; default: `auto`, and `max` if a flow has samples above 14,720 bytes",
        ),
    ] = Field(
        default="auto",
        description="largest message, which is the payload of a UDP datagram: bytes; `mtu`: fits the MTU of the"
        " pods, so that IP does not fragment it; `max`: 65,500; `default`: the middleware's default; `auto`: 14,720"
        " for cyclonedds and fastdds, otherwise the middleware's default",
    )
    fragment_bytes: Annotated[
        FragmentBytes,
        Axis(DDS, lambda v: message_size.describe("fragments", v, "default"), since=2),
    ] = Field(
        default="default",
        description="part of a large sample in a fragment: bytes; `mtu`, `max`: one fragment fills a message of that"
        " size; `default`: the middleware's default. A fragment always fits in a message. Only cyclonedds has"
        " this setting",
    )
    instances: Annotated[
        int, Number, Axis(DDS, lambda v: counted("instance")(v) if v else "no key", since=2)
    ] = Field(
        default=0,
        ge=0,
        le=MAX_INSTANCES,
        description="number of instances of a topic with a key, which a publisher writes in turn; 0: a topic"
        " without key",
    )
    topics: Annotated[int, Number, Axis(DDS, counted("topic"), since=2)] = Field(
        default=1,
        ge=1,
        le=MAX_WRITERS,
        description="number of topics, to which each publisher writes in turn",
    )
    writers: Annotated[int, Number, Axis(DDS, lambda v: f"{counted('writer')(v)} per topic", since=2)] = (
        Field(
            default=1,
            ge=1,
            le=MAX_WRITERS,
            description="number of writers that each publisher has on each topic and uses in turn",
        )
    )
    discovery: Annotated[
        Discovery, Axis(DDS, named("discovery by", "auto", "usual discovery"), any_in_claims=True)
    ] = Field(
        default="auto",
        description="how participants find each other; `auto`: `multicast` if the transport is multicast,"
        " otherwise `peers`. In the lab, a `server` runs in a pod of its own on the last node",
    )
    receive_mode: Annotated[
        ReceiveMode,
        Axis(
            DDS,
            named("receive by"),
            choice=["listener", "waitset"],
            any_in_claims=True,
        ),
    ] = Field(
        default="listener",
        description="how samples are received: in a callback of the middleware, by a thread that waits, or by one"
        " that polls",
    )
    publish_mode: Annotated[
        PublishMode, Axis(DDS, lambda v: f"{v} publishing", since=2, any_in_claims=True)
    ] = Field(
        default="synchronous",
        description="whether samples are sent by the thread that writes them, or by one of the middleware"
        " (`fastdds`, `connext`)",
    )
    flow_bytes: Annotated[
        Literal[0] | Annotated[int, Field(ge=1024, le=2**31 - 1)],
        Number,
        Axis(
            DDS,
            lambda v: f"at most {payload(v)} per flow period" if v else "no flow controller",
            since=2,
            any_in_claims=True,
            follows=("publish_mode",),
        ),
    ] = Field(
        default=0,
        description="with `publish_mode: asynchronous`: bytes that a publisher sends in each `flow_period_ms` at most;"
        " 0: no limit (`fastdds`)",
    )
    flow_period_ms: Annotated[
        int,
        Number,
        Axis(
            DDS,
            lambda v: f"flow period {v} ms",
            since=2,
            several=False,
            any_in_claims=True,
            follows=("publish_mode", "flow_bytes"),
        ),
    ] = Field(default=100, ge=1, le=60_000, description="period of the flow controller, in milliseconds")
    realtime_priority: Annotated[
        int, Number, Axis(MACHINE, named("SCHED_FIFO", 0, "normal scheduler"), since=2, any_in_claims=True)
    ] = Field(
        default=0,
        ge=0,
        le=99,
        description="priority at which all threads of the participants run with `SCHED_FIFO`; 0: the normal scheduler",
    )
    lock_memory: Annotated[
        bool,
        Axis(PROCESS, lambda v: "locked memory" if v else "unlocked memory", since=2, any_in_claims=True),
    ] = Field(default=False, description="whether participants lock their memory (`mlockall`)")
    dscp: Annotated[int, Number, Axis(PROCESS, lambda v: f"DSCP {v}", since=2, any_in_claims=True)] = Field(
        default=0,
        ge=0,
        le=63,
        description="differentiated services code point of the packets; 46: expedited forwarding",
    )
    layout: Annotated[
        str,
        Axis(
            MACHINE,
            named("layout"),
            in_captions=True,
            values=Layout,
            several=False,
            of_experiment=True,
            any_in_claims=True,
            recorded_as="How participants are pinned to cores: `split`, `same` or `free`",
        ),
    ] = Field(
        default="split",
        description="how participants are pinned to cores; `auto`: `same` for latency, otherwise `split`",
    )
    ip_families: Annotated[
        IpFamilies,
        Axis(
            NETWORK,
            ip.describe,
            since=2,
            several=False,
            of_experiment=True,
            any_in_claims=True,
            recorded_as="IP versions of nodes and pods, the one that participants used first: `ipv4`, `ipv6`,"
            " `ipv4+ipv6` or `ipv6+ipv4`",
        ),
    ] = Field(
        default=ip.DEFAULT,
        description="IP versions of nodes and pods: `[ipv4]`, `[ipv6]`, or both; participants use the first; default:"
        " `[ipv4]`",
    )
    policies: Annotated[
        int,
        Number,
        Axis(NETWORK, lambda v: f"{v} {'policy' if v == 1 else 'policies'}" if v else "no policies", since=2),
    ] = Field(
        default=0,
        ge=0,
        le=10_000,
        description="number of NetworkPolicies that select the pods; each allows only what participants send",
    )
    tuning: Annotated[
        str,
        Axis(
            MACHINE,
            named("tuning", NO_TUNING, "no tuning"),
            since=2,
            choice=[NO_TUNING],
        ),
    ] = Field(default=NO_TUNING, description="tuning set of the nodes, from `deploy/tuning`; `none`: none")
    link: Annotated[
        Link,
        Axis(
            NETWORK,
            Link.describe,
            values=LinkChoices,
            several=False,
            of_experiment=True,
            in_captions=True,
            any_in_claims=True,
            recorded_as='Shaping of the links: `{"rate_mbit": number or null, "loss_percent": number, "delay_us":'
            " number}`. With other parts, such as `mtu`, if the experiment sets them",
        ),
    ] = Field(
        default=Link(),
        description="the links between the nodes: the name or file of a link (`k8sdds list links`), a mapping, or a"
        " list of them, which are measured one after the other",
    )
    cpu_quota: Annotated[
        float | None, Axis(MACHINE, lambda v: f"{v:g} CPUs per pod", several=False, any_in_claims=True)
    ] = Field(default=None, gt=0, le=64, description="number of CPUs for each pod (experimental)")
    background: Annotated[
        Background,
        Axis(LOAD, lambda v: f"background {v.describe()}" if v else "no background", since=2),
    ] = Field(
        default=Background(),
        description="load next to the participants: flows between other pods of the same nodes, and busy cores;"
        " `{}`: none",
    )
    placement: Annotated[
        Placement,
        Axis(
            NETWORK,
            lambda v: f"placement {_describe_placement(v)}",
            several=False,
            of_experiment=True,
            any_in_claims=True,
            follows=("transport",),
        ),
    ] = Field(
        default="spread",
        description="how participants are distributed over nodes; `same-node`: all on one, so that samples"
        " cross no link between nodes; or a mapping such as `{pub0: 0, sub0: 1}`"
        " (participant: node; on a cluster also the name or a label of a node)",
    )
    nodes: Annotated[
        int | None,
        Axis(
            NETWORK,
            counted("node"),
            several=False,
            any_in_claims=True,
            follows=("publishers", "subscribers"),
            usual=lambda row: usual_nodes(row["publishers"] or 1, row["subscribers"] or 1),
            recorded_as="Number of nodes in the topology",
        ),
    ] = Field(
        default=None,
        ge=2,
        le=MAX_NODES,
        description="number of nodes; default: one per participant, at most 10",
    )
    capture: bool = Field(
        default=False,
        description="capture packets on the publisher's link and count the IP fragments of a sample;"
        " the trial then has no valid times",
    )
    profile: bool = False

    @property
    def network_label(self) -> str:
        """The name of the network in tables and figures."""
        return self.label or self.network

    @property
    def test_label(self) -> str:
        """The test with its options as users write them, such as `tcp-stream flows 8`."""
        return " ".join([self.test, *(f"{name} {value}" for name, value in self.test_options.items())])

    @property
    def has_several_writers(self) -> bool:
        """Whether a publisher has more than one writer of samples."""
        return self.topics * self.writers > 1

    @property
    def node_count(self) -> int:
        """The number of nodes of the topology."""
        return self.nodes or usual_nodes(self.publishers, self.subscribers)

    @property
    def network_mode(self) -> NetworkMode:
        """The network with its options, as a key."""
        return self.network, tuple(sorted(self.datapath_options.items()))

    @property
    def datapath_options(self) -> dict[str, object]:
        """The options of the network, and the settings of its nodes and pods that are not the default."""
        families = {} if self.ip_families == ip.DEFAULT else {IP_FAMILIES: self.ip_families}
        mtu = {} if self.link.mtu == STANDARD_MTU else {MTU_OF_LINKS: self.link.mtu}
        policies = {POLICIES: self.policies} if self.policies else {}
        tuning = {TUNING: self.tuning} if self.tuning != NO_TUNING else {}
        return self.network_options | families | mtu | policies | tuning

    @property
    def ip_family(self) -> IpFamily:
        """The IP version of the participants' packets."""
        return self.ip_families[0]

    @property
    def uses_network(self) -> bool:
        """Whether samples cross a network; otherwise they stay in the shared memory of one node."""
        return self.transport != SHARED_MEMORY

    @property
    def crosses_links(self) -> bool:
        """Whether samples cross a link between nodes."""
        return self.uses_network and self.placement != SAME_NODE

    @property
    def qos_profile(self) -> str:
        """The name or file of the QoS profile; by default it follows the reliability."""
        if self.qos:
            return self.qos
        return usual_qos(self.reliability)

    @property
    def participants(self) -> list[Participant]:
        """Publishers, then subscribers."""
        return participants(self.publishers, self.subscribers)

    @property
    def services(self) -> list[Participant]:
        """Processes that run in pods of their own while the participants run."""
        return [DISCOVERY_SERVER] if self.discovery == "server" else []

    @property
    def loads(self) -> list[Participant]:
        """The pods of the background."""
        return [LOAD_SOURCE, LOAD_SINK] if self.background.flows else [LOAD_SOURCE] * bool(self.background)

    @property
    def pods(self) -> list[Participant]:
        """Participants, then services, then the pods of the background."""
        return self.participants + self.services + self.loads

    @property
    def discovery_kind(self) -> str:
        """The discovery mechanism: `multicast`, `peers` or `server`."""
        return usual_discovery(self.transport) if self.discovery == "auto" else self.discovery

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The Linux capabilities that its participants need in addition to those of a default container."""
        return ("SYS_NICE",) * bool(self.realtime_priority) + ("IPC_LOCK",) * self.lock_memory

    @property
    def cell_id(self) -> str:
        """12 hexadecimal digits of the SHA-256 of `canonical`."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:12]

    def canonical(self) -> str:
        """Return the cell as JSON without defaults: sorted keys, no spaces, whole floats as integers."""
        named = self.model_copy(update={"link": self.link.without_places()})
        data = named.model_dump(mode="json", exclude_defaults=True, exclude={"middleware_config"})
        return json.dumps(_whole(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def condition(self) -> str:
        """Everything but the network, as JSON: cells of one condition are compared."""
        return self.model_copy(update={"network": "", "network_options": {}, "label": None}).canonical()

    def describe(self) -> str:
        """Describe the cell briefly, for progress and messages: network, test, payload, and what is not the default."""
        parts = [self.network_label, self.test_label, payload(self.payload_bytes)]
        parts += self.settings(without=("network", "test", "payload_bytes"))
        return ", ".join([*parts, *(["profile"] if self.profile else [])])

    def settings(self, without: Collection[str]) -> list[str]:
        """Describe each setting that is not the default, except these."""
        return [
            axis.phrase(value)
            for name, axis in AXES.items()
            if name not in (*without, "middleware_config_sha256")
            and (value := getattr(self, name)) != axis.default
        ]


AXES: Mapping[str, Axis] = axes(Cell)
"""The settings of a trial, by their name."""


class Trial(Strict):
    """One cell, one repetition, on one testbed. Ids ignore the durations and the accepted loss."""

    cell: Cell
    testbed: str
    repetition: int = Field(ge=0)
    duration_s: float
    warmup_s: float
    max_loss_percent: float = MAX_LOSS_PERCENT

    @property
    def trial_id(self) -> str:
        """The cell_id, the testbed and the repetition."""
        return f"{self.cell.cell_id}-{self.testbed}-r{self.repetition}"

    def describe(self) -> str:
        """Describe the trial briefly."""
        return f"{self.cell.describe()} #{self.repetition + 1}"


@dataclass(frozen=True)
class Endpoint:
    """Where a participant runs."""

    address: str
    interface: str
    cpus: tuple[int, ...] | None
    """Cores to which it is pinned; None if not pinned."""
    mtu_bytes: int | None = None
    """The MTU of its interface, if the testbed knows it."""
    service: tuple[str, int] | None = None
    """Address and port of the Service by which clients reach it; None if they connect to `address`."""


def host_and_port(address: str, port: int) -> str:
    """Return `ADDRESS:PORT`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def usual_nodes(publishers: int, subscribers: int) -> int:
    """Return the number of nodes for so many participants, unless a sweep sets another one."""
    return min(publishers + subscribers, MAX_DEFAULT_NODES)


def usual_qos(reliability: str) -> str:
    """Return the QoS profile for a reliability, unless a sweep names another one."""
    return "best-effort" if reliability == "best-effort" else "strict-reliable"


def _recorded_qos(row: Mapping[str, Any]) -> str:
    """Return the profile of a row of the tidy table that names none: `none` if its program has no QoS."""
    return "none" if row["qos"] == "none" else usual_qos(str(row["reliability"]))


def usual_discovery(transport: Transport) -> str:
    """Return the mechanism that `discovery: auto` selects."""
    return "multicast" if transport == "multicast" else "peers"


def _describe_placement(value: str | Mapping[str, Any]) -> str:
    """Describe a placement of a cell, or of the tidy table, which has a mapping as JSON."""
    nodes = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    return nodes if isinstance(nodes, str) else ", ".join(f"{name}: {node}" for name, node in nodes.items())


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
