"""`k8sdds status --fix` on a local node whose swap a service enables, as dphys-swapfile does."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds import nodes
from tests.conftest import Command
from tests.deploy.conftest import Up, profile_of

CLUSTER = "fixes"
SERVICE = (Path(__file__).parent / "scripts/swap_service.sh").read_text()


@pytest.fixture
def node(up: Up) -> nodes.LocalNode:
    (created,) = up(CLUSTER, nodes.NodeSpec("pi1"))
    nodes.run(CLUSTER, "pi1", ["sh", "-e"], stdin=SERVICE)
    return created


def test_swap_is_fixed_after_confirmation(node: nodes.LocalNode, tmp_path: Path, k8sdds: Command) -> None:
    path = profile_of(node, tmp_path)
    ended = k8sdds("status", str(path))
    assert ended.returncode == 3 and "99 MiB of swap" in ended.stderr and "--fix" in ended.stderr
    ended = k8sdds("status", str(path), "--fix", "--dry-run")
    assert "turn swap off (dphys-swapfile.service)" in ended.stderr and "99 MiB of swap" in ended.stderr
    ended = k8sdds("status", str(path), "--fix")
    assert ended.returncode == 2 and "--yes" in ended.stderr

    ended = k8sdds("status", str(path), "--fix", "--yes")
    assert "$ systemctl stop dphys-swapfile.service" in ended.stderr and "MiB of swap" not in ended.stderr
    # The service stays off, and destroy deletes what the fix created.
    nodes.run(CLUSTER, "pi1", ["systemctl", "start", "dphys-swapfile.service"])
    assert "102396" not in nodes.run(CLUSTER, "pi1", ["grep", "SwapTotal", "/proc/meminfo"])
    made = nodes.run(CLUSTER, "pi1", ["cat", "/etc/k8sdds/made"]).split()
    assert "/etc/systemd/system/dphys-swapfile.service.d/90-k8sdds.conf" in made
    assert "/etc/systemd/system/dphys-swapfile.service.d" in made
    ended = k8sdds("status", str(path), "--fix")
    assert "nothing to fix" in ended.stderr
    # Without a deploy, destroy restores the machine.
    ended = k8sdds("destroy", str(path), "--yes")
    assert ended.returncode == 0 and "pi1: restore: undo the fixes" in ended.stdout, ended.stderr
    paths = "/etc/k8sdds /etc/systemd/system/dphys-swapfile.service.d"
    assert nodes.run(CLUSTER, "pi1", ["sh", "-c", f"ls -d {paths} 2>/dev/null || :"]) == ""
    nodes.run(CLUSTER, "pi1", ["systemctl", "start", "dphys-swapfile.service"])
    assert "102396" in nodes.run(CLUSTER, "pi1", ["grep", "SwapTotal", "/proc/meminfo"])
