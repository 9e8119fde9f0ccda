"""Test CPU limits of pods in the lab, as the kernel counts them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from k8sdds.system import cgroups
from k8sdds.system.cgroups import CPU_REQUEST, CpuResources, PodCgroups
from tests.conftest import traces
from tests.measuring import experiment, last_attempts, running

pytestmark = [
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(
        "cpu" not in cgroups.own_cgroup().folders and cgroups.own_cgroup().version != "v2",
        reason="no CPU limits on this host",
    ),
]
LIMITED = """\
  - networks: host
    test: throughput
    middleware: cyclonedds
    payload_bytes: 1024
    cpu_quota: 40m  # far below what a publisher gets on a busy machine
    cpu_period_ms: 50
    cpu_burst_ms: 2
  - networks: host
    test: throughput
    middleware: cyclonedds
    payload_bytes: 1024
"""
PACED = """\
  - networks: host
    test: paced
    middleware: cyclonedds
    rate: 2000
    payload_bytes: 16384
    layout: same
    cpu_quota: [30m, none]
"""
BUSY = """\
  - networks: host
    test: throughput
    middleware: cyclonedds
    payload_bytes: 1024
    background: {cpus: [0]}
    cpu_request: [100m, 2]
"""


def test_a_cgroup_without_processes_is_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    pods = PodCgroups(f"test-{os.getpid()}", limited=False)
    assert pods.create("pod0", CpuResources())
    # The second pod of this name gets new cgroups.
    folders = pods.create("pod0", CpuResources())
    assert folders and all(folder.is_dir() for folder in folders)
    pods.remove()
    assert not any(folder.exists() for folder in folders)


def test_a_pod_has_only_its_own_limits() -> None:
    pods = PodCgroups(f"test-{os.getpid()}", limited=True)
    try:
        for limits in (
            CpuResources(0.1, 100, 10),
            CpuResources(0.1, 10),
            CpuResources(request=0.5),
            CpuResources(),
        ):
            folders = pods.create("pod0", limits)
            found = {
                file.name: file.read_text().strip() for folder in folders for file in folder.glob("cpu.*")
            }
            assert limits.files(pods.own.version).items() <= found.items()
            quota = found.get("cpu.cfs_quota_us") or found.get("cpu.max", "max").split()[0]
            assert (quota in ("-1", "max")) == (limits.quota is None)
    finally:
        pods.remove()


Campaign = tuple[list[dict[str, Any]], set[tuple[str, str]]]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Measure all sweeps; return the records, and the CPU shares that pods with busy cores had while they ran."""
    folder = tmp_path_factory.mktemp("limits")
    (folder / "limits.yaml").write_text(experiment(LIMITED + PACED + BUSY, duration_s=1))
    pods = PodCgroups("unused", limited=True)
    files = [
        f"k8sdds-*/*-{pod}/{name}"
        for pod in ("pub0", "load0")
        for name in CpuResources(request=1).files(pods.own.version)
    ]
    before, seen = traces(folder), set()
    with running(folder, "limits.yaml", "-o", "out") as process:
        while process.poll() is None:
            for file in (
                found for root in pods.folders for name in files for found in Path(root).parent.glob(name)
            ):
                with contextlib.suppress(OSError):  # the cgroup is being removed
                    seen.add((file.parent.name.rpartition("-")[2], file.read_text().strip()))
            time.sleep(0.05)
        _, errors = process.communicate()
    assert traces(folder) == before
    records = last_attempts(folder / "out")
    assert [record["reason"] for record in records if not record["valid"]] == [], errors
    assert process.returncode == 0, errors
    return records, seen


def with_limit_first(records: list[dict[str, Any]], test: str) -> list[dict[str, Any]]:
    """Return the records of a test without background, those with a limit first."""
    selected = [record for record in records if record["test"] == test and "background" not in record]
    return sorted(selected, key=lambda record: not record["cpu_quota"])


def test_the_record_contains_what_a_limit_stopped(campaign: Campaign) -> None:
    limited, free = with_limit_first(campaign[0], "throughput")
    assert (limited["cpu_quota"], limited["cpu_period_ms"], limited["cpu_burst_ms"]) == (0.04, 50, 2)
    assert free["cpu_quota"] is free.get("throttling") is free.get("throttled_periods_percent") is None
    # A publisher as fast as possible uses its quota in each period.
    publisher = limited["throttling"]["pub0"]
    assert publisher["periods"] >= publisher["throttled_periods"] > 0 and publisher["throttled_s"] > 0
    assert 0 < limited["throttled_periods_percent"] <= 100


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="stops are recorded on a core without participants"
)
def test_slow_samples_wait_while_a_limit_stops_their_publisher(campaign: Campaign) -> None:
    limited, free = with_limit_first(campaign[0], "paced")
    # The publisher needs more than its quota: samples wait for longer than a period, and each of these has a stop.
    assert limited["slow_stopped_percent"] == 100 and 0 < limited["stopped_percent"] <= 100
    assert free.get("slow_stopped_percent") is free.get("stopped_percent") is None


def test_a_request_is_a_share_of_a_busy_core(campaign: Campaign) -> None:
    records, seen = campaign
    version = PodCgroups("unused", limited=True).own.version
    asked = {("pub0", 0.1), ("pub0", 2), ("load0", CPU_REQUEST)}
    shares = {(pod, *CpuResources(request=request).files(version).values()) for pod, request in asked}
    assert shares <= seen
    busy = [record for record in records if "background" in record]
    assert sorted(record["cpu_request"] for record in busy) == [0.1, 2]
    assert all(record["background_load"]["cpu0_percent"] > 0 for record in busy)
