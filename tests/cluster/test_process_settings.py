"""Test participants with real-time priority, locked memory and marked packets, and shared memory, in real pods."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.cluster.conftest import Command, User
from tests.measuring import measured

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nothing_left")]

REAL_TIME = """\
name: real-time
baseline: flannel-vxlan
repetitions: 1
duration_s: 0.5
warmup_s: 0.1
sweeps:
  - networks: flannel-vxlan
    test: paced
    rate: 100
    middleware: [cyclonedds, fastdds]
    realtime_priority: [0, 50]
    lock_memory: true
    dscp: 46
"""


def meters(folder: Path, row: dict[str, Any], participant: str) -> dict[str, Any]:
    """Return what the supervisor of a participant read."""
    raw = RunFolder.open(folder / "out").raw(row["trial_id"], row["attempt"]) / participant
    read: dict[str, Any] = json.loads((raw / "meters.json").read_text())
    return read


CPU_CGROUPS = Path("/sys/fs/cgroup/cpu")
SHARES_US = (
    ("k8sdds-one-machine-*", 940_000),
    ("worker*", 470_000),
    ("kubepods.slice", 465_000),
    ("kubepods-burstable.slice", 460_000),
    ("kubepods-burstable-pod*.slice", 110_000),
    ("cri-containerd-*.scope", 50_000),
)
"""Real-time shares in each second of the cgroups of pods on workers, outermost first.

They are those of the test's cluster only: the machine has one share, and a lab in another cgroup could take it.
"""
HAS_SHARES = (CPU_CGROUPS / "cpu.rt_runtime_us").exists()
"""Whether the kernel refuses real-time priority in cgroups without a share, which is their default."""


@contextmanager
def real_time_shares() -> Iterator[None]:
    """Give each new pod of the local nodes a real-time share while the context lasts, as their administrator can."""
    ended = threading.Event()

    def give() -> None:
        while not ended.wait(0.02):
            pattern = ""
            for name, share_us in SHARES_US:
                pattern += f"{name}/"
                for file in CPU_CGROUPS.glob(f"{pattern}cpu.rt_runtime_us"):
                    with contextlib.suppress(OSError):  # the cgroup is being removed
                        if file.read_text() == "0\n":
                            file.write_text(str(share_us))

    thread = threading.Thread(target=give)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.skipif(not HAS_SHARES, reason="this kernel gives pods real-time priority without a share")
def test_a_kernel_that_refuses_real_time_priority_is_reported_before_the_first_trial(
    k8sdds: Command, user: User, tmp_path: Path
) -> None:
    (tmp_path / "experiment.yaml").write_text(REAL_TIME)
    done = k8sdds("run", "experiment.yaml", *user.options, "-o", "run")
    assert done.returncode == 3, done.stdout + done.stderr
    assert (
        "its kernel refuses SCHED_FIFO in pods with the capability SYS_NICE: Operation not permitted"
        in done.stderr
    )
    assert "leave out realtime_priority" in done.stderr
    assert not (tmp_path / "run" / "trials.jsonl").exists()


def test_pods_run_as_requested_with_the_required_capabilities_only(
    k8sdds: Command, user: User, tmp_path: Path
) -> None:
    with real_time_shares() if HAS_SHARES else contextlib.nullcontext():
        rows = measured(k8sdds, tmp_path, REAL_TIME, *user.options)
    assert len(rows) == 4
    for row in rows:
        priority = row["realtime_priority"]
        for participant in ("pub0", "sub0"):
            seen = row["execution"][participant]
            assert list(seen["threads"]) == ([f"fifo {priority}"] if priority else ["other"])
            assert seen["locked_bytes"] > 10**6
            assert seen["dscp"] == [46] and seen["cpus"]
            # The supervisor uses SYS_NICE before it starts the participant.
            assert meters(tmp_path, row, participant)["capabilities"]["kept"] == ["IPC_LOCK"]


SHARED_MEMORY = """\
name: shared-memory
repetitions: 1
duration_s: 0.5
warmup_s: 0.1
sweeps:
  - networks: host
    test: [throughput, latency]
    middleware: [fastdds, zenoh]
    transport: [unicast, shared-memory]
    payload_bytes: [8192, 1048576]
"""


def test_samples_in_shared_memory_use_no_interface_of_their_pod(
    k8sdds: Command, user: User, tmp_path: Path
) -> None:
    rows = measured(k8sdds, tmp_path, SHARED_MEMORY, *user.options)
    assert len(rows) == 16
    for row in rows:
        delivered = row["received"] * row["payload_bytes"]
        # The last samples may leave after the measured interval.
        interval = "attempt_interfaces" if row["transport"] == "unicast" else "interfaces"
        interfaces = meters(tmp_path, row, "pub0")[interval]
        carried = sum(counters["tx_bytes"] for counters in interfaces.values())
        if row["transport"] == "unicast":
            assert row["nodes"] == 2 and carried > delivered
        else:
            zenoh = (
                row["middleware"] == "zenoh"
            )  # which states by TCP where samples are, and locks its memory
            assert row["nodes"] == 1
            assert carried < delivered / 100 + 100_000 + zenoh * row["received"] * 300
            assert set(interfaces) == {"lo", "eth0"}, "the pod has a network of its own"
            assert row["wire_bytes_per_payload_byte"] is None
            assert meters(tmp_path, row, "pub0")["capabilities"]["kept"] == ["IPC_LOCK"] * zenoh
    report = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "shared memory without network" in report.lower()


def test_shared_memory_alone_needs_one_restricted_namespace(
    k8sdds: Command, user: User, tmp_path: Path
) -> None:
    alone = (
        SHARED_MEMORY.replace("[unicast, shared-memory]", "shared-memory")
        .replace("payload_bytes: [8192, 1048576]", "subscribers: 3")
        .replace("[fastdds, zenoh]", "fastdds")
    )
    rows = measured(k8sdds, tmp_path, alone, *user.options)
    assert len(rows) == 2
    for row in rows:
        assert set(row["link_bytes"]["delivered_samples"]) == {"sub0", "sub1", "sub2"}


OWN = """\
name: own-memory
repetitions: 1
duration_s: 0.5
warmup_s: 0.1
sweeps:
  - &own
    networks: host
    middleware: [fastdds, zenoh]
    transport: shared-memory
    dev_shm: [shared, own]
    payload_bytes: 8192
  - <<: *own
    networks: flannel-vxlan
  - <<: *own
    dev_shm: shared
    users: other
"""


def test_the_way_of_samples_follows_from_the_pods(k8sdds: Command, user: User, tmp_path: Path) -> None:
    rows = measured(k8sdds, tmp_path, OWN, *user.options)
    found = {
        (row["middleware"], row["network"], row.get("dev_shm", "shared"), row.get("users", "same")): row[
            "samples_by"
        ]
        for row in rows
    }
    # The pods cannot have other user ids with Zenoh.
    assert found == {
        ("fastdds", "host", "shared", "same"): "memory", ("zenoh", "host", "shared", "same"): "memory",
        ("fastdds", "host", "own", "same"): "nothing", ("zenoh", "host", "own", "same"): "network",
        ("fastdds", "flannel-vxlan", "shared", "same"): "network",
        ("zenoh", "flannel-vxlan", "shared", "same"): "memory",
        ("fastdds", "flannel-vxlan", "own", "same"): "network", ("zenoh", "flannel-vxlan", "own", "same"): "network",
        ("fastdds", "host", "shared", "other"): "nothing",
    }  # fmt: skip
