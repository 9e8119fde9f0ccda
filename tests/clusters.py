"""Provide one real cluster to all tests that need one: three local nodes, deployed with the command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import K8SDDS, variables
from tests.conftest import traces

DEPLOY_TIMEOUT_S = 7200
"""Sufficient for a busy machine that must first build the programs of the bundle."""


@dataclass(frozen=True)
class Deployed:
    """A deployed cluster."""

    name: str
    kubeconfig: Path
    state: Path
    """K8SDDS_STATE_DIR of commands that use the cluster."""
    nodes: Sequence[str]
    output: str
    """Standard output of deploy."""

    def k8sdds(self, *args: str, timeout_s: float = DEPLOY_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run the command with the state folder of this cluster."""
        return run(self.state, *args, timeout_s=timeout_s)

    def kubectl(self, *args: str, timeout_s: float = 300) -> str:
        """Run kubectl on the control plane, and return its standard output."""
        exec_ = ("nodes", "exec", f"{self.name}/{self.nodes[0]}", "--")
        done = self.k8sdds(
            *exec_, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *args, timeout_s=timeout_s
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def run(state: Path, *args: str, timeout_s: float = DEPLOY_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run the command with a state folder."""
    return subprocess.run(
        [str(K8SDDS), *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=variables(state),
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="session")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Deploy `one-machine` once per session, and destroy it at the end.

    Tests that change the cluster restore it.
    """
    if os.geteuid() != 0:
        pytest.skip("local nodes need root: sudo make test")
    folder = tmp_path_factory.mktemp("one-machine")
    state = folder / "state"
    state.mkdir(mode=0o700)
    before = traces(folder)
    try:
        done = run(state, "deploy", "one-machine", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        kubeconfig = state / "clusters" / "one-machine" / "kubeconfig"
        yield Deployed("one-machine", kubeconfig, state, ("control", "worker1", "worker2"), done.stdout)
    finally:
        done = run(state, "destroy", "one-machine", "--yes")
    assert done.returncode == 0, done.stderr
    assert traces(folder) == before
    assert not list(state.rglob("*.json"))
