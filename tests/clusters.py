"""One real cluster for all tests that need one: three local nodes, deployed by the command as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

K8SDDS = Path(sys.prefix) / "bin" / "k8sdds"
DEPLOY_TIMEOUT_S = 900
"""A bundle that is not in the cache has been made before: this is for a machine that has much else to do."""


@dataclass(frozen=True)
class Deployed:
    """A cluster that stands, and how to reach it."""

    name: str
    kubeconfig: Path
    state: Path
    """K8SDDS_STATE_DIR of the commands that know it."""
    nodes: Sequence[str]
    said: str
    """What deploy printed."""

    def k8sdds(self, *words: str, timeout_s: float = DEPLOY_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run the command where this cluster is known."""
        return run(self.state, *words, timeout_s=timeout_s)

    def kubectl(self, *words: str, timeout_s: float = 120) -> str:
        """Run kubectl on the control plane, and give what it prints."""
        exec_ = ("nodes", "exec", "--cluster", self.name, self.nodes[0], "--")
        done = self.k8sdds(
            *exec_, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *words, timeout_s=timeout_s
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def run(
    state: Path, *words: str, timeout_s: float = DEPLOY_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run the command with a state folder."""
    return subprocess.run(
        [str(K8SDDS), *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "K8SDDS_STATE_DIR": str(state)},
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="session")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """`k8sdds deploy one-machine`, once in a session; destroyed at its end, when the machine is as it was before.

    Whoever changes it puts everything back.
    """
    from tests.conftest import traces

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
