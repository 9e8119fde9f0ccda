"""Test applying a plan to 50 nodes: failed actions, and tokens with which workers join."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from k8sdds.bundle import Bundle
from k8sdds.deploy.actions import Action
from k8sdds.deploy.plan import plan
from k8sdds.deploy.runner import ActionFailed, Runner
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host, HostError, ScriptResult
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

    def run(self, script: str, timeout_s: float) -> ScriptResult:
        return ScriptResult(1, "", self.output)


Run = Callable[[str, float], ScriptResult]
"""What a machine answers to a script that may take so many seconds."""


def runner_of(logs: Path, applied: Applied, **machines: Run) -> Runner:
    """Return the runner of machines, of which `worker` stands for all workers."""
    connections = Connections([])
    for name in ("master", *WORKERS):
        run = machines.get(name, machines.get("worker", applied.run))
        connections.hosts[name] = cast(
            Host, SimpleNamespace(run=lambda script, timeout_s=60, run=run: run(script, timeout_s))
        )
    return Runner(connections, logs, applied)


def joins_of(bundle: Bundle) -> list[Action]:
    joins = [action for action in plan(desired(bundle, PROFILE)) if action.node in WORKERS and action.private]
    assert len(joins) == 49
    return joins


def apply(actions: list[Action], applied: Applied, logs: Path) -> None:
    """Apply actions without machines."""
    runner = runner_of(logs, applied)

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
    now_s, created_s = 1000.0, list[float]()

    def master(script: str, timeout_s: float) -> ScriptResult:
        assert "kubeadm token create --ttl 900s" in script
        created_s.append(now_s)
        return ScriptResult(0, f"token: created-{now_s:.0f}\n", "")

    def worker(script: str, timeout_s: float) -> ScriptResult:
        # kubeadm join may use the token until its timeout.
        (created,) = re.findall(r"token: created-(\d+)", script)
        assert now_s + timeout_s <= int(created) + 900
        return ScriptResult(0, "", "")

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    runner = runner_of(tmp_path, Applied(), master=master, worker=worker)
    for action in joins_of(bundle):
        runner.run(action)
        now_s += 60
    assert len(created_s) == 6  # one for 9 workers, whose last joins after 480 s


@pytest.mark.parametrize("hangs", [True, False])
def test_workers_share_the_failure_of_a_control_plane(bundle, tmp_path: Path, hangs: bool) -> None:
    asked = list[float]()

    def master(script: str, timeout_s: float) -> ScriptResult:
        asked.append(timeout_s)
        if hangs:
            raise HostError("master", f"no answer within {timeout_s:g} s")
        return ScriptResult(1, "", "etcd is full")

    runner = runner_of(tmp_path, Applied(), master=master)
    with pytest.raises(ActionFailed) as caught:
        runner.apply([replace(action, needs=()) for action in joins_of(bundle)])
    message = caught.value.message
    assert asked == [420]
    assert message.count("no answer within 420 s" if hangs else "etcd is full") == 1
    # 49 nodes are all that have an action here, but not all of the cluster.
    assert message.startswith("49 nodes (w") and all(name in message for name in WORKERS)


def test_a_failure_that_concerns_one_worker_is_not_that_of_others(bundle, tmp_path: Path) -> None:
    first, second, *_ = joins_of(bundle)
    (secret,) = first.private

    def master(script: str, timeout_s: float) -> ScriptResult:
        stuck = "kubectl delete node" in script
        return ScriptResult(int(stuck), "", "stuck" * stuck)

    runner = runner_of(tmp_path, Applied(), master=master, worker=lambda *_: ScriptResult(0, "", ""))
    with pytest.raises(ActionFailed, match="stuck"):
        runner.run(replace(first, private=(replace(secret, script="kubectl delete node " + first.node),)))
    runner.run(second)


def failing(bundle, folder: Path, errors: dict[str, Exception]) -> None:
    def apply_action(action: Action) -> None:
        if error := errors.get(action.node):
            raise error

    Runner(Connections([]), folder, Applied()).apply(plan(desired(bundle, PROFILE)), apply_action)


def test_a_defect_is_passed_on_with_all_failures(bundle, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        failing(bundle, tmp_path, {"w01": PrerequisiteError("full"), "w02": ZeroDivisionError("x")})
    (note,) = caught.value.__notes__
    assert sorted(note.splitlines()) == ["w01: full", "w02: ZeroDivisionError('x')"]


def test_a_full_disk_does_not_hide_the_failures_of_other_nodes(bundle, tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", f"{tmp_path}/w02.log")
    with pytest.raises(ActionFailed) as caught:
        failing(bundle, tmp_path, {"w01": PrerequisiteError("no route"), "w02": full})
    assert "w01: no route" in caught.value.message
    assert re.search(r"w02: .*No space left on device", caught.value.message)
