"""Define participants, cells and trials, with stable ids."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, Literal

from pydantic import Field

from k8sdds.model import ip_families as ip
from k8sdds.model.background import Background
from k8sdds.model.experiment import MAX_LOSS_PERCENT
from k8sdds.model.ip_families import IpFamilies, IpFamily
from k8sdds.model.link import STANDARD_MTU, Link
from k8sdds.model.message_size import FragmentBytes, MessageBytes
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.security import NONE
from k8sdds.model.sweep import (
    DEFAULT_MIDDLEWARE,
    NO_TUNING,
    SAME_NODE,
    SHARED_MEMORY,
    Discovery,
    Placement,
    PublishMode,
    ReceiveMode,
    Reliability,
    Transport,
)
from k8sdds.system.strict import Strict

Role = Literal["publisher", "subscriber", "discovery", "load"]
"""What a process of a trial does. `discovery`: a discovery server, which neither publishes nor subscribes. `load`: a
part of the background."""

PUBLISHER: Final = "publisher"
SUBSCRIBER: Final = "subscriber"

SHORT_ROLES: dict[Role, str] = {
    "publisher": "pub",
    "subscriber": "sub",
    "discovery": "discovery",
    "load": "load",
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
        return self.short_role if self.role == "discovery" else f"{self.short_role}{self.index}"

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
DISCOVERY_SERVER = Participant("discovery")
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


class Cell(Strict):
    """One combination of a sweep, fully specified.

    Ids leave out fields with their default value. Therefore a default never changes.
    """

    network: str
    network_options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None
    test: str
    test_options: dict[str, Any] = Field(default_factory=dict)
    payload_bytes: int
    reliability: Reliability = "reliable"
    transport: Transport = "unicast"
    batch_bytes: int = 0
    message_bytes: MessageBytes = "auto"
    fragment_bytes: FragmentBytes = "default"
    rate: float = 0
    rate_profile: str = CONSTANT
    instances: int = 0
    topics: int = 1
    writers: int = 1
    publishers: int = 1
    subscribers: int = 1
    middleware: str = DEFAULT_MIDDLEWARE
    security: str = NONE
    security_options: dict[str, Any] = Field(default_factory=dict)
    qos: str = ""
    middleware_config: str = ""
    """The file as the user named it. Its content, not its place, is part of the ids."""
    middleware_config_sha256: str = ""
    discovery: Discovery = "auto"
    receive_mode: ReceiveMode = "listener"
    publish_mode: PublishMode = "synchronous"
    flow_bytes: int = 0
    flow_period_ms: int = 100
    realtime_priority: int = 0
    lock_memory: bool = False
    dscp: int = 0
    policies: int = 0
    tuning: str = NO_TUNING
    layout: str = "split"
    ip_families: IpFamilies = ip.DEFAULT
    link: Link = Link()
    placement: Placement = "spread"
    nodes: int | None = None
    cpu_quota: float | None = None
    capture: bool = False
    profile: bool = False
    background: Background = Background()

    @property
    def network_label(self) -> str:
        """The name of the network in tables and figures."""
        return self.label or self.network

    @property
    def test_label(self) -> str:
        """The test with its options, such as `tcp-stream flows 8`."""
        return " ".join([self.test, *(f"{name} {value}" for name, value in self.test_options.items())])

    @property
    def has_several_writers(self) -> bool:
        """Whether a publisher has more than one writer of samples."""
        return self.topics * self.writers > 1

    @property
    def node_count(self) -> int:
        """The number of nodes of the topology."""
        return self.nodes or min(self.publishers + self.subscribers, MAX_DEFAULT_NODES)

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
        return "best-effort" if self.reliability == "best-effort" else "strict-reliable"

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
        data = self.model_dump(mode="json", exclude_defaults=True, exclude={"middleware_config"})
        return json.dumps(_whole(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def condition(self) -> str:
        """Everything but the network, as JSON: cells of one condition are compared."""
        return self.model_copy(update={"network": "", "network_options": {}, "label": None}).canonical()

    def describe(self) -> str:
        """Describe the cell briefly, for progress and messages."""
        parts = [self.network_label, self.test_label, f"{self.payload_bytes} B"]
        if self.subscribers > 1 or self.publishers > 1:
            parts.append(f"{self.publishers}→{self.subscribers}")
        if self.transport != "unicast":
            parts.append(self.transport)
        if self.reliability != "reliable":
            parts.append(self.reliability)
        if self.middleware != DEFAULT_MIDDLEWARE:
            parts.append(self.middleware)
        if self.security != NONE:
            parts.append(self.security)
        if self.message_bytes != "auto":
            parts.append(f"messages {self.message_bytes}")
        if self.fragment_bytes != "default":
            parts.append(f"fragments {self.fragment_bytes}")
        if self.middleware_config:
            parts.append(f"config {PurePath(self.middleware_config).stem}")
        if self.discovery != "auto":
            parts.append(f"discovery by {self.discovery}")
        if self.publish_mode != "synchronous":
            parts.append(self.publish_mode)
        if self.flow_bytes:
            parts.append(f"{self.flow_bytes} B per {self.flow_period_ms} ms")
        if self.realtime_priority:
            parts.append(f"SCHED_FIFO {self.realtime_priority}")
        if self.ip_families != ip.DEFAULT:
            parts.append("+".join(self.ip_families))
        if self.policies:
            parts.append(f"{self.policies} {'policies' if self.policies > 1 else 'policy'}")
        if self.tuning != NO_TUNING:
            parts.append(f"tuning {self.tuning}")
        if self.placement == SAME_NODE:
            parts.append("on one node")
        if link := self.link.describe():
            parts.append(link)
        if self.lock_memory:
            parts.append("locked memory")
        if self.dscp:
            parts.append(f"DSCP {self.dscp}")
        if self.rate:
            parts.append(f"{self.rate:g}/s")
        if self.rate_profile != CONSTANT:
            parts.append(self.rate_profile)
        if self.instances:
            parts.append(f"{self.instances} instances")
        if self.has_several_writers:
            parts.append(f"{self.topics} topics × {self.writers} writers")
        if self.background:
            parts.append(f"background {self.background.describe()}")
        if self.profile:
            parts.append("profile")
        return " ".join(parts)


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
    """Cores to which it is pinned; None: not pinned."""
    mtu_bytes: int | None = None
    """The MTU of its interface, if the testbed knows it."""
    service: tuple[str, int] | None = None
    """Address and port of the Service by which clients reach it; None: they connect to `address`."""


def host_and_port(address: str, port: int) -> str:
    """Return `ADDRESS:PORT`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def defaults(*names: str) -> dict[str, Any]:
    """Return the default of each of these settings of a cell."""
    return {name: Cell.model_fields[name].default for name in names}


def usual_discovery(transport: Transport) -> str:
    """Return the mechanism that `discovery: auto` selects."""
    return "multicast" if transport == "multicast" else "peers"


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
