"""Faults during deploys: each results in a clear message or, after another deploy, in a ready cluster."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes
from k8sdds.system.errors import K8sddsError
from tests.clusters import run
from tests.commands import K8SDDS
from tests.deploy.conftest import Site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")

ENDED = re.compile(r"^(\S+): ([a-z ]+): .* \(([0-9.]+ s|failed after [0-9.]+ s)\)$")
"""Line of a completed action: node and phase."""
SEED = int(os.environ.get("K8SDDS_TEST_SEED") or time.time() // 86400)
"""Changes daily; K8SDDS_TEST_SEED repeats a run."""
TIMEOUT_S = 900
PROFILE = """\
name: faulty
provider: local
nodes:
- {name: head, roles: [control-plane, worker], labels: {k8sdds.io/test: faulty}}
- name: work
software: bundle
"""
PHASES = (
    "claim", "tuning", "runtime", "kubernetes packages", "control plane", "network", "metrics server", "images",
    "join", "labels", "discovery service", "smoke test",
)  # fmt: skip


class Faulty(Site):
    """A profile of two local nodes, and the commands that deploy it."""

    name = "faulty"

    def start_deploy(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(K8SDDS), "deploy", str(self.profile), "--yes"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "K8SDDS_STATE_DIR": str(self.state)},
        )  # fmt: skip

    def kill_when(self, enough: Callable[[str], bool], then_s: float) -> str | None:
        """Start a deploy and kill it `then_s` after the first completed action whose phase `enough` accepts.

        Returns:
            The phase of this action; None if the deploy succeeded before.
        """
        process = self.start_deploy()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                match = ENDED.match(line.rstrip("\n"))
                if match is not None and enough(match[2]):
                    time.sleep(then_s)
                    if process.poll() is None:
                        process.kill()
                        return match[2]
            assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
            return None
        finally:
            process.kill()
            process.communicate()

    def fails(self, *messages: str) -> None:
        """Deploy, which must fail with these messages and a remedy."""
        done = self.run("deploy", str(self.profile), "--yes")
        assert done.returncode == 3, done.stdout + done.stderr
        for message in (*messages, "→"):
            assert re.search(message, done.stderr), done.stderr
        assert "Traceback" not in done.stderr and "defect" not in done.stderr, done.stderr
        assert "is ready" not in done.stdout

    def becomes_ready(self) -> None:
        """Deploy again, which must succeed and leave nothing to do, and check that the cluster works."""
        self.deploy()
        assert self.deploy() == "no changes\n"
        node_objects = self.kubectl("get", "nodes")
        ready = {
            node_object["metadata"]["name"]: conditions(node_object)["Ready"] for node_object in node_objects
        }
        assert ready == {"head": "True", "work": "True"}
        # Workloads that kubeadm creates.
        (proxy,) = self.kubectl("get", "daemonset", "-n", "kube-system", "-l", "k8s-app=kube-proxy")
        assert proxy["status"]["numberReady"] == 2, proxy["status"]
        (dns,) = self.kubectl("get", "deployment", "-n", "kube-system", "-l", "k8s-app=kube-dns")
        assert conditions(dns)["Available"] == "True"
        # No secrets of an interrupted action remain.
        for node in ("head", "work"):
            self.shell(node, "[ ! -e /run/k8sdds-deploy ]")

    def kubectl(self, *args: str) -> list[dict[str, Any]]:
        argv = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *args, "-o", "json"]
        items: list[dict[str, Any]] = json.loads(nodes.run(self.name, "head", argv))["items"]
        return items

    def shell(self, node: str, script: str) -> None:
        nodes.run(self.name, node, ["sh", "-e"], stdin=script)

    def when(self, node: str, process: str, then: Callable[[], None]) -> threading.Thread:
        """Call `then` as soon as a process of this name runs on a node."""

        def runs() -> bool:
            try:
                nodes.run(self.name, node, ["pgrep", "-x", process])
            except K8sddsError:  # neither the process nor the node may exist yet
                return False
            return True

        def watch() -> None:
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:
                if runs():
                    return then()
                time.sleep(0.1)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in obj["status"]["conditions"]}


@pytest.fixture
def site(state: Path) -> Iterator[Faulty]:
    profile = state.parent / "faulty.yaml"
    profile.write_text(PROFILE + "metrics_server: null\n")
    made = Faulty(state, profile)
    try:
        yield made
    finally:
        done = made.run("destroy", str(profile), "--yes")
    assert done.returncode == 0, done.stderr
    assert nodes.ls() == []


def deploy_is_killed_once(site: Faulty) -> None:
    dice = random.Random(SEED)
    last, ended = dice.randint(1, 12), itertools.count(1)
    site.kill_when(lambda phase: next(ended) >= last, dice.uniform(0, 2))
    site.becomes_ready()


def deploy_is_killed_in_every_phase(site: Faulty) -> None:
    """Kill a deploy whenever it completes an action of a phase that was not completed before."""
    site.profile.write_text(PROFILE + "tuning: [nic-optimizations]\ndiscovery_service: true\n")
    dice = random.Random(SEED)
    process = site.start_deploy()
    time.sleep(dice.uniform(0.5, 4))  # while it creates the machines
    process.kill()
    process.communicate()
    killed: list[str] = []

    def is_new(phase: str) -> bool:
        return phase not in killed

    while (phase := site.kill_when(is_new, dice.uniform(0, 1))) is not None:
        killed.append(phase)
    # Scripts on nodes continue after a kill, so the next deploy does not report their phases.
    assert set(killed) <= set(PHASES) and len(killed) >= 5, killed
    site.becomes_ready()


def node_stops_while_it_joins(site: Faulty) -> None:
    dying = site.when("work", "kubeadm", lambda: nodes.stop(site.name, "work"))
    site.fails(r"work: join: could not join", "connection was lost|cannot be reached")
    dying.join(60)
    assert not dying.is_alive()
    site.becomes_ready()


def network_is_cut_during_deploy(site: Faulty) -> None:
    cutting = site.when("head", "kubeadm", lambda: nodes.set_link(site.name, "head", "down"))
    site.fails(r"head: control plane: could not create", "connection was lost|cannot be reached")
    cutting.join(60)
    assert not cutting.is_alive()
    # The next deploy reports at once that the machine cannot be reached.
    site.fails(r"head: cannot be reached")
    nodes.set_link(site.name, "head", "up")
    site.becomes_ready()


def files_of_the_cluster_are_deleted(site: Faulty) -> None:
    site.becomes_ready()
    # The data of the control plane and the identity of the worker are deleted.
    site.shell("head", "systemctl stop kubelet\nrm -rf /var/lib/etcd/member /etc/kubernetes/*")
    site.shell("work", "rm -rf /etc/kubernetes/kubelet.conf /etc/cni/net.d/*")
    site.becomes_ready()


def machine_is_replaced(site: Faulty) -> None:
    """Replace first the worker and then the control plane by a new machine with the same name and address."""
    site.becomes_ready()
    for name in ("work", "head"):
        nodes.down(site.name, [name])
        site.becomes_ready()


def data_of_the_control_plane_is_lost(site: Faulty) -> None:
    """With an empty store the cluster looks intact, since kubelets register again; deploy must detect the loss."""
    site.becomes_ready()
    kill_all = (
        "ctr -n k8s.io tasks ls | awk 'NR > 1 { print $1 }' | xargs -n 1 ctr -n k8s.io tasks kill -s KILL -a"
    )
    site.shell(
        "head",
        f"systemctl stop kubelet\n{kill_all} || :\nrm -rf /var/lib/etcd/member\nsystemctl start kubelet",
    )
    deadline = time.monotonic() + 300
    while not answers(site) and time.monotonic() < deadline:
        time.sleep(0.5)
    site.fails("head: its API server rejects its own administrator", "k8sdds destroy faulty")


def answers(site: Faulty) -> bool:
    try:
        argv = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "--raw", "/readyz"]
        return nodes.run(site.name, "head", argv) == "ok"
    except K8sddsError:
        return False


FAULTS = (
    deploy_is_killed_once, deploy_is_killed_in_every_phase, node_stops_while_it_joins,
    network_is_cut_during_deploy, files_of_the_cluster_are_deleted, machine_is_replaced,
    data_of_the_control_plane_is_lost,
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault(site: Faulty, fault: Callable[[Faulty], None]) -> None:
    fault(site)


def test_machines_that_do_not_fit_are_reported_and_not_changed(state: Path, tmp_path: Path) -> None:
    """One deploy of machines that are down, without sudo, with a changed host key, full, with leftovers, and that fit."""
    names = ["fits", "down", "nosudo", "changed", "full", "left"]
    specs = [
        nodes.NodeSpec(name, boot="sshd", sudo=name != "nosudo", disk_mib=64 if name == "full" else None)
        for name in names
    ]
    try:
        created = nodes.up("unfit", specs)
        nodes.stop("unfit", "down")
        script = "mkdir -p /etc/kubernetes\necho '    server: https://10.88.0.9:6443' >/etc/kubernetes/kubelet.conf"
        nodes.run("unfit", "left", ["sh", "-e"], stdin=script)
        known = created[0].known_hosts_file.read_text()
        keys = {line.split(",")[0]: line.split(" ", 1)[1] for line in known.splitlines()}
        hosts = tmp_path / "known_hosts"
        hosts.write_text(known.replace(keys["changed"], keys["fits"]))
        config = tmp_path / "ssh_config"
        shipped = created[0].ssh_config.read_text()
        config.write_text(shipped.replace(str(created[0].known_hosts_file), str(hosts)))
        listed = "".join(
            f"- {{name: {name}, roles: [{'control-plane' if name == 'fits' else 'worker'}]}}\n"
            for name in names
        )
        profile = tmp_path / "unfit.yaml"
        profile.write_text(
            f"name: unfit\naccess: {{ssh_config: {config}}}\nnodes:\n{listed}software: bundle\n"
        )
        done = run(state, "deploy", str(profile), "--yes")
        assert done.returncode == 3, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        for message in (
            r"down: cannot be reached: ", r"nosudo: sudo requires a password", r"changed: its host key has changed",
            r"full: /var/lib has \d+ MiB free", r"left: is part of a cluster of https://10\.88\.0\.9:6443",
        ):  # fmt: skip
            assert re.search(message, done.stderr), done.stderr
        # Each message has a remedy, and no machine was changed.
        assert done.stderr.count("→") >= 5
        for name in ("fits", "nosudo", "changed", "full", "left"):
            assert nodes.run("unfit", name, ["sh", "-c", "ls -d /etc/k8sdds 2>/dev/null || :"]) == ""
    finally:
        nodes.down("unfit")
