"""Declare what a trial sends, over which network, and by which programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from k8sdds.model import message_size
from k8sdds.model.axis import DDS, NETWORK, POD, PROCESS, WORKLOAD, Axis, counted, named, payload
from k8sdds.model.graph import HEADER, digest, normalized
from k8sdds.model.message_size import FragmentBytes, MessageBytes
from k8sdds.model.rate_profile import CONSTANT, MAX_RATE
from k8sdds.model.security import NONE, SecurityChoice
from k8sdds.model.settings import (
    DEFAULT_MIDDLEWARE,
    DEFAULT_TEST,
    MAX_BATCH_BYTES,
    MAX_INSTANCES,
    MAX_PARTICIPANTS,
    MAX_SAMPLE_BYTES,
    MAX_WRITERS,
    SHARED_MEMORY,
    Discovery,
    MessageType,
    NetworkChoice,
    Number,
    PublishMode,
    RateProfile,
    ReceiveMode,
    Reliability,
    TestChoice,
    Transport,
)
from k8sdds.system.strict import Strict


def usual_qos(reliability: str) -> str:
    """Return the QoS profile for a reliability, unless a sweep names another one."""
    return "best-effort" if reliability == "best-effort" else "strict-reliable"


def _recorded_qos(row: Mapping[str, Any]) -> str:
    """Return the profile of a row of the tidy table that names none: `none` if its program has no QoS."""
    return "none" if row["qos"] == "none" else usual_qos(str(row["reliability"]))


def _describe_graph(value: str) -> str:
    """Describe a graph by its text, or by the digest that records have."""
    return f"graph {(digest(value) if value.startswith(HEADER) else value)[:12]}" if value else "no graph"


def usual_discovery(transport: Transport) -> str:
    """Return the mechanism that `discovery: auto` selects."""
    return "multicast" if transport == "multicast" else "peers"


class WorkloadSettings(Strict):
    """The first settings of a cell; `MachineSettings` adds the others. Each is declared once, as a field.

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
    payload_bytes: Annotated[
        int, Number, Axis(WORKLOAD, payload, sweep_default=1024, follows=("schedule",), graph="stated")
    ] = Field(
        ge=1,
        le=MAX_SAMPLE_BYTES,
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
        " all participants on one node (`fastdds` or `zenoh`)",
    )
    reliability: Annotated[Reliability, Axis(DDS, str, in_captions=True, graph="stated")] = Field(
        default="reliable", description="whether lost samples are sent again"
    )
    publishers: Annotated[int, Number, Axis(WORKLOAD, counted("publisher"), graph="stated")] = Field(
        default=1, ge=1, le=MAX_PARTICIPANTS, description="number of publishers"
    )
    subscribers: Annotated[int, Number, Axis(WORKLOAD, counted("subscriber"), graph="stated")] = Field(
        default=1, ge=1, le=MAX_PARTICIPANTS, description="number of subscribers"
    )
    middleware: Annotated[
        str,
        Axis(
            DDS,
            lambda v: f"{v} (TCP)" if v == "zenoh" else v,
            choice=["cyclonedds", "fastdds"],
            choice_as="`any`: cyclonedds, fastdds and zenoh",
            in_captions=True,
            any_in_claims=True,
        ),
    ] = Field(
        default=DEFAULT_MIDDLEWARE,
        description="`cyclonedds`, `fastdds`, `connext` (RTI PerfTest, which you provide); Zenoh by TCP, UDP or QUIC:"
        " `zenoh`, `zenoh-udp`, `zenoh-quic`; ROS 2 in the lab: `ros2-fastdds`, and `ros2-fastdds-plain`, its Fast DDS"
        " without rcl and rmw; or UDP without middleware: `raw`, `raw-single`, `raw-connected`,"
        " `raw-mmsg`, `raw-gso`",
    )
    security: Annotated[
        str,
        Axis(
            DDS,
            named("security", NONE, "no security"),
            graph="refused",
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
            graph="refused",
            several=False,
            in_captions=True,
            any_in_claims=True,
            follows=("reliability", "middleware"),
            usual=_recorded_qos,
            recorded_as="Name of the QoS profile: its file name without folder and extension",
        ),
    ] = Field(
        default="",
        description="name of a profile in `qos/`, or a file: DDS-XML, or JSON5 for Zenoh; default: by reliability",
    )
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
        description="file with settings of the middleware's own, relative to the experiment: XML (`cyclonedds`,"
        " `fastdds`) or JSON5 (Zenoh); `k8sdds docs middleware-config`",
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
    schedule: Annotated[
        str,
        Axis(
            WORKLOAD,
            lambda v: f"schedule {PurePath(v).name}" if v else "no schedule",
            since=5,
            graph="refused",
            recorded_as="Name of the file with the recorded schedule, of which the run folder holds a copy."
            " `payload_bytes` is its largest sample, and `rate` its mean rate",
        ),
    ] = Field(
        default="",
        description="file with the time and the size of each sample of a paced test, relative to the experiment;"
        " instead of `payload_bytes` and `rate`, which are its largest size and its mean rate;"
        " `k8sdds docs perftest`",
    )
    """The file as the user named it. Its content, not its place, is part of the ids."""
    schedule_sha256: Annotated[
        str,
        Axis(WORKLOAD, lambda v: f"SHA-256 {v[:12]}", since=5, key=None, follows=("schedule",)),
    ] = Field(default="", description="SHA-256 of `schedule`")
    graph: Annotated[
        str,
        AfterValidator(normalized),
        Axis(
            WORKLOAD,
            _describe_graph,
            since=5,
            recorded_as="SHA-256 of the graph, whose text is in the folder of each attempt. `payload_bytes` is its"
            " largest sample, `rate` the samples per second of all flows",
        ),
    ] = Field(
        default="",
        description="text with the flows and nodes of a graph test, instead of sizes, rates and numbers of"
        " participants; `k8sdds docs perftest`. `nodes` of an application write it",
    )
    rate: Annotated[
        float,
        Number,
        Axis(
            WORKLOAD,
            lambda v: f"{v:g} samples/s" if v else "unlimited rate",
            follows=("schedule",),
            graph="stated",
        ),
    ] = Field(
        default=0,
        ge=0,
        le=MAX_RATE,
        description="samples per second; 0: as fast as possible, in a latency test each after the reply to"
        " the previous one",
    )
    rate_profile: Annotated[
        RateProfile,
        Axis(WORKLOAD, lambda v: f"{v} rate", since=2, graph="refused"),
    ] = Field(
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
            graph="stated",
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
        description="largest message, which is the payload of a UDP datagram, or a batch of Zenoh: bytes; `mtu`: fits"
        " the MTU of the pods, so that IP does not fragment it; `max`: 65,500; `default`: the middleware's default;"
        " `auto`: 14,720 for cyclonedds and fastdds, otherwise the middleware's default",
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
        int,
        Number,
        Axis(DDS, lambda v: counted("instance")(v) if v else "no key", since=2, graph="refused"),
    ] = Field(
        default=0,
        ge=0,
        le=MAX_INSTANCES,
        description="number of instances of a topic with a key, which a publisher writes in turn; 0: a topic"
        " without key",
    )
    topics: Annotated[int, Number, Axis(DDS, counted("topic"), since=2, graph="refused")] = Field(
        default=1,
        ge=1,
        le=MAX_WRITERS,
        description="number of topics, to which each publisher writes in turn",
    )
    writers: Annotated[
        int, Number, Axis(DDS, lambda v: f"{counted('writer')(v)} per topic", since=2, graph="refused")
    ] = Field(
        default=1,
        ge=1,
        le=MAX_WRITERS,
        description="number of writers that each publisher has on each topic and uses in turn",
    )
    discovery: Annotated[
        Discovery, Axis(DDS, named("discovery by", "auto", "usual discovery"), any_in_claims=True)
    ] = Field(
        default="auto",
        description="how participants find each other; `auto`: `multicast` if the transport is multicast,"
        " otherwise `peers`. In the lab, a `server` runs in a pod of its own on the last node, or on the one that"
        " `placement` gives to `discovery`. With Zenoh, it is a router, which all samples pass",
    )
    discovery_servers: Annotated[
        int, Axis(DDS, lambda v: f"{v} discovery servers", since=5, any_in_claims=True)
    ] = Field(
        default=1,
        ge=1,
        le=2,
        description="discovery servers of Fast DDS in the lab. Each participant knows all of them. `placement` calls"
        " the second one `discovery1`. On clusters, two always run, and this is 1",
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
    message_type: Annotated[
        MessageType,
        Axis(
            DDS,
            lambda v: "perftest's message type" if v == "sample" else f"messages {v}",
            since=5,
            graph="refused",
        ),
    ] = Field(
        default="sample",
        description="type of the messages in which samples travel: `sample`, perftest's own, or one of ROS 2"
        " (`ros2-fastdds`). A `sensor_msgs/msg/Imu` needs `payload_bytes: 320`",
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
        int, Number, Axis(POD, named("SCHED_FIFO", 0, "normal scheduler"), since=2, any_in_claims=True)
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
