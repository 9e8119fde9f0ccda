"""Test the output, files and exit codes of `claims` and `compare`."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests import run_folders
from tests.commands import open_for_all
from tests.conftest import NOBODY, Command
from tests.reports import check_policy
from tests.run_folders import rewritten, with_campaign


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two campaigns of 200 trials, `one` and `other`; `slow` is `one` with 10 % less throughput."""
    place = tmp_path_factory.mktemp("campaigns")
    payloads = run_folders.PAYLOADS[:4]
    one, _ = (
        run_folders.make(
            place / name, run_folders.Plan(payloads=payloads, repetitions=5, seed=seed, histograms=False)
        )
        for seed, name in enumerate(("one", "other"))
    )
    shutil.copytree(one.path, place / "slow")
    trials = one.attempts()
    for trial in trials:
        if trial["throughput_mbps"]:
            # Not by the very same factor: then the spread would be unknown.
            trial["throughput_mbps"] *= 0.5 + 0.001 * trial["repetition"]
    rewritten(RunFolder.open(place / "slow"), trials)
    return place


def test_compare_writes_the_same_as_html_csv_and_json(k8sdds: Command, runs: Path, tmp_path: Path) -> None:
    done = k8sdds("compare", str(runs / "one"), str(runs / "slow"), "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    throughput = [row for row in reported["rows"] if row["quantity"] == "throughput_mbps"]
    assert throughput and all(row["worse"] and 0.49 < row["ratio"] < 0.52 for row in throughput)
    assert not any(row["different"] for row in reported["rows"] if row["quantity"] == "latency_p90_us")
    assert json.loads((tmp_path / "out" / "compare.json").read_text()) == reported
    with open(tmp_path / "out" / "compare.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["ratio"]) for row in rows] == pytest.approx([row["ratio"] for row in reported["rows"]])
    page = (tmp_path / "out" / "compare.html").read_text()
    assert page.count(">worse<") == len(throughput) and page.count("<script") == 1
    check_policy(page)


def test_compare_exits_with_6_if_the_condition_is_met(k8sdds: Command, runs: Path) -> None:
    args = ("compare", str(runs / "one"), str(runs / "slow"), "--fail-if")
    met = k8sdds(*args, "worse and change_percent < -10")
    assert met.returncode == 6 and "rows meet --fail-if" in met.stderr and "Of 40 comparisons" in met.stdout
    assert k8sdds(*args, "worse and change_percent < -60").returncode == 0
    wrong = k8sdds(*args, "change < 0")
    assert wrong.returncode == 2 and "change_percent" in wrong.stderr


def test_two_networks_of_a_campaign_are_compared_in_pairs(k8sdds: Command, runs: Path) -> None:
    done = k8sdds("compare", f"{runs / 'one'}@host", f"{runs / 'one'}@weavenet", "--json")
    reported = json.loads(done.stdout)
    assert reported["how"].startswith("paired") and all(row["worse"] for row in reported["rows"])
    other = k8sdds("compare", str(runs / "one"), str(runs / "other"), "--overheads", "--json")
    assert not any(row["different"] for row in json.loads(other.stdout)["rows"])


def test_claims_are_written_and_can_fail_a_pipeline(k8sdds: Command, runs: Path, tmp_path: Path) -> None:
    args = ("claims", str(runs / "one"), "--only", "flannel-vxlan-slower", "--only", "table-1-weavenet")
    done = k8sdds(*args, "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    verdicts = {claim["id"]: claim["verdict"] for claim in reported["judged"]}
    assert verdicts["table-1-weavenet"] == "not testable here"
    assert json.loads((tmp_path / "out" / "claims.json").read_text()) == reported
    with open(tmp_path / "out" / "claims.csv", newline="") as file:
        assert {row["claim"] for row in csv.DictReader(file)} == set(verdicts)
    assert (reported["tested"], reported["supported_by_chance"]) == (1, 0.05)
    tested = "1 claim tested; if all were false, about 0.05 would be supported by chance"
    page = (tmp_path / "out" / "claims.html").read_text()
    assert "Raspberry Pi" in page and tested in page
    failing = k8sdds(*args, "--fail-if", 'verdict == "not testable here"')
    assert failing.returncode == 6 and tested in failing.stdout, failing.stderr


def test_a_folder_given_twice_or_copied_is_one_run(k8sdds: Command, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(runs / "one")
    shutil.copytree(runs / "one", tmp_path / "copy")
    args = ("--only", "flannel-vxlan-slower", "--json")
    once = json.loads(k8sdds("claims", str(runs / "one"), *args).stdout)
    twice = json.loads(k8sdds("claims", str(runs / "one"), "link", "copy", *args).stdout)
    assert twice["judged"] == once["judged"]
    both = json.loads(k8sdds("claims", str(runs / "one"), str(runs / "other"), *args).stdout)
    assert {row["source"] for row in both["rows"]} == {"2 runs", "one", "other"}
    assert {row["n"] for row in both["rows"] if row["source"] == "2 runs" and row["ratio"]} == {2}


def test_folders_that_were_stopped_are_tested_as_strictly_as_their_intervals(
    k8sdds: Command, runs: Path, tmp_path: Path
) -> None:
    stopped = tmp_path / "stopped"
    shutil.copytree(runs / "one", stopped)
    with_campaign(RunFolder.open(stopped), precision_percent=5)
    plain, strict = (
        json.loads(k8sdds("compare", f"{folder}@host", f"{folder}@flannel-vxlan", "--json").stdout)["rows"]
        for folder in (runs / "one", stopped)
    )
    assert len(plain) == len(strict) > 0
    for before, after in zip(plain, strict, strict=True):
        # The power that makes 2 % into 5 %, so that 98 % intervals and p values agree.
        assert after["p"] > before["p"] and after["p"] == pytest.approx(before["p"] ** 0.76578, rel=1e-3)
        assert after["ci_low"] < before["ci_low"] and after["ci_high"] > before["ci_high"]
        assert (after["p"] <= 0.05) == (not after["ci_low"] < 1 < after["ci_high"])
    args = ("--only", "flannel-vxlan-slower", "--json")
    before, after = (
        json.loads(k8sdds("claims", str(folder), *args).stdout)["rows"][0]
        for folder in (runs / "one", stopped)
    )
    assert after["p_inside"] > before["p_inside"] and after["ratio_low"] < before["ratio_low"]
    notes = k8sdds("compare", f"{stopped}@host", f"{stopped}@flannel-vxlan").stdout
    assert "computed at 98 %" in " ".join(notes.split())


def test_reasons_that_prevent_a_verdict(k8sdds: Command, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    (tmp_path / "empty").mkdir()
    torn = tmp_path / "torn"
    shutil.copytree(runs / "one", torn)
    (torn / "trials.jsonl").write_bytes((torn / "trials.jsonl").read_bytes()[:-100])
    for args, message in (
        (("claims",), "no run folder given"),
        (("claims", "nowhere"), "is not a folder"),
        (("claims", "file"), "is not a folder"),
        (("claims", "empty"), "is not a run folder"),
        (("claims", str(runs / "one"), "--only", "weavenet-slow"), "did you mean 'weavenet-slower'"),
        (("claims", str(runs / "one"), "--claims", "empty/x.yaml"), "No such file"),
        (("claims", str(runs / "one"), "--output", "file"), "choose another folder"),
        (("compare", str(torn), str(torn)), "A and B are the same"),
        (("compare", f"{runs / 'one'}@host", f"{runs / 'one'}@hots"), "did you mean 'host'"),
        (("compare", str(torn), str(runs / "one"), "--quantity", "p90"), "cannot be compared"),
    ):
        done = k8sdds(*args)
        assert (done.returncode, message in done.stderr) == (2, True), (args, done.stderr)
    assert k8sdds("claims", str(torn)).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user")
def test_an_unreadable_folder_is_reported(k8sdds: Command, runs: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    shutil.copytree(runs / "one", locked)
    (locked / "trials.jsonl").chmod(0)
    open_for_all(tmp_path)
    for args in (("claims", "locked"), ("compare", "locked", "locked@host"), ("report", "locked", "--json")):
        done = k8sdds(*args, user=NOBODY)
        assert done.returncode == 2 and "Permission denied" in done.stderr, (args, done.stderr)
