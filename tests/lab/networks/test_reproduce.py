"""Test `k8sdds reproduce` as a user runs it: a study of two campaigns, interrupted, resumed and judged."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.conftest import K8SDDS, Command, environment

pytestmark = pytest.mark.usefixtures("nothing_left")

EXPERIMENT = """\
name: small
baseline: host
repetitions: 2
warmup_s: 0.1
sweeps:
  - {networks: [host, weavenet], test: throughput, payload_bytes: 1024}
"""

PART = "{quantity: throughput_mbps, of: {network: weavenet}, to: {network: host}, is: lower}"

CLAIMS = f"""\
name: small-study
claims:
  - {{id: one, claim: One., paper: here, experiment: ./small.yaml, parts: [{PART}]}}
  - {{id: two, claim: Two., paper: here, experiment: ./small.yaml, settings: [dscp=46], parts: [{PART}]}}
  - {{id: three, claim: Three., paper: here, because: it is not measured}}
"""


def test_a_study_is_interrupted_resumed_and_judged(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    process = subprocess.Popen(
        [str(K8SDDS), "reproduce", "./claims.yaml", "--duration", "0.3", "--seed", "7", "-o", "out"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("[2/"):
            process.send_signal(signal.SIGINT)
            break
    _, stderr = process.communicate(timeout=60)
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
