"""Count what leaves the pods by kind while participants run, for a test that asks for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from k8sdds.model.packet_kinds import FILE, KindCounts
from tests.commands import environment
from tests.measuring import experiment, last_attempts

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNTING = """\
from k8sdds import workloads
from k8sdds.cli.main import run

class Counting(type(workloads.find("latency"))):
    counts_kinds = True

    def warnings(self, outputs):
        return ["counted: " + " ".join(sorted(outputs.measurement.kinds))]

workloads.find("latency").__class__ = Counting
run()
"""
"""The command, with a latency test that counts packets and reports in which pods."""
BY_DISCOVERY = {
    "cyclonedds": {"participants", "endpoints", "data"},
    "fastdds": {"participants", "endpoints", "data"},
    "zenoh": {"zenoh"},
}


def counted(folder: Path, sweeps: str, **keys: object) -> dict[tuple[str, str, str], dict[str, KindCounts]]:
    """Run an experiment; return what was counted in each pod by network, middleware and discovery."""
    (folder / "kinds.yaml").write_text(experiment(sweeps, duration_s=0.3, baseline="flannel-hostgw", **keys))
    argv = [sys.executable, "-c", COUNTING, "run", "kinds.yaml", "-o", "out"]
    done = subprocess.run(
        argv, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[tuple[str, str, str], dict[str, KindCounts]] = {}
    for record in last_attempts(folder / "out"):
        attempt = folder / "out/raw" / record["trial_id"] / str(record["attempt"])
        pods = {
            path.parent.name: KindCounts.of(json.loads(path.read_text()))
            for path in attempt.glob(f"*/{FILE}")
        }
        assert f"counted: {' '.join(sorted(pods))}" in record["warnings"]
        found[record["network"], record["middleware"], record["discovery"]] = {
            name: counts for name, counts in pods.items() if counts
        }
    return found


def kinds(counts: KindCounts) -> set[str]:
    return {kind for _, kind, _, _ in counts.rows}


# At this rate, all packets fit into the memory of a program that counts them and that a busy machine stops.
EACH_MIDDLEWARE = """\
  - networks: flannel-hostgw
    test: latency
    payload_bytes: 1024
    rate: 500
    middleware: [cyclonedds, fastdds, zenoh]
"""
OTHER_PLACES = """\
  - {networks: flannel-hostgw, test: latency, payload_bytes: 1024, rate: 500, middleware: fastdds, discovery: server}
  - networks: baremetal
    test: latency
    payload_bytes: 1024
    rate: 500
    subscribers: 2
    placement: {pub0: 0, sub0: 1, sub1: 1}
"""


def check_each_middleware(found: dict[tuple[str, str, str], dict[str, KindCounts]]) -> None:
    """Check that discovery and samples were counted in each pod."""
    for middleware, expected in BY_DISCOVERY.items():
        pods = found["flannel-hostgw", middleware, "auto"]
        assert set(pods) == {"pub0", "sub0"}
        for counts in pods.values():
            assert expected <= kinds(counts)
            assert counts.dropped_packets == 0
            # Its pod sends each sample, or the reply to it.
            assert sum(size for _, _, _, size in counts.rows) > 1024


def test_what_participants_and_servers_send_is_counted(tmp_path: Path) -> None:
    found = counted(tmp_path, EACH_MIDDLEWARE + OTHER_PLACES)
    check_each_middleware(found)
    pods = found["flannel-hostgw", "fastdds", "server"]
    assert set(pods) == {"pub0", "sub0", "discovery"}
    assert kinds(pods["discovery"]) >= {"participants", "endpoints"}
    assert "data" not in kinds(pods["discovery"])
    # A node without pods is counted once.
    assert set(found["baremetal", "cyclonedds", "auto"]) == {"pub0", "sub0"}


def test_packets_of_ipv6_are_counted(tmp_path: Path) -> None:
    check_each_middleware(counted(tmp_path, EACH_MIDDLEWARE, ip_families="[ipv6]"))
