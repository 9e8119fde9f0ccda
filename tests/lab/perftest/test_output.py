"""Test the output: PerfTest's CSV tables byte for byte, and the JSON document."""

import json
import re
from typing import NamedTuple

import pytest

INTEGER, ONE_DECIMAL, TWO_DECIMALS = r"\d+", r"\d+\.\d", r"\d+\.\d\d"


class Table(NamedTuple):
    """A table of PerfTest: its title, its header, and the patterns of the cells of a row."""

    title: str
    header: str
    cells: list[str]

    def check(self, lines: list[str], cpu: bool) -> None:
        """Check the header and the rows: each cell matches its pattern and is at least as wide as its title."""
        header = self.header + (", CPU (%)" if cpu else "")
        cells = [*self.cells, *([TWO_DECIMALS] if cpu else [])]
        assert lines[0] == header and len(lines) > 1
        titles = header.split(",")
        for row in lines[1:]:
            values = row.split(",")
            assert len(values) == len(titles) == len(cells), row
            for cell, title, pattern in zip(values, titles, cells, strict=True):
                assert re.fullmatch(rf" *{pattern}", cell), row
                width = max(len(title), len(cell.strip()) + (title is not titles[0]))
                assert len(cell) == width, (row, title)


LATENCY_INTERVALS = Table(
    "Intervals One-Way Latency for 1024 Bytes:",
    "Length (Bytes), Latency (μs), Ave (μs), Std (μs), Min (μs), Max (μs)",
    [INTEGER, INTEGER, INTEGER, ONE_DECIMAL, INTEGER, INTEGER],
)
LATENCY_SUMMARY = Table(
    "One-way Latency Summary:",
    "Sample Size (Bytes), Ave (μs), Std (μs), Min (μs), Max (μs), 50% (μs), 90% (μs), 99% (μs), "
    "99.99% (μs), 99.9999% (μs)",
    [INTEGER, INTEGER, ONE_DECIMAL, *[INTEGER] * 7],
)
THROUGHPUT_INTERVALS = Table(
    "Interval Throughput for 1024 Bytes:",
    "Length (Bytes), Total Samples,  Samples/s, Avg Samples/s,     Mbps,  Avg Mbps, Lost Samples, Lost Samples (%)",
    [INTEGER, INTEGER, INTEGER, INTEGER, ONE_DECIMAL, ONE_DECIMAL, INTEGER, TWO_DECIMALS],
)
THROUGHPUT_SUMMARY = Table(
    "Throughput Summary:",
    "Sample Size (Bytes), Total Samples, Avg Samples/s,    Avg Mbps, Lost Samples, Lost Samples (%)",
    [INTEGER, INTEGER, INTEGER, ONE_DECIMAL, INTEGER, TWO_DECIMALS],
)


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("test", [("-loadedLatency",), ("-latencyTest",)])
def test_csv(perftest, test, cpu):
    both = ("-dataLen", 1024) + (("-cpu",) if cpu else ())
    publisher, subscriber = perftest.pair(*both, pub=test, time=2.2, output="csv")
    for process, intervals, summary in (
        (publisher, LATENCY_INTERVALS, LATENCY_SUMMARY),
        (subscriber, THROUGHPUT_INTERVALS, THROUGHPUT_SUMMARY),
    ):
        lines = process.out.splitlines()
        assert (lines[0], lines[-3]) == (intervals.title, summary.title) and process.out.endswith("\n")
        intervals.check(lines[1:-3], cpu)
        summary.check(lines[-2:], cpu)


def test_csv_without_intervals_has_one_header_and_one_row(perftest):
    publisher, subscriber = perftest.pair("-noPrintIntervals", "-cpu", pub=("-loadedLatency",), output="csv")
    for process, summary in ((publisher, LATENCY_SUMMARY), (subscriber, THROUGHPUT_SUMMARY)):
        lines = process.out.splitlines()
        summary.check(lines, cpu=True)
        assert len(lines) == 2


def test_csv_has_no_latencies_if_no_samples_were_timed(perftest):
    publisher, subscriber = perftest.pair(time=1.2, output="csv")
    assert publisher.out == "" and "-loadedLatency" in publisher.err
    assert THROUGHPUT_SUMMARY.header in subscriber.out


def test_percentiles_with_too_few_episodes_above_them_are_named(perftest):
    """The table of PerfTest has all percentiles; a message states which of them a few stalls decide."""
    message = "of {} values, fewer than 10 episodes are above the percentiles from ([0-9.]+)% on"
    # At most 9 of 90 values are above the 90th percentile; of 99 it would be 10, which can be as many episodes.
    for count, percents in ((90, ("50", "90")), (10_000, ("50", "90", "99", "99.99"))):
        publisher, _ = perftest.pair(pub=("-latencyTest", "-numIter", count), output="csv", time=100)
        named = re.search(message.format(count), publisher.err)
        assert named and named[1] in percents


KEYS = [
    "schema", "version", "role", "id", "node", "test", "exit", "middleware", "options", "transport", "qos", "handshake_s",
    "matched_at_ns", "discovery_s", "warmup_s", "measured_s", "ended_by", "sent", "received", "warmup_received",
    "sent_bytes", "delivered_bytes", "warmup_delivered_bytes",
    "duplicates", "lost", "out_of_order", "retransmitted_bytes", "foreign_samples", "foreign_messages", "samples_per_s",
    "throughput_mbps", "first_sample_monotonic_ns", "last_sample_monotonic_ns", "common_interval", "latency_ns",
    "loaded_latency_ns", "one_way_ns", "one_way_realtime_ns", "half_round_trip_ns", "inter_arrival_ns", "schedule",
    "arrivals", "instances", "writers", "pings_sent", "pongs_received", "pongs_timed_out", "subscribers", "flows",
    "cpu_s", "pacer_spin_s",
]  # fmt: skip


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_json(perftest, test, middleware):
    publisher, subscriber = perftest.pair("-cpu", pub=test, time=2, middleware=middleware)
    for process in (publisher, subscriber):
        document = process.json
        assert set(document) == {"perftest", "k8sdds"}
        k, (table,) = document["k8sdds"], document["perftest"]
        assert list(k) == KEYS
        assert k["schema"] == 1 and k["exit"] == {"code": 0, "reason": "done"}
        assert k["middleware"]["name"] == middleware and k["middleware"]["version"]
        assert k["transport"]["interface"] == "lo" and k["transport"]["address"] == "127.0.0.1"
        assert k["transport"]["socket_receive_buffer_bytes"] > 0
        assert 0 < k["cpu_s"] < 10 and k["measured_s"] > 1
        assert k["pacer_spin_s"] == 0  # no rate
        assert k["first_sample_monotonic_ns"] < k["last_sample_monotonic_ns"]
        assert len(table["intervals"]) >= 1
        assert {"CPU"} <= set(table["summary"])
    latency = publisher.json["perftest"][0]
    assert set(latency["intervals"][0]) == {
        "latency", "latency_ave", "latency_std", "latency_min", "latency_max", "CPU"
    }  # fmt: skip
    assert {"latency_50", "latency_90", "latency_99", "latency_99.99", "latency_99.9999"} <= set(
        latency["summary"]
    )
    throughput = subscriber.json["perftest"][0]
    assert set(throughput["intervals"][0]) == {
        "packets", "packets/s", "packets/s_ave", "mbps", "mbps_ave", "lost", "lost_percent", "CPU"
    }  # fmt: skip
    assert set(throughput["summary"]) == {"packets", "packets/sAve", "mbpsAve", "lost", "lostPercent", "CPU"}
    s = subscriber.k8sdds
    elapsed = (s["last_sample_monotonic_ns"] - s["first_sample_monotonic_ns"]) / 1e9
    # N samples are N - 1 intervals.
    assert s["samples_per_s"] == pytest.approx((s["received"] - 1) / elapsed, rel=1e-6)
    assert s["common_interval"]["samples"] == s["received"]
    assert s["throughput_mbps"] == pytest.approx(s["samples_per_s"] * 100 * 8 / 1e6, rel=1e-6)


def test_json_with_special_characters_in_arguments(perftest):
    raw = ("-pub", "-outputFormat", "json", "-middleware", "raw", "-bestEffort")
    completed = perftest.run(*raw, "-peer", 'näh "\\')
    assert completed.returncode == 6
    assert json.loads(completed.stdout)["k8sdds"]["exit"]["code"] == 6
