"""Deploys that go wrong: each ends in a clear message or, run again, in a ready cluster."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes
from k8sdds.system.errors import K8sddsError
from tests.clusters import K8SDDS, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")

ENDED = re.compile(r"^(\S+): ([a-z ]+): .* \(([0-9.]+ s|failed after [0-9.]+ s)\)$")
"""The line of an action that has ended: node, phase."""
SEED = int(os.environ.get("K8SDDS_TEST_SEED") or time.time() // 86400)
"""Another choice each day, and the same again by K8SDDS_TEST_SEED."""
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


@dataclass
class Site:
    """Two local nodes to be, and the commands that deploy on them."""

    state: Path
    profile: Path
    name: str = "faulty"

    def deploy(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(self.state, "deploy", str(self.profile), "--yes", *words, timeout_s=TIMEOUT_S)

    def begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(K8SDDS), "deploy", str(self.profile), "--yes"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "K8SDDS_STATE_DIR": str(self.state)},
        )  # fmt: skip

    def kill_when(self, enough: Callable[[str], bool], then_s: float) -> str | None:
        """Kill a deploy a moment after an action has ended of which, by its phase, it is enough; the phase.

        None if the deploy ended itself before, in order.
        """
        process = self.begin()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found = ENDED.match(line.rstrip("\n"))
                if found is not None and enough(found[2]):
                    time.sleep(then_s)
                    if process.poll() is None:
                        process.kill()
                        return found[2]
            assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
            return None
        finally:
            process.kill()
            process.communicate()

    def fails(self, *said: str) -> None:
        """Deploy, which must fail with a message that names this and a remedy."""
        done = self.deploy()
        assert done.returncode == 3, done.stdout + done.stderr
        for words in (*said, "→"):
            assert re.search(words, done.stderr), done.stderr
        assert "Traceback" not in done.stderr and "defect" not in done.stderr, done.stderr
        assert "is ready" not in done.stdout

    def becomes_ready(self) -> None:
        """Deploy again, to the end; then nothing is left to do, and the cluster works."""
        done = self.deploy()
        assert done.returncode == 0, done.stdout + done.stderr
        again = self.deploy()
        assert (again.returncode, again.stdout) == (0, "no changes\n"), again.stdout + again.stderr
        found = self.kubectl("get", "nodes")
        ready = {one["metadata"]["name"]: conditions(one)["Ready"] for one in found}
        assert ready == {"head": "True", "work": "True"}
        # What kubeadm brings as well: without these the nodes alone would be half a cluster.
        (proxy,) = self.kubectl("get", "daemonset", "-n", "kube-system", "-l", "k8s-app=kube-proxy")
        assert proxy["status"]["numberReady"] == 2, proxy["status"]
        (dns,) = self.kubectl("get", "deployment", "-n", "kube-system", "-l", "k8s-app=kube-dns")
        assert conditions(dns)["Available"] == "True"
        # No secret of an interrupted step is left.
        for node in ("head", "work"):
            self.shell(node, "[ ! -e /run/k8sdds-deploy ]")

    def kubectl(self, *words: str) -> list[dict[str, Any]]:
        argv = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *words, "-o", "json"]
        items: list[dict[str, Any]] = json.loads(nodes.run(self.name, "head", argv))["items"]
        return items

    def shell(self, node: str, script: str) -> None:
        nodes.run(self.name, node, ["sh", "-e"], stdin=script)

    def when(self, node: str, process: str, then: Callable[[], None]) -> threading.Thread:
        """Do something as soon as a process of this name runs on a node."""

        def runs() -> bool:
            try:
                nodes.run(self.name, node, ["pgrep", "-x", process])
            except K8sddsError:  # not yet, or the node does not stand yet
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


def conditions(one: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in one["status"]["conditions"]}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(state))
    profile = tmp_path / "faulty.yaml"
    profile.write_text(PROFILE + "metrics_server: null\n")
    made = Site(state, profile)
    try:
        yield made
    finally:
        done = run(state, "destroy", str(profile), "--yes")
    assert done.returncode == 0, done.stderr
    assert nodes.ls() == []


def the_deployer_is_killed_once(site: Site) -> None:
    chosen = random.Random(SEED)
    last, ended = chosen.randint(1, 12), itertools.count(1)
    site.kill_when(lambda phase: next(ended) >= last, chosen.uniform(0, 2))
    site.becomes_ready()


def the_deployer_is_killed_in_every_phase(site: Site) -> None:
    """Each phase that a deploy tells of for the first time is its last one: what goes on then, in it or in the
    next, is cut off."""
    site.profile.write_text(PROFILE + "tuning: [nic-optimizations]\ndiscovery_service: true\n")
    chosen = random.Random(SEED)
    process = site.begin()
    time.sleep(chosen.uniform(0.5, 4))  # while it makes the machines
    process.kill()
    process.communicate()
    killed: list[str] = []

    def is_new(phase: str) -> bool:
        return phase not in killed

    while (phase := site.kill_when(is_new, chosen.uniform(0, 1))) is not None:
        killed.append(phase)
    # Others went on by themselves to their end after a kill, and were not told of any more.
    assert set(killed) <= set(PHASES) and len(killed) >= 5, killed
    site.becomes_ready()


def a_node_dies_while_it_joins(site: Site) -> None:
    dying = site.when("work", "kubeadm", lambda: nodes.stop(site.name, "work"))
    site.fails(r"work: join: could not join", "connection was lost|cannot be reached")
    dying.join(10)
    assert not dying.is_alive()
    site.becomes_ready()


def the_network_is_cut_in_the_middle(site: Site) -> None:
    cutting = site.when("head", "kubeadm", lambda: nodes.cut(site.name, "head"))
    site.fails(r"head: control plane: could not create", "connection was lost|cannot be reached")
    cutting.join(10)
    assert not cutting.is_alive()
    # Still cut: said at once, of the machine that it is.
    site.fails(r"head: cannot be reached")
    nodes.cut(site.name, "head", False)
    site.becomes_ready()


def a_cluster_of_ours_is_broken(site: Site) -> None:
    site.becomes_ready()
    # Files are gone from a disk: what the control plane knows, and who the worker is.
    site.shell("head", "systemctl stop kubelet\nrm -rf /var/lib/etcd/member /etc/kubernetes/*")
    site.shell("work", "rm -rf /etc/kubernetes/kubelet.conf /etc/cni/net.d/*")
    site.becomes_ready()


def a_machine_is_exchanged(site: Site) -> None:
    """Another one, or another card, with its name and address: first the worker's, then the control plane's."""
    site.becomes_ready()
    for name in ("work", "head"):
        nodes.down(site.name, [name])
        site.becomes_ready()


def the_control_planes_data_is_lost(site: Site) -> None:
    """An empty store looks like a cluster, since kubelets register themselves: it must not be taken for one."""
    site.becomes_ready()
    end = "ctr -n k8s.io tasks ls | awk 'NR > 1 { print $1 }' | xargs -n 1 ctr -n k8s.io tasks kill -s KILL -a"
    site.shell("head", f"systemctl stop kubelet\n{end} || :\nrm -rf /var/lib/etcd/member\nsystemctl start kubelet")
    deadline = time.monotonic() + 120
    while not answers(site) and time.monotonic() < deadline:
        time.sleep(0.5)
    site.fails("head: its API server rejects its own administrator", "k8sdds destroy faulty")


def answers(site: Site) -> bool:
    try:
        argv = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "--raw", "/readyz"]
        return nodes.run(site.name, "head", argv) == "ok"
    except K8sddsError:
        return False


FAULTS = (
    the_deployer_is_killed_once, the_deployer_is_killed_in_every_phase, a_node_dies_while_it_joins,
    the_network_is_cut_in_the_middle, a_cluster_of_ours_is_broken, a_machine_is_exchanged,
    the_control_planes_data_is_lost,
)  # fmt: skip
SHORT = (the_deployer_is_killed_once, a_node_dies_while_it_joins, the_network_is_cut_in_the_middle)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault(site: Site, fault: Callable[[Site], None]) -> None:
    fault(site)


def test_one_fault_by_seed(site: Site) -> None:
    random.Random(SEED).choice(SHORT)(site)


def test_machines_that_do_not_fit_are_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one deploy: one that is down, one without sudo, one whose key has changed, one that is full, one with
    leftovers of another cluster; and one that fits."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(state))
    names = ["fits", "down", "nosudo", "changed", "full", "left"]
    specs = [
        nodes.NodeSpec(name, boot="sshd", sudo=name != "nosudo", disk_mib=64 if name == "full" else None)
        for name in names
    ]
    try:
        made = nodes.up("unfit", specs)
        nodes.stop("unfit", "down")
        nodes.run(
            "unfit",
            "left",
            [
                "sh",
                "-c",
                "mkdir -p /etc/kubernetes; echo '    server: https://10.88.0.9:6443' >/etc/kubernetes/kubelet.conf",
            ],
        )
        known = made[0].known_hosts_file.read_text()
        keys = {line.split(",")[0]: line.split(" ", 1)[1] for line in known.splitlines()}
        hosts = tmp_path / "known_hosts"
        hosts.write_text(known.replace(keys["changed"], keys["fits"]))
        config = tmp_path / "ssh_config"
        config.write_text(made[0].ssh_config.read_text().replace(str(made[0].known_hosts_file), str(hosts)))
        listed = "".join(
            f"- {{name: {name}, roles: [{'control-plane' if name == 'fits' else 'worker'}]}}\n"
            for name in names
        )
        profile = tmp_path / "unfit.yaml"
        profile.write_text(
            f"name: unfit\naccess: {{ssh_config: {config}}}\nnodes:\n{listed}software: bundle\n"
        )
        done = run(state, "deploy", str(profile), "--yes", timeout_s=300)
        assert done.returncode == 3, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        for told in (
            r"down: cannot be reached: ", r"nosudo: sudo requires a password", r"changed: its host key has changed",
            r"full: /var/lib has \d+ MiB free", r"left: is part of a cluster of https://10\.88\.0\.9:6443",
        ):  # fmt: skip
            assert re.search(told, done.stderr), done.stderr
        # Each says what to do, and nothing was changed anywhere.
        assert done.stderr.count("→") >= 5
        for name in ("fits", "nosudo", "changed", "full", "left"):
            assert nodes.run("unfit", name, ["sh", "-c", "ls -d /etc/k8sdds 2>/dev/null || :"]) == ""
    finally:
        nodes.down("unfit")
