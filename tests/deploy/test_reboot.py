"""A change of the kernel command line with a real reboot, on a local node that imitates a Raspberry Pi."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import profiles
from k8sdds.system.ssh import Connections
from tests.deploy.conftest import Up, profile_of

CLUSTER = "pis"
BEFORE = "console=tty1 rootwait cgroup_disable=memory"
# Imitates the files of such a board in the node's namespaces, so that the imitation ends with the reboot.
AS_A_PI = f"""
mkdir -p /boot/firmware
echo '{BEFORE}' >/boot/firmware/cmdline.txt
grep -v ^memory /proc/cgroups >/root/cgroups
mount --bind /root/cgroups /proc/cgroups
file=/sys/fs/cgroup/cgroup.controllers
if [ -e $file ]; then sed 's/memory//' $file >/root/controllers; mount --bind /root/controllers $file; fi
"""


@pytest.fixture
def pi(up: Up) -> nodes.LocalNode:
    """Provide a node that looks like a Raspberry Pi with its default system."""
    (created,) = up(CLUSTER, nodes.NodeSpec("pi1"))
    nodes.run(CLUSTER, "pi1", ["sh", "-e"], stdin=AS_A_PI)
    return created


def power_on(stop: threading.Event) -> None:
    """Boot the node whenever it stops, as firmware does."""
    while not stop.wait(0.2):
        (node,) = nodes.ls(CLUSTER)
        if node.state != "running":
            nodes.up(CLUSTER, [nodes.NodeSpec("pi1")])


@pytest.mark.long
def test_command_line_is_changed_and_the_machine_reboots(pi: nodes.LocalNode, tmp_path: Path) -> None:
    profile = profiles.load(str(profile_of(pi, tmp_path)))
    notes: list[str] = []
    stop = threading.Event()
    power = threading.Thread(target=power_on, args=(stop,))
    with Connections(profiles.targets(profile)) as connections:
        before = flow.survey(profile, connections)
        assert ["the memory cgroup is not enabled" in problem.what for problem in before.problems] == [True]
        assert flow.machines_to_reboot(profile, before) == ["pi1"]
        power.start()
        try:
            flow.enable_memory_cgroup(["pi1"], before, connections, notes.append)
        finally:
            stop.set()
            power.join()
        after = flow.survey(profile, connections)
    assert notes == ["enabling the memory cgroup and rebooting: pi1"]
    assert not after.failures and not after.problems
    line = after.facts["pi1"].values["boot_line"]
    assert line == "console=tty1 rootwait cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"
    kept = nodes.run(CLUSTER, "pi1", ["cat", "/etc/k8sdds/saved/boot/firmware/cmdline.txt"])
    assert kept.strip() == BEFORE
