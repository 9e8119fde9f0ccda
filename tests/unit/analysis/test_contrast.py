"""The setting in which a report shows a contrast."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import conditions
from k8sdds.analysis.contrast import by_title, contrasts, of_one_setting
from k8sdds.campaign import record
from k8sdds.model.trial import Cell, Trial
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder


def _row(payload_bytes: int, link: str, security: str = "SignRTPS") -> dict:
    return {
        "column": "security", "network_label": "host", "test": "throughput", "payload_bytes": payload_bytes,
        "subscribers": 1, "security": security, "link": link,
    }  # fmt: skip


def test_the_setting_with_the_most_rows_is_shown_and_returned() -> None:
    rows = [_row(64, "100 Mbit/s"), _row(64, ""), _row(1024, ""), _row(1024, "100 Mbit/s"), _row(16384, "")]
    selected, setting = of_one_setting(rows)
    assert [row["payload_bytes"] for row in selected] == [64, 1024, 16384]
    assert setting == {"link": ""} and all(row["link"] == "" for row in selected)


def test_without_further_varied_settings_all_rows_are_shown() -> None:
    rows = [_row(64, ""), _row(1024, "")]
    assert of_one_setting(rows) == (rows, {})


@pytest.mark.parametrize(
    ("settings", "titles"),
    [
        (
            {"realtime_priority": [0, 10], "lock_memory": [False, True]},
            {"SCHED_FIFO 10 against normal scheduler", "locked memory against unlocked memory"},
        ),
        (
            {"publish_mode": ["synchronous", "asynchronous"]},
            {"asynchronous publishing against synchronous publishing"},
        ),
        ({"middleware_config": ["", "tuned.xml"]}, {"config tuned.xml against no middleware config"}),
    ],
)
def test_settings_that_only_some_records_have(
    tmp_path: Path, settings: dict[str, list[Any]], titles: set[str]
) -> None:
    run = RunFolder.create(tmp_path / "run", {"schema": 2}, "")
    combinations = list(itertools.product(*settings.values()))
    for values, repetition in itertools.product(combinations, range(2)):
        options = dict(zip(settings, values, strict=True))
        cell = Cell(network="host", test="throughput", payload_bytes=1024, middleware="fastdds", **options)
        trial = Trial(cell=cell, testbed="lab", repetition=repetition, duration_s=1, warmup_s=0)
        attempt = {"trial_id": trial.trial_id, "attempt": 1, "valid": True, "throughput_mbps": 100.0}
        run.append_attempt(record.description(trial) | attempt)
    rows = contrasts(tidy.rows(run), "throughput_mbps")
    assert {title for title, *_ in by_title(rows)} == titles
    assert len(rows) == len(combinations) / 2 * len(titles)


def test_settings_that_always_change_together_are_not_contrasted() -> None:
    row = dict.fromkeys(conditions.CONDITION) | {
        "network_label": "host",
        "test": "latency",
        "payload_bytes": 64,
    }
    shared = row | {"transport": "shared-memory", "middleware": "fastdds"}
    trials = [
        each | {"latency_p90_us": 10.0 + repetition, "repetition": repetition}
        for each in (row | {"transport": "unicast", "middleware": "cyclonedds"}, shared)
        for repetition in range(2)
    ]
    assert contrasts(trials, "latency_p90_us") == []
    trials += [trial | {"transport": "unicast"} for trial in trials if trial["middleware"] == "fastdds"]
    titles = {title for title, *_ in by_title(contrasts(trials, "latency_p90_us"))}
    assert titles == {"shared memory without network against unicast", "fastdds against cyclonedds"}
