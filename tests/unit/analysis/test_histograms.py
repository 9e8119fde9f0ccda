"""Distributions from HdrHistogram logs."""

import pytest
from hdrh.histogram import HdrHistogram

from k8sdds.report.figures.distributions import distribution
from k8sdds.results import hdr, histograms
from tests import run_folders as folders

IDLE, LOADED = ["latency"], ["loaded_latency"]


def attempt_of(tmp_path, test="latency"):
    """Return a run folder, and an attempt of a test with its raw folder."""
    run = folders.make(tmp_path / "run", folders.Plan(networks=("host",), payloads=(64,), noise=0))
    attempt = next(item for item in run.attempts() if item["test"] == test)
    return run, attempt, run.raw(attempt["trial_id"], 1)


def test_percentiles_of_a_log_equal_those_of_the_trial(tmp_path):
    _, attempt, raw = attempt_of(tmp_path)
    histogram = histograms.read(raw, IDLE)
    assert histogram.percentiles([99])[0] / 1000 == attempt["latency_p99_us"]
    assert histogram.total == 4000


def test_distribution_merges_trials_and_is_monotonic(tmp_path):
    run, *_ = attempt_of(tmp_path)
    trials = [(item["trial_id"], 1, IDLE) for item in run.attempts() if item["test"] == "latency"]
    merged = distribution(run, trials)
    assert (merged.samples, merged.trials) == (12000, 3)
    assert merged.quantiles[0] == 0
    assert merged.latency_us == sorted(merged.latency_us)
    # The generated distribution has its 90th percentile at 310 µs, without noise, in every repetition.
    at_90 = next(v for q, v in zip(merged.quantiles, merged.latency_us, strict=True) if q >= 0.9)
    assert at_90 == pytest.approx(310, rel=0.02)


def test_histograms_of_different_ranges_are_merged(tmp_path):
    run, attempt, raw = attempt_of(tmp_path)
    small, large = HdrHistogram(1, 10_000_000, 2), HdrHistogram(1, 10_000_000_000, 3)
    small.record_value(1_000_000, 50)
    large.record_value(2_000_000_000, 50)
    folders.write_hlog(run, attempt, "latency", large)
    (raw / "pub0").rename(raw / "pub1")
    folders.write_hlog(run, attempt, "latency", small)
    merged = histograms.read(raw, IDLE)
    assert merged.total == 100
    assert merged.maximum == pytest.approx(2e9, rel=0.01)


def test_damaged_and_missing_logs_count_as_missing(tmp_path):
    run, attempt, raw = attempt_of(tmp_path)
    for text in ("", "Tag=latency,0,3,1,HISTnot-base64!", "Tag=latency,0,3,1,HISTFAAA", "\x00\xff"):
        (raw / "pub0/latency.hlog").write_text(text)
        assert histograms.read(raw, IDLE) is None
        assert distribution(run, [(attempt["trial_id"], 1, IDLE)]) is None
    assert distribution(run, [("nothing", 1, IDLE)]) is None


def test_one_sample(tmp_path):
    run, attempt, _ = attempt_of(tmp_path)
    one = HdrHistogram(1, 10_000_000, 3)
    one.record_value(5000)
    folders.write_hlog(run, attempt, "latency", one)
    merged = distribution(run, [(attempt["trial_id"], 1, IDLE)])
    assert merged.samples == 1
    assert merged.latency_us == pytest.approx([5.0], rel=0.01)


def test_tags_select_histograms_and_values_of_all_tags_are_merged(tmp_path):
    *_, raw = attempt_of(tmp_path, "throughput")
    assert histograms.read(raw, IDLE) is None
    loaded = histograms.read(raw, LOADED)
    assert histograms.read(raw, ["latency", "loaded_latency"]).total == loaded.total
    log = raw / "pub0/latency.hlog"
    log.write_text(log.read_text() + log.read_text().replace("Tag=loaded_latency", "Tag=latency"))
    both = histograms.read(raw, ["latency", "loaded_latency"])
    assert both.total == 2 * loaded.total
    assert both.percentiles([50])[0] == loaded.percentiles([50])[0]


def test_the_subscriber_with_most_episodes_counts(tmp_path):
    """A stall of the publisher delays the samples of all subscribers: their episodes are not added."""
    for name, number in (("sub0", 3), ("sub1", 7)):
        above = HdrHistogram(1, 100_000_000_000, 3)
        above.record_value(990_000, number)
        (tmp_path / name).mkdir()
        line = f"Tag=one_way_episodes,0.000,3.000,1.000,{above.encode().decode()}\n"
        (tmp_path / name / histograms.LOG).write_text(line)
    thresholds = {"p99": 990.0, "max": 1_000_000_000.0}
    assert histograms.episodes(tmp_path, ["one_way"], thresholds) == {"p99": 7, "max": 0}
    assert histograms.episodes(tmp_path, ["one_way_realtime"], thresholds) is None
    assert histograms.latencies(histograms.logged(tmp_path)) == {}


def test_quantities_of_a_histogram():
    values = hdr.decode(hdr.encode({value * 1000: 1 for value in range(1, 1001)}))
    quantities = histograms.quantities_us(values)
    assert list(quantities) == ["mean", "p50", "p90", "p99", "p999", "p9999", "max"]
    assert quantities["p50"] == pytest.approx(500, rel=0.002)
    assert quantities["p99"] == pytest.approx(990, rel=0.002)
    assert quantities["mean"] == pytest.approx(500.5, rel=0.002)
