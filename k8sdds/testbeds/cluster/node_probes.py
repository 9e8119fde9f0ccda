"""Read link counters, routes and processes of nodes with probe pods on the nodes' own network.

A node probe has no rights: any process in a node's network namespace may read links, counters and routes. A second
one sees the node's processes, to read their CPU time. Only while the fingerprint of a network is taken, a pod has the
rights to capture packets and to read packet filters. Trials with Services need another one, which reads the packet
filters and the connection tracking of the client's node. If the campaign's namespace does not allow such pods, they get
a second namespace. If they are not allowed at all, the path of packets between nodes cannot be verified, and every
trial records why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from k8sdds import workloads
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.trial import Cell
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import machine_cpu
from k8sdds.testbeds.cluster import datapath, namespace, pods
from k8sdds.testbeds.cluster.datapath import LinkCounters
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.places import PodPlace
from k8sdds.testbeds.cluster.pod_pool import PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.machine_cpu import Processes

NAME, ROLE = "node-probe", "probe"
MEMORY = (16 * pods.MIB, 64 * pods.MIB)
OBSERVER, COUNTER, PROCESSES = "observer", "counter", "processes"
CONNTRACK_COUNT = "/proc/sys/net/netfilter/nf_conntrack_count"
CAPABILITIES = ("NET_ADMIN", "NET_RAW")
"""Of the pod that takes a fingerprint: to read packet filters, and to capture packets. It changes nothing."""


class NodeProbes:
    """The node probes of a campaign, created on first use."""

    def __init__(
        self,
        client: KubernetesClient,
        campaign_namespace: CampaignNamespace,
        with_host: bool,
        image: str,
        campaign: str,
        tolerations: Sequence[dict[str, str]] = (),
    ) -> None:
        """Create no pods yet. `with_host`: the campaign's namespace allows pods on the nodes' own network."""
        self._client = client
        self._campaign_namespace = campaign_namespace
        self._with_host = with_host
        self._image = image
        self._campaign = campaign
        self._tolerations = tolerations
        self._pods: PodPool | None = None
        self._own_namespace: CampaignNamespace | None = None
        self._has_worked = False
        self._has_seen_processes = False
        self.processes_unavailable = ""
        """Why the processes of the nodes could not be read; empty if they could."""
        self.unavailable = ""
        """Why the last reading failed; empty if it succeeded."""

    def read_counters(self, nodes: Iterable[str], addresses: Sequence[str] = ()) -> dict[str, LinkCounters]:
        """Return the current links of these nodes and their routes to addresses.

        Returns:
            Counters by node; empty if they cannot be read, with the reason in `unavailable`.
        """
        if self.unavailable and not self._has_worked:
            return {}  # no need to try again
        try:
            counters = self._read_counters(sorted(set(nodes)), addresses)
        except PrerequisiteError as error:
            self.unavailable = error.message
            if self._pods is not None:
                self._pods.invalidate()
            return {}
        self.unavailable, self._has_worked = "", True
        return counters

    def prepare_processes(self, nodes: Iterable[str]) -> None:
        """Create the missing pods that read the processes of these nodes.

        They are pods of their own: a cluster may allow the nodes' network to pods, but not the nodes' processes.
        """
        if self.processes_unavailable and not self._has_seen_processes:
            return  # no need to try again
        try:
            self._pool().ensure(_process_slots(nodes))
            self.processes_unavailable = ""
        except PrerequisiteError as error:
            self.processes_unavailable = error.message

    def processes(self, nodes: Iterable[str]) -> dict[str, Processes]:
        """Return the processes of these nodes, whose pods must be prepared.

        Returns:
            Processes by node; empty if they cannot be read, with the reason in `processes_unavailable`.
        """
        if self.processes_unavailable:
            return {}
        slots = _process_slots(nodes)
        pool = self._pool()
        try:
            results = pool.run_all([(slot, [pods.SUPERVISOR, machine_cpu.COMMAND]) for slot in slots])
            found = {
                slot.node: machine_cpu.parse(result.stdout, f"the list of processes of {slot.node}")
                for slot, result in zip(slots, results, strict=True)
            }
        except (PrerequisiteError, reading.UnreadableError) as error:
            self.processes_unavailable = error.message
            pool.invalidate()
            return {}
        self._has_seen_processes = True
        return found

    def tracked_connections(self, cell: Cell, node: str) -> int | None:
        """Return the number of entries in the connection tracking of a node.

        Returns:
            None: the cell's test does not record it, or the node's network does not show it.
        """
        if "conntrack_entries" not in workloads.find(cell.test).metrics:
            return None
        probe = Slot(NAME, ROLE, node, True, None)
        try:
            pool = self._pool()
            pool.ensure([probe])
            shown = pool.run(probe, ["cat", CONNTRACK_COUNT]).stdout.decode(errors="replace").strip()
        except PrerequisiteError:
            return None
        return int(shown) if shown.isdecimal() else None

    @contextmanager
    def observing(self, node: str) -> Iterator[PodPlace]:
        """Yield a pod on a node's own network that can read what the node does with packets, and delete it at the end.

        If this user may not create such a pod, the pod has no rights, so that a part cannot be observed.

        Raises:
            PrerequisiteError: No pod can be created on the node's own network.
        """
        pool, observer = self._pool(), Slot(OBSERVER, ROLE, node, True, None, CAPABILITIES)
        try:
            pool.ensure([observer])
        except PrerequisiteError:
            observer = Slot(NAME, ROLE, node, True, None)
            pool.ensure([observer])
        try:
            yield PodPlace(pool, observer)
        finally:
            pool.delete_unless(keep=lambda slot: slot.participant != OBSERVER)

    def counting(self, node: str) -> PodPlace:
        """Return a pod on a node's own network that can read packet filters and tracked connections. It is kept.

        Raises:
            PrerequisiteError: No such pod can be created.
        """
        pool, counter = self._pool(), Slot(COUNTER, ROLE, node, True, None, ("NET_ADMIN",))
        pool.ensure([counter])
        return PodPlace(pool, counter)

    def _pool(self) -> PodPool:
        if self._pods is None:
            target = self._campaign_namespace
            if target.owned and not self._with_host:
                target = self._own_namespace = namespace.create_for_node_probes(target, self._campaign)
            self._pods = PodPool(
                self._client, target, self._image, MEMORY, self._campaign, tolerations=self._tolerations
            )
        return self._pods

    def _read_counters(self, nodes: Sequence[str], addresses: Sequence[str]) -> dict[str, LinkCounters]:
        pool = self._pool()
        slots = [Slot(NAME, ROLE, node, True, None) for node in nodes]
        pool.ensure(slots)
        results = pool.run_all([(slot, [*datapath.COMMAND, *addresses]) for slot in slots])
        counters = {}
        for node, result in zip(nodes, results, strict=True):
            try:
                counters[node] = datapath.parse_counters(result.stdout.decode(errors="replace"))
            except ValueError as error:
                reason = " ".join(result.stderr.decode(errors="replace").split())[:200] or str(error)
                raise PrerequisiteError(f"cannot read the links of node {node}: {reason}") from error
        return counters

    def close(self) -> None:
        """Stop watching the pods, and delete the second namespace. Safe to call twice."""
        if self._pods is not None:
            self._pods.close()
            self._pods = None
        if self._own_namespace is not None:
            own_namespace, self._own_namespace = self._own_namespace, None
            own_namespace.delete()


def _process_slots(nodes: Iterable[str]) -> list[Slot]:
    return [Slot(PROCESSES, ROLE, node, True, None, sees_processes=True) for node in sorted(set(nodes))]
