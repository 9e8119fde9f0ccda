"""Test complete runs with every middleware, workload and receive mode: all sent samples are accounted for."""

import csv
from pathlib import Path

import pytest
from perftest_tools import SLOWNESS, end_all


@pytest.mark.parametrize("receive", ["listener", "waitset", "spin"])
@pytest.mark.parametrize("test", [("-loadedLatency",), ("-latencyTest",)])
@pytest.mark.parametrize(
    ("middleware", "both"),
    [("cyclonedds", ()), ("cyclonedds", ("-bestEffort",)), ("fastdds", ()), ("raw", ())],
)
def test_pair(perftest, middleware, both, test, receive):
    publisher, subscriber = perftest.pair(*both, "-receive", receive, pub=test, middleware=middleware)
    p, s = publisher.k8sdds, subscriber.k8sdds
    assert (publisher.phases(), subscriber.phases()) == ("ME", "ME")
    assert p["sent"] == s["sent"] > 0
    assert s["received"] + s["lost"] == s["sent"]
    assert p["received"] == s["received"] and p["subscribers"][0]["received"] == s["received"]
    assert s["duplicates"] == 0
    if middleware != "raw" and not both:
        assert s["lost"] == s["out_of_order"] == 0
    name, other = ("latency_ns", "loaded_latency_ns")[:: 1 if test == ("-latencyTest",) else -1]
    assert p["pings_sent"] == p["pongs_received"] + p["pongs_timed_out"]
    latency = p[name]
    # On a busy machine, perhaps none of the few pings between samples is answered in time.
    assert latency or test == ("-loadedLatency",)
    if latency:
        known = [latency[name] for name in ("min", "p50", "p90", "p99", "max") if latency[name] is not None]
        assert known == sorted(known) and len(known) >= 2
    assert (latency["count"] if latency else 0) == p["pongs_received"]
    assert p[other] is None
    assert s["test"] == p["test"] == ("latency" if name == "latency_ns" else "throughput")


@pytest.mark.parametrize(
    ("middleware", "both", "pub"),
    [
        ("cyclonedds", (), ()),
        ("cyclonedds", (), ("-batchSize", 4000)),
        ("raw", (), ("-pubRate", "2000:sleep")),
        ("raw", ("-rawMode", "mmsg"), ()),
    ],
)
def test_a_throughput_test_times_no_samples(perftest, middleware, both, pub):
    publisher, subscriber = perftest.pair(*both, pub=pub, middleware=middleware)
    result = publisher.k8sdds
    assert result["sent"] > 0 and result["pings_sent"] == result["pongs_received"] == 0
    assert result["loaded_latency_ns"] is None
    assert subscriber.k8sdds["received"] > 0


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_several_subscribers(perftest, middleware, test):
    subscribers = [perftest.sub("-sidMultiSubTest", i, middleware=middleware) for i in range(3)]
    publisher = perftest.pub("-numSubscribers", 3, *test, middleware=middleware)
    end_all(publisher, *subscribers)
    reports = publisher.k8sdds["subscribers"]
    assert [r["id"] for r in reports] == [0, 1, 2]
    for i, subscriber in enumerate(subscribers):
        assert subscriber.k8sdds["received"] == reports[i]["received"] > 0
        if middleware != "raw":
            assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"]
    if test:
        assert publisher.k8sdds["latency_ns"]["count"] == publisher.k8sdds["pongs_received"] > 0


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
def test_several_publishers(perftest, middleware):
    publishers, subscribers = perftest.several(2, 2, middleware)
    sent = sum(p.k8sdds["sent"] for p in publishers)
    for s in (subscriber.k8sdds for subscriber in subscribers):
        assert s["sent"] == sent and s["received"] + s["lost"] == sent
        if middleware != "raw":
            assert s["lost"] == 0


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
def test_the_rate_is_that_of_the_common_interval(perftest, middleware):
    """The slow publisher begins later and ends earlier than the fast one: 1 s of 6 s are common."""
    subscriber = perftest.sub("-numPublishers", 2, middleware=middleware)
    fast = perftest.pub("-pubRate", "1000:sleep", warm_up=0.1, time=6, middleware=middleware)
    slow = perftest.pub("-pubRate", "200:sleep", "-pidMultiPubTest", 1, warm_up=2, time=1,
                        middleware=middleware)  # fmt: skip
    end_all(fast, slow, subscriber)
    p, s = slow.k8sdds, subscriber.k8sdds
    common = s["common_interval"]
    span_ns = common["last_ns"] - common["first_ns"]
    # The slow publisher's samples bound the interval, which is far from the first and the last sample of the fast one.
    first, last = "first_sample_monotonic_ns", "last_sample_monotonic_ns"
    assert s[first] + p[first] < 2 * common["first_ns"] < 2 * p[last]
    assert 2 * p[first] < 2 * common["last_ns"] < p[last] + s[last]
    assert p["sent"] < common["samples"] < s["received"]
    assert s["samples_per_s"] == pytest.approx((common["samples"] - 1) / span_ns * 1e9, rel=1e-6)


@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_num_iter_counts_measured_samples(perftest, test):
    by_count, subscriber = perftest.pair(pub=("-numIter", 137, *test), time=30)
    by_time, _ = perftest.pair(pub=test)
    ends = [process.k8sdds["ended_by"] for process in (by_count, by_time, subscriber)]
    assert ends == ["count", "time", None]
    assert by_count.k8sdds["sent"] == subscriber.k8sdds["received"] == 137


def test_times_between_samples(perftest, tmp_path):
    log = tmp_path / "gaps.hlog"
    rate = 500
    publisher, subscriber = perftest.pair(
        pub=("-pubRate", f"{rate}:sleep"), sub=("-interArrivalFile", log), time=0.6
    )
    received, gaps = subscriber.k8sdds["received"], subscriber.k8sdds["inter_arrival_ns"]
    assert gaps["count"] == received - 1 > 0
    common = subscriber.k8sdds["common_interval"]
    # The gaps add up to the time from the first to the last sample.
    assert gaps["mean"] * gaps["count"] == pytest.approx(common["last_ns"] - common["first_ns"], rel=0.05)
    assert "Tag=inter_arrival" in log.read_text()
    assert publisher.k8sdds["inter_arrival_ns"] is None


SOON = ("-discoveryTimeout", 1)
LENGTHS = {
    "cyclonedds": (28, 29, 1472, 1473, 14721, 65507),
    "raw": (28, 29, 1472, 1473, 65507),
    # Around one message (14720 bytes), and many fragments.
    "fastdds": (28, 14500, 14720, 300_000),
}


@pytest.mark.parametrize(("middleware", "length"), [(m, length) for m in LENGTHS for length in LENGTHS[m]])
def test_lengths(perftest, middleware, length):
    publisher, subscriber = perftest.pair(
        "-dataLen", length, pub=("-numIter", 20, "-pubRate", "500:sleep"), time=30, middleware=middleware
    )
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] == 20
    assert subscriber.json["perftest"][0]["length"] == length


@pytest.mark.long
def test_sample_of_64_mib(perftest):
    both = ("-dataLen", 64 << 20, "-peerTimeout", 10 * SLOWNESS, "-discoveryTimeout", 30 * SLOWNESS)
    _, subscriber = perftest.pair(*both, pub=("-numIter", 2), time=60 * SLOWNESS, warm_up=0)
    assert subscriber.k8sdds["received"] == 2


@pytest.mark.parametrize(
    ("pub", "sub", "code", "reports", "message"),
    [
        (("-dataLen", 200), ("-dataLen", 100), 2, "sub", "-dataLen"),
        (("-keyed", "-instances", 4), ("-keyed", "-instances", 3), 2, "sub", "give the same -instances"),
        (("-keyed", *SOON), SOON, 3, "pub", "-keyed"),
        # A writer without a reader is not started.
        (("-topics", 3, *SOON), ("-topics", 2, *SOON), 3, "pub", "-topics"),
    ],
)
def test_different_options_are_an_error(perftest, pub, sub, code, reports, message):
    publisher, subscriber = perftest.begin(pub=pub, sub=sub)
    end_all(publisher, subscriber, codes=(code, code))
    assert message in {"pub": publisher, "sub": subscriber}[reports].err


@pytest.mark.parametrize(
    ("pub", "each"),
    [
        (("-pubRate", "200:spin", "-latencyCount", 1), 1),
        (("-pubRate", "200:sleep", "-latencyCount", 7), 7),
        # Enough pings for the 90th percentile.
        (("-pubRate", "5000:sleep", "-loadedLatency", "-numIter", 2000), 10),
    ],
)
def test_no_rate_is_exceeded_and_each_nth_sample_is_a_ping(perftest, pub, each):
    publisher, _ = perftest.pair(pub=pub, time=0.4)
    result = publisher.k8sdds
    assert 0 < result["sent"] <= 2 + int(pub[1].partition(":")[0]) * result["measured_s"]
    assert result["pings_sent"] == -(-result["sent"] // each)


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
def test_timeline_adds_up_to_the_totals(perftest, tmp_path, middleware):
    files = tmp_path / "pub.csv", tmp_path / "sub.csv"
    pub, sub = (("-timelineFile", file) for file in files)
    publisher, subscriber = perftest.pair("-dataLen", 200, pub=pub, sub=sub, time=0.55, middleware=middleware)
    for file, total in ((files[0], publisher.k8sdds["sent"]), (files[1], subscriber.k8sdds["received"])):
        rows = list(csv.DictReader(file.open()))
        assert sum(int(row["samples"]) for row in rows) == total
        assert all(int(row["bytes"]) == 200 * int(row["samples"]) for row in rows)
        elapsed = [int(row["elapsed_ms"]) for row in rows]
        assert elapsed == sorted(elapsed) and len(elapsed) >= 2


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "zenoh"])
def test_environment_is_ignored(perftest, tmp_path, middleware):
    broken = tmp_path / "profiles.xml"
    broken.write_text("<dds>")
    env = {
        "CYCLONEDDS_URI": "<General><Interfaces><NetworkInterface name='nonsense'/></Interfaces></General>",
        "FASTRTPS_DEFAULT_PROFILES_FILE": str(broken),
        "ROS_DISCOVERY_SERVER": "192.0.2.1:11811",
    }
    perftest.pair(middleware=middleware, env=env)


def test_only_the_selected_middleware_is_loaded(perftest):
    publisher, subscriber = perftest.begin(middleware="raw", time=20)
    subscriber.wait_for_phase("M")
    maps = Path(f"/proc/{publisher.popen.pid}/maps").read_text()
    assert "libk8sdds-perftest-raw.so" in maps and "libddsc" not in maps
