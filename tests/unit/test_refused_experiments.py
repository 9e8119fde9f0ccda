"""Test that experiments which cannot be measured are refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([], 2, "no experiment given"),
        (["nope"], 2, "there is no experiment or application 'nope'"),
        (["quickstart", "--set", "payload_bytes=12"], 2, "has at least 28 bytes"),
        (["quickstart", "--set", "payload"], 2, "is not KEY=VALUE"),
        (["quickstart", "--set", "transport=multicast"], 2, "flannel-vxlan carries no multicast"),
        (["quickstart", "--set", "middleware=raw"], 2, "reliability must be best-effort"),
        (["quickstart", "--set", "middleware=opensplice"], 3, "'opensplice' is not built here"),
        (["quickstart", "--set", "qos=nope"], 2, "there is no QoS profile 'nope'"),
        (["quickstart", "--set", "qos=ros2-sensor-data"], 2, "set it: reliability=best-effort"),
        (["quickstart", "--set", "networks=flannel-vxlna"], 2, "did you mean 'flannel-vxlan'"),
        (["quickstart", "--set", "networks={name: weavenet, mtu: 1490}"], 2, "at most 1450"),
        (["quickstart", "--set", "baseline=calico"], 2, "baseline 'calico' is not among the networks"),
        (["quickstart", "--set", "placement={pub0: 0}"], 2, "has no node for sub0"),
        (["quickstart", "--set", "placement={pub0: 0, sub0: 0}"], 2, "pub0 and sub0 are on node 0"),
        (
            ["quickstart", "--set", "placement={pub0: 0, sub0: 1, sub9: 1}"],
            2,
            "sub9, which the trial does not have",
        ),
        (["virtualization-overhead", "--set", "cpu_quota=0.5"], 2, "cpu_quota needs pods"),
        (
            [
                "quickstart",
                "--set",
                "networks=[host, {name: flannel-ipsec, engine: kernel}]",
                "--set",
                "link.loss_percent=1",
            ],
            2,
            "use {name: flannel-ipsec, engine: userspace}",
        ),
        (
            ["quickstart", "--set", "reliability=best-effort", "--set", "qos=strict-reliable"],
            2,
            "-bestEffort",
        ),
        (["quickstart", "--dry-run", "-o", "/proc/nowhere"], 2, "cannot write to /proc"),
        (["quickstart", "--network", "wevenet"], 2, "did you mean 'weavenet'"),
        (["nowhere/my.yaml"], 2, "cannot read nowhere/my.yaml"),
        (["--resume", "nowhere"], 2, "nowhere is not a folder"),
        (["quickstart", "--resume", "nowhere"], 2, "give no experiment and no changes"),
        (["quickstart", "--repeat", "0"], 2, "--repeat"),
    ],
)
def test_bad_input_ends_before_anything_starts(
    k8sdds: Command, tmp_path: Path, args: list[str], code: int, message: str
) -> None:
    done = k8sdds("run", *args)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
