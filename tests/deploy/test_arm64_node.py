"""Check machines of two architectures over SSH: a local node, and an arm64 machine with a kernel of its own."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8sdds import nodes
from tests.clusters import run
from tests.deploy.test_ordinary_machines import DISK_MIB
from tests.lab.vm import arm64_node

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the other architecture is arm64"),
]

NAME = "mixed"
HEAD, PI = "head", arm64_node.NAME
TIMEOUT_S = 3600
"""Sufficient for the emulated machine on a busy one."""


@dataclass
class Site:
    """The two machines and their profile."""

    state: Path
    profile: Path

    def k8sdds(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return run(self.state, *args, timeout_s=TIMEOUT_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Provide a local node for the control plane, and the arm64 machine on its switch."""
    folder = tmp_path_factory.mktemp("arm64")
    state = folder / "state"
    state.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(state))
        try:
            (head,) = nodes.up(NAME, [nodes.NodeSpec(HEAD, disk_mib=DISK_MIB)])
            with arm64_node.running(NAME, folder / "vm") as machine:
                profile = folder / "mixed.yaml"
                profile.write_text(write_profile(folder, head, machine))
                yield Site(state, profile)
        finally:
            nodes.down(NAME)


def write_profile(folder: Path, head: nodes.LocalNode, machine: arm64_node.Arm64Node) -> str:
    """Write the files of SSH, and return the profile that names them."""
    (folder / "known_hosts").write_text(
        head.known_hosts_file.read_text() + f"{arm64_node.ADDRESS} {machine.host_key}\n"
    )
    proxy = shlex.join([*head.proxy_command[:-2], "%h", "%p"])
    (folder / "ssh_config").write_text(f"Host 10.88.0.*\n  ProxyCommand {proxy}\n")
    return f"""\
name: {NAME}
access:
  user: root
  key: {head.key_file}
  known_hosts: {folder}/known_hosts
  ssh_config: {folder}/ssh_config
nodes:
- {{name: {HEAD}, address: {head.address}, roles: [control-plane, worker], architecture: amd64}}
- {{name: {PI}, address: {arm64_node.ADDRESS}, architecture: arm64}}
metrics_server: null
software: bundle
"""


def test_status_reads_both_architectures(site: Site) -> None:
    done = site.k8sdds("status", str(site.profile), "--json")
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert read["problems"] == [] and not read["unreached"]
    head, pi = (read["machines"][name] for name in (HEAD, PI))
    assert (head["one"]["machine"], pi["one"]["machine"]) == ("x86_64", "aarch64")
    assert pi["one"]["userland"] == "arm64" and pi["one"]["init"] == "systemd"
    assert pi["one"]["kernel"].endswith("arm64") and pi["one"]["kernel"] != platform.release()
    # Debian's kernel has what the default network needs, and cgroup v2.
    assert {"vxlan", "br_netfilter", "overlay", "ip_set"} <= set(pi["many"]["feature"])
    assert pi["one"]["cgroup"] == "2" and "memory" in pi["one"]["controllers"].split()
    assert "containerd active" in pi["many"]["unit"]


def test_a_machine_of_another_architecture_is_refused(site: Site) -> None:
    """Before anything is built or changed."""
    wrong = site.profile.with_name("wrong.yaml")
    wrong.write_text(site.profile.read_text().replace("architecture: arm64", "architecture: amd64"))
    done = site.k8sdds("deploy", str(wrong), "--yes")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{PI}: is arm64, but the profile expects amd64" in done.stderr
    assert arm64_node.ssh(NAME, "test -e /etc/k8sdds").returncode == 1
