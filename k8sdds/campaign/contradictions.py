"""Find what a cell requests although no machine can do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from k8sdds import middleware, workloads
from k8sdds.discovery import SERVER
from k8sdds.model import ip_families
from k8sdds.model.link import Link
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.security import NONE, Protection
from k8sdds.model.settings import MAX_WRITERS, MIN_SAMPLE_BYTES, SAME_NODE
from k8sdds.model.trial import Cell
from k8sdds.networks import find, names_of
from k8sdds.security import levels
from k8sdds.system.cgroups import MIN_QUOTA_US
from k8sdds.system.errors import InputError


class Contradiction(NamedTuple):
    """Why a cell cannot be measured on any machine."""

    reason: str
    remedy: str = ""
    subject: str = ""
    """What the reason is about, such as a description of the cell; empty if the reason names it."""

    @property
    def what(self) -> str:
        """The subject and the reason, as a message has them."""
        return f"{self.subject}: {self.reason}" if self.subject else self.reason


def of_cell(cell: Cell) -> list[Contradiction]:
    """Return the settings of a cell that no machine can apply."""
    return [*_network_problems(cell), *_cell_problems(cell)]


def _network_problems(cell: Cell) -> Iterator[Contradiction]:
    network = find(cell.network)
    if invalid := network.options_error(cell.datapath_options):
        yield Contradiction(*invalid)
    if network.ipv4_only and "ipv6" in cell.ip_families:
        carrying = names_of(lambda other: not other.ipv4_only)
        remedy = f"set ip_families to [ipv4], or use only networks with IPv6 ({carrying})"
        yield Contradiction(f"{network.name} carries only IPv4: {network.ipv4_only}", remedy)
    if cell.policies and not network.policy:
        remedy = f"set policies only in sweeps of networks that do ({names_of(lambda other: other.policy)})"
        yield Contradiction(f"{network.name} does not enforce NetworkPolicies", remedy)
    implementation = middleware.of(cell)
    mtu = network.mtu(cell.datapath_options)
    if implementation and (unfit := implementation.unsupported_mtu(cell, mtu)):
        yield Contradiction(*unfit, cell.describe())
    if network.multicast:
        return
    multicast = names_of(lambda other: other.multicast)
    what = f"{network.name} carries no multicast between nodes"
    if cell.transport == "multicast":
        remedy = f"use multicast only on networks that carry it ({multicast}), or use unicast"
        yield Contradiction(what, remedy)
    if cell.discovery == "multicast":
        remedy = f"discover by multicast only on networks that carry it ({multicast}), or by peers"
        yield Contradiction(f"{what}, so multicast discovery cannot work", remedy)


def _cell_problems(cell: Cell) -> Iterator[Contradiction]:
    implementation = middleware.of(cell)
    if reason := unsupported(cell):
        yield Contradiction(reason, subject=cell.describe())
    if implementation is None:
        return
    try:
        if not reason and implementation.takes_qos(cell):
            middleware.qos_file(cell)
        protection = protection_of(cell)
        refused = implementation.unsupported_protection(protection) if protection else None
        if refused:
            yield Contradiction(*refused, cell.describe())
    except InputError as error:
        yield Contradiction(error.message, error.remedy)


def unsupported(cell: Cell) -> str | None:
    """Return why the cell cannot be run on any network, or None."""
    if cell.placement == SAME_NODE and (cell.link != Link() or cell.capture):
        return "placement same-node uses no link between nodes: leave out link and capture"
    if cell.placement == SAME_NODE and cell.policies:
        return "policies are proven by what they deny between nodes, but placement same-node uses one"
    workload = workloads.find(cell.test)
    implementation = middleware.of(cell)
    if implementation is None:
        return workload.unsupported(cell) or _unsupported_match(workload.matched_middleware(cell))
    if cell.payload_bytes < MIN_SAMPLE_BYTES:
        return f"a sample of a {cell.test} test has at least {MIN_SAMPLE_BYTES} bytes"
    reason = (
        workload.unsupported(cell)
        or _unsupported_graph(cell, workload.runs_graphs, implementation)
        or (_unsupported_fleet(cell, implementation) if workload.starts_fleets else None)
        or implementation.unsupported(workload.largest_cell(cell))
        or _unsupported_without_network(cell, implementation)
    )
    if reason:
        return reason
    if cell.rate_profile != CONSTANT and not workload.load(cell).on_schedule:
        return f"only a paced test follows a rate profile: set `test: paced`, or rate_profile to {CONSTANT}"
    if cell.schedule and not workload.load(cell).on_schedule:
        return "only a paced test follows a schedule: set `test: paced`, or leave out schedule"
    if cell.topics * cell.writers > MAX_WRITERS:
        return f"a publisher has at most {MAX_WRITERS} writers, not {cell.topics} × {cell.writers}"
    if cell.topics > 1 and cell.security != NONE:
        return "the permissions of k8sdds name one topic: topics must be 1 with DDS Security"
    if cell.discovery_servers > 1 and cell.discovery != SERVER:
        return "without a discovery server, there are not several: set `discovery: server`"
    if cell.discovery == SERVER:
        if implementation.service is None:
            return f"{cell.middleware} has no discovery server: discovery must be multicast or peers"
        if cell.ip_family != "ipv4":
            return "discovery servers listen on IPv4: discovery must be multicast or peers"
        if cell.security != NONE:
            return "the discovery server has no credentials, so security must be none"
    if contradiction := _unsupported_limits(cell):
        return contradiction
    if cell.batch_bytes and cell.batch_bytes < 2 * cell.payload_bytes and not cell.graph:
        return f"batch_bytes {cell.batch_bytes} holds less than two samples of {cell.payload_bytes} bytes"
    message, fragment = cell.message_bytes, cell.fragment_bytes
    if isinstance(message, int) and isinstance(fragment, int) and fragment > message:
        return f"fragment_bytes {fragment} does not fit in message_bytes {message}"
    return None


def _unsupported_limits(cell: Cell) -> str | None:
    """Return why the CPU limits of a cell contradict each other or have no effect, or None."""
    limits = cell.cpu_resources
    if limits and cell.realtime_priority:
        keys = "cpu_quota and cpu_request apply"
        return f"{keys} to the normal scheduler only: leave them out, or set realtime_priority to 0"
    if limits.quota is None and replace(limits, request=None):
        return "cpu_period_ms and cpu_burst_ms need cpu_quota"
    if limits.quota_us is not None and limits.quota_us < MIN_QUOTA_US:
        return (
            f"cpu_quota × cpu_period_ms is {limits.quota_us / 1000:g} ms, and the kernel needs at least 1 ms"
        )
    if round(limits.burst_ms * 1000) > (limits.quota_us or 0):
        return f"cpu_burst_ms must be at most {(limits.quota_us or 0) / 1000:g}, the CPU time of one period"
    if limits.quota and limits.request and limits.request > limits.quota:
        return f"cpu_request {limits.request:g} is above cpu_quota {limits.quota:g}"
    return None


def _unsupported_graph(cell: Cell, of_test: bool, implementation: middleware.Middleware) -> str | None:
    """Return why a cell does not run its graph, or the one that it does not have; `of_test`: its test needs one."""
    if bool(cell.graph) != of_test:
        return "only a graph test runs a graph: set `test: graph` and `graph`, or leave out both"
    if cell.graph and not implementation.runs_graphs:
        known = ", ".join(name for name, each in middleware.MIDDLEWARES.items() if each.runs_graphs)
        return f"{cell.middleware} does not run graphs: set middleware to one of {known}"
    return None


def _unsupported_fleet(cell: Cell, implementation: middleware.Middleware) -> str | None:
    """Return why the middleware of a cell cannot start fleets, or None."""
    if not implementation.starts_fleets:
        known = ", ".join(name for name, each in middleware.MIDDLEWARES.items() if each.starts_fleets)
        return f"{cell.middleware} does not start fleets: set middleware to one of {known}"
    fleet = workloads.find(cell.test).load(cell).fleet
    if fleet and fleet.gossip and not implementation.relays(cell):
        return "gossip needs a router of Zenoh: set middleware to zenoh and `discovery: server`"
    if fleet and fleet.super_client and not (implementation.has_super_clients and cell.discovery == SERVER):
        return "super_client needs a server of Fast DDS: set middleware to fastdds and `discovery: server`"
    return None


def _unsupported_match(name: str | None) -> str | None:
    """Return why two pods cannot match with a middleware, or None."""
    matching = [known for known, each in middleware.MIDDLEWARES.items() if each.reports_match]
    if name is None or name in matching:
        return None
    return f"dds: {name} is not a middleware that reports when two pods match: give {' or '.join(matching)}"


def _unsupported_without_network(cell: Cell, implementation: middleware.Middleware) -> str | None:
    """Return which setting contradicts `transport: shared-memory`, or needs it; or None."""
    if cell.uses_network:
        setting = (
            "dev_shm: own" if cell.dev_shm != "shared" else "users: other" if cell.users != "same" else None
        )
        return setting and f"{setting} needs `transport: shared-memory`"
    if not implementation.shared_memory:
        return f"{cell.middleware} has no shared memory: transport must be unicast or multicast"
    if cell.network == "baremetal" or cell.label or cell.network_options:
        return "transport shared-memory uses no network: networks must be of pods, without options"
    if cell.shows_path and workloads.find(cell.test).finds_capacity:
        needs = "a capacity test needs network host, dev_shm shared and users same"
        return f"whether these pods share memory is unknown: {needs}"
    if cell.users != "same" and protection_of(cell):
        return "users: other: only root may read the keys of participants: leave out security"
    if cell.link != Link() or cell.capture:
        return "transport shared-memory uses no link: leave out link and capture"
    if cell.ip_families != ip_families.DEFAULT:
        return "transport shared-memory sends no packets: leave out ip_families"
    if cell.dscp:
        return "transport shared-memory sends no packets: leave out dscp"
    if cell.placement != "spread":
        return "transport shared-memory places all participants on one node: leave out placement"
    return None


def protection_of(cell: Cell) -> Protection | None:
    """Return the DDS Security of a cell, or None."""
    return levels.resolve(cell.security, cell.security_options)
