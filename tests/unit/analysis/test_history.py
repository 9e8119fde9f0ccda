"""Histories with known changes, false alarms of simulated series, and the files that describe a history."""

import itertools
import math
import random
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from k8sdds.analysis.conditions import CONDITION
from k8sdds.analysis.history import (
    FALSE_ALARMS,
    MIN_RUNS,
    Change,
    Run,
    correlations,
    find_changes,
    history,
)
from k8sdds.cli.app import app
from k8sdds.cli.output import fail_if
from k8sdds.report import history as history_report
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import ConditionMet, InputError


def run(number, mbps, seed=1, noise=0.01):
    dice = random.Random(f"{seed} {number}")
    base = dict.fromkeys(CONDITION) | {
        "network": "host", "network_label": "host", "test": "throughput", "payload_bytes": 1024,
        "subscribers": 1, "transport": "unicast", "testbed": "lab", "middleware": "cyclonedds",
    }  # fmt: skip
    trials = [
        base
        | {"network_label": label, "network": label, "repetition": repetition}
        | {"throughput_mbps": value * math.exp(dice.gauss(0, noise))}
        for label, value in (("host", 100.0), ("veth", mbps))
        for repetition in range(3)
    ]
    return Run(f"runs/{number:02}", f"2026-01-{number + 1:02}T00:00:00Z", trials, "host")


def series(dice, n, noise, shift=0.0, after=0):
    return [dice.gauss(0, noise) + (shift if index >= n - after else 0) for index in range(n)]


def test_a_change_is_found_at_its_run_whatever_the_order_of_the_folders(tmp_path):
    runs = [run(number, 90 if number < 12 else 84) for number in range(17)]
    random.Random(3).shuffle(runs)
    found = history(runs)
    every = {row["network"]: row for row in found.rows()}
    assert not every["host"]["changed"]
    veth = every["veth"]
    assert (veth["folder"], veth["runs_since"], veth["worse"]) == ("runs/12", 5, True)
    assert veth["change_percent"] == pytest.approx(-6.7, abs=1.5)
    (relative,) = history(runs, relative=True).rows()
    assert relative["folder"] == "runs/12" and relative["after"] == pytest.approx(0.84, abs=0.02)
    with pytest.raises(ConditionMet):
        fail_if(list(every.values()), "worse and runs_since <= 5")

    paths = history_report.findings(found, False).write(tmp_path)
    assert {path.name for path in paths} == {
        f"history.{kind}" for kind in ("html", "csv", "json", "xml", "prom")
    }
    suite = ElementTree.parse(tmp_path / "history.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    (failure,) = suite.iter("failure")
    assert "runs/12" in failure.get("message")
    metrics = (tmp_path / "history.prom").read_text()
    assert metrics.endswith("# EOF\n") and 'network="veth"' in metrics
    assert (tmp_path / "history-throughput_mbps.png").stat().st_size > 1000


def test_two_changes_and_missing_runs():
    dice = random.Random(5)
    values = [
        *series(dice, 10, 0.01), *(0.1 + value for value in series(dice, 10, 0.01)), *series(dice, 10, 0.01)
    ]  # fmt: skip
    values[4] = values[15] = math.nan
    (changes,) = find_changes([values])
    assert [change.index for change in changes] == [9, 18]


def test_series_without_change_raise_few_false_alarms():
    dice = random.Random(7)
    alarms = sum(
        any(find_changes([series(dice, 15, 0.05) for _ in range(3)])) for _ in range(30)
    )  # P(alarms > 3) is below 0.001 at 1 %
    assert alarms <= 3


def correlated(dice, n, correlation):
    values = [dice.gauss(0, 1)]
    while len(values) < n:
        values.append(correlation * values[-1] + dice.gauss(0, math.sqrt(1 - correlation**2)))
    return values


@pytest.mark.long
def test_correlated_runs_without_change_raise_few_false_alarms():
    dice = random.Random(17)
    alarms = sum(any(find_changes([correlated(dice, 20, 0.6) for _ in range(3)])) for _ in range(25))
    # Random orders alone raise an alarm in 45 % of such histories. P(alarms > 4) is below 0.002 at 5 %.
    assert alarms <= 4


def test_the_bound_of_the_correlation_is_above_the_true_one_and_no_step_raises_it():
    dice = random.Random(18)
    for correlation in (0, 0.3, 0.6):
        values = np.array([correlated(dice, 60, correlation) for _ in range(10)])
        without = correlations(values, [[]] * 10)
        values[:, 30:] += 20
        (bound, *_), shifted = without, correlations(values, [[Change(30, 0.01)]] * 10)
        assert correlation < np.mean(without) < correlation + 0.35 and bound >= 0
        assert np.mean(shifted) == pytest.approx(np.mean(without), abs=0.1)


def test_two_steps_up_do_not_count_as_correlation():
    dice = random.Random(19)
    values = [value + 0.05 * (index // 15) for index, value in enumerate(series(dice, 45, 0.01))]
    (changes,) = find_changes([values])
    assert [change.index for change in changes] == [15, 30]


def test_shift_of_5_percent_is_found_within_5_runs():
    dice = random.Random(8)
    found = sum(any(find_changes([series(dice, 20, 0.01, 0.05, 5)])) for _ in range(10))
    assert found >= 9


def test_a_clear_change_is_shown_with_the_fewest_runs():
    dice = random.Random(9)
    (changes,) = find_changes([series(dice, MIN_RUNS, 0.001, 0.5, MIN_RUNS // 2)])
    assert [change.index for change in changes] == [MIN_RUNS - MIN_RUNS // 2]


def test_with_fewer_runs_more_than_1_percent_of_all_orders_divide_as_clearly():
    """Of two groups of runs, the orders in which one of them is a stretch that `find_changes` considers."""
    assert min(share_of_clear_orders(11, size) for size in range(2, 6)) > FALSE_ALARMS
    assert share_of_clear_orders(MIN_RUNS, MIN_RUNS // 2) < 0.6 * FALSE_ALARMS


def share_of_clear_orders(runs, size):
    clear = 0
    for low in itertools.combinations(range(runs), size):
        high = sorted(set(range(runs)) - set(low))
        clear += any(
            group[-1] - group[0] == len(group) - 1 and group[0] != 1 and group[-1] != runs - 2
            for group in (low, high)
        )
    return clear / math.comb(runs, size)


def test_few_runs_are_refused():
    with pytest.raises(InputError, match="at least 13"):
        history([run(number, 90) for number in range(5)])


def test_a_folder_that_is_named_twice_or_copied_is_refused(tmp_path):
    folders = [str(tmp_path / f"run-{number}") for number in range(MIN_RUNS)]
    for folder in folders:
        RunFolder.create(Path(folder), {"campaign": folder}, "")
    copy = shutil.copytree(folders[0], tmp_path / "copy")
    for repeated in (f"{folders[0]}/", str(copy)):
        result = CliRunner().invoke(app, ["history", *folders, repeated])
        assert isinstance(result.exception, InputError)
        assert result.exception.message.startswith(f"{Path(repeated)} is named more than once, or is a copy")


@pytest.mark.parametrize(
    ("column", "quantity", "values", "how"),
    [
        ("schema", "throughput_mbps", (1, 5), "earlier schema"),
        (
            "delay_method", "delay_p90_us", ("round trip / 2", "synchronized clocks"),
            "current schema, round trip / 2",
        ),
    ],
)  # fmt: skip
def test_runs_that_define_a_metric_differently_are_no_change(column, quantity, values, how):
    """Records of schema 1 have another throughput, and delays by other clocks are other quantities."""
    runs = [run(number, 80 if number < 8 else 100) for number in range(8 + MIN_RUNS)]
    for number, one in enumerate(runs):
        for row in one.rows:
            row |= {"schema": 5, "delay_p90_us": row["throughput_mbps"], column: values[number >= 8]}
    for relative in (False, True):
        found = history(runs, [quantity], relative)
        (veth,) = (row for row in found.rows() if row["network"] == "veth")
        assert (veth["runs"], veth["changed"]) == (MIN_RUNS, False)
        (left_out,) = found.redefined
        assert (left_out.quantity, left_out.folders) == (quantity, [one.folder for one in runs[:8]])
    with pytest.raises(InputError, match=f"at least {MIN_RUNS}.*of 8 runs .*{how}.* differently"):
        history(runs[:-1], [quantity])

    shown = history_report.findings(found, False)
    assert f"of 8 runs ({how})" in " ".join(shown.notes)
    (listed,) = shown.data["redefined"]
    assert (listed["definition"], len(listed["folders"])) == (how, 8)


def test_a_last_run_by_another_method_is_reported_with_the_series_that_it_removes():
    runs = [run(number, 100) for number in range(30)]
    for number, one in enumerate(runs):
        for row in one.rows:
            method = "round trip / 2" if number == 29 else "synchronized clocks"
            row |= {"schema": 5, "delay_p90_us": 100.0 + number % 3, "delay_method": method}
    found = history(runs, ["throughput_mbps", "delay_p90_us"])
    assert {row["quantity"] for row in found.rows()} == {"throughput_mbps"}
    assert [one.describe() for one in found.redefined] == [
        f"{METRICS['delay_p90_us'].title} of 29 runs (current schema, synchronized clocks)"
    ]


def test_imported_runs_share_a_series_with_measured_ones():
    runs = [run(number, 100) for number in range(MIN_RUNS)]
    for number in (0, 5, MIN_RUNS - 1):
        for row in runs[number].rows:
            row["testbed"] = "imported"
    for one in runs:
        for row in one.rows:
            row["schema"] = 5
    found = history(runs)
    assert [row["runs"] for row in found.rows()] == [MIN_RUNS, MIN_RUNS] and not found.redefined
