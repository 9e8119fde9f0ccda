"""Reports show the delays of each CPU limit next to its throttled periods."""

from __future__ import annotations

import json
from pathlib import Path

from k8sdds.report import content, cpu_limits
from tests import run_folders as folders

PLAN = folders.Plan(("host",), (1024,), ("throughput", "latency"), 2, histograms=False)


def test_each_limit_has_a_row(tmp_path: Path) -> None:
    run = folders.make(tmp_path / "run", PLAN)
    assert cpu_limits.tables(content.read(run)) == []
    lines = (run.path / "trials.jsonl").read_text().splitlines()
    for record in map(json.loads, lines[:]):
        ids = {name: f"limited-{record[name]}" for name in ("cell_id", "trial_id")}
        stops = {"throttled_periods_percent": 12.5, "slow_stopped_percent": 96.0}
        stops["slow_stopped_by_chance_percent"] = 4.0
        lines.append(json.dumps(record | ids | stops | {"cpu_quota": 0.3}))
    (run.path / "trials.jsonl").write_text("\n".join(lines) + "\n")
    (table,) = cpu_limits.tables(content.read(run))
    rows = [[cell.text for cell in row] for row in table.rows]
    assert [row[:4] for row in rows] == [
        ["0.3 CPUs per pod", "host", "latency", "1 KiB"],
        ["no CPU limit", "host", "latency", "1 KiB"],
    ]
    assert [row[-3:] for row in rows] == [["12.5", "96.0", "4.00"], ["–", "–", "–"]]
