"""Define participants, cells and trials, with stable ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal

from pydantic import Field

from k8sdds.model import graph
from k8sdds.model.axis import MACHINE, NETWORK, Axis, axes, payload
from k8sdds.model.graph import GraphNode
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.link import STANDARD_MTU
from k8sdds.model.machine_settings import MachineSettings, usual_nodes
from k8sdds.model.settings import HOST, SAME_NODE, SHARED_MEMORY
from k8sdds.model.workload_settings import usual_discovery, usual_qos
from k8sdds.system.cgroups import CPU_REQUEST, CpuResources
from k8sdds.system.strict import Strict
from k8sdds.versions import UNPRIVILEGED_USER

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
        """The name of its pod, folder and JSON key: `pub0`, `sub3`, `discovery`; `discovery1` is the second server."""
        unnumbered = not self.index and self.role in ("discovery", "standby")
        return self.short_role if unnumbered else f"{self.short_role}{self.index}"

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


IP_FAMILIES = "ip_families"
"""Option of a network with the IP families of its nodes and pods."""
MTU_OF_LINKS = "link_mtu"
"""Option of a network with the MTU of the nodes' links."""

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


class Cell(MachineSettings):
    """One combination of a sweep, fully specified: what is sent, and by which machines."""

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
        mtu = {} if self.link.mtu == STANDARD_MTU else {MTU_OF_LINKS: self.link.mtu}
        return self.network_options | mtu | self._changed(_OPTIONS)

    @property
    def ip_family(self) -> IpFamily:
        """The IP version of the participants' packets."""
        return self.ip_families[0]

    @property
    def uses_network(self) -> bool:
        """Whether samples cross a network; otherwise they stay in the shared memory of one node."""
        return self.transport != SHARED_MEMORY

    @property
    def shows_path(self) -> bool:
        """Whether the result includes which way samples took, because the pods may not reach each other's memory."""
        return not self.uses_network and (not self.in_one_pod or self.users != "same")

    @property
    def in_one_pod(self) -> bool:
        """Whether a cluster runs all participants in one pod, so that they have one network and one `/dev/shm`."""
        return not self.uses_network and self.network == HOST and self.dev_shm == "shared"

    @property
    def shares_memory_of_node(self) -> bool:
        """Whether the participants are pods with networks of their own and one `/dev/shm`."""
        return not self.uses_network and not self.in_one_pod and self.dev_shm == "shared"

    def user_of(self, participant: Participant) -> int | None:
        """Return the user id that only this participant has; None if all have the same one, and for other pods."""
        separate = self.users != "same" and participant in self.participants
        return UNPRIVILEGED_USER - self.participants.index(participant) if separate else None

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
    def graph_nodes(self) -> dict[Participant, GraphNode]:
        """The node of the graph that each participant is; empty without a graph."""
        nodes = graph.parse(self.graph).members if self.graph else {}
        return {Participant.named(name): node for name, node in nodes.items()}

    @property
    def publishing(self) -> list[Participant]:
        """The participants that publish, which includes most nodes of a graph."""
        nodes = self.graph_nodes
        return [it for it in self.participants if (nodes[it].publishes if nodes else it.publishes)]

    @property
    def subscribing(self) -> list[Participant]:
        """The participants that subscribe, whatever their role in a graph is."""
        nodes = self.graph_nodes
        return [it for it in self.participants if (nodes[it].subscribes if nodes else it.subscribes)]

    @property
    def pairs(self) -> list[tuple[Participant, Participant]]:
        """Each participant that publishes with each one that receives from it."""
        if not self.graph:
            return list(product(self.publishing, self.subscribing))
        whole = graph.parse(self.graph)
        return self._pairs((flow.name, flow.name) for flow in whole.flows)

    def name_of(self, participant: Participant) -> str:
        """Return the name by which users know a participant: that of its node in a graph."""
        node = self.graph_nodes.get(participant)
        return node.name if node else participant.name

    @property
    def timed_pairs(self) -> list[tuple[Participant, Participant]]:
        """`pairs`, and the publisher of the origin of each chain with the subscribers at its end."""
        if not self.graph:
            return self.pairs
        whole = graph.parse(self.graph)
        chains = self._pairs((whole.chain(flow.name)[0], flow.name) for flow in whole.flows)
        return list(dict.fromkeys([*self.pairs, *chains]))

    def _pairs(self, flows: Iterable[tuple[str, str]]) -> list[tuple[Participant, Participant]]:
        """Return the publisher of one flow with each subscriber of another, for each of these flows of the graph."""
        whole = graph.parse(self.graph)
        members = {node.name: it for it, node in self.graph_nodes.items()}
        found = [
            (members[whole.publisher(first).name], members[node.name])
            for first, last in flows
            for node in whole.subscribers(last)
        ]
        return list(dict.fromkeys(found))

    @property
    def services(self) -> list[Participant]:
        """Processes that run in pods of their own while the participants run."""
        servers = self.discovery_servers if self.discovery == "server" else 0
        return [replace(DISCOVERY_SERVER, index=index) for index in range(servers)]

    @property
    def loads(self) -> list[Participant]:
        """The pods of the background."""
        return [LOAD_SOURCE, LOAD_SINK] if self.background.flows else [LOAD_SOURCE] * bool(self.background)

    @property
    def pods(self) -> list[Participant]:
        """Participants, then services, then the pods of the background."""
        return self.participants + self.services + self.loads

    @property
    def cpu_resources(self) -> CpuResources:
        """The CPU limit and request of each participant's pod."""
        return CpuResources(self.cpu_quota, self.cpu_period_ms, self.cpu_burst_ms, self.cpu_request)

    def cpu_resources_of(self, pod: str) -> CpuResources:
        """Return the limit and request of a pod. The pods of services and of the background have the usual request."""
        if pod in {participant.name for participant in self.participants}:
            return self.cpu_resources
        return CpuResources(request=CPU_REQUEST if self.cpu_request else None)

    @property
    def discovery_kind(self) -> str:
        """The discovery mechanism: `multicast`, `peers` or `server`."""
        return usual_discovery(self.transport) if self.discovery == "auto" else self.discovery

    @property
    def cell_id(self) -> str:
        """12 hexadecimal digits of the SHA-256 of `canonical`."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:12]

    def canonical(self) -> str:
        """Return the cell as JSON without defaults: sorted keys, no spaces, whole floats as integers."""
        named = self.model_copy(update={"link": self.link.without_places()})
        data = named.model_dump(mode="json", exclude_defaults=True, exclude={"middleware_config", "schedule"})
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
        described = set(AXES) - {*without, "middleware_config_sha256", "schedule_sha256"}
        return [AXES[name].phrase(value) for name, value in self._changed(described).items()]

    def _changed(self, names: Collection[str]) -> dict[str, Any]:
        """Return those of these settings that are not the default, in the order of `AXES`."""
        values = {name: getattr(self, name) for name in AXES if name in names}
        return {name: value for name, value in values.items() if value != AXES[name].default}


AXES: Mapping[str, Axis] = axes(Cell)
"""The settings of a trial, by their name."""
OF_EACH_FLOW = ("reliability", "batch_bytes")
"""Settings that the text of a graph states of each flow, and that an application may choose."""
_OPTIONS = {name for name, axis in AXES.items() if axis.scope in (NETWORK, MACHINE)} - {"network", "link"}
"""Those that a network and its nodes are built with, like options of the network. Of the links, that is the MTU."""


class Trial(Strict):
    """One cell, one repetition, on one testbed. Ids ignore the durations and the accepted loss."""

    cell: Cell
    testbed: str
    repetition: int = Field(ge=0)
    duration_s: float
    warmup_s: float
    max_loss_percent: float = MAX_LOSS_PERCENT

    @property
    def may_lose(self) -> bool:
        """Whether lost samples are a result though they are reliable: over impaired links, if all loss is accepted."""
        return self.cell.link.exceeds_short_keys and self.max_loss_percent == 100

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


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
