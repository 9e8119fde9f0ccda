"""Test a campaign with RTI PerfTest in the lab, with a stand-in that the report identifies."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root here")

EXPERIMENT = """name: connext
baseline: host
repetitions: 1
duration_s: 2
sweeps:
  - networks: [host, flannel-vxlan]
    middleware: connext
    test: {name: throughput, loaded_latency: true}
    reliability: best-effort
    subscribers: 2
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "perftest_cpp"
    root = Path(__file__).parents[3]
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        "from tests.lab.connext.stand_in import main\nsys.exit(main())\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("K8SDDS_CONNEXT_PERFTEST", str(path))
    return path


def experiment(folder: Path, text: str = EXPERIMENT) -> str:
    path = folder / "connext.yaml"
    path.write_text(text)
    return str(path)


def test_a_campaign(k8sdds: Command, tmp_path: Path, stand_in: Path) -> None:
    done = k8sdds("run", experiment(tmp_path), "-o", "run")
    assert done.returncode == 0, done.stderr + done.stdout
    run = tmp_path / "run"
    campaign = json.loads((run / "campaign.json").read_text())
    assert campaign["connext"] == {"program": str(stand_in), "version": "4.1", "options": []}
    # On a busy machine, the stand-in may receive nothing in the first attempt.
    records = [record for record in RunFolder.open(run).attempts() if record["valid"]]
    assert {record["network"] for record in records} == {"host", "flannel-vxlan"}
    for record in records:
        assert record["middleware_version"] == "stand-in of 7.2.0" and record["qos"] == "none"
        assert record["sent"] is None and record["received"] > 0 and record["throughput_mbps"] > 0
        assert record["loaded_latency_p50_us"] == 55 and record["latency_p50_us"] is None
        assert record["subscriber_cpu_percent"] > 0
        raw = run / "raw" / record["trial_id"] / str(record["attempt"])
        assert (raw / "pub0" / "stderr").read_text().startswith("RTI Perftest 4.1.0")
    assert not list((run / "qos").glob("*"))
    report = (run / "report" / "report.html").read_text()
    assert "connext" in report and "a stand-in ran in place of RTI PerfTest" in report


def test_an_option_that_the_release_does_not_have(
    k8sdds: Command, tmp_path: Path, stand_in: Path, monkeypatch
) -> None:
    monkeypatch.setenv("K8SDDS_CONNEXT_VERSION", "3.3")
    monkeypatch.setenv("K8SDDS_CONNEXT_OPTIONS", "-enableMonitoring2")
    done = k8sdds("run", experiment(tmp_path), "-o", "run")
    assert done.returncode == 2 and "RTI PerfTest 3.3 does not have it, it came with 4.1" in done.stderr
    assert not (tmp_path / "run").exists()


def test_unsupported_settings_are_rejected(
    k8sdds: Command, tmp_path: Path, stand_in: Path, monkeypatch
) -> None:
    served = experiment(tmp_path, EXPERIMENT + "    discovery: server\n")
    done = k8sdds("run", served, "-o", "run")
    assert done.returncode == 2 and "runs on clusters" in done.stderr
    fractions = experiment(tmp_path, EXPERIMENT.replace("duration_s: 2", "duration_s: 2.5"))
    done = k8sdds("run", fractions, "-o", "run")
    assert done.returncode == 2 and "whole seconds" in done.stderr
    monkeypatch.delenv("K8SDDS_CONNEXT_PERFTEST")
    done = k8sdds("run", experiment(tmp_path), "-o", "run")
    assert done.returncode == 3 and "K8SDDS_CONNEXT_PERFTEST" in done.stderr
