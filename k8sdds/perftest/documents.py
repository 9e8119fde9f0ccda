"""Define what summaries of participants and readings of supervisors consist of, as far as k8sdds uses them.

Participants run in pods, and other programs can reach them over the network. A document of another shape counts as
missing, so code that uses its values does not have to check them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from k8sdds.system.shapes import Count, Finite, Integer, Number, Shape, Text


class _Middleware(Shape):
    version: Text = None


class _Transport(Shape):
    max_message_bytes: Count = None
    fragment_bytes: Count = None
    dscp: list[Count] | None = None


class _Qos(Shape):
    batch_bytes: Count = None


class _Instances(Shape):
    received: Count = None


class _Interval(Shape):
    first_ns: Integer
    last_ns: Integer


class _Episodes(Shape):
    # Their number above each percentile.
    p50: Integer
    p90: Integer
    p99: Integer
    p999: Integer
    p9999: Integer


class _RoundTrips(Shape):
    # In ns. RTI PerfTest does not count them.
    count: Count = None
    mean: Number = None
    min: Number = None
    p50: Number = None
    p90: Number = None
    p99: Number = None
    p999: Number = None
    p9999: Number = None
    max: Number = None
    episodes: _Episodes | None = None


class _Delays(_RoundTrips):
    count: Integer


class _Schedule(Shape):
    samples: Integer
    not_sent: Integer
    late: Integer


class _Ages(Shape):
    mean: Finite
    p99: Integer
    max: Integer


class _Arrivals(Shape):
    clock: str
    jitter_ns: Number
    missed: Count
    clock_step_ns: Number = None
    age_ns: _Ages | None = None
    blind_ns: Count = None
    gaps: Count = None

    @model_validator(mode="after")
    def _is_complete(self) -> _Arrivals:
        if self.clock != "shared" and self.clock_step_ns is None:
            raise ValueError("clock_step_ns is missing")
        if self.blind_ns is not None and self.gaps is None:
            raise ValueError("gaps is missing")
        return self


class _Flow(Shape):
    # What a node of a graph reports about a flow that it publishes, or to which it subscribes.
    flow: str
    role: str
    publisher: Text = None
    sent: Count = None
    sent_bytes: Count = None
    samples: Count = None
    not_sent: Count = None
    late: Count = None
    received: Count = None
    delivered_bytes: Count = None
    lost: Count = None
    duplicates: Count = None
    out_of_order: Count = None
    missed: Count = None
    clock_step_ns: Number = None
    age: _Ages | None = None
    blind: Count = None
    gaps: Count = None

    @model_validator(mode="after")
    def _is_complete(self) -> _Flow:
        counts = {
            "publisher": ("sent", "sent_bytes", "samples", "not_sent", "late"),
            "subscriber": (
                "received",
                "delivered_bytes",
                "lost",
                "duplicates",
                "out_of_order",
                "missed",
                "gaps",
            ),
        }
        if self.role not in counts or any(getattr(self, name) is None for name in counts[self.role]):
            raise ValueError("a count is missing")
        return self


class _Exit(Shape):
    reason: str | None = None


class Found(Shape):
    """Pairs of members, and when the first and the last of them matched."""

    pairs: Integer
    matched: Integer
    first_ns: Count = None
    last_ns: Count = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Found:
        if self.matched > self.pairs:
            raise ValueError("more pairs matched than there are")
        if (self.matched > 0) != (self.first_ns is not None) or (self.matched > 0) != (
            self.last_ns is not None
        ):
            raise ValueError("first_ns and last_ns are those of pairs that matched")
        return self


class _Failure(Shape):
    member: Integer
    error: str


class FleetProcess(Shape):
    """What a process reports about the members of a fleet that it has (docs/reference/perftest.md)."""

    first: Integer
    members: Integer
    killed: bool
    created: Integer
    created_ns: Integer
    failures: list[_Failure]
    missing: dict[str, list[Annotated[list[Integer], Field(min_length=2, max_length=2)]]]
    """First and last number of the members of the other role that each of its own has not found."""
    found: Found
    changed: Found
    broken: Found | None = None
    """Pairs that no longer matched although both members ran, and when they did again; None if not counted."""
    cpu_s: Finite
    steady_cpu_s: Finite
    memory_bytes: Integer


class FleetTraffic(Shape):
    """What the interface of a program has sent and received."""

    sent_bytes: Integer
    sent_packets: Integer
    received_bytes: Integer
    received_packets: Integer


class _Fleet(Shape):
    processes: list[FleetProcess]
    traffic: FleetTraffic | None = None
    steady_traffic: FleetTraffic | None = None


class Summary(Shape):
    """The `k8sdds` object that a participant prints (docs/reference/perftest.md)."""

    exit: _Exit | None = None
    middleware: _Middleware | None = None
    transport: _Transport | None = None
    qos: _Qos | None = None
    instances: _Instances | None = None
    common_interval: _Interval | None = None
    latency_ns: _RoundTrips | None = None
    loaded_latency_ns: _RoundTrips | None = None
    one_way_ns: _Delays | None = None
    one_way_realtime_ns: _Delays | None = None
    schedule: _Schedule | None = None
    arrivals: _Arrivals | None = None
    handshake_s: Number = None
    matched_at_ns: Count = None
    discovery_s: Number = None
    measured_s: Number = None
    samples_per_s: Number = None
    throughput_mbps: Number = None
    sent: Count = None
    sent_bytes: Count = None
    received: Count = None
    delivered_bytes: Count = None
    warmup_delivered_bytes: Count = None
    warmup_received: Count = None
    duplicates: Count = None
    lost: Count = None
    out_of_order: Count = None
    retransmitted_bytes: Count = None
    first_sample_monotonic_ns: Count = None
    last_sample_monotonic_ns: Count = None
    pings_sent: Count = None
    pongs_timed_out: Count = None
    ended_by: Text = None
    pacer_spin_s: Number = None
    flows: list[_Flow] | None = None
    fleet: _Fleet | None = None


class _MeteredInterval(Shape):
    start_monotonic_ns: Count = None
    duration_s: Number = None


class _Execution(Shape):
    threads: dict[str, Count] | None = None
    locked_bytes: Count = None


class Meters(Shape):
    """The content of meters.json (docs/reference/supervisor.md)."""

    interval: _MeteredInterval | None = None
    execution: _Execution | None = None
    started_at_ns: Count = None
    ended_by: Text = None
    stderr_dropped_bytes: Count = None
    cpu_s: Number = None
    cpu_user_s: Number = None
    throttled_s: Number = None
    throttled_periods: Count = None
    limit_periods: Count = None
    cpu_pressure_some_s: Number = None
    cpu_pressure_full_s: Number = None
    memory_peak_bytes: Count = None
    machine: dict[str, Number] | None = None
    tcp_congestion_control: Text = None
    network: dict[str, Count] | None = None
    interfaces: dict[str, dict[str, Count]] | None = None
    attempt_interfaces: dict[str, dict[str, Count]] | None = None
