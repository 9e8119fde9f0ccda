"""CPU limits of pods: what users write, what the kernel gets, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from k8sdds.campaign import contradictions
from k8sdds.claims import evidence
from k8sdds.claims.model import Selector
from k8sdds.cli import machine
from k8sdds.model.experiment import Sweep
from k8sdds.model.trial import Cell
from k8sdds.recommend.evidence import describe_choice
from k8sdds.system import cgroups
from k8sdds.system.cgroups import CpuResources, PodCgroups
from k8sdds.system.errors import PrerequisiteError, Problem
from k8sdds.system.strict import explain
from k8sdds.testbeds.cluster import preflight
from k8sdds.testbeds.lab import preflight as lab_preflight


def cell(**limits: Any) -> Cell:
    return Cell(network="host", test="latency", payload_bytes=1024, **limits)


@pytest.mark.parametrize(
    ("quota", "cell_id"), [(None, "516fd3b8777a"), (0.5, "91862cd5b219"), (1, "87aa24b95b00")]
)
def test_cells_keep_the_ids_of_earlier_versions(quota: float | None, cell_id: str) -> None:
    assert cell(cpu_quota=quota).cell_id == cell_id


def test_numbers_are_written_as_in_kubernetes() -> None:
    sweep = Sweep(
        networks="host", test="latency", payload_bytes=1024, cpu_quota=["none", "300m", 1], cpu_request="50m"
    )
    assert (sweep.cpu_quota, sweep.cpu_request) == ([None, 0.3, 1], [0.05])


@pytest.mark.parametrize(
    ("quota", "why"),
    [
        (True, "expected a number, not true or false"),
        ("5 s", "'5 s': unknown unit 's' (units: m, CPUs)"),
        (0, "expected more than 0"),
    ],
)
def test_other_numbers_are_refused(quota: Any, why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Sweep(networks="host", test="latency", payload_bytes=1024, cpu_quota=quota)
    assert explain(caught.value.errors()[0]) == why


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"cpu_burst_ms": 5}, "need cpu_quota"),
        ({"cpu_period_ms": 20}, "need cpu_quota"),
        ({"cpu_quota": 0.5, "cpu_burst_ms": 60}, "at most 50, the CPU time of one period"),
        ({"cpu_quota": 0.0005}, "is 0.05 ms, and the kernel needs at least 1 ms"),
        ({"cpu_quota": 0.5, "cpu_request": 1}, "cpu_request 1 is above cpu_quota 0.5"),
        ({"cpu_request": 1, "realtime_priority": 50}, "leave them out"),
    ],
)
def test_contradictions_are_refused(limits: dict[str, Any], why: str) -> None:
    assert why in (contradictions.unsupported(cell(**limits)) or "")


@pytest.mark.parametrize("hundredths", range(1, 101))
def test_a_burst_can_be_as_long_as_the_cpu_time_of_a_period(hundredths: int) -> None:
    assert contradictions.unsupported(cell(cpu_quota=hundredths / 100, cpu_burst_ms=hundredths)) is None


def test_the_files_of_cgroups() -> None:
    limits = CpuResources(quota=0.3, period_ms=20, burst_ms=5, request=0.25)
    v1 = {"cpu.cfs_period_us": 20000, "cpu.cfs_quota_us": 6000, "cpu.cfs_burst_us": 5000, "cpu.shares": 256}
    assert limits.files("v1") == {name: str(value) for name, value in v1.items()}
    # 256 shares are a weight of 10, as in the documentation of the kubelet.
    assert limits.files("v2") == {"cpu.max": "6000 20000", "cpu.max.burst": "5000", "cpu.weight": "10"}
    assert CpuResources(request=0.25).files("v1") == {"cpu.shares": "256"}
    assert CpuResources().files("v1") == CpuResources().files("v2") == {}


def test_claims_name_limits_as_experiments_do() -> None:
    rows = [{"network_label": "host", "cpu_quota": quota} for quota in (None, 0.3, 0.5)]
    selectors = TypeAdapter(list[Selector]).validate_python([{"cpu_quota": "300m"}, {"cpu_quota": "none"}])
    assert [evidence._matching(rows, selector) for selector in selectors] == [rows[1:2], rows[:1]]


def test_clusters_have_no_periods_and_bursts() -> None:
    assert preflight.unsupported([cell(cpu_quota=0.5, cpu_request=0.2)], can_switch=False) == []
    for name in ("cpu_period_ms", "cpu_burst_ms"):
        (problem,) = preflight.unsupported([cell(**{"cpu_quota": 0.5, name: 20})], can_switch=True)
        assert problem.what.startswith(f"{name}: the kubelet of a node has one period")


@pytest.mark.parametrize("enabled", [True, False])
def test_pods_with_limits_are_below_the_root_of_v2(
    enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders instead of a hierarchy with controllers, which a machine with those of v1 does not have."""
    own, limited = tmp_path / "user", tmp_path / "k8sdds-test"
    own.mkdir()
    limited.mkdir()
    (limited / "cgroup.controllers").write_text("memory cpu" if enabled else "memory")
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [("unified", own, tmp_path)])
    assert PodCgroups("test", limited=False).create("free", CpuResources()) == [own / "k8sdds-test" / "free"]
    pods = PodCgroups("test", limited=True)
    assert pods.create("free", CpuResources()) == [limited / "free"]
    why = "this kernel has no cpu.max" if enabled else "cgroup.subtree_control does not contain cpu"
    with pytest.raises(PrerequisiteError, match=why):
        pods.create("pod0", CpuResources(0.5))
    assert (limited / "pod0").is_dir()
    assert (limited / "cgroup.subtree_control").exists() == enabled
    assert not (tmp_path / "cgroup.subtree_control").exists()


def test_the_remedy_of_doctor_is_not_that_of_an_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(
        "cannot limit the CPU time of pods: no cpu controller", "remove cpu_quota and cpu_request"
    )
    monkeypatch.setattr(lab_preflight, "limit_problems", lambda limits: [problem])
    (row,) = [one for one in machine._resources() if one["subject"] == "CPU limits of pods"]
    assert (row["ok"], row["says"]) == (False, problem.what)
    assert row["remedy"].startswith("run as root, with the cgroup controller cpu")


def test_choices_name_limits_that_are_not_set() -> None:
    assert [describe_choice("cpu_quota", quota) for quota in (0.3, None)] == [
        "0.3 CPUs per pod",
        "no CPU limit",
    ]
