"""Define what summaries of participants and readings of supervisors consist of, as far as k8sdds uses them.

Participants run in pods, and other programs can reach them over the network. A document of another shape counts as
missing, so code that uses its values does not have to check them.
"""

from __future__ import annotations

from pydantic import model_validator

from k8sdds.system.shapes import Count, Integer, Number, Shape, Text


class Middleware(Shape):
    """`middleware` of a summary."""

    version: Text = None


class Transport(Shape):
    """`transport` of a summary."""

    max_message_bytes: Count = None
    fragment_bytes: Count = None
    dscp: list[Count] | None = None


class Qos(Shape):
    """`qos` of a summary."""

    batch_bytes: Count = None


class Instances(Shape):
    """`instances` of a summary."""

    received: Count = None


class Interval(Shape):
    """`common_interval` of a summary."""

    first_ns: Integer
    last_ns: Integer


class Episodes(Shape):
    """Number of episodes of values above each percentile."""

    p50: Integer
    p90: Integer
    p99: Integer
    p999: Integer
    p9999: Integer


class RoundTrips(Shape):
    """Mean and percentiles of round trips in ns, without a count if RTI PerfTest measured them."""

    count: Count = None
    mean: Number = None
    min: Number = None
    p50: Number = None
    p90: Number = None
    p99: Number = None
    p999: Number = None
    p9999: Number = None
    max: Number = None
    episodes: Episodes | None = None


class Delays(RoundTrips):
    """Count, mean and percentiles of one-way delays in ns."""

    count: Integer


class Schedule(Shape):
    """`schedule` of a summary."""

    samples: Integer
    not_sent: Integer
    late: Integer


class Arrivals(Shape):
    """`arrivals` of a summary."""

    clock: str
    jitter_ns: Number
    missed: Count
    clock_step_ns: Number = None

    @model_validator(mode="after")
    def _other_clocks_have_steps(self) -> Arrivals:
        if self.clock != "shared" and self.clock_step_ns is None:
            raise ValueError("clock_step_ns is missing")
        return self


class Summary(Shape):
    """The `k8sdds` object that a participant prints (docs/reference/perftest.md)."""

    middleware: Middleware | None = None
    transport: Transport | None = None
    qos: Qos | None = None
    instances: Instances | None = None
    common_interval: Interval | None = None
    latency_ns: RoundTrips | None = None
    loaded_latency_ns: RoundTrips | None = None
    one_way_ns: Delays | None = None
    one_way_realtime_ns: Delays | None = None
    schedule: Schedule | None = None
    arrivals: Arrivals | None = None
    handshake_s: Number = None
    matched_at_ns: Count = None
    discovery_s: Number = None
    measured_s: Number = None
    samples_per_s: Number = None
    throughput_mbps: Number = None
    sent: Count = None
    received: Count = None
    warmup_received: Count = None
    duplicates: Count = None
    lost: Count = None
    out_of_order: Count = None
    first_sample_monotonic_ns: Count = None
    last_sample_monotonic_ns: Count = None
    pings_sent: Count = None
    pongs_timed_out: Count = None
    ended_by: Text = None
    pacer_spin_s: Number = None


class MeteredInterval(Shape):
    """`interval` of the readings of a supervisor."""

    start_monotonic_ns: Count = None
    duration_s: Number = None


class Execution(Shape):
    """`execution` of the readings of a supervisor."""

    threads: dict[str, Count] | None = None
    locked_bytes: Count = None


class Meters(Shape):
    """The content of meters.json (docs/reference/supervisor.md)."""

    interval: MeteredInterval | None = None
    execution: Execution | None = None
    started_at_ns: Count = None
    ended_by: Text = None
    stderr_dropped_bytes: Count = None
    cpu_s: Number = None
    cpu_user_s: Number = None
    throttled_s: Number = None
    throttled_periods: Count = None
    memory_peak_bytes: Count = None
    machine: dict[str, Number] | None = None
    tcp_congestion_control: Text = None
    network: dict[str, Count] | None = None
    interfaces: dict[str, dict[str, Count]] | None = None
    attempt_interfaces: dict[str, dict[str, Count]] | None = None
