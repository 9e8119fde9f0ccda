"""Test the histogram and its log against PyPI's hdrhistogram."""

import json
import subprocess
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perftest_tools import tool

HIGHEST = 100_000_000_000
PERCENTILES = (50, 90, 99, 99.99, 99.9999, 100)


def read_log(path: Path) -> HdrHistogram:
    histogram = HdrHistogram(1, HIGHEST, 3)
    reader = HistogramLogReader(str(path), histogram)
    read = reader.get_next_interval_histogram()
    assert read is not None and reader.get_next_interval_histogram() is None
    return read


def tag_of(path: Path) -> str:
    return path.read_text().splitlines()[-1].split(",")[0]


def record(values: list[int], log: Path) -> dict:
    completed = subprocess.run(
        [tool("k8sdds-histogram-tool"), log],
        input="\n".join(map(str, values)),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(completed.stdout)


values = st.one_of(
    st.integers(1, 5000),
    st.integers(1, HIGHEST),
    st.integers(0, 36).flatmap(lambda n: st.integers(max(1, 2**n - 2), 2**n + 2)),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(values, min_size=1, max_size=300))
def test_log_of_any_values(tmp_path, recorded):
    log = tmp_path / "log"
    result = record(recorded, log)
    reference = HdrHistogram(1, HIGHEST, 3)
    for value in recorded:
        reference.record_value(min(value, HIGHEST))
    read = read_log(log)
    assert read.get_total_count() == reference.get_total_count() == result["count"] == len(recorded)
    assert result["min"] == min(recorded) and result["max"] == min(max(recorded), HIGHEST)
    assert result["mean"] == pytest.approx(sum(min(v, HIGHEST) for v in recorded) / len(recorded))
    assert read.get_max_value() == reference.get_max_value()
    assert read.get_min_value() == reference.get_min_value()
    for percent in PERCENTILES:
        expected = reference.get_value_at_percentile(percent)
        assert read.get_value_at_percentile(percent) == expected
        assert result[f"{percent:g}"] == min(expected, result["max"])


def test_log_of_many_equal_values(tmp_path):
    result = record([8192] * 20000, tmp_path / "log")
    assert result["count"] == 20000 and result["stddev"] == 0
    assert read_log(tmp_path / "log").get_value_at_percentile(50) >= 8192


def test_log_without_values(tmp_path):
    assert record([], tmp_path / "log")["count"] == 0
    lines = (tmp_path / "log").read_text().splitlines()
    encoded = lines[-1].split(",")[-1]
    assert HdrHistogram.decode(encoded).get_total_count() == 0


@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_histogram_file_of_a_run(perftest, tmp_path, test):
    log = tmp_path / "latency.hlog"
    args = test or ("-latencyCount", 50)
    publisher, _ = perftest.pair(pub=(*args, "-histogramFile", log))
    result = publisher.k8sdds["latency_ns" if test else "loaded_latency_ns"]
    assert tag_of(log) == ("Tag=latency" if test else "Tag=loaded_latency")
    read = read_log(log)
    assert read.get_total_count() == result["count"] > 0
    assert read.values_are_equivalent(read.get_max_value(), result["max"])
    for key, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("p9999", 99.99), ("p999999", 99.9999)):
        if result[key] is not None:
            assert min(read.get_value_at_percentile(percent), result["max"]) == result[key]
