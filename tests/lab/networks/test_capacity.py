"""Capacity searches on links with a known rate, also interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from k8sdds import report
from k8sdds.analysis.capacity import MAX_PROBES
from k8sdds.report import content
from k8sdds.results.run_folder import RunFolder
from tests.conftest import K8SDDS, Command, environment

pytestmark = pytest.mark.usefixtures("nothing_left")

PAYLOAD = 4096
FRAMES = 3 * 42 + 24
"""Bytes that at least three Ethernet frames with IP and UDP headers, and DDS, add to a sample."""

LIMIT_MS = 150


def experiment(path: Path, rate_mbit: float, **changed: Any) -> Path:
    """Write an experiment that searches the capacity of links with a rate. An overload first fills the links' queues, so
    that its delay grows by more than other work on the machine delays samples."""
    options = {"name": "capacity", "p99_ms": LIMIT_MS, **changed.pop("test")}
    data = {
        "name": "shaped",
        "baseline": "host",
        "link": {"rate_mbit": rate_mbit},
        "sweeps": [
            {
                "networks": changed.pop("networks"),
                "payload_bytes": PAYLOAD,
                "reliability": "best-effort",
                "test": options,
                **{name: changed.pop(name) for name in ("rate",) if name in changed},
            }
        ],
        **changed,
    }  # fmt: skip
    path.write_text(json.dumps(data))
    return path


def possible(rate_mbit: float) -> float:
    """Return the samples per second that fit through a link without headers of the network."""
    return rate_mbit * 1e6 / 8 / (PAYLOAD + FRAMES)


def test_a_search_ends_near_the_rate_of_the_link(k8sdds: Command, tmp_path: Path) -> None:
    test = {"loss_percent": 10, "width_percent": 50, "latency_at_percent": []}
    path = experiment(
        tmp_path / "shaped.yaml", 20, networks="host", test=test, repetitions=1, duration_s=0.6, warmup_s=0.1
    )
    k8sdds("run", str(path), "-o", str(tmp_path / "run"))
    run = RunFolder(tmp_path / "run")
    (row,) = content.read(run).capacities
    # Other work on the machine makes samples miss the goal, so only the upper end is certain: more samples than fit wait
    # for longer than the limit before the end of a trial.
    assert row["decided"] and row["probes"] >= 3 and row["missed_per_s"] is not None
    assert (row["capacity_per_s"] or 0) < possible(20) * (1 + LIMIT_MS / 600)
    saturated, *probes = sorted(run.attempts(), key=lambda attempt: attempt["order"])
    assert saturated["rate"] == 0 and "undelivered_percent" not in saturated
    assert {attempt["repetition"] for attempt in probes} == set(range(1, len(probes) + 1))
    missed = [attempt for attempt in probes if attempt["overdue_percent"] > 1]
    assert missed and all(attempt["valid"] for attempt in missed)
    assert "Capacity in samples/s" in (run.path / "report" / "report.html").read_text()


@pytest.mark.long
def test_a_search_for_subscribers_ends_near_the_number_that_a_link_carries(
    k8sdds: Command, tmp_path: Path
) -> None:
    test = {"max_subscribers": 12, "loss_percent": 10, "width_percent": 50, "latency_at_percent": []}
    path = experiment(
        tmp_path / "shaped.yaml", 20, networks="host", test=test, rate=100, repetitions=1, duration_s=0.6,
        warmup_s=0.1,
    )  # fmt: skip
    k8sdds("run", str(path), "-o", str(tmp_path / "run"))
    run = RunFolder(tmp_path / "run")
    (row,) = content.read(run).capacities
    # As above, only the upper end is certain.
    assert row["decided"] and row["missed_subscribers"] is not None
    assert (row["capacity_subscribers"] or 0) < possible(20) / 100 * (1 + LIMIT_MS / 600)
    first, *probes = sorted(run.attempts(), key=lambda attempt: attempt["order"])
    assert first["subscribers"] == 1
    assert probes and all(1 <= probe["subscribers"] <= 12 and probe["rate"] == 100 for probe in probes)
    assert all(probe["nodes"] == min(1 + probe["subscribers"], 10) for probe in [first, *probes])


@pytest.mark.long
def test_an_interrupted_search_of_two_networks_continues(k8sdds: Command, tmp_path: Path) -> None:
    test = {"loss_percent": [0.5, 10], "width_percent": 10, "latency_at_percent": [50]}
    path = experiment(
        tmp_path / "shaped.yaml",
        50,
        networks=["host", "flannel-vxlan"],
        test=test,
        repetitions=3,
        duration_s=1,
        warmup_s=0.2,
    )
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [str(K8SDDS), "run", str(path), "-o", str(folder)],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    run = RunFolder(folder)
    while not (folder / "trials.jsonl").exists() or len(run.attempts()) < 9:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    before = [attempt["trial_id"] for attempt in run.attempts() if attempt["valid"]]
    assert not all(row["decided"] for row in content.read(run).capacities)
    k8sdds("run", "--resume", str(folder))
    after = [attempt["trial_id"] for attempt in run.attempts() if attempt["valid"]]
    assert after[: len(before)] == before and len(set(after)) == len(after)
    rows = {(row["network_label"], row["goal_loss_percent"]): row for row in content.read(run).capacities}
    assert len(rows) == 4
    for (network, _), row in rows.items():
        assert row["decided"] or row["probes"] >= MAX_PROBES
        # VXLAN adds 50 bytes to each of the packets. There is no lower limit: other work on the machine delays samples.
        most = possible(50) * (1 if network == "host" else (PAYLOAD + FRAMES) / (PAYLOAD + FRAMES + 150))
        low = row["capacity_per_s"]
        assert low is None or low <= most * (1 + LIMIT_MS / 1000) * 1.01
        assert low is None or not row["decided"] or row["missed_per_s"] <= 1.1 * low * 1.001
    assert report.write_report(run, None).exists()
