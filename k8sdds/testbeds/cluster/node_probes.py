"""Read link counters, routes and processes of nodes with probe pods on the nodes' own network.

A node probe has no rights: any process in a node's network namespace may read links, counters and routes. A second
one sees the node's processes, to read their CPU time. Only while the fingerprint of a network is taken, a pod has the
rights to capture packets and to read packet filters. Trials with Services need another one, which reads the packet
filters and the connection tracking of the client's node. If the campaign's namespace does not allow such pods, they get
a second namespace. If they are not allowed at all, the path of packets between nodes cannot be verified, and every
trial records why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from k8sdds.kubernetes.exec_stream import CommandResult
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import machine_cpu
from k8sdds.testbeds.cluster import datapath, pods
from k8sdds.testbeds.cluster.datapath import LinkCounters
from k8sdds.testbeds.cluster.namespace import CampaignNamespace, create_for_node_probes
from k8sdds.testbeds.cluster.pod_pool import PodPlace, PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.machine_cpu import Processes

NAME = "node-probe"
MEMORY = (16 * pods.MIB, 64 * pods.MIB)
OBSERVER, COUNTER, PROCESSES = "observer", "counter", "processes"
CONNTRACK_COUNT = "/proc/sys/net/netfilter/nf_conntrack_count"
CAPABILITIES = ("NET_ADMIN", "NET_RAW")
"""Of the pod that takes a fingerprint: to read packet filters, and to capture packets. It changes nothing."""

T = TypeVar("T")


@dataclass
class NodeProbes:
    """The node probes of a campaign, created on first use."""

    namespace: CampaignNamespace
    """The campaign's namespace."""
    with_host: bool
    """Whether it allows pods on the nodes' own network."""
    image: str
    tolerations: Sequence[dict[str, str]] = ()
    _pods: PodPool | None = None
    _own_namespace: CampaignNamespace | None = None
    _worked: set[str] = field(default_factory=set)
    """Which kinds of pods have been read once."""
    _obstacles: dict[str, str] = field(default_factory=lambda: {NAME: "", PROCESSES: ""})

    @property
    def unavailable(self) -> str:
        """Why the last reading of link counters failed; empty if it succeeded."""
        return self._obstacles[NAME]

    @property
    def processes_unavailable(self) -> str:
        """Why the last reading of processes failed; empty if it succeeded."""
        return self._obstacles[PROCESSES]

    def read_counters(self, nodes: Iterable[str], addresses: Sequence[str] = ()) -> dict[str, LinkCounters]:
        """Return the links of nodes and their routes to addresses, by node; empty if unreadable: see `unavailable`."""
        slots = [_slot(node) for node in sorted(set(nodes))]
        return self._read(NAME, slots, [*datapath.COMMAND, *addresses], _parse_counters)

    def processes(self, nodes: Iterable[str]) -> dict[str, Processes]:
        """Return the processes of these nodes by node; empty if they cannot be read: see `processes_unavailable`.

        Other pods read them: a cluster may allow the nodes' network to pods, but not the nodes' processes.
        """
        slots = [_slot(node, PROCESSES) for node in sorted(set(nodes))]
        return self._read(PROCESSES, slots, [pods.SUPERVISOR, machine_cpu.COMMAND], _parse_processes)

    def _read(
        self, kind: str, slots: Sequence[Slot], argv: Sequence[str], parse: Callable[[str, CommandResult], T]
    ) -> dict[str, T]:
        """Run a command on each node and return the outputs; empty if one failed, with the reason in `_obstacles`."""
        if self._obstacles[kind] and kind not in self._worked:
            return {}  # no need to try again
        try:
            pool = self._pool()
            pool.ensure(slots)
            results = pool.run_all([(slot, argv) for slot in slots])
            found = {slot.node: parse(slot.node, result) for slot, result in zip(slots, results, strict=True)}
        except (PrerequisiteError, reading.UnreadableError) as error:
            self._obstacles[kind] = error.message
            if self._pods is not None:
                self._pods.invalidate()
            return {}
        self._obstacles[kind] = ""
        self._worked.add(kind)
        return found

    def tracked_connections(self, node: str) -> int | None:
        """Return the number of entries in the connection tracking of a node; None if the node does not show it."""
        try:
            pool, probe = self._pool(), _slot(node)
            pool.ensure([probe])
            shown = pool.run(probe, ["cat", CONNTRACK_COUNT]).stdout.decode(errors="replace").strip()
        except PrerequisiteError:
            return None
        return int(shown) if shown.isdecimal() else None

    @contextmanager
    def observing(self, node: str) -> Iterator[PodPlace]:
        """Yield a pod on a node's own network that can read what the node does with packets, and delete it at the end.

        If this user may not create such a pod, the pod has no rights, so that a part cannot be observed. Raises
        PrerequisiteError if no pod can be created on the node's own network.
        """
        pool, observer = self._pool(), _slot(node, OBSERVER, CAPABILITIES)
        try:
            pool.ensure([observer])
        except PrerequisiteError:
            observer = _slot(node)
            pool.ensure([observer])
        try:
            yield PodPlace(pool, observer)
        finally:
            pool.delete_unless(keep=lambda slot: slot.participant != OBSERVER)

    def counting(self, node: str) -> PodPlace:
        """Return a pod on a node's own network that can read packet filters and tracked connections. It is kept.

        Raises PrerequisiteError if no such pod can be created.
        """
        pool, counter = self._pool(), _slot(node, COUNTER, ("NET_ADMIN",))
        pool.ensure([counter])
        return PodPlace(pool, counter)

    def _pool(self) -> PodPool:
        if self._pods is None:
            target = self.namespace
            if target.owned and not self.with_host:
                target = self._own_namespace = create_for_node_probes(target)
            self._pods = PodPool(target, self.image, MEMORY, tolerations=self.tolerations)
        return self._pods

    def close(self) -> None:
        """Stop watching the pods, and delete the second namespace. Safe to call twice."""
        if self._pods is not None:
            self._pods.close()
            self._pods = None
        if self._own_namespace is not None:
            own_namespace, self._own_namespace = self._own_namespace, None
            own_namespace.delete()


def _slot(node: str, name: str = NAME, capabilities: tuple[str, ...] = ()) -> Slot:
    return Slot(
        name, pods.NODE_PROBE, node, True, capabilities=capabilities, sees_processes=name == PROCESSES
    )


def _parse_counters(node: str, result: CommandResult) -> LinkCounters:
    try:
        return datapath.parse_counters(result.stdout.decode(errors="replace"))
    except ValueError as error:
        reason = reading.one_line(result.stderr.decode(errors="replace"), 200) or str(error)
        raise PrerequisiteError(f"cannot read the links of node {node}: {reason}") from error


def _parse_processes(node: str, result: CommandResult) -> Processes:
    return machine_cpu.parse(result.stdout, f"the list of processes of {node}")
