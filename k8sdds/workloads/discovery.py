"""The discovery workload: how long a fleet of participants that start takes until all have found each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from k8sdds.discovery import SERVER
from k8sdds.model.options import MAX_FLEET_MEMBERS, DiscoveryOptions
from k8sdds.model.reason import NO_MATCH, Reason
from k8sdds.model.trial import AXES, FIRST_SUBSCRIBER, PUBLISHER, SUBSCRIBER, Cell, Participant, Role, Trial
from k8sdds.perftest.command import Fleet, Load
from k8sdds.perftest.documents import FleetProcess, FleetTraffic, Found
from k8sdds.results import aggregate, arrivals
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import Workload

MATCH = "match"
"""Tag of the times in which pairs matched."""
SHOWN_FAILURES = 5
"""Failures of members that a record states; the others are in the raw files."""
LONGEST_S = 100
"""Longest time that the histograms of k8sdds-perftest distinguish."""
_REFUSED = {
    name: AXES[name].default
    for name in (
        "rate", "rate_profile", "schedule", "graph", "batch_bytes", "instances", "writers", "dscp", "lock_memory",
        "publish_mode", "flow_bytes", "receive_mode",
    )
} | {"capture": False}  # fmt: skip
"""Settings that fleets do not have, with the value that means none."""
_OF_NODE = ("host", "baremetal")
"""Networks whose pods use the interfaces of their node."""


class Discovery(Workload):
    """How long the publishing and the subscribing members of a fleet take to find each other, and what that costs."""

    name = "discovery"
    metrics: tuple[str, ...] = (
        "fleet_matched_s", "unmatched_percent", "fleet_p50_s", "fleet_first_s", "fleet_rematched_s", "broken_percent",
        "fleet_returned_s", "fleet_packets", "fleet_bytes", "fleet_cpu_s", "steady_packets_per_s", "steady_cpu_percent",
        "member_memory_bytes",
    )  # fmt: skip
    columns: tuple[str, ...] = ("fleet", "fleet_kinds", "outage_s")
    measured_by = SUBSCRIBER
    mode = "discovery"
    starts_fleets = counts_kinds = True
    timed_by: tuple[str, ...] = ("start_s", "change", "steady_s")

    def _options(self, cell: Cell) -> DiscoveryOptions:
        options = self.options(**cell.test_options)
        assert isinstance(options, DiscoveryOptions)
        return options

    @property
    @override
    def headlines(self) -> tuple[str, ...]:
        return "fleet_matched_s", "unmatched_percent"

    @override
    def unsupported(self, cell: Cell) -> str | None:
        options = self._options(cell)
        most = fleet_of(cell, options).of(max(cell.publishers, cell.subscribers))
        if most > MAX_FLEET_MEMBERS:
            return (
                f"a fleet has at most {MAX_FLEET_MEMBERS} members of a role, not {most}: lower processes, members or"
                " pods"
            )
        if not cell.uses_network:
            return "members of a fleet find each other by a network: leave out shared-memory"
        for name, usual in _REFUSED.items():
            if getattr(cell, name) != usual:
                return f"members of a fleet send no samples, and have no {name}: leave it out"
        if options.start_s and options.change != "none" and (options.change_s or 0) < options.start_s:
            return f"change needs all members to have started: set change_s to {options.start_s:g} or more"
        if options.restarts_server and cell.discovery != SERVER:
            return "without a discovery server, none can restart: set `discovery: server`"
        if options.restarts_server and cell.link.outages:
            return "restart-server is the only failure of a trial: leave out `outages` of the link"
        return None

    @override
    def least_s(self, cell: Cell) -> float:
        return length_s(self._options(cell), 1)

    @override
    def most_s(self, cell: Cell) -> float:
        return LONGEST_S

    @override
    def load(self, cell: Cell) -> Load:
        return Load(fleet=self._fleet(cell))

    @override
    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        trial, reports = outputs.trial, _reports(outputs)
        processes = [process for own in reports.values() for process in own]
        if not processes or None in outputs.summaries.values():
            return
        fleet = self._fleet(trial.cell)
        found, changed, broken = (
            _Pairs.of(filter(None, (getattr(one, name) for one in processes)))
            for name in ("found", "changed", "broken")
        )
        record.fleet_first_s, record.fleet_matched_s = found.first_s, found.all_s
        record.unmatched_percent = aggregate.ratio(
            found.pairs + changed.pairs - found.matched - changed.matched, found.pairs + changed.pairs, 100
        )
        record.fleet_p50_s = _half_s(outputs, found)
        record.missing = {
            key: f"{pairs.matched} of {pairs.pairs} matches in {trial.duration_s:g} s"
            for key, pairs in {
                "fleet_matched_s": found,
                "fleet_rematched_s": changed,
                "fleet_returned_s": broken,
            }.items()
            if pairs.pairs > pairs.matched
        } or None
        record.fleet_rematched_s, record.fleet_returned_s = changed.all_s, broken.all_s
        if all(one.broken for one in processes):
            record.broken_percent = aggregate.ratio(broken.pairs, found.matched + changed.matched, 100)
        if restart := arrivals.interruption(outputs.folder):
            record.outage_s = restart.length_s
        record.fleet = _described(trial.cell, fleet, reports, found, changed)
        record.fleet_kinds = _kinds(outputs, fleet.steady_s)
        at_rest = _is_at_rest(trial, fleet, found, changed, broken)
        _set_costs(record, processes, fleet.steady_s if at_rest else None)
        if trial.cell.network not in _OF_NODE:
            _set_traffic(record, outputs, fleet.steady_s if at_rest else None)

    @override
    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        reports, fleet = _reports(outputs), self._fleet(outputs.trial.cell)
        in_pod = fleet.of(1)
        if fleet.restarts_server and (missed := _missed_restart(outputs, fleet)):
            return Reason("no-outage", missed)
        for participant, own in reports.items():
            if sum(one.members for one in own if not one.killed) != in_pod:
                return Reason("no-report", f"{participant} did not report all members of its processes")
        processes = [process for own in reports.values() for process in own]
        if not any(one.found.matched for one in processes) and not _heard(outputs, in_pod):
            errors = [failure.error for one in processes for failure in one.failures]
            return Reason(NO_MATCH, f"no members matched{f': {errors[0]}' if errors else ''}")
        return None

    @override
    def describe(self, record: Metrics) -> str:
        if record.fleet is None:
            return "matches of members unknown"
        matched = f"{record.fleet['matched']} of {record.fleet['expected']} matches of two members"
        if record.fleet_matched_s is None:
            return matched
        return f"{matched}, the last one after {number(record.fleet_matched_s)} s"

    def _fleet(self, cell: Cell) -> Fleet:
        return fleet_of(cell, self._options(cell))


@dataclass(frozen=True)
class _Pairs:
    """Matches of members: each pair has two, one from each side."""

    pairs: int
    matched: int
    first_s: float | None
    last_s: float | None

    @classmethod
    def of(cls, parts: Iterable[Found]) -> _Pairs:
        every = list(parts)
        first = [part.first_ns / 1e9 for part in every if part.first_ns is not None]
        last = [part.last_ns / 1e9 for part in every if part.last_ns is not None]
        pairs, matched = sum(part.pairs for part in every), sum(part.matched for part in every)
        return cls(pairs, matched, min(first, default=None), max(last, default=None))

    @property
    def all_s(self) -> float | None:
        """When all had matched; None if some did not."""
        return self.last_s if self.pairs == self.matched else None


def fleet_of(cell: Cell, options: DiscoveryOptions) -> Fleet:
    """Return what each participant of a cell with these options of its test starts."""
    in_pod = options.processes * options.members
    restarts = {"restart-process": options.members, "restart-pod": in_pod}
    count = ({"late": 1, "restart-server": 1} | restarts).get(options.change)
    return Fleet(
        processes=options.processes,
        members=options.members,
        start_s=options.start_s,
        steady_s=options.steady_s,
        changed=None if count is None else (cell.publishers * in_pod - count, count),
        restarts=options.change in restarts,
        change_s=options.change_s,
        index_limit=options.index_limit,
        gossip=options.gossip,
        super_client=options.super_client,
        ahead_s=options.ahead_s,
    )


def length_s(options: DiscoveryOptions, after_s: float) -> float:
    """Return the length of a trial in which all members have `after_s` to match before `steady_s` begins.

    These are also the members that start late or again. Without `change_s`, they start later in a longer trial.
    """
    if options.change != "none" and options.change_s is None:
        return 2 * (options.ahead_s + after_s) + options.steady_s
    return max(options.change_s or 0, options.start_s) + options.ahead_s + after_s + options.steady_s


def _missed_restart(outputs: TrialOutputs, fleet: Fleet) -> str | None:
    """Return why the discovery server was not restarted before the late member was to start; None if it was.

    On clusters, the moments of the restart are by the clock of the first subscriber's machine. All participants
    started at the same time.
    """
    restart = arrivals.interruption(outputs.folder)
    if restart is None:
        return "the trial ended before the discovery server was killed and started again"
    interval = outputs.meters_of(FIRST_SUBSCRIBER).get("interval") or {}
    start_ns: int | None = interval.get("start_monotonic_ns")
    late_s = fleet.changed_at_s(outputs.trial.duration_s)
    if start_ns is not None and restart.repaired_us < start_ns / 1000 + late_s * 1e6:
        return None
    return (
        f"the discovery server was not killed and started again in the {fleet.ahead_s:g} s before the late member"
        " started: set a longer late_s"
    )


def _reports(outputs: TrialOutputs) -> dict[Participant, list[FleetProcess]]:
    """Return what the processes of each participant reported."""
    return {
        participant: [
            FleetProcess.model_validate(one) for one in (summary["fleet"] or {}).get("processes", ())
        ]
        for participant, summary in outputs.summaries.items()
        if summary is not None
    }


def _heard(outputs: TrialOutputs, in_pod: int) -> bool:
    """Return whether each pod got a packet for each of its members: too many members are a reason to find none."""
    return all(one is not None and one.received_packets >= in_pod for one in _traffic(outputs, "traffic"))


def _traffic(outputs: TrialOutputs, key: str) -> list[FleetTraffic | None]:
    """Return what the interface of each pod carried, in the whole trial or its last part; None if it is unknown."""
    fleets = (summary["fleet"] or {} for summary in outputs.summaries.values() if summary is not None)
    return [FleetTraffic.of(fleet.get(key)) for fleet in fleets]


def _half_s(outputs: TrialOutputs, found: _Pairs) -> float | None:
    """Return the median time of the matches; None if fewer than half came."""
    times = outputs.latencies.get(MATCH)
    if times is None or not found.matched or 2 * found.matched < found.pairs:
        return None
    return float(times.percentiles([50 * found.pairs / found.matched])[0]) / 1e9


def _is_at_rest(trial: Trial, fleet: Fleet, found: _Pairs, changed: _Pairs, broken: _Pairs) -> bool:
    """Return whether all pairs had matched before the last part of the trial, and those that broke matched again."""
    if found.all_s is None or any(pairs.pairs and pairs.all_s is None for pairs in (changed, broken)):
        return False
    ends = [fleet.start_s + found.all_s]
    ends += [fleet.changed_at_s(trial.duration_s) + changed.all_s] if changed.all_s is not None else []
    return max(ends) <= trial.duration_s - fleet.steady_s


def _set_costs(record: Metrics, processes: Sequence[FleetProcess], steady_s: float | None) -> None:
    steady = sum(one.steady_cpu_s for one in processes)
    record.fleet_cpu_s = sum(one.cpu_s for one in processes) - steady
    record.steady_cpu_percent = None if steady_s is None else 100 * steady / steady_s
    living = [one for one in processes if not one.killed]
    record.member_memory_bytes = aggregate.ratio(
        sum(one.memory_bytes for one in living), sum(one.created for one in living)
    )


def _set_traffic(record: Metrics, outputs: TrialOutputs, steady_s: float | None) -> None:
    """Set what the interfaces of all pods sent; nothing if a pod has no interface of its own."""
    every, rest = (_traffic(outputs, key) for key in ("traffic", "steady_traffic"))
    if None in every or None in rest:
        return
    packets, bytes_ = (
        sum(getattr(one, name) for one in every) - sum(getattr(one, name) for one in rest)
        for name in ("sent_packets", "sent_bytes")
    )
    record.fleet_packets, record.fleet_bytes = packets, bytes_
    if steady_s is not None:
        record.steady_packets_per_s = sum(one.sent_packets for one in rest if one) / steady_s


def _kinds(outputs: TrialOutputs, steady_s: float) -> dict[str, Any] | None:
    """Return the packets and bytes of each kind that all pods sent, before the last part of the trial and in it."""
    if not (counted := outputs.measurement.kinds):
        return None
    starts = [(meters.get("interval") or {}).get("start_monotonic_ns") for meters in outputs.meters.values()]
    if None in starts or any(counts.dropped_packets for counts in counted.values()):
        return None
    rest_ns = max(filter(None, starts)) + round((outputs.trial.duration_s - steady_s) * 1e9)
    found: dict[str, dict[str, list[int]]] = {"discovery": {}, "steady": {}}
    for counts in counted.values():
        for interval, kind, packets, size in counts.rows:
            began_ns = counts.start_monotonic_ns + interval * counts.interval_ns
            totals = found["discovery" if began_ns < rest_ns else "steady"].setdefault(kind, [0, 0])
            totals[0] += packets
            totals[1] += size
    return {
        part: {kind: {"packets": packets, "bytes": size} for kind, (packets, size) in sorted(totals.items())}
        for part, totals in found.items()
    }


def _described(
    cell: Cell,
    fleet: Fleet,
    reports: Mapping[Participant, list[FleetProcess]],
    found: _Pairs,
    changed: _Pairs,
) -> dict[str, Any]:
    """Return the column `fleet` of a record."""
    processes = [process for own in reports.values() for process in own]
    members: dict[Role, int] = {PUBLISHER: fleet.of(cell.publishers), SUBSCRIBER: fleet.of(cell.subscribers)}
    failures = [
        {"role": participant.role, "member": failure.member, "error": failure.error}
        for participant, own in reports.items()
        for one in own
        if not one.killed
        for failure in one.failures
    ]
    return {
        "members": members,
        "created": sum(one.created for one in processes if not one.killed),
        "created_s": max(one.created_ns for one in processes) / 1e9,
        "absent": {role: _absent(reports, role, members) for role in members},
        "failures": failures[:SHOWN_FAILURES],
        "expected": found.pairs + changed.pairs,
        "matched": found.matched + changed.matched,
    }


def _absent(
    reports: Mapping[Participant, list[FleetProcess]], role: Role, members: Mapping[Role, int]
) -> list[int]:
    """Return the members of a role that no member of the other role has found."""
    other = SUBSCRIBER if role == PUBLISHER else PUBLISHER
    processes = [one for it, own in reports.items() if it.role == other for one in own if not one.killed]
    missed = [ranges for one in processes for ranges in one.missing.values()]
    if len(missed) < sum(one.members for one in processes):
        # A member has found all of the role.
        return []
    unseen = set(range(members[role]))
    for ranges in missed:
        unseen &= {
            number for first, last in ranges for number in range(first, min(last, MAX_FLEET_MEMBERS) + 1)
        }
    return sorted(unseen)
