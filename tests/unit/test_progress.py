"""Long commands show what they do, and deploy changes nothing that was not requested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds.cli import deploy as command
from k8sdds.cli import progress as steps
from k8sdds.deploy import deploy as flow
from k8sdds.deploy.actions import Action
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
    monkeypatch.setattr(flow, "deploy", lambda *_: done)
    command.deploy("one-machine", yes=True)
    assert selection.read() == before
    lines = capsys.readouterr().out.splitlines()
    option = "" if current else " --testbed one-machine"
    assert f"Measure on it: k8sdds run quickstart{option}" in lines
    assert ("Make it the current testbed: k8sdds testbed one-machine" in lines) == (not current)
