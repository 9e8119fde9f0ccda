"""Deploys on ordinary machines: local nodes that the profile names by address, port, user and key.

The machines remain when the cluster is destroyed, so their states before and after can be compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.deploy.local_nodes import INOTIFY_INSTANCES
from k8sdds.model.ip_families import IpFamily
from tests.deploy.conftest import Site

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"), pytest.mark.long]

NAME = "ordinary"
DISK_MIB = 6144
"""Size of a separate disk: the kubelet would evict pods because this machine's disk is too full."""

STATE_SCRIPT = (Path(__file__).parent / "scripts/machine_state.sh").read_text()


class Machines(Site):
    """Two machines and their profile."""

    def machine_states(self) -> dict[str, list[str]]:
        return {
            name: nodes.run(NAME, name, ["sh"], stdin=STATE_SCRIPT, timeout_s=120).splitlines()
            for name in ("head", "work")
        }


@contextlib.contextmanager
def machines(state: Path, families: tuple[IpFamily, ...] = ("ipv4",)) -> Iterator[Machines]:
    """Provide two machines with addresses of these IP families, and remove them at the end."""
    folder = state.parent
    try:
        created = nodes.up(
            NAME,
            [
                nodes.NodeSpec(
                    name, disk_mib=DISK_MIB, ip_families=families, watches=INOTIFY_INSTANCES[is_control_plane]
                )
                for name, is_control_plane in (("head", True), ("work", False))
            ],
        )
        # The machines are behind a jump host, which ssh_config configures.
        config = folder / "ssh_config"
        proxy = shlex.join([*created[0].proxy_command[:-2], "%h", "%p"])
        config.write_text(f"Host 10.88.0.* fd00:10:88::*\n  ProxyCommand {proxy}\n")
        profile = folder / "ordinary.yaml"
        listed = "".join(
            f"- {{name: {item.name}, address: '{item.address}', port: {item.port}, roles: {roles}}}\n"
            for item, roles in zip(created, ("[control-plane, worker]", "[worker]"), strict=True)
        )
        profile.write_text(
            f"name: {NAME}\naccess:\n  user: {created[0].user}\n  key: {created[0].key_file}\n"
            f"  known_hosts: {created[0].known_hosts_file}\n  ssh_config: {config}\nnodes:\n{listed}"
            "metrics_server: null\ntuning: [nic-optimizations]\n"
        )
        yield Machines(state, profile)
    finally:
        nodes.down(NAME)


@pytest.fixture
def site(state: Path) -> Iterator[Machines]:
    with machines(state) as created:
        yield created


def assert_same(after: dict[str, list[str]], before: dict[str, list[str]]) -> None:
    for name, lines in before.items():
        missing, new = sorted(set(lines) - set(after[name])), sorted(set(after[name]) - set(lines))
        assert not missing and not new, "\n".join([f"{name}: missing, and new:", *missing, "", *new])


def test_destroy_restores_the_state_before_deploy(site: Machines) -> None:
    with site.profile.open("a") as file:
        file.write("software: bundle\n")
    profile = str(site.profile)
    before = site.machine_states()
    site.deploy()
    assert site.deploy() == "no changes\n"
    assert site.machine_states() != before
    # Behind a jump host, the command prints a tunnel for other programs.
    shown = site.k8sdds("kubeconfig", profile)
    assert "server: https://10.88.0.11:6443" in shown.stdout
    assert "ssh -N -L 6443:10.88.0.11:6443" in shown.stderr
    assert Path(site.k8sdds("kubeconfig", profile, "--path").stdout.strip()).read_text() == shown.stdout
    assert json.loads(site.k8sdds("status", profile, "--json").stdout)["problems"] == []
    check_commands_with_a_worker_down(site)
    # After a network switch, leftovers of neither network remain.
    site.k8sdds("network", "switch", profile, "host", "--yes")
    planned = site.k8sdds("destroy", profile, "--dry-run").stdout
    assert "stop everything that runs in the cluster" in planned
    assert site.k8sdds("destroy", profile, "--dry-run").stdout == planned
    assert site.k8sdds("destroy", profile, "--yes").stdout.splitlines()[-1] == "removed"
    assert_same(site.machine_states(), before)
    # The logs remain on this machine, and a second destroy finds nothing.
    logs = site.state / "clusters" / NAME / "logs"
    assert sorted(path.name for path in logs.iterdir()) == ["head.log", "work.log"]
    assert site.k8sdds("destroy", profile, "--yes").stdout == "Nothing to destroy.\n"


def check_commands_with_a_worker_down(site: Machines) -> None:
    """Every command reports the worker that cannot be reached; commands that can continue without it do so."""
    profile = str(site.profile)
    nodes.set_link(NAME, "work", "down")
    try:
        for args in (
            ("deploy", profile, "--yes"),
            ("network", "switch", profile, "host", "--yes"),
            ("destroy", profile, "--yes"),
        ):
            done = site.run(*args)
            assert done.returncode == 3, done.stdout + done.stderr
            assert "work: cannot be reached" in done.stderr and "→" in done.stderr, done.stderr
        done = site.k8sdds("deploy", profile, "--yes", "--limit", "head")
        assert "left out because of --limit: work: cannot be reached" in done.stderr
        done = site.run("deploy", profile, "--yes", "--limit", "work")
        assert done.returncode == 3 and "work: cannot be reached" in done.stderr
        archive = site.profile.with_name("logs.tar.gz")
        done = site.k8sdds("logs", profile, "--output", str(archive))
        assert "left out: work: cannot be reached" in done.stderr
        with tarfile.open(archive) as opened:
            names = opened.getnames()
        assert {"logs/head/kubelet.txt", "logs/work/unreached.txt", "logs/deploy/work.log"} <= set(names)
    finally:
        nodes.set_link(NAME, "work", "up")
    site.deploy()
    assert site.deploy() == "no changes\n"


def test_purge_removes_installed_packages(site: Machines, tmp_path: Path) -> None:
    """The machines have no containerd and install it from the packages of a bundle."""
    bundle = tmp_path / "bundle"
    site.k8sdds("bundle", "create", str(bundle), "--suite", "bookworm")
    with site.profile.open("a") as file:
        file.write(f"software: {{source: bundle, bundle: {bundle}}}\n")
    profile = str(site.profile)
    for name in ("head", "work"):
        script = "systemctl stop containerd\nexport DEBIAN_FRONTEND=noninteractive\n"
        script += "apt-get purge -q=2 -y containerd runc conntrack socat ebtables >/dev/null\n"
        nodes.run(NAME, name, ["sh", "-e"], stdin=script, timeout_s=120)
    before = site.machine_states()
    site.deploy()
    assert site.machine_states() != before
    site.k8sdds("destroy", profile, "--yes", "--purge")
    assert_same(site.machine_states(), before)
    assert not (site.state / "clusters").exists() or not list((site.state / "clusters").iterdir())
