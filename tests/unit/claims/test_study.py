"""Test the plan of a study: its campaigns, its folder, and the arguments of `k8sdds reproduce`."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.campaign import applications, experiments
from k8sdds.campaign.expansion import expand
from k8sdds.claims import CLAIMS, load
from k8sdds.claims.study import Plan, StudyFolder, campaigns
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from tests.conftest import Command


@pytest.mark.parametrize("name", CLAIMS.names())
def test_every_campaign_of_an_installed_study_can_be_planned(name: str) -> None:
    planned = campaigns(load(name).claims, in_lab=False)
    assert planned
    for campaign in planned:
        changes = experiments.Changes(settings=campaign.settings, repetitions=2, duration_s=0.5)
        experiment = applications.load_experiment(campaign.experiment, changes)
        assert expand(experiment).cells
    folders = [campaign.folder for campaign in planned]
    assert len(folders) == len(set(folders))


def test_claims_with_the_same_command_share_a_campaign() -> None:
    claims = load().claims
    in_lab, on_cluster = campaigns(claims, in_lab=True), campaigns(claims, in_lab=False)
    assert len({campaign.command for campaign in in_lab}) == len(in_lab)
    shaped = next(campaign for campaign in in_lab if campaign.claims == ["layer-3-saturated"])
    assert shaped.folder == "cni-overhead-link.rate_mbit-100"
    assert shaped.command == "k8sdds run cni-overhead --set link.rate_mbit=100"
    # Only a cluster can contradict numbers of other hardware.
    assert not any("table-1-weavenet" in campaign.claims for campaign in in_lab)
    assert any("table-1-weavenet" in campaign.claims for campaign in on_cluster)


def test_the_folder_keeps_the_plan_and_the_claims(tmp_path: Path) -> None:
    plan = Plan(
        only=["alike"], campaigns=campaigns(load("aa").claims, in_lab=True), repetitions=3,
        testbed={"testbed": "lab"}, also=["/runs/paper"],
    )  # fmt: skip
    created = StudyFolder.create(tmp_path / "study", "aa", plan)
    opened = StudyFolder.open(tmp_path / "study")
    assert opened == created and opened.plan == plan and opened.claims == load("aa")
    assert opened.started() == []
    with pytest.raises(InputError, match="already exists"):
        StudyFolder.create(tmp_path / "study", "aa", plan)
    (tmp_path / "study" / "study.yaml").write_text("campaigns: [{folder: ../elsewhere}]\n")
    with pytest.raises(InputError, match=r"study.yaml:1"):
        StudyFolder.open(tmp_path / "study")
    with pytest.raises(InputError, match="is not the folder of a study"):
        StudyFolder.open(tmp_path)


def test_a_campaign_is_complete_when_it_has_ended(tmp_path: Path) -> None:
    plan = Plan(campaigns=campaigns(load("aa").claims, in_lab=True))
    folder = StudyFolder.create(tmp_path / "study", "aa", plan)
    [campaign] = plan.campaigns
    assert not folder.is_started(campaign) and not folder.is_complete(campaign)
    run = RunFolder.create(folder.run(campaign), {"schema": 2}, "")
    assert folder.is_started(campaign) and not folder.is_complete(campaign)
    run.append_event("ended", valid=3, trials=4)
    assert folder.is_complete(campaign) and not folder.is_complete(campaign, retry_failed=True)
    run.append_event("ended", valid=4, trials=4)
    assert folder.is_complete(campaign, retry_failed=True)


def test_a_study_is_named_before_its_claims(k8sdds: Command) -> None:
    whole = k8sdds("reproduce", "k8sdds-paper", "--dry-run")
    assert whole.returncode == 0, whole.stderr
    assert (
        "k8sdds run multicast-12sub" in whole.stdout and "host-isolates-nothing: not measured" in whole.stdout
    )
    one = k8sdds("reproduce", "aa", "alike", "--dry-run")
    assert one.stdout.startswith("alike: k8sdds run aa")
    listed = k8sdds("list", "studies")
    assert "k8sdds-paper" in listed.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "no study given"),
        (("aa", "alik"), "did you mean 'alike'"),
        (("k8sdds-pape",), "k8sdds list studies"),
        (("no/such.yaml",), "No such file"),
        (("aa", "--retry-failed"), "continues a study"),
        (("aa", "--resume", "runs"), "give no study"),
        (("--resume", "."), "is not the folder of a study"),
    ],
)
def test_mistakes_of_reproduce(k8sdds: Command, args: tuple[str, ...], message: str) -> None:
    done = k8sdds("reproduce", *args)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
