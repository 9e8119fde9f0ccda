"""Deploy on machines of two architectures: an arm64 machine with a kernel of its own joins the cluster over SSH.

Participants on both exchange samples with every middleware, and destroy leaves nothing on the arm64 machine.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import nodes
from tests.clusters import run
from tests.deploy.conftest import Site
from tests.deploy.test_ordinary_machines import DISK_MIB, STATE_SCRIPT, assert_same
from tests.lab.vm import arm64_node
from tests.measuring import experiment, valid_attempts

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the other architecture is arm64"),
]

NAME = "mixed"
HEAD, PI = "head", arm64_node.NAME
MODULES = ("br_netfilter", "nf_conntrack")
"""Kernel modules that have sysctls."""
CONTAINERD_STORE = " /var/lib/containerd/io.containerd."
TIMEOUT_S = 3600
"""Sufficient for the emulated machine on a busy one."""
RATE = 20
DURATION_S = 3
SWEEPS = "".join(
    f"""\
  - networks: [host, flannel-vxlan]
    test: paced
    rate: {RATE}
    payload_bytes: 1024
    middleware: {middleware}
    reliability: {reliability}
    placement: {{pub: kubernetes.io/arch={publisher}, sub: kubernetes.io/arch={subscriber}}}
"""
    for publisher, subscriber in (("amd64", "arm64"), ("arm64", "amd64"))
    for middleware, reliability in (("[cyclonedds, fastdds]", "reliable"), ("raw", "best-effort"))
)


class Machines(Site):
    """The two machines and their profile."""

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return run(self.state, *args, timeout_s=TIMEOUT_S)

    def machine_states(self) -> dict[str, list[str]]:
        """Return the state of the arm64 machine as lines, without the folders that containerd creates on first use."""
        # Kernel modules remain loaded after destroy.
        done = arm64_node.ssh(NAME, f"modprobe -a {' '.join(MODULES)}\n{STATE_SCRIPT}", timeout_s=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return {PI: [line for line in done.stdout.splitlines() if CONTAINERD_STORE not in line]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
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
                yield Machines(state, profile)
        finally:
            nodes.down(NAME)


def write_profile(folder: Path, head: nodes.LocalNode, machine: arm64_node.Arm64Node) -> str:
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


def test_status_reads_both_architectures(site: Machines) -> None:
    done = site.run("status", str(site.profile), "--json")
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


def test_a_machine_of_another_architecture_is_refused(site: Machines) -> None:
    """Before anything is built or changed."""
    wrong = site.profile.with_name("wrong.yaml")
    wrong.write_text(site.profile.read_text().replace("architecture: arm64", "architecture: amd64"))
    done = site.run("deploy", str(wrong), "--yes")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{PI}: is arm64, but the profile expects amd64" in done.stderr
    assert arm64_node.ssh(NAME, "test -e /etc/k8sdds").returncode == 1


def test_both_architectures_in_one_cluster(site: Machines) -> None:
    profile = str(site.profile)
    before = site.machine_states()
    site.deploy()
    assert site.deploy() == "no changes\n"
    check_nodes(site)
    check_samples(site, "profile", "--testbed", NAME)
    # The same by a kubeconfig, as on a cluster that others deployed.
    check_samples(site, "kubeconfig", *site.user(NAME, HEAD).options)
    site.k8sdds("destroy", profile, "--yes")
    assert_same(site.machine_states(), before)
    assert site.k8sdds("destroy", profile, "--yes").stdout == "Nothing to destroy.\n"


def check_nodes(site: Machines) -> None:
    """Both nodes are ready, and each has images of its own architecture only."""
    kubectl = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"]
    items = json.loads(nodes.run(NAME, HEAD, [*kubectl, "get", "nodes", "-o", "json"]))["items"]
    infos = {item["metadata"]["name"]: item["status"]["nodeInfo"] for item in items}
    assert {name: info["architecture"] for name, info in infos.items()} == {HEAD: "amd64", PI: "arm64"}
    assert infos[HEAD]["bootID"] != infos[PI]["bootID"]
    assert infos[PI]["kernelVersion"] != platform.release()
    for item in items:
        conditions = {entry["type"]: entry["status"] for entry in item["status"]["conditions"]}
        assert conditions["Ready"] == "True"
    done = arm64_node.ssh(NAME, "ctr -n k8s.io images ls | awk 'NR > 1 && $1 !~ /^sha256:/'")
    lines = done.stdout.splitlines()
    assert any(line.startswith("k8sdds.local/perftest:") for line in lines)
    assert all("linux/arm64" in line and "linux/amd64" not in line for line in lines), done.stdout


def check_samples(site: Machines, name: str, *testbed: str) -> None:
    """Every middleware delivers samples in both directions on both networks, on the path of the network."""
    path = site.profile.with_name("architectures.yaml")
    path.write_text(experiment(SWEEPS, duration_s=DURATION_S, warmup_s=0.5))
    folder = site.profile.with_name(name)
    site.k8sdds("run", str(path), *testbed, "-o", str(folder))
    rows = valid_attempts(folder)
    cells = {(row["network"], row["middleware"], row["placement"]["pub"].partition("=")[2]) for row in rows}
    assert cells == {
        (network, middleware, publisher)
        for network in ("host", "flannel-vxlan")
        for middleware in ("cyclonedds", "fastdds", "raw")
        for publisher in ("amd64", "arm64")
    }
    for row in rows:
        samples = row["link_bytes"]["delivered_samples"]["sub0"]
        assert samples > 0.8 * RATE * DURATION_S
        assert row["link_bytes"]["received"]["sub0"] >= samples * 1024
        assert not any(warning.startswith("unproven") for warning in row["warnings"])
        if row["network"] == "flannel-vxlan":
            assert row["network_proof"].startswith("carried by flannel.1 (vxlan)")
            assert row["link_bytes"]["carried"]["sub0"] >= samples * 1024
        else:
            assert row["network_proof"].startswith("routed by eth0, no tunnel")
