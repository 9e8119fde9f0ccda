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
    table = tidy.frame(run)
    assert list(table.columns[: len(tidy.COLUMNS)]) == list(tidy.COLUMNS)
    assert len(table) == len(run.attempts())
    assert table["valid"].dtype == bool


def test_parquet_is_written_on_request(tmp_path):
    run = folders.troubled(tmp_path / "run")
    tidy.frame(run)
    assert not (tmp_path / "run/derived").exists()
    table = tidy.frame(run, parquet=True)
    again = pd.read_parquet(run.derived / "trials.parquet")
    assert len(again) == len(table)
    assert again["throughput_mbps"].sum() == pytest.approx(table["throughput_mbps"].sum())
    assert list(again["warnings"][0]) == table["warnings"][0]


def test_empty_folder_is_written_as_parquet(tmp_path):
    run = folders.empty(tmp_path / "run")
    tidy.frame(run, parquet=True)
    assert list(pd.read_parquet(run.derived / "trials.parquet").columns) == list(tidy.COLUMNS)


def test_unknown_keys_are_kept_and_missing_ones_null(tmp_path):
    table = tidy.frame(folders.old(tmp_path / "run"))
    assert list(table["figure"]) == ["5a", "5a"]
    assert table["latency_p90_us"].isna().all()
    assert list(table["network_label"]) == ["host", "weavenet"]
    assert table["repetition"].isna().all()


def test_objects_become_text_and_numeric_columns(tmp_path):
    row = tidy.frame(folders.single(tmp_path / "run")).iloc[0]
    assert row["link"] == '{"delay_us":0,"loss_percent":0,"rate_mbit":100}'
    assert row["link_rate_mbit"] == 100
    assert row["drops_interface_drops"] == 0


def test_values_of_the_wrong_type_are_null_in_the_table(tmp_path):
    run = RunFolder.create(tmp_path / "run", {"schema": 1}, "")
    run.append_attempt({"trial_id": "a", "valid": "yes", "payload_bytes": "1k", "throughput_mbps": True,
                        "subscribers": 1.5, "warnings": "none", "link": 3})  # fmt: skip
    row = tidy.frame(run, parquet=True).iloc[0]
    assert not row["valid"]
    assert pd.isna(row["payload_bytes"]) and pd.isna(row["throughput_mbps"]) and pd.isna(row["subscribers"])
    assert row["warnings"] == []


def test_best_is_the_last_valid_attempt(tmp_path):
    run = RunFolder.create(tmp_path / "run", {"schema": 1}, "")
    for trial, attempt, valid, mbps in (
        ("a", 1, False, None), ("a", 2, True, 1.0), ("b", 1, True, 2.0), ("b", 2, True, 3.0),
        ("b", 3, False, None), ("c", 1, False, None),
    ):  # fmt: skip
        run.append_attempt({"trial_id": trial, "attempt": attempt, "valid": valid, "throughput_mbps": mbps})
    best = tidy.best(tidy.frame(run))
    assert list(zip(best["trial_id"], best["throughput_mbps"], strict=True)) == [("a", 1.0), ("b", 3.0)]
