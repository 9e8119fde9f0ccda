"""Failed parts of a testbed are built again, at no cost for the trial, and disturbed trials are repeated if requested."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.campaign import trial_loop
from k8sdds.campaign.trial_loop import MAX_ATTEMPTS, MAX_FAILURES, Campaign
from k8sdds.kubernetes.client import ApiError
from k8sdds.kubernetes.exec_stream import StreamLost
from k8sdds.model.measurement import Launch, Measurement, Outcome, ParticipantPaths
from k8sdds.model.trial import Endpoint, Trial
from k8sdds.perftest.output import DEADLINE, OUT_OF_MEMORY, PEER_LOST
from k8sdds.results.run_folder import SCHEMA, RunFolder
from k8sdds.system.errors import Aborted, InvalidTrials, NetworkChanged, PartFailed, PrerequisiteError
from k8sdds.testbeds import Block
from k8sdds.testbeds.cluster import exec as exec_
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.installed import InstalledNetwork
from k8sdds.testbeds.cluster.session import ClusterSession
from k8sdds.testbeds.lab import runner
from k8sdds.testbeds.lab.supervisors import Supervisor, await_end

RECORDED = Path(__file__).parent / "recorded" / "latency"
EXPECTED = json.loads((RECORDED / "expected.json").read_text())
TRIAL = Trial.model_validate(EXPECTED["trial"])
OTHER = TRIAL.model_copy(update={"repetition": TRIAL.repetition + 1})

VALID, DISTURBED = "valid", "disturbed"
CRASHED, KILLED, TERMINATED, LOST = "crashed", "killed", "terminated", "lost"
RAISES, AGENT, MEMORY, SWITCHED = "raises", "agent", "memory", "switched"
CHANGED = (
    "the network of the cluster was changed while the campaign ran: flannel-vxlan was replaced by kube-router"
)
CODES = {CRASHED: 139, KILLED: 137, TERMINATED: 143, LOST: 254, AGENT: 4, MEMORY: OUT_OF_MEMORY}
PART_FAILURES = [KILLED, TERMINATED, LOST, RAISES, AGENT]


class ScriptedTestbed:
    """A testbed and session whose attempts end as scripted, with the files of a recorded trial."""

    name = "lab"

    def __init__(self, script: Iterator[str], failing_preparations: int = 0) -> None:
        self.script = script
        self.failing_preparations = failing_preparations
        self.preparations = 0
        self.whole = False
        self.ended_as = ""

    def cores(self) -> int:
        return 2

    def prepare(self, block: Block) -> ScriptedTestbed:
        self.preparations += 1
        if self.preparations <= self.failing_preparations:
            raise PartFailed("host: its sandbox has ended")
        self.whole = True
        return self

    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        assert self.whole, "an attempt without a rebuild"
        participants = trial.cell.participants
        return {p.name: Endpoint(f"10.0.0.{n}", "eth0", None, 1500) for n, p in enumerate(participants, 1)}

    def network_facts(self, trial: Trial) -> dict[str, Any]:
        """Return facts of the network that is installed now: all pod networks share the pods' names."""
        return {"fidelity": "real", "network_proof": f"proof of preparation {self.preparations}"}

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        return {"link_mtu_bytes": 1500}

    def servers(self, trial: Trial) -> tuple[str, ...]:
        return ()

    def records_stops(self, trial: Trial) -> bool:
        return False

    def readings(self) -> list[dict[str, Any]]:
        return []

    def paths(self, trial: Trial, participant: object, directory: Path, *_: object) -> ParticipantPaths:
        return ParticipantPaths("perftest", directory)

    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        self.ended_as = next(self.script)
        if self.ended_as == RAISES:
            raise PartFailed("host: pod sub0 has ended")
        if self.ended_as == SWITCHED:
            raise NetworkChanged(CHANGED)
        for launch in launches:
            shutil.copytree(RECORDED / launch.participant.name, launch.directory, dirs_exist_ok=True)
        outcomes = {
            launch.participant.name: Outcome(
                launch.participant, 0, json.loads((launch.directory / "meters.json").read_text())
            )
            for launch in launches
        }
        if self.ended_as == DISTURBED:
            outcomes["pub0"].meters["machine"]["steal_s"] = 10.0
        elif self.ended_as != VALID:
            # The publisher fails because its peer did.
            outcomes["pub0"] = replace(outcomes["pub0"], exit_code=4)
            lost = "its container ended" if self.ended_as in (LOST, MEMORY) else ""
            outcomes["sub0"] = replace(outcomes["sub0"], exit_code=CODES[self.ended_as], lost=lost)
        links = EXPECTED["record"]["link_bytes"]
        return Measurement(outcomes, links["sent"], links["received"])

    def failed_part(self, trial: Trial) -> str:
        return "pod kube-flannel/x was restarted" if self.ended_as == AGENT else ""

    def discard(self, trial: Trial) -> None:
        self.whole = False


class Notes:
    """An observer that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def prepared(self, seconds: float) -> None: ...
    def trial_starts(self, trial: Trial, done: int, total: int) -> None: ...
    def trial_ended(self, trial: Trial, record: object) -> None: ...
    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"schema": SCHEMA}, "")


def campaign(
    run_folder: RunFolder,
    *script: str,
    then: str = VALID,
    trials: Sequence[Trial] = (TRIAL,),
    failing_preparations: int = 0,
    **options: Any,
) -> tuple[Campaign, ScriptedTestbed, Notes]:
    def endings() -> Iterator[str]:
        yield from script
        while True:
            yield then

    testbed, notes = ScriptedTestbed(endings(), failing_preparations), Notes()
    blocks = [Block(0, tuple(trials))]
    return Campaign(run_folder, testbed, blocks, notes, **options), testbed, notes


def valid(run_folder: RunFolder) -> list[str]:
    return [attempt["trial_id"] for attempt in run_folder.attempts() if attempt["valid"]]


def codes(run_folder: RunFolder) -> list[str]:
    return [str(attempt["reason"]).split(":")[0] for attempt in run_folder.attempts()]


@pytest.mark.parametrize("ending", PART_FAILURES)
def test_a_failed_part_is_built_again_and_costs_no_attempt(run_folder: RunFolder, ending: str) -> None:
    failures = MAX_ATTEMPTS + 1
    measured, testbed, _ = campaign(run_folder, *[ending] * failures)
    measured.execute()
    assert codes(run_folder) == ["part-failed"] * failures + ["None"]
    assert [attempt["attempt"] for attempt in run_folder.attempts()] == [*range(1, failures + 2)]
    assert valid(run_folder) == [TRIAL.trial_id]
    assert testbed.preparations == 1 + failures


@pytest.mark.parametrize(
    ("script", "repeats", "attempts"),
    [
        ([DISTURBED], 0, 1),
        ([DISTURBED], 1, 2),
        ([DISTURBED, DISTURBED], 1, 2),
        ([DISTURBED, CRASHED, DISTURBED], 2, 4),
        ([DISTURBED, *[CRASHED] * MAX_ATTEMPTS], 1, 1 + MAX_ATTEMPTS),
    ],
)
def test_a_disturbed_trial_is_repeated_as_often_as_requested(
    run_folder: RunFolder, script: list[str], repeats: int, attempts: int
) -> None:
    measured, _, _ = campaign(run_folder, *script, repeat_disturbed=repeats)
    measured.execute()
    made = list(run_folder.attempts())
    assert len(made) == attempts
    assert made[0]["valid"] and made[0]["warnings"][0].startswith("disturbed: the hypervisor")
    again, testbed, _ = campaign(run_folder, repeat_disturbed=repeats)
    again.execute()
    assert testbed.preparations == 0, "nothing is repeated again when the campaign is resumed"


def test_a_lack_of_memory_counts_and_needs_no_rebuild(run_folder: RunFolder) -> None:
    measured, testbed, _ = campaign(run_folder, then=MEMORY)
    with pytest.raises(InvalidTrials, match="--retry-failed"):
        measured.execute()
    assert codes(run_folder) == ["out-of-memory"] * MAX_ATTEMPTS
    assert testbed.preparations == 1


def test_a_trial_that_always_fails_its_parts_ends_and_the_others_are_measured(run_folder: RunFolder) -> None:
    script = [KILLED, VALID]
    measured, _, _ = campaign(run_folder, *script, then=KILLED, trials=[TRIAL, OTHER])
    with pytest.raises(InvalidTrials, match="1 of 2 trials"):
        measured.execute()
    assert valid(run_folder) == [OTHER.trial_id]
    assert codes(run_folder).count("part-failed") == MAX_FAILURES
    again, _, _ = campaign(run_folder, trials=[TRIAL, OTHER])
    again.execute()
    assert sorted(valid(run_folder)) == sorted([TRIAL.trial_id, OTHER.trial_id])


def test_a_preparation_is_repeated_a_limited_number_of_times(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, testbed, _ = campaign(run_folder, failing_preparations=MAX_FAILURES)
    with pytest.raises(Aborted, match="the testbed failed 10 times in succession") as raised:
        measured.execute()
    assert f"k8sdds run --resume {run_folder.path}" in raised.value.remedy
    measured, testbed, notes = campaign(run_folder, failing_preparations=MAX_FAILURES - 1)
    measured.execute()
    assert testbed.preparations == MAX_FAILURES
    assert notes.notes == ["host: its sandbox has ended; it is built again"] * (MAX_FAILURES - 1)
    clock = itertools.count(0, trial_loop.MAX_OUTAGE_S * 2 / 3)
    monkeypatch.setattr(trial_loop, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    measured, testbed, _ = campaign(run_folder, failing_preparations=MAX_FAILURES, trials=[OTHER])
    with pytest.raises(Aborted, match="failed 3 times in succession"):
        measured.execute()
    assert testbed.preparations == 3


def test_attempts_can_be_given_back(run_folder: RunFolder) -> None:
    for retry_failed, attempts in ((False, MAX_ATTEMPTS), (False, MAX_ATTEMPTS), (True, 2 * MAX_ATTEMPTS)):
        measured, testbed, _ = campaign(run_folder, then=CRASHED, retry_failed=retry_failed)
        with pytest.raises(InvalidTrials, match="--retry-failed"):
            measured.execute()
        assert codes(run_folder) == ["crashed"] * attempts and testbed.preparations <= 1
    # Attempts that earlier versions lost with their pods do not count.
    trials = run_folder.path / "trials.jsonl"
    counted = trials.read_text()
    trials.write_text(counted.replace('"crashed: ', '"pod-lost: '))
    campaign(run_folder)[0].execute()
    assert valid(run_folder) == [TRIAL.trial_id]
    trials.write_text(counted)
    campaign(run_folder, retry_failed=True)[0].execute()
    assert valid(run_folder) == [TRIAL.trial_id]


def test_a_pod_is_killed_if_its_container_was_stopped() -> None:
    # The first process of a pod ends only when it is stopped.
    for code, killed in ((0, True), (137, True), (143, True), (1, False), (139, False)):
        state = {"terminated": {"exitCode": code}}
        assert (
            pods.was_killed({"metadata": {}, "status": {"containerStatuses": [{"state": state}]}}) == killed
        )
    assert pods.was_killed({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert not pods.was_killed({"metadata": {}, "status": {"phase": "Pending"}})


RUNS, IS_KILLED = "sleep 60 & echo started; wait; exit 143", "echo started; exit 137"
"""Supervisors as shell scripts. The first one must be ended."""


@pytest.mark.parametrize(
    ("deadline_s", "scripts", "codes"),
    [
        # A participant that outlives its deadline is not a failed part.
        (-runner.GRACE_S - 5, [RUNS], {"pub0": DEADLINE}),
        (60, [RUNS, IS_KILLED], {"pub0": PEER_LOST, "sub0": 137}),
    ],
)
def test_the_peers_of_a_killed_participant_do_not_wait_for_it(
    deadline_s: float, scripts: list[str], codes: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def start(_: object, launch: Launch, *__: object) -> runner.Supervisor:
        pipe = subprocess.PIPE
        process = subprocess.Popen(["sh", "-c", *launch.argv], stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdout is not None and process.stdout.readline()
        return runner.Supervisor(launch, process)

    monkeypatch.setattr(runner.Attempt, "_start", start)
    monkeypatch.setattr(runner, "await_ready", lambda _: "")
    started = zip(TRIAL.cell.participants, scripts, strict=False)
    launches = [Launch(participant, (script,), tmp_path) for participant, script in started]
    attempt = runner.Attempt(None, launches, None, deadline_s)  # type: ignore[arg-type]
    outcomes = attempt.run(lambda: None)
    assert {name: outcome.exit_code for name, outcome in outcomes.items()} == codes


class EndsOnceSeen(subprocess.Popen[bytes]):
    """A process that ends right after it was seen to run."""

    def poll(self) -> int | None:
        code = super().poll()
        if self.stdin is not None and not self.stdin.closed:
            self.stdin.close()
            self.wait()
        return code


def test_a_participant_that_is_killed_between_two_looks_is_not_missed(tmp_path: Path) -> None:
    names, pipe = TRIAL.cell.participants, subprocess.PIPE
    killed = EndsOnceSeen(["sh", "-c", "read line; exit 137"], stdin=pipe)
    with subprocess.Popen(["sleep", "30"]) as running:
        supervisors = [
            Supervisor(Launch(name, (), tmp_path), process)
            for name, process in zip(names, (killed, running), strict=False)
        ]
        await_end(supervisors, 60)
        assert running.poll() is None
        running.kill()
    assert killed.returncode == 137


class Replies:
    """A stream to a supervisor that sends these lines, whatever it is asked."""

    def __init__(self, lines: Sequence[bytes], exit_code: int | None = None) -> None:
        self.lines = iter(lines)
        self.exit_code = exit_code

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...

    def read_line(self, end: float) -> bytes:
        try:
            return next(self.lines)
        except StopIteration:
            raise StreamLost("it ended early") from None

    def read_bytes(self, count: int, end: float) -> bytes:
        return bytes(count)


def execution(replies: Replies, folder: Path, monkeypatch: pytest.MonkeyPatch) -> exec_.ParticipantExec:
    monkeypatch.setattr(exec_, "ExecStream", lambda *_, **__: replies)
    launch = Launch(TRIAL.cell.participants[0], ("perftest",), folder)
    return exec_.ParticipantExec(None, "n", "pub0-pod-1", launch, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("replies", "failed", "reason"),
    [
        (Replies([]), True, ""),
        (Replies([b"ready", b"file meters.json 3072"]), True, ""),
        (Replies([b"ready", b"clock 12", b"end 143"]), True, ""),
        (Replies([], exit_code=137), True, ""),
        (Replies([b"file stderr 0", b"end lost"]), True, ""),
        (Replies([b"file stderr 0", b"end 137"]), True, ""),
        (Replies([b"error: no such CPU"]), False, "no such CPU"),
        (Replies([], exit_code=125), False, ""),
        (Replies([b"file stderr 0", b"end 3 cannot run it with SCHED_FIFO"]), False, "cannot run it with SCHED_FIFO"),
    ],
)  # fmt: skip
def test_a_supervisor_that_is_killed_before_the_start_is_a_failed_part_and_one_that_refuses_is_none(
    replies: Replies, failed: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = execution(replies, tmp_path, monkeypatch)
    assert reason in (supervisor.prepare() or pytest.fail("it is ready"))
    assert supervisor.unreachable.startswith("pod pub0-pod-1: ") == failed == bool(supervisor.unreachable)


class OnePod:
    """A client of a cluster with one pod."""

    def __init__(self, terminated: dict[str, Any]) -> None:
        state = {"terminated": terminated}
        self.pod = {"metadata": {}, "status": {"containerStatuses": [{"state": state}]}}

    def find(self, path: str) -> dict[str, Any]:
        return self.pod


@pytest.mark.parametrize(("reason", "code"), [("OOMKilled", OUT_OF_MEMORY), ("Error", exec_.LOST)])
def test_a_pod_that_exceeds_its_memory_limit_is_not_one_that_was_killed(
    reason: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ApiError(500, "container not found")

    ended = execution(Replies([]), tmp_path, monkeypatch)
    ended._client = OnePod({"exitCode": 137, "reason": reason})  # type: ignore[assignment]
    monkeypatch.setattr(exec_, "ExecStream", refuse)
    result = ended.finish()
    assert result.code == code
    assert result.lost == f"pod pub0-pod-1: its container exited with code 137: {reason}"


def test_a_lost_right_is_not_a_failed_part() -> None:
    session = object.__new__(ClusterSession)
    session._network = InstalledNetwork(None, (), None, "flannel-vxlan")  # type: ignore[arg-type]
    session._pods = SimpleNamespace(invalidate=lambda: None, failed_part=lambda _: "")  # type: ignore[assignment]
    session._needed_pods = SimpleNamespace(restarted=lambda: "")  # type: ignore[assignment]
    with pytest.raises(PartFailed), session._detecting_failures(worked=True):
        raise ApiError(404, 'pods "sub0" not found')
    with pytest.raises(PrerequisiteError), session._detecting_failures(worked=True):
        raise PrerequisiteError("cannot create pod sub0") from ApiError(403, "exceeded quota")
    session._pods.failed_part = lambda _: "pod sub0: it is being deleted"  # type: ignore[method-assign]
    with pytest.raises(PartFailed), session._detecting_failures(worked=False):
        raise ApiError(403, "forbidden")


@pytest.mark.parametrize("line", [b"file a x", b"file a -1", b"end", b"end x", b"end \xff"])
def test_a_malformed_reply_ends_the_stream(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = Replies([line])
    with pytest.raises(StreamLost):
        execution(replies, tmp_path, monkeypatch)._receive(replies, 0)  # type: ignore[arg-type]


def test_a_campaign_whose_network_was_changed_says_so_at_once(run_folder: RunFolder) -> None:
    measured, testbed, _ = campaign(run_folder, SWITCHED)
    with pytest.raises(
        Aborted, match="flannel-vxlan was replaced by kube-router; the results so far"
    ) as raised:
        measured.execute()
    assert "dmesg" not in raised.value.remedy and "--resume" in raised.value.remedy
    assert testbed.preparations == 1, "not prepared again"
    (attempt,) = run_folder.attempts()
    assert attempt["reason"] == f"part-failed: {CHANGED}"
    assert CHANGED in run_folder.events()[-1]["reason"]


def test_facts_of_a_network_are_those_of_the_block_that_installed_it(run_folder: RunFolder) -> None:
    other = TRIAL.model_copy(update={"cell": TRIAL.cell.model_copy(update={"network": "kube-router"})})
    testbed, notes = ScriptedTestbed(itertools.repeat(VALID)), Notes()
    blocks = [Block(0, (TRIAL,)), Block(1, (other,)), Block(2, (OTHER,))]
    Campaign(run_folder, testbed, blocks, notes).execute()  # type: ignore[arg-type]
    for attempt in run_folder.attempts()[:2]:
        facts = run_folder.networks[attempt["network_label"]]
        assert facts["network_proof"] == attempt["network_proof"]
    assert [sorted(line["networks"]) for line in list(run_folder.plan())[1:]] == [
        [TRIAL.cell.network_label],
        ["kube-router"],
    ], "each network once, when it is first prepared"
