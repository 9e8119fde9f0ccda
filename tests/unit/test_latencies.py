"""Test which percentiles a record contains, measured and imported."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.workloads import WORKLOADS, find, latencies

PRINTED = {f"{name}_us": 10.0 for name in ("mean", "min", "p50", "p90", "p99", "p9999", "max", "std")}


@given(count=st.integers(0, 200_000))
def test_every_percentile_is_known_or_has_a_reason(count: int) -> None:
    record = Metrics()
    latencies.set_percentiles(record, "delay", count, dict.fromkeys(histograms.PERCENTILES, 5.0))
    for name, percent in histograms.PERCENTILES.items():
        key = f"delay_{name}_us"
        known = count > 0 and count * (1 - percent / 100) >= histograms.VALUES_BEYOND - 1e-6
        assert (getattr(record, key) is not None) == known
        assert (key in (record.missing or {})) == (not known)
    assert record.delay_count == count


def test_an_unknown_count_refuses_nothing() -> None:
    record = Metrics()
    latencies.set_percentiles(record, "latency", None, {"p50": 1.0, "p9999": 2.0})
    assert (record.latency_p50_us, record.latency_p9999_us, record.missing) == (1, 2, None)


def test_published_percentiles_need_as_many_values() -> None:
    numbers = find("latency").from_logs([{"samples": 5000.0}, {"samples": 4999.0}], [PRINTED])
    assert numbers["latency_count"] == 4999
    assert numbers["latency_p99_us"] == 10 and numbers["latency_p9999_us"] is None
    assert numbers["missing"] == {"latency_p9999_us": "4999 values, 100000 are needed"}
    without_subscribers = find("latency").from_logs([], [PRINTED])
    assert without_subscribers["latency_p9999_us"] == 10 and "missing" not in without_subscribers
    assert find("latency").from_logs([], [PRINTED, PRINTED]) == {}


def test_a_percentile_needs_ten_values_above_it() -> None:
    assert [histograms.needed(each) for each in histograms.PERCENTILES] == [20, 100, 1000, 10_000, 100_000]


@given(episodes=st.integers(0, 30), count=st.integers(0, 3000))
def test_a_percentile_needs_ten_episodes_above_it(episodes: int, count: int) -> None:
    record = Metrics()
    above = dict.fromkeys(histograms.PERCENTILES, 10_000) | {"p99": episodes}
    latencies.set_percentiles(record, "delay", count, {"mean": 2.0, "p99": 5.0}, episodes=above)
    assert record.tail_episodes == {"delay_p99_us": episodes} and record.delay_mean_us == (
        2.0 if count else None
    )
    assert (record.delay_p99_us is not None) == (episodes >= 10 and count >= 1000)
    reason = (record.missing or {}).get("delay_p99_us", "")
    if count < 1000:
        assert reason == (f"{count} values, 1000 are needed" if count else "no sample arrived")
    elif episodes < 10:
        assert reason == f"{episodes} episodes above it, 10 are needed ({count} values)"


def test_a_record_without_values_can_be_described() -> None:
    assert all("unknown" in workload.describe(Metrics()) for workload in WORKLOADS.values())
