"""Reports show the delays of each CPU limit next to its throttled periods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.report import caveats, content, cpu_limits
from k8sdds.results.run_folder import RunFolder
from tests import run_folders as folders

PLAN = folders.Plan(("host",), (1024,), ("throughput", "latency"), 2, histograms=False)


def with_limits(run: RunFolder) -> None:
    """Add each trial again with a CPU limit."""
    lines = (run.path / "trials.jsonl").read_text().splitlines()
    for record in map(json.loads, lines[:]):
        ids = {name: f"limited-{record[name]}" for name in ("cell_id", "trial_id")}
        stops = {"throttled_periods_percent": 12.5, "slow_stopped_percent": 96.0}
        stops["slow_stopped_by_chance_percent"] = 4.0
        lines.append(json.dumps(record | ids | stops | {"cpu_quota": 0.3}))
    (run.path / "trials.jsonl").write_text("\n".join(lines) + "\n")


def test_each_limit_has_a_row(tmp_path: Path) -> None:
    run = folders.make(tmp_path / "run", PLAN)
    assert cpu_limits.tables(content.read(run)) == []
    with_limits(run)
    (table,) = cpu_limits.tables(content.read(run))
    rows = [[cell.text for cell in row] for row in table.rows]
    assert [row[:4] for row in rows] == [
        ["0.3 CPUs per pod", "host", "latency", "1 KiB"],
        ["no CPU limit", "host", "latency", "1 KiB"],
    ]
    assert [row[-3:] for row in rows] == [["12.5", "96.0", "4.00"], ["–", "–", "–"]]


@pytest.mark.parametrize(
    ("managers", "expected"),
    [
        (["static", "static"], "Policy of the nodes' CPU managers: static. "),
        (["static", "none"], "Policy of the nodes' CPU managers: static (a) and none (b). "),
        (["static", ""], "Policy of the nodes' CPU managers: static (a). "),
        (
            ["", ""],
            "The policy of the nodes' CPU managers was not recorded (reading it requires nodes/proxy).",
        ),
        ([], "The policy of the nodes' CPU managers was not recorded (reading it requires nodes/proxy)."),
    ],
)
def test_the_policy_of_cpu_managers_is_shown_with_limits_of_a_cluster(
    tmp_path: Path, managers: list[str], expected: str
) -> None:
    run = folders.changed(folders.make(tmp_path / "run", PLAN), {"testbed": "cluster"})
    nodes = {node: {"cpu_manager": policy} for node, policy in zip("ab", managers, strict=False)}
    folders.with_campaign(run, testbed={"name": "cluster", "facts": {"nodes": nodes}})
    assert not any("CPU managers" in note for note in caveats.notes(content.read(run)))
    limited = content.read(folders.changed(run, {"cpu_quota": 1}))
    (note,) = [note for note in caveats.notes(limited) if "CPU managers" in note]
    assert note.startswith(expected)
    with_limits(run)
    several = content.read(run)
    (table,) = cpu_limits.tables(several)
    assert note in table.under and note not in caveats.notes(several)
