"""Deploys that go wrong: each ends in a clear message or, run again, in a ready cluster."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8sdds import nodes
from tests.clusters import K8SDDS, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")

ENDED = re.compile(r"^(\S+): ([a-z ]+): .* \(([0-9.]+ s|failed after [0-9.]+ s)\)$")
"""The line of an action that has ended: node, phase."""
SEED = int(os.environ.get("K8SDDS_TEST_SEED") or time.time() // 86400)
"""Another choice each day, and the same again by K8SDDS_TEST_SEED."""
TIMEOUT_S = 900


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

    def kill_after(self, actions: int, then_s: float) -> str | None:
        """Kill a deploy a moment after so many actions have ended; None if it ended itself before.

        Gives the last phase that was seen to end.
        """
        process = self.begin()
        assert process.stdout is not None
        seen = "nothing"
        try:
            for line in process.stdout:
                found = ENDED.match(line.rstrip("\n"))
                if found is None:
                    continue
                seen, actions = found[2], actions - 1
                if actions <= 0:
                    time.sleep(then_s)
                    if process.poll() is None:
                        process.kill()
                        return seen
            assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
            return None
        finally:
            process.kill()
            process.communicate()

    def becomes_ready(self) -> None:
        """Deploy again, to the end; then nothing is left to do, and all nodes are ready."""
        done = self.deploy()
        assert done.returncode == 0, done.stdout + done.stderr
        again = self.deploy()
        assert (again.returncode, again.stdout) == (0, "no changes\n"), again.stdout + again.stderr
        script = "kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o json"
        found = json.loads(nodes.run(self.name, "head", ["sh", "-c", script]))["items"]
        conditions = {one["metadata"]["name"]: one["status"]["conditions"] for one in found}
        ready = {
            name: any(c["type"] == "Ready" and c["status"] == "True" for c in conditions[name])
            for name in conditions
        }
        assert ready == {"head": True, "work": True}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(state))
    profile = tmp_path / "faulty.yaml"
    profile.write_text(
        "name: faulty\nprovider: local\nnodes:\n- {name: head, roles: [control-plane, worker]}\n- name: work\n"
        "metrics_server: null\nsoftware: bundle\n"
    )
    made = Site(state, profile)
    try:
        yield made
    finally:
        done = run(state, "destroy", str(profile), "--yes")
    assert done.returncode == 0, done.stderr
    assert nodes.ls() == []


def the_deployer_is_killed_once(site: Site) -> None:
    chosen = random.Random(SEED)
    site.kill_after(chosen.randint(1, 12), chosen.uniform(0, 2))
    site.becomes_ready()


def test_the_deployer_is_killed_somewhere(site: Site) -> None:
    the_deployer_is_killed_once(site)


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
            r"down: cannot be reached: ", r"nosudo: sudo wants a password", r"changed: its host key has changed",
            r"full: /var/lib has \d+ MiB free", r"left: is part of a cluster of https://10\.88\.0\.9:6443",
        ):  # fmt: skip
            assert re.search(told, done.stderr), done.stderr
        # Each says what to do, and nothing was changed anywhere.
        assert done.stderr.count("→") >= 5
        for name in ("fits", "nosudo", "changed", "full", "left"):
            assert nodes.run("unfit", name, ["sh", "-c", "ls -d /etc/k8sdds 2>/dev/null || :"]) == ""
    finally:
        nodes.down("unfit")
