"""Test the histogram and its log against PyPI's hdrhistogram."""

import itertools
import json
import random
import subprocess
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perftest_tools import tool

from k8sdds.results import histograms

HIGHEST = 100_000_000_000
PERCENTILES = (50, 90, 99, 99.9, 99.99, 99.9999, 100)


def read_log(path: Path) -> HdrHistogram:
    histogram = HdrHistogram(1, HIGHEST, 3)
    reader = HistogramLogReader(str(path), histogram)
    read, episodes = (reader.get_next_interval_histogram() for _ in range(2))
    assert read is not None and episodes is not None and reader.get_next_interval_histogram() is None
    return read


def tags_of(path: Path) -> list[str]:
    return [line.split(",")[0] for line in path.read_text().splitlines() if line.startswith("Tag=")]


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def episodes_above(values: list[int], threshold: int) -> int:
    """Count the runs of groups with a value above a threshold, by the definition in docs/explanation/latency.md."""
    above = [value > threshold for value in values]
    distance = len(values) // max(sum(above), 1)
    size = max(size for size in (1, 10, 100, 1000) if size == 1 or 5 * size <= distance)
    groups = [any(above[first : first + size]) for first in range(0, len(values), size)]
    return sum(group and not before for before, group in itertools.pairwise([False, *groups]))


# Values that a bucket each has, so that a percentile is one of them.
levels = st.integers(1, 2000)
sequences = st.one_of(
    st.lists(levels, min_size=1, max_size=300),
    # Long, with few values above the others, alone or in runs.
    st.builds(
        lambda seed, size, runs, longest: stalls(random.Random(seed), size, runs, longest),
        st.integers(0, 10**6), st.integers(1, 60_000), st.integers(0, 40), st.integers(1, 60),
    ),
)  # fmt: skip


def stalls(source: random.Random, size: int, runs: int, longest: int) -> list[int]:
    values = [source.randint(100, 200) for _ in range(size)]
    for _ in range(runs):
        first, length = source.randrange(size), source.randint(1, longest)
        values[first : first + length] = [source.randint(150, 2000) for _ in values[first : first + length]]
    return values


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequences)
def test_episodes_above_every_percentile(tmp_path, recorded):
    result = record(recorded, tmp_path / "log")
    for percent in PERCENTILES:
        percentile = result[f"{percent:g}"]
        assert result["episodes"][f"{percent:g}"] == episodes_above(recorded, percentile)
    # The log has them for each value.
    folder = tmp_path / "raw"
    (folder / "sub0").mkdir(parents=True, exist_ok=True)
    (tmp_path / "log").rename(folder / "sub0" / histograms.LOG)
    thresholds = {str(value): value / 1000 for value in {1, *recorded[:20], max(recorded)}}
    assert histograms.episodes(folder, ["latency"], thresholds) == {
        name: episodes_above(recorded, int(name)) for name in thresholds
    }


def test_a_stall_is_one_episode(tmp_path):
    values = [100, 101] * 2500
    for first in (1000, 3000):
        values[first : first + 50] = [2000 - 10 * i for i in range(50)]
    result = record(values, tmp_path / "log")
    assert result["99"] > 1000 and result["episodes"]["99"] == 2


def test_log_of_many_equal_values(tmp_path):
    result = record([8192] * 20000, tmp_path / "log")
    assert result["count"] == 20000 and result["stddev"] == 0
    assert read_log(tmp_path / "log").get_value_at_percentile(50) >= 8192


def test_log_without_values(tmp_path):
    assert record([], tmp_path / "log")["count"] == 0
    lines = (tmp_path / "log").read_text().splitlines()
    for line in lines[-2:]:
        assert HdrHistogram.decode(line.split(",")[-1]).get_total_count() == 0


@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_histogram_file_of_a_run(perftest, tmp_path, test):
    log = tmp_path / "latency.hlog"
    args = test or ("-latencyCount", 50)
    publisher, _ = perftest.pair(pub=(*args, "-histogramFile", log))
    result = publisher.k8sdds["latency_ns" if test else "loaded_latency_ns"]
    tag = "Tag=latency" if test else "Tag=loaded_latency"
    assert tags_of(log) == [tag, f"{tag}_episodes"]
    read = read_log(log)
    assert read.get_total_count() == result["count"] > 0
    assert read.values_are_equivalent(read.get_max_value(), result["max"])
    for key, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("p9999", 99.99), ("p999999", 99.9999)):
        assert (result[key] is not None) == (result["episodes"][key] >= histograms.VALUES_BEYOND)
        if result[key] is not None:
            assert min(read.get_value_at_percentile(percent), result["max"]) == result[key]
