"""Define sweeps of experiment files: the settings of trials, and lists of values that are combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from k8sdds.model import rate_profile
from k8sdds.model.background import Background
from k8sdds.model.ip_families import IpFamilies
from k8sdds.model.link import LinkChoice
from k8sdds.model.message_size import FragmentBytes, MessageBytes
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.security import SecurityChoice
from k8sdds.system.strict import MAX_LABEL, Strict, as_list, mistake
from k8sdds.system.yaml_text import nearest

Reliability = Literal["reliable", "best-effort"]
Transport = Literal["unicast", "multicast", "shared-memory"]
SHARED_MEMORY: Final = "shared-memory"
Layout = Literal["auto", "split", "same", "free"]
Discovery = Literal["auto", "multicast", "peers", "server"]
ReceiveMode = Literal["listener", "waitset", "spin"]
PublishMode = Literal["synchronous", "asynchronous"]
Placement = Literal["spread", "packed", "same-node"] | dict[str, int | str]
SAME_NODE: Final = "same-node"
NO_TUNING: Final = "none"

DEFAULT_TEST, DEFAULT_MIDDLEWARE = "throughput", "cyclonedds"

MAX_PARTICIPANTS = 500
"""Participants of one role in a trial. PerfTest accepts at most 1024 peers. A DDS domain allows 120
participants per address; on pod networks every participant has an address of its own."""
MAX_NODES = 500
MIN_SAMPLE_BYTES = 28
"""Size of a sample without payload: PerfTest's header."""
MAX_INSTANCES = 100_000
MAX_WRITERS = 2048
"""Writers of a publisher, over all topics."""
MAX_BATCH_BYTES = 64 * 1024 * 1024


def _reject_bool(value: Any) -> Any:
    # YAML's `yes` and `true` would otherwise count as 1.
    if isinstance(value, bool) or (isinstance(value, list) and any(isinstance(item, bool) for item in value)):
        raise ValueError("expected a number, not true or false")
    return value


def _is_rate_profile(text: str) -> str:
    rate_profile.parse(text)
    return text


TESTS = "tests"
"""Key of the validation context with the known tests: name to the model of its options."""
NETWORK_NAMES = "network_names"
"""Key of the validation context with the names of the known networks."""


class NetworkChoice(Strict):
    """A network of a sweep: its name alone, or a mapping with options."""

    name: str = Field(description="name of the network; `k8sdds list --networks` lists them")
    label: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+()-]*$",
        max_length=MAX_LABEL,
        description="name in tables and figures",
    )
    mtu: int | None = Field(default=None, ge=576, le=65535, description="MTU of the pods' interfaces")
    engine: Literal["kernel", "userspace", "sleeve"] | None = Field(
        default=None,
        description="how an encrypting network processes packets; default: the best that is available. For weavenet"
        " on a cluster: `sleeve`, its datapath in userspace",
    )
    attachment: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9.-]{0,252}$",
        description="for `multus`: the NetworkAttachmentDefinition of the pods' second interface, as NAMESPACE/NAME",
    )

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str, info: ValidationInfo) -> str:
        known: Sequence[str] | None = (info.context or {}).get(NETWORK_NAMES)
        if known is not None and name not in known:
            raise ValueError(f"unknown network {name!r}{nearest(name, list(known))}")
        return name

    @property
    def display_name(self) -> str:
        """The name in tables, figures and `--network`: the label, otherwise the name of the network."""
        return self.label or self.name

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class TestChoice(BaseModel):
    """A test of a sweep: its name alone, or a mapping with the options of the test."""

    # Tests are defined outside this package. The validation context provides their names and options.
    model_config = ConfigDict(extra="allow", frozen=True)
    # pytest would collect a class with this name.
    __test__: ClassVar[bool] = False

    name: str = Field(description="what the participants do and what is measured")

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_known(self, info: ValidationInfo) -> TestChoice:
        tests: Mapping[str, type[BaseModel]] | None = (info.context or {}).get(TESTS)
        if tests is None:
            return self
        if self.name not in tests:
            raise ValueError(f"there is no test {self.name!r}{nearest(self.name, list(tests))}")
        model = tests[self.name]
        for key in self.options.keys() - model.model_fields.keys():
            known = nearest(key, list(model.model_fields))
            raise mistake(f"test {self.name} has no option {key!r}{known}", key)
        model.model_validate(self.options)
        return self

    @model_serializer
    def _as_written(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.options} if self.options else self.name

    def __str__(self) -> str:
        return str(self._as_written())


OneOrMore = BeforeValidator(as_list)
Number = BeforeValidator(_reject_bool)


class Sweep(Strict):
    """All combinations of the listed values. A single value needs no list brackets."""

    networks: Annotated[list[NetworkChoice], OneOrMore, Field(min_length=1)] = Field(
        description="names of networks, or mappings with options"
    )
    test: Annotated[list[TestChoice], OneOrMore, Field(min_length=1)] = Field(
        default=[TestChoice(name=DEFAULT_TEST)],
        description="name of a test, or a mapping with `name` and its options",
    )
    payload_bytes: Annotated[
        list[Annotated[int, Field(ge=1, le=64 * 1024 * 1024)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(
        default=[1024],
        description="size of a sample in bytes (PerfTest's `-dataLen`, at least 28); in other tests the size of a"
        " write, a datagram, or a request and its response",
    )
    reliability: Annotated[list[Reliability], OneOrMore, Field(min_length=1)] = Field(
        default=["reliable"], description="whether lost samples are sent again"
    )
    transport: Annotated[list[Transport], OneOrMore, Field(min_length=1)] = Field(
        default=["unicast"],
        description="whether a publisher sends a copy to each subscriber, or one for all. `shared-memory`: no network,"
        " all participants on one node (`fastdds`, network `host`)",
    )
    batch_bytes: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_BATCH_BYTES)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(default=[0], description="size of a batch in bytes; 0: no batching")
    message_bytes: Annotated[list[MessageBytes], OneOrMore, Field(min_length=1)] = Field(
        default=["auto"],
        description="largest message, which is the payload of a UDP datagram: bytes; `mtu`: fits the MTU of the"
        " pods, so that IP does not fragment it; `max`: 65,500; `default`: the middleware's default; `auto`: 14,720"
        " for cyclonedds and fastdds, otherwise the middleware's default",
    )
    fragment_bytes: Annotated[list[FragmentBytes], OneOrMore, Field(min_length=1)] = Field(
        default=["default"],
        description="part of a large sample in a fragment: bytes; `mtu`, `max`: one fragment fills a message of that"
        " size; `default`: the middleware's default. A fragment always fits in a message. Only cyclonedds has"
        " this setting",
    )
    rate: Annotated[
        list[Annotated[float, Field(ge=0, le=MAX_RATE)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(
        default=[0],
        description="samples per second; 0: as fast as possible, in a latency test each after the reply to"
        " the previous one",
    )
    rate_profile: Annotated[
        list[Annotated[str, AfterValidator(_is_rate_profile)]], OneOrMore, Field(min_length=1)
    ] = Field(
        default=[rate_profile.CONSTANT],
        description="when the samples of a paced test are due: `constant`; `ramp:FROM` (from FROM samples per second to"
        " `rate` in `duration_s`); `burst:N` (N samples at a time, `rate` on average); or `on-off:ON:OFF` (`rate` for"
        " ON seconds, then nothing for OFF seconds)",
    )
    instances: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_INSTANCES)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(
        default=[0],
        description="number of instances of a topic with a key, which a publisher writes in turn; 0: a topic"
        " without key",
    )
    topics: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_WRITERS)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(default=[1], description="number of topics, to which each publisher writes in turn")
    writers: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_WRITERS)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(
        default=[1], description="number of writers that each publisher has on each topic and uses in turn"
    )
    publishers: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_PARTICIPANTS)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(default=[1], description="number of publishers")
    subscribers: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_PARTICIPANTS)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(default=[1], description="number of subscribers")
    middleware: Annotated[list[str], OneOrMore, Field(min_length=1)] = Field(
        default=[DEFAULT_MIDDLEWARE],
        description="`cyclonedds`, `fastdds`, `connext` (RTI PerfTest, which you provide) or UDP without DDS: `raw`,"
        " `raw-single`, `raw-connected`, `raw-mmsg`, `raw-gso`",
    )
    security: Annotated[list[SecurityChoice], OneOrMore, Field(min_length=1)] = Field(
        default=[SecurityChoice(level="none")],
        description="`none`, a level in `security/`, or parts such as `{rtps: SIGN, payload: ENCRYPT}`",
    )
    qos: str | None = Field(
        default=None, description="name of a profile in `qos/`, or a file; default: by reliability"
    )
    middleware_config: str | None = Field(
        default=None,
        description="XML file with settings of the middleware's own (`cyclonedds`, `fastdds`), relative to the"
        " experiment; docs/reference/middleware-config.md",
    )
    publish_mode: Annotated[list[PublishMode], OneOrMore, Field(min_length=1)] = Field(
        default=["synchronous"],
        description="whether samples are sent by the thread that writes them, or by one of the middleware"
        " (`fastdds`, `connext`)",
    )
    flow_bytes: Annotated[
        list[Literal[0] | Annotated[int, Field(ge=1024, le=2**31 - 1)]],
        Number,
        OneOrMore,
        Field(min_length=1),
    ] = Field(
        default=[0],
        description="with `publish_mode: asynchronous`: bytes that a publisher sends in each `flow_period_ms` at most;"
        " 0: no limit (`fastdds`)",
    )
    flow_period_ms: Annotated[int, Number] = Field(
        default=100, ge=1, le=60_000, description="period of the flow controller, in milliseconds"
    )
    discovery: Annotated[list[Discovery], OneOrMore, Field(min_length=1)] = Field(
        default=["auto"],
        description="how participants find each other; `auto`: `multicast` if the transport is multicast,"
        " otherwise `peers`. In the lab, a `server` runs in a pod of its own on the last node",
    )
    receive_mode: Annotated[list[ReceiveMode], OneOrMore, Field(min_length=1)] = Field(
        default=["listener"],
        description="how samples are received: in a callback of the middleware, by a thread that waits, or by one"
        " that polls",
    )
    realtime_priority: Annotated[
        list[Annotated[int, Field(ge=0, le=99)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(
        default=[0],
        description="priority at which all threads of the participants run with `SCHED_FIFO`; 0: the normal scheduler",
    )
    lock_memory: Annotated[list[bool], OneOrMore, Field(min_length=1)] = Field(
        default=[False], description="whether participants lock their memory (`mlockall`)"
    )
    dscp: Annotated[list[Annotated[int, Field(ge=0, le=63)]], Number, OneOrMore, Field(min_length=1)] = Field(
        default=[0],
        description="differentiated services code point of the packets; 46: expedited forwarding",
    )
    policies: Annotated[
        list[Annotated[int, Field(ge=0, le=10_000)]], Number, OneOrMore, Field(min_length=1)
    ] = Field(
        default=[0],
        description="number of NetworkPolicies that select the pods; each allows only what participants send",
    )
    tuning: Annotated[list[str], OneOrMore, Field(min_length=1)] = Field(
        default=[NO_TUNING],
        description="tuning set of the nodes, from `deploy/tuning`; `none`: none",
    )
    background: Annotated[list[Background], OneOrMore, Field(min_length=1)] = Field(
        default=[Background()],
        description="load next to the participants: flows between other pods of the same nodes, and busy cores;"
        " `{}`: none",
    )
    layout: Layout | None = Field(default=None, description="as in the experiment, for this sweep only")
    ip_families: IpFamilies | None = Field(
        default=None, description="as in the experiment, for this sweep only"
    )
    link: LinkChoice | None = Field(default=None, description="as in the experiment, for this sweep only")
    placement: Placement | None = Field(default=None, description="as in the experiment, for this sweep only")
    nodes: int | None = Field(
        default=None,
        ge=2,
        le=MAX_NODES,
        description="number of nodes; default: one per participant, at most 10",
    )
    cpu_quota: float | None = Field(
        default=None, gt=0, le=64, description="number of CPUs for each pod (experimental)"
    )
    capture: bool = Field(
        default=False,
        description="capture packets on the publisher's link and count the IP fragments of a sample;"
        " the trial then has no valid times",
    )

    _where: str = PrivateAttr("")

    @property
    def where(self) -> str:
        """`FILE:LINE: ` of the sweep, for messages; empty if it is not from a file."""
        return self._where

    def at(self, where: str) -> Sweep:
        """Return a copy of the sweep that is known to be from `FILE:LINE: `."""
        copy = self.model_copy()
        copy._where = where
        return copy

    @model_validator(mode="after")
    def _values_are_unique(self) -> Sweep:
        for name in LISTS:
            values = getattr(self, name)
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise mistake(f"{value} is listed twice", name, index)
        return self

    @model_validator(mode="after")
    def _limits_have_an_effect(self) -> Sweep:
        if any(self.flow_bytes) and "asynchronous" not in self.publish_mode:
            raise mistake("has no effect without `publish_mode: asynchronous`", "flow_bytes")
        usual_period = type(self).model_fields["flow_period_ms"].default
        if self.flow_period_ms != usual_period and not any(self.flow_bytes):
            raise mistake("has no effect without `flow_bytes`", "flow_period_ms")
        return self


LISTS = (
    "networks", "test", "payload_bytes", "reliability", "transport", "batch_bytes", "message_bytes",
    "fragment_bytes", "rate", "rate_profile", "instances", "topics", "writers", "publishers", "subscribers",
    "middleware", "security", "discovery", "receive_mode", "realtime_priority", "lock_memory", "dscp",
    "publish_mode", "flow_bytes", "policies", "tuning", "background",
)  # fmt: skip
"""The keys of a sweep whose lists are combined."""
