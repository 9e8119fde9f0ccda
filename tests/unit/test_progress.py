"""Long commands show what they do, and deploy changes nothing that was not requested."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.cli import deploy as command
from k8sdds.cli import progress as steps
from k8sdds.cli import terminal
from k8sdds.cli.progress import CampaignProgress
from k8sdds.deploy import deploy as flow
from k8sdds.deploy.actions import Action
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import cmake
from k8sdds.testbeds import selection


class Waits:
    """An event for which a thread waits so many times in vain."""

    def __init__(self, count: int) -> None:
        self.left = count

    def wait(self, timeout_s: float) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_step_that_takes_long_is_repeated_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps.Steps, "_show", lambda self: None)  # which starts the thread
    monkeypatch.setattr(steps.time, "monotonic", lambda: now_s)
    now_s = 0.0
    report = steps.Steps()
    report("[1/2] building etcd")
    report._repeat(Waits(1))  # type: ignore[arg-type]
    now_s = steps.PAUSE_S + 12.0
    report._repeat(Waits(1))  # type: ignore[arg-type]
    report.detail("[3/80] Building CXX object a.o")
    report._repeat(Waits(2))  # type: ignore[arg-type]
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["[1/2] building etcd", "[1/2] building etcd: 42 s"]
    assert lines[2:] == ["42 s  [3/80] Building CXX object a.o"] * 2


def test_a_build_reports_the_lines_of_ninja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in {"cmake": "true", "ninja": 'echo "[1/2] a.o"; echo "[2/2] b.o"'}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    lines: list[str] = []
    log = tmp_path / "build.log"
    cmake.build("it", tmp_path, tmp_path / "build", log, {}, ["all"], "k8sdds setup", lines.append)
    assert lines == ["[1/2] a.o", "[2/2] b.o"] and log.read_text().endswith("[2/2] b.o\n")


@pytest.mark.parametrize("current", ["", "one-machine"])
def test_deploy_does_not_change_the_current_testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], current: str
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    if current:
        selection.write(selection.SelectedTestbed(selection.CLUSTER, current))
    before = selection.read()
    done = flow.DeployResult(
        [Action("control", "runtime", "load modules", ":")], node_count=3, software="bundle"
    )
    monkeypatch.setattr(flow, "deploy", lambda *_, **__: done)
    command.deploy("one-machine", yes=True)
    assert selection.read() == before
    lines = capsys.readouterr().out.splitlines()
    option = "" if current else " --testbed one-machine"
    assert f"Measure on it: k8sdds run quickstart{option}" in lines
    assert ("Make it the current testbed: k8sdds testbed one-machine" in lines) == (not current)


RECORDED = Path(__file__).parent / "recorded" / "version-0.1.0" / "run-folder"


def test_a_warning_of_one_kind_is_printed_once_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.console.cache_clear()
    attempts = [a for a in RunFolder(RECORDED).attempts() if a["valid"] and a["test"] == "throughput"][:3]
    with CampaignProgress("host", 1) as progress:
        for number, attempt in enumerate(attempts):
            used = f"disturbed: other processes used {9 + 48 * number} % of a core during the attempt"
            missing = {
                "delay_p99_us": "84 values, 100 are needed",
                "latency_p90_us": "1 value, 100 are needed",
            }
            more: dict[str, Any] = {"warnings": [used] if number else [], "missing": missing}
            trial: Any = SimpleNamespace(trial_id=attempt["trial_id"], describe=lambda: "a trial")
            progress.trial_starts(trial, number, 3)
            progress.trial_ended(trial, TrialRecord.read(attempt | more))
        before = capsys.readouterr().out
    assert "disturbed" not in before and "unknown" not in before
    assert capsys.readouterr().out.splitlines() == [
        "! 3 of 3 trials: p99 delay unknown: 84 values, 100 are needed",
        "! 2 of 3 trials: disturbed: other processes used 57 to 105 % of a core during the attempt",
    ]
    # As in the tables: three digits.
    assert f"    {attempts[0]['throughput_mbps']:.0f} Mbit/s, " in before
    terminal.console.cache_clear()
