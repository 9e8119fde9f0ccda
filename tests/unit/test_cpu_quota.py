"""A CPU quota is a limit alone or a mapping; cells with a limit alone keep the ids of earlier versions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from k8sdds.claims import evidence
from k8sdds.model.cpu_quota import CpuQuota
from k8sdds.model.experiment import Sweep
from k8sdds.model.trial import AXES, Cell
from k8sdds.results import record, tidy
from k8sdds.system.strict import explain
from k8sdds.testbeds.cluster import preflight


def cell(quota: Any) -> Cell:
    return Cell(network="host", test="latency", payload_bytes=1024, cpu_quota=quota)


def sweep(quota: Any) -> Sweep:
    return Sweep(networks="host", test="latency", payload_bytes=1024, cpu_quota=quota)


@pytest.mark.parametrize(
    ("quota", "cell_id"),
    [(None, "516fd3b8777a"), (0.5, "91862cd5b219"), (1, "87aa24b95b00"), (2.0, "b78f99eb5988")],
)
def test_cells_with_a_plain_number_keep_the_ids_of_earlier_versions(quota: Any, cell_id: str) -> None:
    assert cell(quota).cell_id == cell_id
    assert cell({"limit": quota, "period_ms": 100, "burst_ms": 0}).cell_id == cell_id


def test_every_part_separates_cells() -> None:
    parts = [{}, {"period_ms": 20}, {"burst_ms": 20}, {"request": 0.1}]
    assert len({cell({"limit": 0.3} | part).cell_id for part in parts}) == 4


def test_quotas_are_written_as_kubernetes_writes_them() -> None:
    found = sweep(
        ["none", "300m", 0.5, {"limit": "1 CPUs", "period_ms": "20 ms", "request": "250m"}]
    ).cpu_quota
    assert found == [
        CpuQuota(),
        CpuQuota(limit=0.3),
        CpuQuota(limit=0.5),
        CpuQuota(limit=1, period_ms=20, request=0.25),
    ]
    assert sweep(0.5).cpu_quota == [CpuQuota(limit=0.5)]
    assert [str(quota) for quota in found[:2]] == ["none", '{"limit":0.3}']
    assert found[3].describe() == "1 CPUs per pod, period 20 ms, 0.25 CPUs requested"


@pytest.mark.parametrize(
    ("quota", "why"),
    [
        (0.005, "expected at least 0.01 with a period of 100 ms"),
        (True, "expected a number, not true or false"),
        ("5 s", "'5 s': unknown unit 's' (units: m, CPUs)"),
        ({"limit": 0.5, "burst_ms": 60}, "expected at most 50, which is limit × period_ms"),
        ({"limit": 0.5, "request": 1}, "is above the limit"),
        ({"period_ms": 20}, "has no effect without limit"),
    ],
)
def test_impossible_quotas_are_refused(quota: Any, why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        sweep(quota)
    assert explain(caught.value.errors()[0]) == why


def test_the_files_of_cgroups() -> None:
    quota = CpuQuota(limit=0.3, period_ms=20, burst_ms=5, request=0.25)
    assert quota.files("v1") == {
        "cpu.cfs_period_us": "20000",
        "cpu.cfs_quota_us": "6000",
        "cpu.cfs_burst_us": "5000",
        "cpu.shares": "256",
    }
    # 256 shares are a weight of 10, as in the documentation of the kubelet.
    assert quota.files("v2") == {"cpu.max": "6000 20000", "cpu.max.burst": "5000", "cpu.weight": "10"}
    assert CpuQuota(limit=0.29, burst_ms=29).files("v2")["cpu.max"] == "29000 100000"
    assert CpuQuota().files("v1") == CpuQuota().files("v2") == {}


def test_records_of_earlier_versions_have_the_same_row() -> None:
    rows = [
        tidy.of([record.checked({"network": "host", "cpu_quota": value}, "trials.jsonl:1")])[0]["cpu_quota"]
        for value in (0.5, {"limit": 0.5}, None)
    ]
    assert rows == ['{"limit":0.5}', '{"limit":0.5}', None]
    assert AXES["cpu_quota"].phrase(rows[0]) == "0.5 CPUs per pod"


def test_claims_name_a_limit_alone_or_as_a_part() -> None:
    rows = [{"network_label": "host", "cpu_quota": str(CpuQuota(limit=limit))} for limit in (None, 0.3, 0.5)]
    for selector in ({"cpu_quota": 0.5}, {"cpu_quota.limit": 0.5}):
        assert evidence._matching(rows, selector) == rows[2:]


def test_clusters_have_limits_and_requests_alone() -> None:
    assert preflight.unsupported([cell({"limit": 0.5, "request": 0.2})], can_switch=False) == []
    for part in ({"period_ms": 20}, {"burst_ms": 20}):
        (problem,) = preflight.unsupported([cell({"limit": 0.5} | part)], can_switch=True)
        assert problem.what.startswith(f"cpu_quota.{next(iter(part))}: the kubelet of a node has one period")
