"""Create local nodes: they boot, answer over SSH, survive a power failure, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.nodes import cluster, records
from k8sdds.system.errors import InputError, PrerequisiteError
from tests.conftest import Traces
from tests.conftest import traces as all_traces

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"),
    pytest.mark.usefixtures("state"),
]
GLOBAL = (
    "vm/overcommit_memory", "kernel/panic", "kernel/core_pattern", "fs/inotify/max_user_watches", "kernel/timer_migration",
)  # fmt: skip


def traces(folder: Path) -> Traces:
    """Return what nodes may leave behind, without what concurrent labs may change."""
    found = all_traces(folder)
    ours = ("k8sdds-life-", "k8sdds-killed-")
    return replace(found, cgroups=tuple(path for path in found.cgroups if Path(path).name.startswith(ours)))


def ssh(node: nodes.LocalNode, *command: str, user: str = "") -> subprocess.CompletedProcess[str]:
    where = f"{user}@{node.name}" if user else node.name
    return subprocess.run(
        ["ssh", "-F", str(node.ssh_config), "-o", "BatchMode=yes", where, *command],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def settings() -> list[str]:
    return [Path("/proc/sys", name).read_text() for name in GLOBAL]


def await_end(cluster: str, name: str) -> None:
    machine = records.read(cluster).machines[name]
    deadline = time.monotonic() + 60
    while machine.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not machine.alive


def test_the_life_cycle_of_a_cluster(tmp_path: Path) -> None:
    before, global_before = traces(tmp_path), settings()
    share = tmp_path / "share"
    share.mkdir()
    (share / "file").write_text("seen")
    one = nodes.NodeSpec(
        "one", shares=(nodes.SharedFolder(share, "/bundle"),), link=nodes.NodeLink(rate_mbps=50)
    )
    two = nodes.NodeSpec("two", sudo=False, disk_mib=64)
    try:
        created = nodes.up("life", [one, two])
        assert [node.state for node in created] == ["running", "running"]

        # A machine of its own: systemd, sudo, containerd, its name, and the others by name.
        assert ssh(created[0], "sudo -n systemctl is-active containerd ssh").stdout.split() == ["active"] * 2
        shown = ssh(created[0], "cat /proc/1/comm; hostname; whoami").stdout
        assert shown.split() == ["systemd", "one", "k8sdds"]
        assert ssh(created[0], "cat /bundle/file").stdout == "seen"
        assert ssh(created[0], "sudo -n touch /bundle/new").returncode != 0
        assert ssh(created[1], "sudo -n true").returncode != 0
        assert ssh(created[1], "id -u", user="root").stdout == "0\n"
        nodes.run("life", "two", ["ping", "-c", "1", "-W", "5", "one"])
        assert "rate 50Mbit" in nodes.run("life", "switch", ["tc", "qdisc", "show", "dev", "one"])

        # Its disk is full when it is full.
        assert ssh(created[1], "dd if=/dev/zero of=big bs=1M count=100").returncode != 0

        # Nothing of this machine changes, whatever the nodes' root does.
        for name in GLOBAL:
            nodes.run("life", "one", ["sh", "-c", f"echo 7 > /proc/sys/{name}"])
        assert settings() == global_before
        assert set(traces(tmp_path).links) == set(before.links)
        assert traces(tmp_path).mounts == before.mounts

        # Up again changes nothing; after a power cut the same disk and the same keys are back.
        first = records.read("life").machines["one"].pid
        assert nodes.up("life", [one, two]) == created
        assert records.read("life").machines["one"].pid == first
        nodes.run("life", "one", ["sh", "-c", "echo kept > /root/kept; sync"])
        nodes.stop("life", "one")
        assert [node.state for node in nodes.ls("life")] == ["stopped", "running"]
        with pytest.raises(PrerequisiteError):
            nodes.run("life", "two", ["ping", "-c", "1", "-W", "1", "one"])
        nodes.up("life", [one])
        assert ssh(created[0], "cat /root/kept", user="root").stdout == "kept\n"
        assert nodes.run("life", "one", ["pwd"]) == "/\n"
        # At once, since the others remember its hardware address, which it still has.
        nodes.run("life", "two", ["ping", "-c", "1", "-W", "5", "one"])

        nodes.set_link("life", "one", "down")
        with pytest.raises(PrerequisiteError):
            nodes.run("life", "two", ["ping", "-c", "1", "-W", "1", "one"])
        nodes.set_link("life", "one", "up")
        # The neighbour is remembered as lost for a moment.
        again = "for i in $(seq 60); do ping -c 1 -W 1 one && exit; sleep 0.3; done; exit 1"
        nodes.run("life", "two", ["sh", "-c", again])

        # A machine that has shut down boots again, too.
        os.kill(records.read("life").machines["one"].pid, signal.SIGKILL)
        await_end("life", "one")
        nodes.up("life", [one])
        nodes.run("life", "two", ["ping", "-c", "1", "-W", "5", "one"])

        # A node that does not exist is reported.
        with pytest.raises(InputError, match="use one of: one, two"):
            nodes.stop("life", "three")
        assert nodes.down("life", ["two"]) == ["two"]
        assert [node.name for node in nodes.ls("life")] == ["one"]
    finally:
        nodes.down("life")
    assert traces(tmp_path) == before
    assert not records.all_clusters()


def test_a_forwarded_port_leads_to_a_node_until_the_cluster_stops(tmp_path: Path) -> None:
    def banner(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            return connection.recv(4)

    before = traces(tmp_path)
    try:
        nodes.up("life", [nodes.NodeSpec("one", boot="sshd")])
        port = nodes.forward("life", "one", 22)
        with ThreadPoolExecutor(5) as pool:
            assert list(pool.map(banner, [port] * 20)) == [b"SSH-"] * 20
        # A port of the node that refuses connections does not end the forward.
        refused = nodes.forward("life", "one", 23)
        assert banner(refused) == banner(refused) == b""
        assert nodes.forward("life", "one", 22, port) == port and banner(port) == b"SSH-"
        # The port is used again after the forward was killed, unless another program uses it.
        end_forward(port)
        assert nodes.forward("life", "one", 22, port) == port and banner(port) == b"SSH-"
        end_forward(port)
        with socket.create_server(("127.0.0.1", port)):
            other = nodes.forward("life", "one", 22, port)
            assert other != port and banner(other) == b"SSH-"
    finally:
        nodes.down("life")
    for ended in (port, refused, other):
        with pytest.raises(ConnectionRefusedError):
            banner(ended)
    assert traces(tmp_path) == before


def end_forward(port: int) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().endswith(f"\0{port}\0".encode()) and b"pipe.py" in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise AssertionError(f"port {port} is still forwarded")


def test_the_next_up_completes_a_killed_one(tmp_path: Path) -> None:
    before = traces(tmp_path)
    # The state after an early kill: only a record and half of a key pair exist.
    known = cluster.create_record("life")
    (known.folder / "key").write_text("")
    script = (
        "import sys, time\nfrom k8sdds import nodes\nfrom k8sdds.nodes import machine\n"
        "machine.await_ssh = lambda known, name, booting: (print('booted', flush=True), time.sleep(60))\n"
        "nodes.up('life', [nodes.NodeSpec('one', boot='sshd')])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == "booted\n"
        killed.kill()
    try:
        assert [node.state for node in nodes.ls("life")] == ["boots"]
        (one,) = nodes.up("life", [nodes.NodeSpec("one", boot="sshd")])
        assert one.state == "running" and ssh(one, "hostname").stdout == "one\n"
        # The state after a kill before the machine was recorded: its processes and cable exist.
        known = records.read("life")
        known.machines["one"].pid = 0
        known.write()
        (one,) = nodes.up("life", [nodes.NodeSpec("one", boot="sshd")])
        assert ssh(one, "hostname").stdout == "one\n"
    finally:
        nodes.down("life")
    assert traces(tmp_path) == before


def test_everything_ends_with_a_killed_holder(tmp_path: Path) -> None:
    before = traces(tmp_path)
    # A name that `ip` has another use for.
    created = nodes.up("killed", [nodes.NodeSpec("master", boot="sshd")])
    nodes.set_link("killed", "master", "down")
    nodes.set_link("killed", "master", "up")
    known = records.read("killed")
    os.kill(known.holder[0], signal.SIGKILL)
    await_end("killed", "master")
    assert "does not run" in ssh(created[0], "true").stderr
    # It also removes what killed programs of other users of the cache left.
    assert "killed" in nodes.clean(everything=False)[0]
    assert traces(tmp_path) == before
    assert not Path(known.data).exists()


def test_clean_removes_a_cluster_without_a_record(tmp_path: Path) -> None:
    before = traces(tmp_path)
    nodes.up("killed", [nodes.NodeSpec("one", boot="sshd")])
    known = records.read("killed")
    shutil.rmtree(known.folder)
    assert Path(known.data).name in nodes.clean(everything=False)[0]
    assert traces(tmp_path) == before
    assert not Path(known.data).exists()


@pytest.mark.parametrize("name", ["", "Node", "a" * 13, "-a", "a b", "../a"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(InputError):
        nodes.NodeSpec(name)
