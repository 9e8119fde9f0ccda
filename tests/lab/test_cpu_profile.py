"""Profile a real trial with perf: the work of the kernel between two pods appears under its components."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds.analysis import profile
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import perf
from k8sdds.testbeds.evidence import RECORDING
from tests.conftest import Command

pytestmark = pytest.mark.skipif(bool(perf.problems()), reason="this user cannot record all cores")


def test_a_campaign_with_profile(k8sdds: Command, tmp_path: Path, nothing_left: None) -> None:
    done = k8sdds(
        "run", "quickstart", "-o", "out", "--network", "host", "--repeat", "1", "--duration", "2", "--set",
        "test=throughput", "--profile",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = RunFolder.open(tmp_path / "out")
    measured, profiled = [record for record in run.attempts() if record["valid"]]
    assert measured["throughput_mbps"] > 0 and "profile" not in measured
    assert profiled["profiled"] is True and profiled["throughput_mbps"] is None
    found = profiled["profile"]
    assert found["event"] in ("cycles", "cpu-clock")
    # Packets leave the publisher's node by a veth, cross the lab's switch, and are received by UDP.
    assert {"netfilter", "routing", "queues and devices", "application"} <= found["components"].keys()
    assert found["attributed_percent"] > profile.MIN_ATTRIBUTED_PERCENT
    assert sum(cost["percent"] for cost in found["components"].values()) == pytest.approx(100, abs=0.5)
    (raw,) = (tmp_path / "out" / "raw").rglob(profile.FILE)
    processes = {stack.process for stack in profile.read(raw.parent).stacks}
    assert "k8sdds-perftest" in processes and "chromium" not in processes
    assert not list((tmp_path / "out").rglob(RECORDING))
    assert len(list((tmp_path / "out" / "report" / "figures").glob("flame-*.svg"))) == 1
    assert "Where the CPU time goes" in (tmp_path / "out" / "report" / "report.html").read_text()


def test_without_the_right_the_campaign_is_refused_before_the_first_trial(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    refusing = programs / "perf"
    refusing.write_text("#!/bin/sh\necho Access to performance monitoring is limited >&2\nexit 255\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    done = k8sdds("run", "quickstart", "-o", "out", "--network", "host", "--profile")
    assert done.returncode == 3
    assert "--profile needs perf: Access to performance monitoring is limited" in done.stderr
    assert "k8sdds setup" in done.stderr and not (tmp_path / "out").exists()
