"""Capacity searches on links with a known rate, also interrupted."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from k8sdds import report
from k8sdds.analysis.capacity import MAX_PROBES
from k8sdds.report import content
from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command
from tests.measuring import ENDS_S, experiment, running, wait

pytestmark = pytest.mark.usefixtures("nothing_left")

PAYLOAD = 4096
FRAMES = 3 * 42 + 24
"""Bytes that at least three Ethernet frames with IP and UDP headers, and DDS, add to a sample."""

LIMIT_MS = 150


def written(folder: Path, rate_mbit: float, test: dict[str, Any], networks: object, **keys: Any) -> str:
    """Write an experiment that searches the capacity of links with a rate. An overload first fills the links' queues, so
    that its delay grows by more than other work on the machine delays samples."""
    sweep = {
        "networks": networks, "payload_bytes": PAYLOAD, "reliability": "best-effort",
        "test": {"name": "capacity", "p99_ms": LIMIT_MS, **test},
        **({"rate": keys.pop("rate")} if "rate" in keys else {}),
    }  # fmt: skip
    link = json.dumps({"rate_mbit": rate_mbit})
    (folder / "shaped.yaml").write_text(
        experiment(f"  - {json.dumps(sweep)}\n", baseline="host", link=link, **keys)
    )
    return str(folder / "shaped.yaml")


def possible(rate_mbit: float) -> float:
    """Return the samples per second that fit through a link without headers of the network."""
    return rate_mbit * 1e6 / 8 / (PAYLOAD + FRAMES)


def test_a_search_ends_near_the_rate_of_the_link(k8sdds: Command, tmp_path: Path) -> None:
    test = {"loss_percent": 10, "width_percent": 50, "latency_at_percent": []}
    path = written(tmp_path, 20, test, "host", duration_s=0.6, warmup_s=0.1)
    k8sdds("run", path, "-o", str(tmp_path / "run"))
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
    path = written(tmp_path, 20, test, "host", rate=100, duration_s=0.6, warmup_s=0.1)
    k8sdds("run", path, "-o", str(tmp_path / "run"))
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
    path = written(tmp_path, 50, test, ["host", "flannel-vxlan"], repetitions=3)
    folder = tmp_path / "run"
    run = RunFolder(folder)
    with running(tmp_path, path, "-o", str(folder)) as process:
        wait(lambda: (folder / "trials.jsonl").exists() and len(run.attempts()) >= 9, process, "9 probes")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=ENDS_S)
    assert process.returncode == 130
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
