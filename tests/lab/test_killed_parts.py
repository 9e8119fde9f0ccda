"""Test that a campaign in the lab survives the end of any of its processes, at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from k8sdds.model.trial import STANDBY
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import processes
from k8sdds.system.errors import PartFailed
from k8sdds.system.sandbox import Sandbox
from tests.chaos import chaos, command_line, descendants
from tests.measuring import ENDS_S, experiment, is_valid_or_slow, running, wait, wait_for_trial

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_killed_parts_cost_no_attempt(tmp_path: Path) -> None:
    campaign = chaos(tmp_path, "networks: [host, flannel-ipsec], test: latency", 2, 0.3, seed=1)
    campaign.run(kills=4, command_too=False, timeout_s=900)
    campaign.require_one_valid_attempt_per_trial()
    assert campaign.reasons() <= {"part-failed"}


def run_unshared(script: str) -> subprocess.Popen[bytes]:
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--", "sh", "-c", script]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_command_of_unshare_differs_from_one_that_fails(number: signal.Signals) -> None:
    waits = "trap exit TERM; echo; while :; do sleep 0.1; done"
    with run_unshared(waits) as unshare:
        assert unshare.stdout is not None
        unshare.stdout.readline()
        (command,) = processes.children(unshare.pid)
        os.kill(command, number)
        with pytest.raises(PartFailed, match="the pod was stopped"):
            processes.require_unshare_not_stopped(unshare, "the pod", ENDS_S)
    with run_unshared(waits) as unshare:
        unshare.kill()
        with pytest.raises(PartFailed, match="the pod was stopped"):
            processes.require_unshare_not_stopped(unshare, "the pod", ENDS_S)
    with run_unshared("echo no room >&2; exit 1") as unshare:
        assert processes.require_unshare_not_stopped(unshare, "the pod", ENDS_S) == "no room"


def test_commands_in_a_killed_sandbox_are_failed_parts() -> None:
    sandbox = Sandbox("killed")
    try:
        os.kill(sandbox.pid, signal.SIGKILL)
        assert processes.wait_gone(sandbox.pid, ENDS_S)
        for enter in (lambda: sandbox.run(["true"]), lambda: sandbox.apply([])):
            with pytest.raises(PartFailed, match="killed: its sandbox has ended"):
                enter()
    finally:
        sandbox.close()


@pytest.mark.long
def test_the_end_of_the_pod_that_replaces_another_costs_no_attempt(tmp_path: Path) -> None:
    outage = "{name: outage, after_s: 4, for_s: 1, what: pod}"
    sweep = f"  - {{networks: host, test: {outage}, rate: 100}}\n"
    (tmp_path / "experiment.yaml").write_text(experiment(sweep, baseline="host", duration_s=8))
    with running(tmp_path, "experiment.yaml", "-o", "out") as campaign:
        wait_for_trial(campaign, 1)

        def pids(program: str, *arguments: str) -> list[int]:
            lines = {pid: command_line(pid) for pid in descendants(campaign.pid)}
            return [
                pid
                for pid, (name, *rest) in lines.items()
                if name.endswith(program) and {*arguments} <= {*rest}
            ]

        wait(lambda: pids("k8sdds-perftest"), campaign, "no participant")
        (pod,) = pids("k8sdds-supervisor", "pause", STANDBY.name)
        os.kill(pod, signal.SIGKILL)
        campaign.communicate(timeout=ENDS_S)
    first, *others = RunFolder.open(tmp_path / "out").attempts()
    assert first["reason"] == "part-failed: host: pod standby has ended"
    assert others and all(map(is_valid_or_slow, others))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_killed_campaigns_can_be_resumed(tmp_path: Path, seed: int) -> None:
    networks = "baremetal, host, flannel-vxlan, flannel-ipsec"
    campaign = chaos(tmp_path, f"networks: [{networks}], test: latency", 5, 0.3, seed)
    campaign.run(kills=25, command_too=True, timeout_s=900)
    # A campaign that was killed before it created its run folder cannot be resumed.
    campaign.clean()
    campaign.require_one_valid_attempt_per_trial()
    assert campaign.interrupted()
    assert campaign.reasons() <= {"part-failed"}
