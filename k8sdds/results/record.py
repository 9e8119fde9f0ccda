"""Define the record of an attempt: one line of trials.jsonl.

`TrialRecord` declares every key. `make docs` generates the tables in docs/reference/run-folder.md from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from k8sdds.model.axis import Axis, axes
from k8sdds.model.link import Link
from k8sdds.model.options import OPTION_COLUMNS
from k8sdds.model.reason import DAMAGED, Reason
from k8sdds.model.trial import AXES
from k8sdds.results.columns import Column, column, columns_of, impossible, parsed
from k8sdds.results.fingerprint import Fingerprint
from k8sdds.results.histograms import PERCENTILES
from k8sdds.results.metrics import (
    LINKED,
    METRICS,
    PROCESS,
    PROFILED,
    SOME_TESTS,
    TUNED,
    Metrics,
)
from k8sdds.results.profile import ProfileSummary
from k8sdds.system.numbers import finite
from k8sdds.system.reading import one_line
from k8sdds.system.shapes import Count, Finite, Integer, Number, Shape
from k8sdds.system.strict import MAX_TITLE, Strict, explain
from k8sdds.versions import RUN_FOLDER as SCHEMA

LOADED_LATENCY_SINCE = 3
"""Schema since which a throughput test times samples only if it asks for it."""


class Subject(BaseModel):
    """Which trial was attempted: its identity, its network and its test."""

    model_config = ConfigDict(extra="allow")

    # fmt: off
    schema_: int | None = Field(default=SCHEMA, alias="schema", description=f"Version of this format: {SCHEMA}",
        json_schema_extra={"group": "identity", "source": "campaign"})
    trial_id: str | None = column("identity", "campaign",
        "Stable id of the trial: `cell_id`, testbed and repetition")
    cell_id: str | None = column("identity", "campaign", "Stable id of the cell: a hash of what is measured")
    attempt: int | None = column("identity", "campaign", "Number of the attempt; the first attempt is 1")
    testbed: str | None = column("identity", "campaign",
        "`lab` or `cluster`; `imported` for data that others published")
    network: str | None = column("cell", "experiment", "`host`, `flannel-vxlan`, …")
    network_label: str | None = column("cell", "experiment",
        "Name of the network in tables and figures; distinguishes variants of one network")
    network_options: dict[str, Any] | None = column("cell", "experiment",
        'Options of the network, such as `{"mtu": 1376}`')
    security_options: dict[str, Any] | None = column("cell", "experiment",
        "Parts of `security` that the experiment sets", only="trials with a `security` of several parts")
    profiled: bool | None = column("cell", "campaign",
        "Whether the trial was profiled, so that it never enters statistics", only=PROFILED)
    test: str | None = column("cell", "experiment", "`throughput`, `latency`, `paced`, `tcp-stream`, …")
    # fmt: on


def _columns_of_settings() -> dict[str, Any]:
    """Return a column for each option of a test and each further setting of a cell, for `pydantic.create_model`."""
    return {
        name: (
            axis.column_type | None,
            column(
                "cell",
                axis.recorded_by,
                axis.recorded_as or axis.description[0].upper() + axis.description[1:],
                only=_recorded_only(name, axis),
            ),
        )
        for name, axis in {**OPTION_COLUMNS, **AXES}.items()
        if name not in Subject.model_fields
    }


def _recorded_only(name: str, axis: Axis) -> str:
    if name in OPTION_COLUMNS:
        return SOME_TESTS
    is_everywhere = axis.is_recorded(axis.default) or not axis.since
    return "" if is_everywhere else f"trials with `{axis.key or axis.follows[0]}`"


if TYPE_CHECKING:

    class _Settings(Subject):
        payload_bytes: int | None
        batch_bytes: int | None
        proxy: str | None

else:
    _Settings = create_model("_Settings", __base__=Subject, **_columns_of_settings())


class Description(_Settings):
    """The settings of a trial, the conditions during the attempt, and whether the attempt is valid."""

    # fmt: off
    node_settings: dict[str, Any] | None = column("attempt", "testbed",
        "The settings of the tuning set as each node had them during the trial", only=TUNED)
    node_links: dict[str, Any] | None = column("attempt", "testbed",
        "MTU (`mtu_bytes`), bond and offloads, by ethtool's names, that the link of each node had", only=LINKED)
    tcp_congestion_control: str | None = column("attempt", "supervisor",
        "TCP congestion control of the pods, such as `cubic` or `bbr`; of client and server if they differ", only=SOME_TESTS)
    execution: dict[str, Any] | None = column("attempt", "supervisor",
        "How each participant really ran at the end of the measured interval, or at its start if it ended before that was"
        " read, by participant: `threads` (number by scheduling policy and real-time priority), `locked_bytes`, `cpus`,"
        " and `dscp` (of all its sockets)", only=PROCESS)
    samples_by: str | None = column("evidence", "supervisor",
        "Which way samples took: `memory`, `network` (UDP, or TCP with Zenoh), or `nothing`, if participants discovered"
        " each other, but no sample arrived", only="trials with `transport: shared-memory`")
    repetition: int | None = column("identity", "campaign", "Number of the repetition, starting at 0")
    duration_s: float | None = column("cell", "experiment", "Requested length of the measured interval")
    warmup_s: float | None = column("cell", "experiment", "Requested length of the warm-up before the measured interval")
    block: int | None = column("attempt", "campaign", "Number of the block in the campaign's random order, from 0")
    order: int | None = column("attempt", "campaign", "Position in the campaign's random order, from 0")
    domain: int | None = column("attempt", "campaign", "DDS domain id")
    started_at: str | None = column("attempt", "campaign", "Time at which the attempt started")
    mtu_bytes: int | None = column("attempt", "testbed", "MTU of the pods' interfaces")
    engine: str | None = column("attempt", "testbed",
        "Engine that implements the datapath, for networks with several engines")
    engine_mode: str | None = column("attempt", "testbed",
        "Mode of the tunnels (`tunnel` or `transport`), for networks with several engines")
    fidelity: str | None = column("attempt", "testbed",
        "How the datapath relates to that of the real plugin: `real`, `equivalent` or `modelled`")
    network_proof: str | None = column("validity", "testbed",
        "Properties of the network that were verified before the trial, and properties that could not be verified,"
        " with the reason")
    fingerprint: dict[str, Any] | None = column("evidence", "testbed",
        "What the network was observed to do with packets between two pods on different nodes, once per campaign, see"
        " [fingerprint](networks.md#fingerprint). Null if no samples of the campaign cross the network, or if an earlier version measured")
    installed_network: str | None = column("evidence", "testbed",
        "Pod network that was installed on the cluster during the attempt, also if its samples did not use it. Null in the lab")
    network_software: dict[str, str] | None = column("evidence", "testbed",
        "Images with versions and digests of the network's agents, of what installs its CNI plugins, and of kube-proxy; on clusters that"
        " k8sdds deployed also the CNI plugins themselves. A value names what this user may not read. Null in the lab")
    wall_s: float | None = column("attempt", "campaign", "Duration of the whole attempt, including startup and shutdown")
    middleware_version: str | None = column("attempt", "publisher",
        "Version of the middleware, as reported by perftest")
    effective_message_bytes: int | None = column("attempt", "publisher",
        "Payload of the largest UDP datagram that the first publisher's middleware was configured to send. With DDS"
        " Security, cyclonedds exceeds it unless `message_bytes` is a number, `mtu` or `max`")
    effective_fragment_bytes: int | None = column("attempt", "publisher",
        "Part of a large sample in one fragment of the first publisher. Null if the middleware does not report it:"
        " connext, raw, and fastdds with DDS Security")
    includes_scheduling: bool | None = column("attempt", "testbed",
        "Whether there were more participants than cores to which they could be pinned")
    cpu_mhz: float | None = column("attempt", "testbed",
        "Mean frequency of the cores right after the attempt, if the kernel reports it")
    start_skew_s: float | None = column("attempt", "testbed",
        "Upper bound of the time between the starts of the participants, based on the clocks of their machines,"
        " which are compared with the clock of this machine (cluster only)")
    api_calls: int | None = column("attempt", "testbed",
        "Number of requests to the cluster's API server since the previous trial, or since the block was prepared"
        " (cluster only)")
    valid: bool | None = column("validity", "campaign", "Whether the attempt is included in statistics")
    reason: str | None = column("validity", "campaign",
        "Why the attempt is not valid, as `code: explanation`, with a code such as `not-on-wire`, `lost-samples`,"
        " `peer-lost` or `deadline`")
    warnings: list[str] | None = column("validity", "campaign",
        "Conditions that may have affected a valid attempt: a disturbed machine, throttling, …")
    # fmt: on


RESOLUTION = 0.01
"""How much less than a lower percentile a higher one can be: histograms round, and maxima are exact."""
_ORDERED = [
    [name for quantity in (*PERCENTILES, "max") if (name := f"{kind}_{quantity}_us") in METRICS]
    for kind in (name.removesuffix("_p50_us") for name in METRICS if name.endswith("_p50_us"))
]
"""Percentiles and maxima of the same times, each at least as large as the one before."""


def impossible_value(attempt: Mapping[str, Any]) -> str | None:
    """Return the first key of a record whose value cannot be true, with the reason, or None."""
    for name, value in attempt.items():
        if value is not None and name in COLUMNS and (why := impossible(COLUMNS[name], value)):
            return f"{name}: {why}"
    for names in _ORDERED:
        known = [(name, float(value)) for name in names if (value := attempt.get(name)) is not None]
        for (lower, low), (higher, high) in pairwise(known):
            if high < (1 - RESOLUTION) * low:
                return f"{higher}: {high:g} is less than {lower}"
    for name, shape in _SHAPES.items():
        try:
            shape.validate_python(attempt.get(name))
        except ValidationError as error:
            first = error.errors()[0]
            return f"{'.'.join(map(str, (name, *first['loc'])))}: {explain(first)}"
    return None


def checked(attempt: Mapping[str, Any], source: str, damage: str | None = None) -> dict[str, Any]:
    """Return a record that was read from a file; if it is damaged, the attempt is invalid and has no values.

    An attempt that is invalid for another reason keeps it, because some reasons do not count as an attempt. `source` is
    the file and line, `damage` why the record is known to be damaged.
    """
    record = dict(attempt)
    if isinstance(label := record.get("network_label"), str):
        record["network_label"] = one_line(label, MAX_TITLE)
    if _timed_always(record):
        record["loaded_latency"] = True
    why = damage or impossible_value(record)
    if why is None:
        return record
    kept = {name: value for name, value in record.items() if name in COLUMNS and name not in METRICS}
    for name, value in kept.items():
        if impossible(COLUMNS[name], value) or name in _SHAPES:
            kept[name] = None
    if kept.get("valid") is False and kept.get("reason"):
        # A participant that was killed at once can have used more CPU time than its interval has.
        return kept
    return kept | {"valid": False, "reason": str(Reason(DAMAGED, f"{source}: {why}"))}


def _timed_always(record: Mapping[str, Any]) -> bool:
    """Return whether a throughput trial timed samples because all of them did, before schema 3.

    Imported trials keep the settings of their authors.
    """
    older = isinstance(schema := record.get("schema"), int) and schema < LOADED_LATENCY_SINCE
    timed = record.get("pings") or record.get("loaded_latency_count") or record.get("loaded_latency_p50_us")
    return (
        older and bool(timed) and record.get("test") == "throughput" and record.get("testbed") != "imported"
    )


_PART_TYPES: dict[Any, Any] = {float: Number, int: Count, bool: bool | None, str: str | None}
"""Types of the parts of a setting that have no parts themselves."""


def _part_type(part: Axis) -> Any:
    kind: Any = part.field and part.field.annotation
    known = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, Strict)]
    return Annotated[kind | None, Field(strict=False)] if known else _PART_TYPES[part.column_type]


_Link: Any = create_model(  # type: ignore[call-overload]
    "_Link",
    __base__=Shape,
    **{name: (_part_type(part), None) for name, part in axes(Link).items()},
)


class _LinkBytes(Shape):
    delivered_samples: dict[str, Count] | None = None
    delivered_bytes: dict[str, Count] | None = None


class _NodeCpu(Shape):
    participants: Finite
    shared: Finite


class _OfFlow(Shape):
    publisher: str
    subscribers: dict[str, dict[str, Count]]
    chain: dict[str, Any]
    sent: Count
    scheduled: Count
    received: Count
    lost: Count
    deadline_missed: Count
    delay_count: Count
    lost_percent: Number
    achieved_rate_percent: Number
    deadline_missed_percent: Number
    missing: dict[str, str] | None = None
    tail_episodes: dict[str, Integer] | None = None
    delay_p50_us: Number
    delay_p90_us: Number
    delay_p99_us: Number
    age_p99_us: Number


class _OfNode(Shape):
    machine: str | None = None
    cpu_percent: Number = None
    cores_percent: Number = None
    throttled_percent: Number = None
    rss_bytes: Count = None
    sent_mbps: Number = None
    received_mbps: Number = None
    packets: Count = None
    interface_drops: Count = None
    datagrams: Count = None
    receive_buffer_errors: Count = None
    send_buffer_errors: Count = None


_SHAPES: dict[str, TypeAdapter[Any]] = {
    "link": TypeAdapter(_Link | None),
    "drops": TypeAdapter(dict[str, Count] | None),
    "missing": TypeAdapter(dict[str, str] | None),
    "tail_episodes": TypeAdapter(dict[str, Integer] | None),
    "by_flow": TypeAdapter(dict[str, _OfFlow] | None),
    "by_node": TypeAdapter(dict[str, _OfNode] | None),
    "delay_by_subscriber": TypeAdapter(dict[str, dict[str, Number]] | None),
    "fingerprint": TypeAdapter(Fingerprint | None),
    "network_software": TypeAdapter(dict[str, str] | None),
    "background": TypeAdapter(dict[str, int | float | str | list[int]] | None),
    "background_load": TypeAdapter(dict[str, Number] | None),
    "link_bytes": TypeAdapter(_LinkBytes | None),
    "node_links": TypeAdapter(dict[str, Any] | None),
    "nodes_cpu": TypeAdapter(dict[str, _NodeCpu] | None),
    "throttling": TypeAdapter(dict[str, dict[str, Number]] | None),
    "profile": TypeAdapter(ProfileSummary | None),
    "network_options": TypeAdapter(dict[str, str | int | float | bool | None] | None),
    "security_options": TypeAdapter(dict[str, str | int | bool] | None),
}
"""What the objects in a record consist of."""


class TrialRecord(Metrics, Description):
    """The record of one attempt; every key is optional, because earlier versions did not write all keys."""

    @classmethod
    def read(cls, attempt: Mapping[str, Any]) -> TrialRecord:
        """Read a line of trials.jsonl; missing keys and values of the wrong type become None, unknown keys are kept."""
        known = {
            name: parsed(column.kind, attempt[name]) for name, column in COLUMNS.items() if name in attempt
        }
        known["valid"] = attempt.get("valid") is True
        # pydantic takes five calls for each default that it has to look up.
        record = cls.model_construct(set(known), **(_DEFAULTS | known))
        record.__pydantic_extra__ = {key: value for key, value in attempt.items() if key not in COLUMNS}
        return record

    def invalidate(self, reason: Reason) -> None:
        """State that the attempt is not valid."""
        self.valid, self.reason = False, str(reason)

    def values(self) -> dict[str, Any]:
        """Return the record as an object; columns of special trials are included only if they are set."""
        return self.model_dump(by_alias=True, exclude=_SPECIAL - self.model_fields_set, warnings=False)

    def as_json(self) -> dict[str, Any]:
        """Return the values for trials.jsonl, in which numbers that are not finite are null."""
        values: dict[str, Any] = finite(self.values())
        return values


COLUMNS: dict[str, Column] = columns_of(TrialRecord)
"""Every key of trials.jsonl, in the order in which it is written."""
_SPECIAL = {name for name, column in COLUMNS.items() if column.only}
_DEFAULTS = TrialRecord.model_construct().model_dump(by_alias=True)
