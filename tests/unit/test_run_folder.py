"""Run folders survive crashes, and unreadable or foreign folders are rejected."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import missing, overhead
from k8sdds.campaign import start
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder, without_copies
from k8sdds.system import reading
from k8sdds.system.errors import InputError

CAMPAIGN = {"schema": 1, "campaign": "c"}


def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CAMPAIGN, "name: e\n")


def test_attempts_of_earlier_versions_have_the_sizes_that_were_measured(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.append_attempt({"trial_id": "a", "valid": True})
    run.append_attempt({"trial_id": "b", "valid": True, "message_bytes": "mtu", "fragment_bytes": "1000"})
    sizes = [(row["message_bytes"], row["fragment_bytes"]) for row in tidy.rows(run)]
    assert sizes == [("auto", "default"), ("mtu", "1000")]


def repetitions(run: RunFolder, test: str, cell: str, *values: dict[str, Any]) -> None:
    """Append a valid attempt for each repetition of a cell, with these values."""
    for number, measured in enumerate(values):
        ids = {"trial_id": f"{test}-{cell}-r{number}", "cell_id": f"{test}-{cell}", "repetition": number}
        common = {"network_label": cell, "test": test, "valid": True, "attempt": 1}
        run.append_attempt(ids | common | measured)


def test_a_percentile_that_one_repetition_does_not_know_is_unknown_in_all(tmp_path: Path) -> None:
    """Otherwise those repetitions would count that had no stall."""
    run = folder(tmp_path)
    few = {"delay_p99_us": "3 episodes above it, 10 are needed (1500 values)"}
    episodes = [{"delay_p90_us": 100, "delay_p99_us": number} for number in (12, 3)]
    known = {"delay_p90_us": 5.0, "delay_p99_us": 9.0, "tail_episodes": episodes[0]}
    unknown = {"delay_p90_us": 5.0, "delay_p99_us": None, "tail_episodes": episodes[1], "missing": few}
    repetitions(run, "paced", "a", known, unknown)
    repetitions(run, "paced", "b", known)
    trials = tidy.best(tidy.rows(run))
    assert [row["delay_p99_us"] for row in trials] == [None, None, 9.0]
    assert [row["delay_p90_us"] for row in trials] == [5.0, 5.0, 5.0]
    reasons = [missing.reasons(row) for row in trials]
    assert reasons == [{"delay_p99_us": f"in another repetition, {few['delay_p99_us']}"}, few, {}]


def test_a_percentile_that_missing_samples_could_move_is_unknown_in_all(tmp_path: Path) -> None:
    """Otherwise those repetitions would count that lost least."""
    run = folder(tmp_path)
    why = {"delay_p90_us": "8 % of the values are missing, at most 5 % may be"}
    known = {"delay_p50_us": 3.0, "delay_p90_us": 5.0}
    lost = {"delay_p50_us": 3.0, "delay_p90_us": None, "missing": why}
    repetitions(run, "paced", "a", known, lost, known)
    repetitions(run, "paced", "b", known, known, known)
    trials = tidy.best(tidy.rows(run))
    levels = {(row["network_label"], row["quantity"]): row["n"] for row in overhead.levels(trials)}
    assert levels == {("a", "delay_p50_us"): 3, ("b", "delay_p50_us"): 3, ("b", "delay_p90_us"): 3}


def test_a_time_that_one_repetition_ended_before_has_no_mean(tmp_path: Path) -> None:
    """Otherwise the mean would be that of the fastest repetitions."""
    run = folder(tmp_path)
    reason = "not recovered within 3000 ms after the repair"
    recovered = {"outage_blind_ms": 1200.0, "recovery_full_ms": 200.0}
    ended = {"outage_blind_ms": 1200.0, "recovery_full_ms": None, "missing": {"recovery_full_ms": reason}}
    repetitions(run, "outage", "a", recovered, ended)
    repetitions(run, "outage", "b", recovered, recovered)
    attempts = tidy.rows(run)
    trials = tidy.best(attempts)
    levels = overhead.levels(trials)
    means = {row["network_label"]: row["mean"] for row in levels if row["quantity"] == "recovery_full_ms"}
    assert means == {"b": pytest.approx(200)}
    assert {row["n"] for row in levels if row["quantity"] == "outage_blind_ms"} == {2}
    compared = overhead.overheads(trials, "b")
    assert "recovery_full_ms" not in {row["quantity"] for row in compared}
    of = {cell: [row for row in trials if row["network_label"] == cell] for cell in "ab"}
    assert missing.share(of["a"], "recovery_full_ms") == f"1 of 2: {reason}"
    assert missing.share(of["b"], "recovery_full_ms") == ""
    assert attempts[0]["recovery_full_ms"] == 200.0, "the table of attempts keeps it"


def test_repetitions_in_which_no_sample_arrives_leave_no_mean_and_no_ratio(tmp_path: Path) -> None:
    """Otherwise delays and overheads would be those of the repetitions that lost least."""
    run = folder(tmp_path)
    delay: dict[str, Any] = {"lost_percent": 0.0, "delay_p90_us": 5.0}
    silent: dict[str, Any] = {"lost_percent": 100.0, "missing": {"delay_p90_us": "no sample arrived"}}
    rate, no_rate = (
        {"lost_percent": lost, "throughput_mbps": mbps} for lost, mbps in ((0.0, 9.0), (100.0, 0.0))
    )
    for test, usual, nothing in (("paced", delay, silent), ("throughput", rate, no_rate)):
        repetitions(run, test, "a", usual, nothing)
        repetitions(run, test, "b", usual, usual)
    trials = tidy.best(tidy.rows(run))
    levels = {(row["network_label"], row["quantity"]): row for row in overhead.levels(trials)}
    assert ("a", "delay_p90_us") not in levels and levels["b", "delay_p90_us"]["n"] == 2
    assert levels["a", "throughput_mbps"]["values"] == [9, 0] and levels["a", "lost_percent"]["mean"] == 50
    assert overhead.overheads(trials, "b") == []
    paced = [row for row in trials if row["test"] == "paced" and row["network_label"] == "a"]
    assert missing.share(paced, "delay_p90_us") == "1 of 2: no sample arrived"
    assert missing.remedy(paced, "delay_p90_us") == "look at the loss: longer trials do not help"


def test_cells_have_no_mean_for_reasons_of_their_own(tmp_path: Path) -> None:
    """A percentile of one cell with a stall, and of another one without samples, is null in both."""
    run = folder(tmp_path)
    few = {
        "missing": {"delay_p90_us": "3 episodes above it, 10 are needed"},
        "tail_episodes": {"delay_p90_us": 3},
    }
    for cell, why in (("a", few), ("b", {"missing": {"delay_p90_us": "no sample arrived"}})):
        repetitions(run, "paced", cell, why, {"delay_p90_us": 5.0})
    assert all(row["delay_p90_us"] is None for row in tidy.best(tidy.rows(run)))


def test_an_incomplete_last_line_is_ignored_and_not_continued(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.append_attempt({"attempt": 1, "reason": "ü"})
    run.append_attempt({"attempt": 2, "reason": "ü"})
    complete = (run.path / "trials.jsonl").read_bytes()
    first = complete.index(b"\n") + 1
    for cut in range(first, len(complete) - 1):
        (run.path / "trials.jsonl").write_bytes(complete[:cut])
        assert [r["attempt"] for r in run.attempts()] == [1]
        run.append_attempt({"attempt": 3})
        assert [r["attempt"] for r in run.attempts()] == [1, 3]


@pytest.mark.parametrize("excess", [1, 2, 10])
def test_a_line_that_is_too_long_does_not_hide_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 10)
    path = tmp_path / "lines.jsonl"
    path.write_text("x" * (9 + excess) + '\n{"a": 1}\n')
    assert list(reading.json_lines(path)) == [(1, None), (2, {"a": 1})]


def test_a_long_baseline_is_shortened_like_the_labels_of_records(tmp_path: Path) -> None:
    label = "x" * 300
    run = RunFolder.create(tmp_path / "run", {"schema": 2, "baseline": label}, "name: e\n")
    run.append_attempt({"network_label": label})
    assert run.campaign["baseline"] == run.attempts()[0]["network_label"]
    assert len(run.campaign["baseline"]) == 200


def test_long_labels_of_earlier_versions_stay_distinct(tmp_path: Path) -> None:
    labels = [f"{'flannel-' * 6}{mtu}{' of the second rack' * 3}" for mtu in (1450, 8950)]
    run = RunFolder.create(tmp_path / "run", {"schema": 2}, "name: e\n")
    run.append_attempts([{"network_label": label} for label in labels])
    assert [attempt["network_label"] for attempt in run.attempts()] == labels


def test_an_invalid_attempt_keeps_its_reason_if_a_value_is_impossible(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"schema": 2}, "name: e\n")
    reason = "part-failed: pub0: the participant was terminated"
    run.append_attempt({"valid": False, "reason": reason, "machine_cpu_percent": 385.9})
    run.append_attempt({"valid": True, "machine_cpu_percent": 385.9})
    failed, damaged = run.attempts()
    assert failed["reason"] == reason and "machine_cpu_percent" not in failed
    assert damaged["valid"] is False and damaged["reason"].startswith("damaged: trials.jsonl:2:")


def test_every_altered_digit_of_an_attempt_is_found(tmp_path: Path) -> None:
    run = folder(tmp_path)
    attempt = {
        "trial_id": "a",
        "reason": None,
        "network": "\u00b5\ud800",
        "sent": 17,
        "latency_p50_us": 1.5e-7,
    }
    run.append_attempts([attempt, attempt | {"valid": True}])
    path = run.path / "trials.jsonl"
    written = path.read_text()
    assert run.attempts()[1]["sent"] == 17 and run.attempts()[1]["valid"] is True
    second = written.index("\n") + 1
    digits = [
        match.start() for match in re.finditer(r"\d", written[second : written.index("checksum", second)])
    ]
    assert len(digits) == 8
    for at in digits:
        at += second
        path.write_text(written[:at] + str((int(written[at]) + 1) % 10) + written[at + 1 :])
        _, altered = run.attempts()
        what = "damaged: trials.jsonl:2: its content does not match its checksum"
        assert (altered["valid"], altered["reason"]) == (False, what)
        assert "latency_p50_us" not in altered
    # What another program formats in another way is the same content.
    path.write_text(json.dumps(json.loads(written.splitlines()[1]), sort_keys=True, separators=(",", ":")))
    assert run.attempts()[0]["valid"] is True


def test_percentiles_of_an_attempt_are_in_order(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.append_attempt({"valid": True, "delay_p50_us": 10.0, "delay_p99_us": 9.0})
    run.append_attempt({"valid": True, "delay_p9999_us": 10.01, "delay_max_us": 10.0})
    wrong, right = run.attempts()
    assert wrong["reason"] == "damaged: trials.jsonl:1: delay_p99_us: 9 is less than delay_p50_us"
    assert right["valid"] is True


def test_create_never_overwrites_a_folder(tmp_path: Path) -> None:
    run = folder(tmp_path)
    with pytest.raises(InputError, match="already exists"):
        RunFolder.create(run.path, CAMPAIGN, "")
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("x")
    with pytest.raises(InputError, match="already exists"):
        RunFolder.create(other, CAMPAIGN, "")


def test_open_rejects_other_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match="not a run folder"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": "1"}'])
def test_a_damaged_or_newer_campaign_file_is_rejected(tmp_path: Path, text: str) -> None:
    run = folder(tmp_path)
    (run.path / "campaign.json").write_text(text)
    with pytest.raises(InputError, match=r"campaign\.json"):
        _ = run.campaign


def test_numbers_that_json_cannot_represent_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        folder(tmp_path).append_attempt({"latency_mean_us": float("nan")})


def test_lines_are_plain_json(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.append_attempt({"attempt": 1})
    run.append_event("started", seed=3)
    assert json.loads((run.path / "trials.jsonl").read_text()) == {"attempt": 1, "checksum": "dbc0fbf5"}
    assert run.events()[0]["event"] == "started"


def resume(run: RunFolder) -> None:
    start.resume(run, expansion=None, testbed=None, observer=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("write", "links"),
    [
        (lambda run: run.report, ["report", "report/tables", "report/tables/levels.csv"]),
        (lambda run: run.derived, ["derived"]),
        (resume, [*(f"{name}.jsonl" for name in ("trials", "events", "readings", "plan")), "raw", "raw/0123456789ab"]),
    ],
    ids=["report", "derived", "resume"],
)  # fmt: skip
def test_nothing_is_written_through_links_of_an_archive(
    tmp_path: Path, write: Callable[[RunFolder], object], links: list[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for link in links:
        run = RunFolder.create(tmp_path / link.replace("/", "-"), CAMPAIGN, "name: e\n")
        (run.path / link).parent.mkdir(parents=True, exist_ok=True)
        (run.path / link).symlink_to(elsewhere)
        with pytest.raises(InputError, match="is a symbolic link"):
            write(run)
        assert not elsewhere.exists()


def test_a_run_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder(tmp_path).path)
    RunFolder(tmp_path / "link").require_own_files()


def test_of_copies_the_one_with_most_trials_counts(tmp_path: Path) -> None:
    run = folder(tmp_path)
    earlier = RunFolder(shutil.copytree(run.path, tmp_path / "earlier"))
    run.append_attempt({"attempt": 1})
    assert without_copies([run, earlier]) == without_copies([earlier, run]) == [run]
