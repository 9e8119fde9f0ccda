"""The tidy table of run folders in every state."""

import pandas as pd
import pytest

from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from tests import run_folders as folders
from tests.reports import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_exists_in_every_folder(reports, kind):
    run = reports(kind).run
    rows = tidy.rows(run)
    assert len(rows) == len(run.attempts())
    assert all(list(row)[: len(tidy.COLUMNS)] == list(tidy.COLUMNS) for row in rows)
    assert {row["valid"] for row in rows} <= {True, False}


@pytest.mark.parametrize("kind", ["troubled", "empty"])
def test_all_rows_are_written_as_parquet(kind, tmp_path):
    run = folders.KINDS[kind](tmp_path / "run")
    rows = tidy.rows(run)
    assert not (tmp_path / "run/derived").exists()
    tidy.write_parquet(run, rows)
    again = pd.read_parquet(run.derived / "trials.parquet")
    assert list(again.columns) == list(rows[0] if rows else tidy.COLUMNS)
    for name in ("throughput_mbps", "subscribers", "includes_scheduling", "link"):
        assert again[name].astype(object).where(again[name].notna(), None).tolist() == [
            row[name] for row in rows
        ]
    assert list(map(list, again["warnings"])) == [row["warnings"] for row in rows]


def test_unknown_keys_are_kept_and_missing_ones_null(tmp_path):
    rows = tidy.rows(folders.old(tmp_path / "run"))
    assert [(row["figure"], row["network_label"]) for row in rows] == [("5a", "host"), ("5a", "weavenet")]
    assert {(row["latency_p90_us"], row["repetition"]) for row in rows} == {(None, None)}


def test_objects_become_text_and_numeric_columns(tmp_path):
    row = tidy.rows(folders.single(tmp_path / "run"))[0]
    assert row["link"] == '{"delay_us":0,"loss_percent":0,"rate_mbit":100}'
    assert row["link_rate_mbit"] == 100
    assert row["drops_interface_drops"] == 0


def test_values_of_the_wrong_type_are_null_in_the_table(tmp_path):
    run = RunFolder.create(tmp_path / "run", {"schema": 1}, "")
    run.append_attempt({"trial_id": "a", "valid": "yes", "payload_bytes": "1k", "throughput_mbps": True,
                        "subscribers": 1.5, "warnings": "none", "link": 3})  # fmt: skip
    (row,) = tidy.rows(run)
    assert row["valid"] is False and row["warnings"] == []
    assert row["payload_bytes"] is row["throughput_mbps"] is row["subscribers"] is None


def test_best_is_the_last_valid_attempt(tmp_path):
    run = RunFolder.create(tmp_path / "run", {"schema": 1}, "")
    for trial, attempt, valid, mbps in (
        ("a", 1, False, None), ("a", 2, True, 1.0), ("b", 1, True, 2.0), ("b", 2, True, 3.0),
        ("b", 3, False, None), ("c", 1, False, None),
    ):  # fmt: skip
        run.append_attempt({"trial_id": trial, "attempt": attempt, "valid": valid, "throughput_mbps": mbps})
    best = tidy.best(tidy.rows(run))
    assert [(row["trial_id"], row["throughput_mbps"]) for row in best] == [("a", 1.0), ("b", 3.0)]
