"""Cost of networks outside of trials, from the readings of a run folder to the tables of the report."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds.analysis import background_cost
from k8sdds.report import fact_tables
from k8sdds.report.content import Content
from k8sdds.results.run_folder import RunFolder

RECORDED = Path(__file__).parents[1] / "metrics" / "recorded"


def document(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"meter-{name}.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run_folder = RunFolder.create(tmp_path / "run", {"schema": 1, "campaign": "c"}, "name: c\n")
    for at, received in (("2026-11-21T16:26:30Z", 100_000), ("2026-11-21T17:00:00Z", 10**9)):
        run_folder.append_attempt(
            {"started_at": at, "received": received, "payload_bytes": 1250, "valid": True}
        )
    return run_folder


def content(run: RunFolder) -> Content:
    """Return what the tables need of a run folder that has readings, but no trials."""
    return cast(Content, SimpleNamespace(run=run, networks=["host", "flannel-vxlan"]))


def read(run: RunFolder, when: str, name: str, block: int = 0, network: str = "flannel-vxlan") -> None:
    run.append_reading({"kind": "node", "when": when, "block": block, "network": network} | document(name))


def test_a_block(run: RunFolder) -> None:
    read(run, "before", "before")
    read(run, "after", "after")
    pods = {"pub0": {"scheduled_s": 0.1, "network_ready_s": 1.0, "running_s": 1.5, "ready_s": None},
            "sub0": {"scheduled_s": 0.3, "network_ready_s": 3.0, "running_s": None, "ready_s": None}}  # fmt: skip
    run.append_reading({"kind": "starts", "block": 0, "network": "flannel-vxlan", "pods": pods})
    (row,) = background_cost.by_block(run)
    # Only samples delivered between the readings count: 100000 samples of 10000 bits.
    assert (row["network"], row["block"], row["delivered_gbit"]) == ("flannel-vxlan", 0, 1)
    assert row["network_cpu_s_per_gbit"] == row["network_cpu_s"] == pytest.approx(0.9098, abs=1e-4)
    assert (row["pods"], row["pod_scheduled_s"], row["pod_network_ready_s"]) == (2, 0.2, 2.0)
    assert (row["pod_running_s"], row["pod_ready_s"]) == (1.5, None)


def test_networks_are_means_of_their_blocks(run: RunFolder) -> None:
    for block, network in ((0, "flannel-vxlan"), (1, "host"), (2, "flannel-vxlan")):
        read(run, "before", "before", block, network)
        read(run, "after", "after", block, network)
    rows = {row["network"]: row for row in background_cost.by_network(run)}
    assert {name: row["blocks"] for name, row in rows.items()} == {"flannel-vxlan": 2, "host": 1}
    assert set(rows["host"]) == set(background_cost.COLUMNS)
    (table,) = fact_tables.background(content(run))
    heads = [head if isinstance(head, str) else head[0] for head in table.heads]
    assert "CPU of its pods" in heads and "nftables rules" not in heads
    row = [cell.text for cell in table.rows[0]]
    assert (row[0], row[heads.index("CPU of its pods")]) == ("flannel-vxlan", "0.910")


def test_a_resumed_block_uses_its_first_and_last_readings(run: RunFolder) -> None:
    read(run, "before", "before")
    read(run, "before", "after")
    read(run, "after", "after")
    (row,) = background_cost.by_block(run)
    assert row["interval_s"] == pytest.approx(108.797864)


def test_without_readings_there_are_no_rows(run: RunFolder) -> None:
    assert background_cost.by_block(run) == [] and fact_tables.background(content(run)) == []
    run.append_reading(
        {"kind": "node", "when": "before", "block": 0, "network": "host", "stat": "of another kind"}
    )
    (row,) = background_cost.by_block(run)
    assert row["nodes"] == 0 and row["softirq_s"] is None and fact_tables.background(content(run)) == []


def test_kubectl_top_readings(run: RunFolder) -> None:
    def top(name: str, namespace: str, at: str, window_s: float, cores: float) -> dict[str, Any]:
        return {
            "name": name,
            "namespace": namespace,
            "at": at,
            "window_s": window_s,
            "cpu_cores": cores,
            "memory_bytes": 2**20,
        }

    first = [top("n1", "", "T1", 10.0, 0.5), top("pub0-pod-1", "k8sdds-c", "T1", 15.0, 0.1)]
    later = [top("n1", "", "T2", 10.0, 0.5), top("n1", "", "T3", 20.0, 1.5)]
    for when, some in (("before", first), ("after", [*first, *later])):
        run.append_reading({"kind": "top", "block": 0, "network": "host", "when": when, "tops": some})
    run.append_reading({"kind": "top", "block": 0, "network": "host", "tops": [{"name": "torn"}, None]})
    result = background_cost.top_readings(run)
    assert [(row["kind"], row["name"], row["at"], row["when"]) for row in result] == [
        ("node", "n1", "T1", "before"), ("pod", "pub0-pod-1", "T1", "before"), ("node", "n1", "T2", "after"),
        ("node", "n1", "T3", "after"),
    ]  # fmt: skip
    assert all(tuple(row) == background_cost.TOP_COLUMNS for row in result)
    (table,) = fact_tables.background(content(run))
    shown = [[cell.text for cell in row] for row in table.rows]
    assert shown == [["host", "n1", "1.00", "1.00", "10.0 to 20.0", "2"]]


def test_missing_readings_are_reported_once(run: RunFolder) -> None:
    assert background_cost.missing_readings(run) == []
    for node in ("n2", "n1", "n2"):
        lacks = {"resource": f"https://{node}:10250/metrics/resource: 403 Forbidden"}
        run.append_reading({"kind": "node", "node": node, "lacks": lacks})
        run.append_reading({"kind": "lack", "said": "what `kubectl top nodes` shows: not found"})
    assert background_cost.missing_readings(run) == [
        "what `kubectl top nodes` shows: not found",
        "the network's own pods on n1, n2: https://n2:10250/metrics/resource: 403 Forbidden",
    ]
