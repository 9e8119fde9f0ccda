"""Comparisons of generated trials with known true ratios, and conditions on their rows."""

import io
import math
import random
from dataclasses import replace

import pytest
from rich.console import Console

from k8sdds.analysis.comparison import Side, compare_all
from k8sdds.analysis.conditions import CONDITION
from k8sdds.analysis.statistics import holm
from k8sdds.cli.output import fail_if
from k8sdds.report import comparison as comparison_report
from k8sdds.results.metrics import METRICS
from k8sdds.system.errors import InputError


def rows(label="host", mbps=100.0, n=5, noise=0.01, seed=1, drift=0.0, **more):
    dice = random.Random(f"{seed}{label}{sorted(more.items())}")
    shared = random.Random(99)
    base = dict.fromkeys(CONDITION) | {
        "network": label, "network_label": label, "test": "throughput", "payload_bytes": 1024,
        "subscribers": 1, "transport": "unicast", "testbed": "lab", "middleware": "cyclonedds",
    }  # fmt: skip
    return [
        base
        | {"repetition": i, "throughput_mbps": mbps * math.exp(dice.gauss(0, noise) + shared.gauss(0, drift))}
        | more
        for i in range(n)
    ]


def compare(a, b, quantities=(), relative=False):
    (found,) = compare_all((a, b), quantities, relative)
    return found


def side(name, *groups, **more):
    return Side(name, name, [row for group in groups for row in group], **more)


def test_the_number_of_repetitions_is_stated_for_sides_of_equal_size():
    (equal,) = compare(side("a", rows(noise=0.1)), side("b", rows(mbps=90, seed=2, noise=0.1))).rows
    (unequal,) = compare(side("a", rows(noise=0.1)), side("b", rows(mbps=90, seed=2, noise=0.1, n=3))).rows
    assert equal["repetitions"] and unequal["repetitions"] is None


def test_true_change_is_found_with_its_direction():
    (row,) = compare(side("a", rows()), side("b", rows(mbps=80, seed=2))).rows
    assert row["worse"] and not row["better"] and row["different"]
    assert row["ci_low"] < 0.8 < row["ci_high"]
    assert row["change_percent"] == pytest.approx(-20, abs=3)
    (equal,) = compare(side("a", rows(noise=0.05)), side("b", rows(seed=2, noise=0.05))).rows
    assert not equal["different"] and equal["detectable_percent"] > 5


def test_pairing_within_a_folder_removes_effects_of_a_repetition():
    a = Side("r@a", "r", rows("a", drift=0.5), label="a")
    b = Side("r@b", "r", rows("b", mbps=90, drift=0.5), label="b")
    paired = compare(a, b)
    apart = compare(a, Side("s@b", "s", b.rows, label="b"))
    assert paired.rows[0]["worse"] and "paired" in paired.how
    assert not apart.rows[0]["different"] and "Welch" in apart.how


def test_paired_levels_are_those_of_the_common_repetitions():
    """Each side lacks another repetition, so one pair remains."""
    a, b = rows("a", n=2), rows("b", mbps=90, n=3)[1:]
    (row,) = compare(Side("r@a", "r", a, label="a"), Side("r@b", "r", b, label="b")).rows
    assert (row["n_a"], row["n_b"], row["how"]) == (1, 1, "no test: one repetition")
    assert row["ratio"] == pytest.approx(row["b"] / row["a"])


def test_p_values_are_corrected_over_all_cells():
    sizes = range(100, 120)
    one = [row for size in sizes for row in rows(payload_bytes=size)]
    two = [row for size in sizes for row in rows(payload_bytes=size, seed=2)]
    comparison = compare(side("a", one), side("b", two)).rows
    smallest = min(comparison, key=lambda row: row["p"])
    assert smallest["p_holm"] == pytest.approx(min(1, smallest["p"] * 20))
    assert [row["payload_bytes"] for row in comparison] == list(sizes)


def test_settings_that_differ_between_the_sides_are_reported_and_not_matched():
    lab = side("a", rows())
    paper = side("b", rows(testbed="imported", middleware="connext"))
    comparison = compare(lab, paper)
    assert len(comparison.rows) == 1
    assert comparison.differing["middleware"] == ("cyclonedds", "connext")
    several = side("b", rows(), rows(middleware="fastdds"))
    assert compare(lab, several).only_b == 1


def test_throughput_trials_with_and_without_timed_samples_are_never_compared():
    timed = side("a", rows(loaded_latency=True))
    with pytest.raises(InputError, match="no cell in common"):
        compare(timed, side("b", rows()))
    assert len(compare(timed, side("b", rows(loaded_latency=True))).rows) == 1


def test_what_trials_found_is_reported_but_not_matched():
    bbr, cubic = (side(name, rows(tcp_congestion_control=name)) for name in ("bbr", "cubic"))
    assert compare(bbr, cubic).differing == {"tcp_congestion_control": ("bbr", "cubic")}
    mixed = side("c", [row | {"tcp_congestion_control": str(row["repetition"])} for row in rows()])
    earlier = side("d", rows())
    assert compare(bbr, mixed).differing == compare(bbr, earlier).differing == {}
    assert len(compare(bbr, mixed).rows) == len(compare(bbr, earlier).rows) == 1


def test_cells_of_different_sizes_are_never_compared():
    with pytest.raises(InputError, match="no cell in common"):
        compare(side("a", rows()), side("b", rows(payload_bytes=64)))
    with pytest.raises(InputError, match="are the same"):
        compare(side("a", rows()), side("a", rows()))


def test_overheads_compare_across_machines_of_different_speed():
    slow = side("a", rows(mbps=10), rows("x", mbps=7), baseline="host")
    fast = side("b", rows(mbps=1000, seed=2), rows("x", mbps=700, seed=2), baseline="host")
    (row,) = compare(slow, fast, relative=True).rows
    assert row["network"] == "x" and row["a"] == pytest.approx(0.7, rel=0.03)
    assert not row["different"]


def test_one_repetition_has_a_ratio_and_no_test():
    (row,) = compare(side("a", rows(n=1)), side("b", rows(n=1, mbps=50))).rows
    assert row["p"] is None and row["p_holm"] is None and not row["different"]
    assert row["how"] == "no test: one repetition"
    assert comparison_report.lead(compare(side("a", rows(n=1)), side("b", rows(n=1, mbps=50)))) == [
        "In 1 comparison, a side has one repetition, which cannot show a difference, however large: measure at least 3"
        " (--repeat 3)."
    ]


def test_one_network_is_not_compared_with_all_of_another_folder():
    several = side("r", rows(), rows("flannel-vxlan", mbps=50))
    one = Side("s@host", "s", rows(seed=2), label="host")
    for a, b in ((several, one), (one, several)):
        with pytest.raises(InputError, match="r has 2 networks, but s@host is one network") as refused:
            compare(a, b)
        assert refused.value.remedy == "name one: r@flannel-vxlan, r@host"
    assert compare(side("r", rows()), one).rows


@pytest.mark.parametrize(
    "condition", ["", "wrose", "worse and", "change_percent", "@fail_if", "ratio.__class__", "1 +", "network"]
)
def test_invalid_conditions_are_rejected(condition):
    comparison = compare(side("a", rows()), side("b", rows(seed=2))).rows
    with pytest.raises(InputError):
        fail_if(comparison, condition)


def redefined(monkeypatch, since=2):
    monkeypatch.setitem(METRICS, "throughput_mbps", replace(METRICS["throughput_mbps"], since=since))


def test_a_metric_with_a_changed_definition_is_not_compared(monkeypatch):
    redefined(monkeypatch)
    old, new = side("old", rows(schema=1)), side("new", rows(seed=2, schema=2))
    with pytest.raises(InputError, match="define throughput_mbps differently"):
        compare(old, new)
    both = [{**row, "latency_p90_us": 100.0 + row["repetition"]} for row in new.rows]
    older = [{**row, "schema": 1} for row in both]
    comparison = compare(side("old", older), side("new", both), ["throughput_mbps", "latency_p90_us"])
    assert [row["quantity"] for row in comparison.rows] == ["latency_p90_us"]
    assert comparison.redefined == ("throughput_mbps",)


@pytest.mark.parametrize(
    ("one", "other"),
    [({"schema": 2}, {"schema": 2}), ({"schema": 2}, {"schema": 3}), ({"schema": 1}, {"schema": 1}),
     # Imported data has its own definition.
     ({"testbed": "imported", "schema": 1}, {"schema": 2})],
)  # fmt: skip
def test_equal_definitions_are_compared_whatever_the_schema(monkeypatch, one, other):
    redefined(monkeypatch)
    assert len(compare(side("a", rows(**one)), side("b", rows(seed=2, **other))).rows) == 1


def delays(label, method, **more):
    return [
        row | {"throughput_mbps": None, "delay_p90_us": 50.0 + row["repetition"], "delay_method": method}
        for row in rows(label, test="paced", **more)
    ]


def test_relative_delays_need_baselines_with_the_same_method():
    shared, halved = "shared clock", "round trip / 2"
    one = side("a", delays("host", shared), delays("flannel", shared), baseline="host")
    other = side("b", delays("host", halved, seed=2), delays("flannel", shared, seed=2), baseline="host")
    assert len(compare(one, replace(one, name="c", folder="c"), relative=True).rows) == 1
    with pytest.raises(InputError, match="define delay_p90_us differently"):
        compare(one, other, relative=True)


def test_percentiles_of_too_few_values_are_named():
    few = {"test": "latency", "throughput_mbps": None, "latency_p90_us": None}
    few |= {"missing": {"latency_p90_us": "84 values, 100 are needed"}}
    known = few | {"latency_p90_us": 20.0, "missing": None}
    for a, b in ((few, few), (few, known), (known, few)):
        with pytest.raises(InputError, match="latency_p90_us: 84 values, 100 are needed"):
            compare(side("a", rows(**a)), side("b", rows(seed=2, **b)))
    one, other = side("a", rows(**few), rows()), side("b", rows(seed=2, **known), rows(seed=2))
    comparison = compare(one, other)
    assert [row["quantity"] for row in comparison.rows] == ["throughput_mbps"]
    missing = {"quantity": "latency_p90_us", "reason": "84 values, 100 are needed", "cells": 1}
    assert comparison.missing == (missing,)
    assert comparison_report.findings((one, other), [comparison]).data["missing"] == [missing]
    console = Console(file=io.StringIO(), width=200)
    comparison_report.findings((one, other), [comparison]).show(console)
    assert "Not compared: p90 latency of 1 cell: 84 values, 100 are needed." in console.file.getvalue()


def test_a_trial_without_delays_has_no_method():
    one, other = (delays("host", "shared clock", seed=seed) for seed in (1, 2))
    other[0] |= {"delay_p90_us": None, "delay_method": None}
    assert [row["quantity"] for row in compare(side("a", one), side("b", other)).rows] == ["delay_p90_us"]


def test_all_pairs_are_compared_with_one_correction(tmp_path):
    sides = [side("a", rows()), side("b", rows(mbps=80, seed=2)), side("c", rows(seed=3))]
    pairs = compare_all(sides)
    alone = [compare(sides[i], sides[j]).rows[0] for i, j in ((0, 1), (0, 2), (1, 2))]
    assert [pair.rows[0]["worse"] for pair in pairs] == [True, False, False]
    assert pairs[2].rows[0]["better"]
    assert [pair.rows[0]["p"] for pair in pairs] == [row["p"] for row in alone]
    adjusted = holm([row["p"] for row in alone])
    assert [pair.rows[0]["p_holm"] for pair in pairs] == adjusted

    page, table, _ = comparison_report.findings(sides, pairs).write(tmp_path)
    assert page.read_text().count("<figure ") == 1
    assert (tmp_path / "compare-throughput_mbps.png").stat().st_size > 1000
    lines = table.read_text().splitlines()
    assert lines[0].startswith("side_a,side_b,network")
    assert [line[:4] for line in lines[1:]] == ["a,b,", "a,c,", "b,c,"]
