"""Test `k8sdds reproduce` as a user runs it: a study of two campaigns, interrupted, resumed and judged."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command
from tests.measuring import ENDS_S, experiment, running, wait_for_trial

pytestmark = pytest.mark.usefixtures("nothing_left")

SWEEP = "  - {networks: [host, weavenet], test: throughput, payload_bytes: 1024}\n"

PART = "{quantity: throughput_mbps, of: {network: weavenet}, to: {network: host}, is: lower}"

CLAIMS = f"""\
name: small-study
claims:
  - {{id: one, claim: One., paper: here, experiment: ./small.yaml, parts: [{PART}]}}
  - {{id: two, claim: Two., paper: here, experiment: ./small.yaml, settings: [dscp=46], parts: [{PART}]}}
  - {{id: three, claim: Three., paper: here, because: it is not measured}}
"""


def test_a_study_is_interrupted_resumed_and_judged(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(experiment(SWEEP, name="small", baseline="host", repetitions=2))
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    args = ("./claims.yaml", "--duration", "0.3", "--seed", "7", "-o", "out")
    with running(tmp_path, *args, command="reproduce") as process:
        wait_for_trial(process, 2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=ENDS_S)
    assert process.returncode == 130
    assert "continue: k8sdds reproduce --resume out" in stderr
    before = RunFolder.open(tmp_path / "out" / "small").attempts()
    assert not (tmp_path / "out" / "claims.json").exists()

    done = k8sdds("reproduce", "--resume", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (RunFolder.open(tmp_path / "out" / name) for name in ("small", "small-dscp-46"))
    assert first.attempts()[: len(before)] == before
    for run in (first, second):
        assert len({record["trial_id"] for record in run.attempts() if record["valid"]}) == 4
        assert run.campaign["seed"] == 7
    judged = json.loads((tmp_path / "out" / "claims.json").read_text())
    verdicts = {claim["id"]: claim["verdict"] for claim in judged["judged"]}
    assert verdicts.keys() == {"one", "two", "three"} and verdicts["three"] == "not testable here"
    assert {row["source"] for row in judged["rows"] if row["claim"] == "two"} >= {"small-dscp-46"}
    assert "Three." in (tmp_path / "out" / "claims.html").read_text()

    counts = [len(run.attempts()) for run in (first, second)]
    again = k8sdds("reproduce", "--resume", "out")
    assert again.returncode == 0 and "Campaign" not in again.stdout
    assert [len(run.attempts()) for run in (first, second)] == counts
