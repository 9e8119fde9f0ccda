"""Levels and overheads of generated run folders with known values."""

import pytest

from k8sdds.analysis import conditions, contrast, overhead
from k8sdds.model.axis import payload
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from tests import run_folders as folders


def tables(run, baseline="host"):
    best = tidy.best(tidy.rows(run))
    return best, overhead.levels(best), overhead.overheads(best, baseline)


def rows(table, **where):
    return [row for row in table if all(row[key] == value for key, value in where.items())]


def test_intervals_cover_the_true_value_at_their_level(tmp_path):
    covered = total = 0
    for seed in range(8):
        plan = folders.Plan(seed=seed, noise=0.05, tests=("throughput",), histograms=False)
        run = folders.make(tmp_path / str(seed), plan)
        for row in rows(tables(run)[2], quantity="throughput_mbps"):
            index = folders.PAYLOADS.index(row["payload_bytes"])
            truth = folders.THROUGHPUT_OVERHEAD[row["network_label"]][index]
            covered += row["ci_low_percent"] <= truth <= row["ci_high_percent"]
            total += 1
    # 160 intervals: 0.95 minus four standard errors, and a margin because they share baselines.
    assert covered / total > 0.86


def test_levels_have_intervals_and_every_value(tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(payloads=(64,), networks=("host",), histograms=False))
    best, levels, _ = tables(run)
    (row,) = rows(levels, quantity="throughput_mbps")
    values = sorted(trial["throughput_mbps"] for trial in best if trial["throughput_mbps"] is not None)
    assert sorted(row["values"]) == values
    assert row["mean"] == pytest.approx((values[0] * values[1] * values[2]) ** (1 / 3))
    assert row["ci_low"] < row["mean"] < row["ci_high"]
    assert (row["minimum"], row["maximum"]) == (values[0], values[2])
    (loss,) = rows(levels, quantity="lost_percent", test="throughput")
    assert (loss["mean"], loss["averaged_on"]) == (0, "linear")


def test_variants_count_as_separate_networks(tmp_path):
    plan = folders.Plan(networks=("host", "weavenet", "weavenet-1376"), payloads=(64,), histograms=False)
    _, _, overheads = tables(folders.make(tmp_path / "run", plan))
    labels = {row["network_label"] for row in rows(overheads, quantity="throughput_mbps")}
    assert labels == {"weavenet", "weavenet-1376"}


def test_without_a_baseline_there_are_only_levels(tmp_path):
    run = folders.scaling(tmp_path / "run")
    _, levels, overheads = tables(run)
    assert len(rows(levels, quantity="throughput_mbps", transport="multicast")) == 4
    assert rows(overheads, transport="multicast") == []
    assert len(tables(run, None)[2]) == 0
    assert len(tables(run, "no-such-network")[2]) == 0


def test_only_common_repetitions_are_paired(tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(payloads=(64,), tests=("latency",), histograms=False))
    path = run.path / "trials.jsonl"
    lines = path.read_text().splitlines()
    kept = [line for line in lines if not ('"host-latency' in line and '"repetition": 1' in line)]
    assert len(kept) == len(lines) - 1
    path.write_text("\n".join(kept) + "\n")
    matching = rows(tables(run)[2], quantity="latency_p90_us")
    assert {row["n"] for row in matching} == {2}


def test_one_repetition_has_no_interval(tmp_path):
    matching = rows(tables(folders.single(tmp_path / "run"))[2], quantity="throughput_mbps")
    assert [(row["ci_low_percent"], row["seen"], row["n"]) for row in matching] == [(None, None, 1)]


def test_zero_has_a_level_but_no_overhead(tmp_path):
    run = folders.single(tmp_path / "run")
    path = run.path / "trials.jsonl"
    path.write_text(path.read_text().replace('"throughput_mbps": ', '"throughput_mbps": 0, "was": '))
    _, levels, overheads = tables(run)
    assert rows(overheads, quantity="throughput_mbps") == []
    matching = rows(levels, quantity="throughput_mbps", test="throughput")
    assert [row["averaged_on"] for row in matching] == ["linear"] * 2


def test_ratios_to_any_network(tmp_path):
    run = folders.make(
        tmp_path / "run", folders.Plan(noise=0, payloads=(64,), tests=("latency",), histograms=False)
    )
    trials = tidy.best(tidy.rows(run))
    ratios = overhead.ratios(trials, "kube-router", "latency_p90_us")
    assert ratios["flannel-hostgw"].ratio == pytest.approx(1.165 / 1.135)
    assert ratios["host"].ratio == pytest.approx(1 / 1.135)


def condition(**values):
    return dict.fromkeys(conditions.CONDITION) | {"test": "throughput", "transport": "unicast"} | values


def test_settings_are_distinguished_by_as_few_columns_as_possible():
    assert conditions.distinguishing([]) == ()
    assert conditions.distinguishing([condition()]) == ()
    # The layout depends on the test and the nodes on the subscribers: neither distinguishes settings.
    both = [condition(layout="split"), condition(test="latency", layout="same")]
    assert conditions.distinguishing(both) == ()
    more = [condition(subscribers=1, nodes=2), condition(subscribers=4, nodes=5)]
    assert conditions.distinguishing(more) == ("subscribers",)
    assert conditions.distinguishing([condition(payload_bytes=64), condition(payload_bytes=1)]) == ()
    crossed = [condition(transport=t, link=link) for t in ("unicast", "multicast") for link in ("{}", "{ }")]
    assert conditions.distinguishing(crossed) == ("transport", "link")


def test_descriptions_of_conditions():
    assert conditions.describe({"transport": "unicast", "subscribers": 4, "payload_bytes": 1024}) == (
        "1 KiB, unicast, 4 subscribers"
    )
    assert conditions.describe({"link": '{"rate_mbit": 100, "loss_percent": 1.5, "delay_us": 0}'}) == (
        "links 100 Mbit/s, 1.5 % loss"
    )
    assert conditions.describe({"rate": 0.0, "batch_bytes": 8192, "security": "none"}) == (
        "no security, unlimited rate, batches of 8 KiB"
    )
    assert conditions.describe({"message_bytes": "mtu", "fragment_bytes": "1000"}) == (
        "messages that fit the MTU, fragments of up to 1000 B"
    )
    assert [payload(n) for n in (28, 1400, 1536, 65536, 1 << 20)] == (
        ["28 B", "1400 B", "1.5 KiB", "64 KiB", "1 MiB"]
    )


def test_contrasts_compare_settings_within_each_network(tmp_path):
    trials = tidy.best(tidy.rows(folders.scaling(tmp_path / "run")))
    result = contrast.contrasts(trials, "throughput_mbps")
    # Generated: multicast has 0.45 of the unicast rate to one subscriber; subscribers share the unicast rate.
    assert {(row["network_label"], row["value"], row["reference"]) for row in result} == {
        ("weavenet", "multicast", "unicast")
    }
    assert {row["subscribers"] for row in result} == {1, 4, 8, 12}
    for row in result:
        assert row["ratio"] == pytest.approx(0.45 * row["subscribers"], rel=0.1)
        assert row["change_percent"] == pytest.approx(100 * (row["ratio"] - 1))
        assert row["ci_low_percent"] < row["change_percent"] < row["ci_high_percent"]
    assert contrast.contrasts(trials, "latency_p90_us") == []
    assert contrast.contrasts([], "throughput_mbps") == []


def test_the_usual_setting_is_the_reference():
    def reference(column, *values):
        return contrast.reference_of(column, [{column: value} for value in values])

    assert reference("transport", "multicast", "unicast") == "unicast"
    assert reference("reliability", "best-effort", "reliable") == "reliable"
    assert reference("middleware", "raw", "fastdds") == "fastdds"
    assert reference("batch_bytes", 8192, 0) == 0


def test_intervals_of_published_numbers_include_their_rounding():
    def trials(*mbps, testbed="imported"):
        return [
            {"testbed": testbed, "repetition": i, "throughput_mbps": value} for i, value in enumerate(mbps, 1)
        ]

    quantity = METRICS["throughput_mbps"]
    # Both runs print the same numbers, which stand for 93.55 to 93.65 and 92.95 to 93.05.
    ratio, _ = overhead.paired(trials(93.6, 93.6), trials(93.0, 93.0), quantity)
    low, high = ratio.bounds
    assert low < 93.55 / 93.05 and high > 93.65 / 92.95
    ours, _ = overhead.paired(trials(93.6, 93.6, testbed="lab"), trials(93.0, 93.0, testbed="lab"), quantity)
    assert ours.bounds[0] == pytest.approx(ours.bounds[1])
    # A second decimal shows that the values are not rounded to one decimal.
    assert overhead.rounding(trials(93.6, 93.61), "throughput_mbps") == 0
    assert overhead.rounding(trials(93.6, 93.7), "samples_per_s") == 0


def test_levels_of_published_numbers_count_repetitions_and_include_rounding(tmp_path):
    """The second repetition has the cell twice, and all three trials print the same number."""
    plan = folders.Plan(networks=("host",), payloads=(1024,), tests=("throughput",), repetitions=2)
    run = folders.make(tmp_path / "run", plan)
    printed = [row | {"testbed": "imported", "throughput_mbps": 93.6} for row in run.attempts()]
    again = printed[-1] | {"trial_id": "again"}
    _, levels, _ = tables(folders.rewritten(run, [*printed, again]))
    (level,) = rows(levels, quantity="throughput_mbps")
    assert level["n"] == 2 and level["mean"] == pytest.approx(93.6) and len(level["values"]) == 3
    assert level["ci_low"] < 93.55 and level["ci_high"] > 93.65
    _, levels, _ = tables(folders.rewritten(run, [printed[-1], again]))
    (level,) = rows(levels, quantity="throughput_mbps")
    assert (level["n"], level["ci_low"]) == (1, None)


def test_delays_by_different_methods_are_not_compared():
    def trials(*methods, delay_us):
        return [
            {"repetition": i, "delay_method": method, "delay_p90_us": delay_us, "testbed": "cluster"}
            for i, method in enumerate(methods)
        ]

    metric = METRICS["delay_p90_us"]
    shared, halves = "shared clock", "round trip / 2"
    base = trials(shared, shared, shared, delay_us=100.0)
    ratio, pairs = overhead.paired(trials(shared, halves, shared, delay_us=200.0), base, metric)
    assert len(pairs) == 2 and ratio.ratio == pytest.approx(2)
    assert overhead.paired(trials(halves, halves, halves, delay_us=200.0), base, metric) == (None, [])
    other = [{**trial, "latency_p90_us": 1.0} for trial in trials(halves, halves, halves, delay_us=200.0)]
    assert len(overhead.alike(METRICS["latency_p90_us"], other, base)[0]) == 3, "a method of delays only"


def test_levels_and_overheads_count_the_same_repetitions(tmp_path):
    """A cell twice in one repetition is one value, and trials without a repetition are not known to be independent."""
    plan = folders.Plan(payloads=(1024,), tests=("throughput",), histograms=False)
    best, _, _ = tables(folders.make(tmp_path, plan))
    for numbers in ((0, 1, 2), (0, 0, 1), (None, None, None)):
        changed = [row | {"repetition": numbers[row["repetition"]]} for row in best if row["repetition"] < 3]
        levels = rows(overhead.levels(changed), quantity="throughput_mbps")
        compared = rows(overhead.overheads(changed, "host"), quantity="throughput_mbps")
        assert levels and compared
        assert {row["n"] for row in (*levels, *compared)} == {len(set(numbers))}
        assert all(len(row["values"]) == 3 for row in levels)
