"""Test the output: PerfTest's CSV tables byte for byte, and the JSON document."""

import json
import re

import pytest

LATENCY_INTERVAL = "Length (Bytes), Latency (μs), Ave (μs), Std (μs), Min (μs), Max (μs)"
LATENCY_SUMMARY = (
    "Sample Size (Bytes), Ave (μs), Std (μs), Min (μs), Max (μs), 50% (μs), 90% (μs), 99% (μs), "
    "99.99% (μs), 99.9999% (μs)"
)
THROUGHPUT_INTERVAL = "Length (Bytes), Total Samples,  Samples/s, Avg Samples/s,     Mbps,  Avg Mbps, Lost Samples, Lost Samples (%)"
THROUGHPUT_SUMMARY = (
    "Sample Size (Bytes), Total Samples, Avg Samples/s,    Avg Mbps, Lost Samples, Lost Samples (%)"
)
INTEGER, ONE_DECIMAL, TWO_DECIMALS = r"\d+", r"\d+\.\d", r"\d+\.\d\d"
LATENCY_ROW = [INTEGER, INTEGER, INTEGER, ONE_DECIMAL, INTEGER, INTEGER]
LATENCY_SUMMARY_ROW = [INTEGER, INTEGER, ONE_DECIMAL, *[INTEGER] * 7]
THROUGHPUT_ROW = [INTEGER, INTEGER, INTEGER, INTEGER, ONE_DECIMAL, ONE_DECIMAL, INTEGER, TWO_DECIMALS]
THROUGHPUT_SUMMARY_ROW = [INTEGER, INTEGER, INTEGER, ONE_DECIMAL, INTEGER, TWO_DECIMALS]


def check_row(row: str, header: str, cells: list[str]) -> None:
    """Check that each cell matches its pattern and is at least as wide as its title."""
    titles = header.split(",")
    values = row.split(",")
    assert len(values) == len(titles) == len(cells), row
    for cell, title, pattern in zip(values, titles, cells, strict=True):
        assert re.fullmatch(rf" *{pattern}", cell), row
        assert len(cell) == max(len(title), len(cell.strip()) + (title is not titles[0])), (row, title)


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("test", [("-loadedLatency",), ("-latencyTest",)])
def test_csv(perftest, test, cpu):
    both = ("-dataLen", 1024) + (("-cpu",) if cpu else ())
    subscriber = perftest.sub(*both, output="csv")
    publisher = perftest.pub(*both, *test, time=2.2, output="csv")
    assert (publisher.end(), subscriber.end()) == (0, 0)
    cpu_title, cpu_cell = (", CPU (%)" if cpu else ""), ([TWO_DECIMALS] if cpu else [])

    lines = publisher.out.splitlines()
    assert lines[:2] == ["Intervals One-Way Latency for 1024 Bytes:", LATENCY_INTERVAL + cpu_title]
    assert lines[-3:-1] == ["One-way Latency Summary:", LATENCY_SUMMARY + cpu_title]
    assert len(lines) > 5
    for row in lines[2:-3]:
        check_row(row, lines[1], LATENCY_ROW + cpu_cell)
    check_row(lines[-1], lines[-2], LATENCY_SUMMARY_ROW + cpu_cell)

    lines = subscriber.out.splitlines()
    assert lines[:2] == ["Interval Throughput for 1024 Bytes:", THROUGHPUT_INTERVAL + cpu_title]
    assert lines[-3:-1] == ["Throughput Summary:", THROUGHPUT_SUMMARY + cpu_title]
    assert len(lines) > 5
    for row in lines[2:-3]:
        check_row(row, lines[1], THROUGHPUT_ROW + cpu_cell)
    check_row(lines[-1], lines[-2], THROUGHPUT_SUMMARY_ROW + cpu_cell)
    assert publisher.out.endswith("\n") and subscriber.out.endswith("\n")


def test_csv_without_intervals_has_one_header_and_one_row(perftest):
    publisher, subscriber = perftest.pair("-noPrintIntervals", "-cpu", pub=("-loadedLatency",), output="csv")
    header, row = publisher.out.splitlines()
    assert header == LATENCY_SUMMARY + ", CPU (%)"
    check_row(row, header, [*LATENCY_SUMMARY_ROW, TWO_DECIMALS])
    header, row = subscriber.out.splitlines()
    assert header == THROUGHPUT_SUMMARY + ", CPU (%)"
    check_row(row, header, [*THROUGHPUT_SUMMARY_ROW, TWO_DECIMALS])


def test_csv_has_no_latencies_if_no_samples_were_timed(perftest):
    publisher, subscriber = perftest.pair(time=1.2, output="csv")
    assert publisher.out == "" and "-loadedLatency" in publisher.err
    assert THROUGHPUT_SUMMARY in subscriber.out


def test_percentiles_with_too_few_episodes_above_them_are_named(perftest):
    """The table of PerfTest has all percentiles; a message states which of them a few stalls decide."""
    message = "of {} values, fewer than 10 episodes are above the percentiles from ([0-9.]+)% on"
    # At most 9 of 90 values are above the 90th percentile; of 99 it would be 10, which can be as many episodes.
    for count, percents in ((90, ("50", "90")), (10_000, ("50", "90", "99", "99.99"))):
        publisher, _ = perftest.pair(pub=("-latencyTest", "-numIter", count), output="csv", time=30)
        named = re.search(message.format(count), publisher.err)
        assert named and named[1] in percents


KEYS = [
    "schema",
    "version",
    "role",
    "id",
    "test",
    "exit",
    "middleware",
    "options",
    "transport",
    "qos",
    "handshake_s",
    "matched_at_ns",
    "discovery_s",
    "warmup_s",
    "measured_s",
    "ended_by",
    "sent",
    "received",
    "warmup_received",
    "duplicates",
    "lost",
    "out_of_order",
    "retransmitted_bytes",
    "foreign_samples",
    "foreign_messages",
    "samples_per_s",
    "throughput_mbps",
    "first_sample_monotonic_ns",
    "last_sample_monotonic_ns",
    "common_interval",
    "latency_ns",
    "loaded_latency_ns",
    "one_way_ns",
    "one_way_realtime_ns",
    "half_round_trip_ns",
    "inter_arrival_ns",
    "schedule",
    "arrivals",
    "instances",
    "writers",
    "pings_sent",
    "pongs_received",
    "pongs_timed_out",
    "subscribers",
    "cpu_s",
    "pacer_spin_s",
]


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_json(perftest, test, middleware):
    publisher, subscriber = perftest.pair("-cpu", pub=test, time=1.3, middleware=middleware)
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
    completed = perftest.run(
        "-pub", "-outputFormat", "json", "-peer", 'näh "\\', "-middleware", "raw", "-bestEffort"
    )  # fmt: skip
    assert completed.returncode == 6
    assert json.loads(completed.stdout)["k8sdds"]["exit"]["code"] == 6
