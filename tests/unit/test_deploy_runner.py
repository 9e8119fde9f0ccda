"""Test applying a plan to 50 nodes: failed actions, and tokens with which workers join."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from k8sdds.deploy.actions import Action
from k8sdds.deploy.plan import plan
from k8sdds.deploy.runner import ActionFailed, Runner
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host, ScriptResult
from tests.unit.test_deploy_plan import bundle, desired, phases

__all__ = ["bundle"]

WORKERS = [f"w{number:02}" for number in range(1, 50)]
PROFILE = "name: many\nsoftware: bundle\nnodes:\n- {name: master, roles: [control-plane]}\n" + "".join(
    f"- {{name: {name}}}\n" for name in WORKERS
)


class Applied:
    """Observe a plan, some of whose actions, named by node and phase, fail."""

    def __init__(self, *failing: tuple[str, str], output: str = "no space left") -> None:
        self.failing, self.output = failing, output
        self.actions: list[Action] = []
        self.failed: list[Action] = []
        self._lock = threading.Lock()

    def started(self, action: Action) -> None:
        pass

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None:
        with self._lock:
            (self.failed if error else self.actions).append(action)

    def run(self, script: str, timeout_s: float = 60) -> ScriptResult:
        return ScriptResult(1, "", self.output)


def apply(actions: list[Action], applied: Applied, logs: Path) -> None:
    """Apply actions without machines."""
    connections = Connections([])
    connections.hosts.update(dict.fromkeys({action.node for action in actions}, cast(Host, applied)))
    runner = Runner(connections, logs, applied)

    def apply_action(action: Action) -> None:
        if (action.node, action.phase) in applied.failing:
            runner.run(Action(action.node, action.phase, action.title, "false"))

    runner.apply(actions, apply_action)


def test_a_failed_action_stops_only_what_needs_it(bundle, tmp_path: Path) -> None:
    actions = plan(desired(bundle, PROFILE))
    applied = Applied(("w07", "runtime"), ("w20", "join"), ("w21", "join"))
    with pytest.raises(ActionFailed) as caught:
        apply(actions, applied, tmp_path)
    message = str(caught.value)
    assert "w07: runtime: could not" in message and f"{tmp_path}/w07.log" not in message
    # The same failure of two nodes is reported once.
    assert message.count("could not join the cluster") == 1 and "no space left" in message
    assert "2 nodes (w20, w21): join" in message or "2 nodes (w21, w20): join" in message
    # All other workers have joined; what needs all of them has not begun.
    for name in set(WORKERS) - {"w07", "w20", "w21"}:
        assert phases(applied.actions, name) == phases(actions, name)
    assert phases(applied.actions, "w07") == ["claim"] and "join" not in phases(applied.actions, "w20")
    assert phases(applied.actions, "master")[-1] == "images"
    assert len(applied.failed) == 3


def test_workers_do_not_join_without_a_control_plane(bundle, tmp_path: Path) -> None:
    actions = plan(desired(bundle, PROFILE))
    applied = Applied(("master", "control plane"))
    with pytest.raises(ActionFailed, match=r"^master: control plane: could not") as caught:
        apply(actions, applied, tmp_path)
    assert f"{tmp_path}/master.log" in caught.value.remedy
    # They are ready for the next deploy.
    for name in WORKERS:
        assert phases(applied.actions, name) == ["claim", "runtime", "kubernetes packages", "images"]


def test_workers_that_join_late_get_another_token(
    bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joins = [action for action in plan(desired(bundle, PROFILE)) if action.node in WORKERS and action.private]
    assert len(joins) == 49
    now_s, created_s = 1000.0, list[float]()

    class ControlPlane(Applied):
        def run(self, script: str, timeout_s: float = 60) -> ScriptResult:
            assert "kubeadm token create --ttl 900s" in script
            created_s.append(now_s)
            return ScriptResult(0, f"token: created-{now_s:.0f}\n", "")

    class Worker(Applied):
        def run(self, script: str, timeout_s: float = 60) -> ScriptResult:
            # kubeadm join may use the token until its timeout.
            (created,) = re.findall(r"token: created-(\d+)", script)
            assert now_s + timeout_s <= int(created) + 900
            return ScriptResult(0, "", "")

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    connections = Connections([])
    connections.hosts.update(dict.fromkeys(WORKERS, cast(Host, Worker())), master=cast(Host, ControlPlane()))
    runner = Runner(connections, tmp_path, Applied())
    for action in joins:
        runner.run(action)
        now_s += 60
    assert len(created_s) == 6  # one for 9 workers, whose last joins after 480 s


def test_an_unexpected_error_is_passed_on(bundle, tmp_path: Path) -> None:
    actions = plan(desired(bundle, PROFILE))

    def apply_action(action: Action) -> None:
        if action.node in ("w01", "w02"):
            raise PrerequisiteError("full") if action.node == "w01" else ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Runner(Connections([]), tmp_path, Applied()).apply(actions, apply_action)
