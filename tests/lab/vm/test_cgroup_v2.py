"""Test CPU limits on a machine with only cgroup v2: a virtual machine with Debian's kernel."""

from __future__ import annotations

import json
import platform

import pytest

from tests.lab.vm import machine

pytestmark = [
    # Booting the emulated machine takes two to four minutes, and no part of the test can do without it.
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is an amd64 one"),
]
# As systemd does.
MOUNT = "mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +cpu > /sys/fs/cgroup/cgroup.subtree_control"
EXPERIMENT = {
    "name": "v2", "baseline": "host", "repetitions": 1, "duration_s": 5, "warmup_s": 1, "max_loss_percent": 100,
    "sweeps": [
        {
            "networks": "host", "test": "paced", "rate": 2000, "payload_bytes": 16384, "layout": "same",
            "cpu_quota": "300m", "cpu_period_ms": 50, "cpu_burst_ms": 2, "cpu_request": "200m",
        }
    ],
}  # fmt: skip
"""At a rate that the emulated machine does not reach, so that the publisher always needs its whole limit."""


def test_limits_stop_participants_with_cgroup_v2_alone() -> None:
    keys = ("valid", "reason", "throttling", "stopped_percent")
    guest = machine.python("-m", "tests.lab.vm.campaigns", json.dumps(EXPERIMENT), *keys)
    results, output = machine.run(f"{MOUNT}\n{guest}\nfind /sys/fs/cgroup -name 'k8sdds*'")
    assert results, output[-6000:]
    assert "/sys/fs/cgroup/k8sdds" not in output
    # The campaign repeats an invalid attempt.
    attempt = results[0]["attempts"][-1]
    assert attempt["valid"] and attempt["stopped_percent"] > 0, (attempt, results[0]["invalid"])
    for name in ("pub0", "sub0"):
        found = attempt["throttling"][name]
        # Pressure shows that its processes are in this cgroup.
        assert found["periods"] > 0 and found["pressure_some_s"] > 0, attempt
    publisher = attempt["throttling"]["pub0"]
    assert publisher["periods"] >= publisher["throttled_periods"] > 0 and publisher["throttled_s"] > 0
