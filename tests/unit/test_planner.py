"""Campaigns that plan trials while they run, also after an interruption."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.campaign import experiments, start
from k8sdds.campaign import run as steps
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.experiments import Changes
from k8sdds.campaign.trial_loop import Campaign, Planner, plan_json
from k8sdds.middleware.connext import settings
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Trial
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import CAMPAIGN, SCHEMA, RunFolder
from k8sdds.testbeds import Block, repetitions
from tests.unit.test_failed_parts import TRIAL, VALID, Notes, ScriptedTestbed, valid

FIRST = TRIAL.model_copy(update={"repetition": 0})
REPETITIONS = [FIRST.model_copy(update={"repetition": number}) for number in range(3)]
IDS = [trial.trial_id for trial in REPETITIONS]


class UntilThreeValid(Planner):
    """Adds a repetition until three trials are valid."""

    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        measured = {attempt.trial_id for attempt in attempts}
        valid_ones = sum(bool(attempt.valid) for attempt in attempts)
        return () if valid_ones >= 3 else [REPETITIONS[len(measured)]]


class LabLikeTestbed(ScriptedTestbed):
    """A scripted testbed that makes blocks as the lab does."""

    blocks = staticmethod(repetitions)

    def check(self, trials: Sequence[Trial]) -> list[Any]:
        return []

    def facts(self) -> dict[str, Any]:
        return {}

    def interference(self) -> list[str]:
        return []

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        return {}


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(start, "planner_of", lambda _: UntilThreeValid())
    networks = {FIRST.cell.network_label: {"name": FIRST.cell.network, "fidelity": "real"}}
    data = {"schema": SCHEMA, "seed": 1, "testbed": {"name": "lab", "facts": {}}, "networks": networks}
    return RunFolder.create(tmp_path / "run", data | plan_json([Block(0, (FIRST,))]), "")


def campaign(run_folder: RunFolder, script: Iterator[str]) -> Campaign:
    return Campaign(run_folder, LabLikeTestbed(script), [Block(0, (FIRST,))], Notes(), UntilThreeValid())


def test_a_planner_adds_trials_until_it_needs_no_more(run_folder: RunFolder) -> None:
    campaign(run_folder, repeat(VALID)).execute()
    assert valid(run_folder) == IDS
    assert [plan["blocks"] for plan in run_folder.plan() if plan["blocks"]] == [
        [[trial_id]] for trial_id in IDS
    ]
    assert run_folder.events()[-1]["trials"] == 3
    assert list(run_folder.planned) == IDS


def test_facts_of_a_network_that_a_planner_adds_are_recorded_once(run_folder: RunFolder) -> None:
    data = {key: value for key, value in run_folder.campaign.items() if key != "networks"}
    (run_folder.path / CAMPAIGN).write_text(json.dumps(data))
    campaign(run_folder, repeat(VALID)).execute()
    # As it was prepared, then what is known of it in advance.
    assert ["networks" in plan for plan in run_folder.plan()] == [False, True, True, False]
    facts = run_folder.networks[TRIAL.cell.network_label]
    assert facts["name"] == TRIAL.cell.network and {"multicast", "fidelity"} <= facts.keys()


def interrupted_after(attempts: int) -> Iterator[str]:
    yield from [VALID] * attempts
    raise KeyboardInterrupt


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_interrupted_campaign_continues_its_plan(run_folder: RunFolder, attempts: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        campaign(run_folder, interrupted_after(attempts)).execute()
    assert valid(run_folder) == IDS[:attempts]
    assert sum(bool(plan["blocks"]) for plan in run_folder.plan()) == attempts + 1
    testbed = LabLikeTestbed(repeat(VALID))
    start.resume(run_folder, Expansion(Experiment.model_construct(), ()), testbed, Notes()).execute()
    assert valid(run_folder) == IDS
    assert [plan["blocks"] for plan in run_folder.plan() if plan["blocks"]] == [
        [[trial_id]] for trial_id in IDS
    ]


def test_resuming_can_be_tried_and_removes_what_a_kill_left(run_folder: RunFolder) -> None:
    with pytest.raises(KeyboardInterrupt):
        campaign(run_folder, interrupted_after(1)).execute()
    unfinished = run_folder.raw(IDS[0], 1) / "pub0" / "meters.json.17.tmp"
    unfinished.touch()
    before = {path: path.read_bytes() for path in run_folder.path.rglob("*") if path.is_file()}
    lines: list[str] = []
    display: Any = SimpleNamespace(line=lines.append, progress=lambda *_: nullcontext(Notes()))
    testbed, experiment = LabLikeTestbed(repeat(VALID)), experiments.load("quickstart")
    assert steps.resume(run_folder, experiment, testbed, display, dry_run=True) is None
    assert lines[1] == f"  {REPETITIONS[1].describe()}" and "1 of 2 planned trials would be" in lines[2]
    assert before == {path: path.read_bytes() for path in run_folder.path.rglob("*") if path.is_file()}
    steps.resume(run_folder, experiment, testbed, display)
    assert valid(run_folder) == IDS and not unfinished.exists()


def test_programs_that_only_later_rounds_run_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(settings.PROGRAM, "/bin/true")
    monkeypatch.setenv(settings.VERSION, "4.2.0")
    changes = ["networks=host", "baseline=host", "middleware=[cyclonedds, connext]", "test=throughput"]
    experiment = experiments.changed(
        experiments.load("quickstart"), Changes(settings=[*changes, "payload_bytes=1024"])
    )
    every = expand(experiment)
    first = tuple(cell for cell in every.cells if cell.middleware == "cyclonedds")
    assert 0 < len(first) < len(every.cells)
    monkeypatch.setattr(Expansion, "first", first)
    testbed = LabLikeTestbed(repeat(VALID))
    run = start.start(every, testbed, tmp_path / "run", "later", 1, Notes()).run
    assert run.campaign["connext"]["version"] == "4.2"
