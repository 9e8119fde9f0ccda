"""Plan the campaigns that a study's claims need, and keep them and the verdicts in one folder.

A study folder contains `study.yaml` (the plan), `claims.yaml` (a copy of the claims), one run folder per campaign
and, at the end, the verdicts. docs/how-to/reproduce.md documents it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from k8sdds import claims as claims_files
from k8sdds.claims.model import Claim, Claims, run_command
from k8sdds.results.run_folder import CAMPAIGN, RunFolder
from k8sdds.system import reading, yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.files import require_new, write_atomically
from k8sdds.system.grouping import grouped
from k8sdds.system.strict import Strict

PLAN = "study.yaml"
CLAIMS = "claims.yaml"
OTHER_FOLDER = "continue a study with --resume, or use another --output"
"""The remedy if the folder of a new study exists."""


class PlannedCampaign(Strict):
    """One campaign of a study: an experiment with changed settings, and the claims that need it."""

    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)
    experiment: str
    settings: list[str] = Field(default_factory=list)
    claims: list[str]
    minutes: float = Field(default=0, ge=0)

    @property
    def command(self) -> str:
        """The command that measures it alone."""
        return run_command(self.experiment, self.settings)


class Plan(Strict):
    """What one execution of a study measures and judges."""

    page: ClassVar[str] = "reproduce"

    only: list[str] = Field(default_factory=list, description="ids of the claims to judge; empty: all")
    campaigns: list[PlannedCampaign]
    repetitions: int | None = Field(default=None, ge=1)
    duration_s: float | None = Field(default=None, gt=0)
    seed: int | None = None
    testbed: dict[str, Any] = Field(default_factory=dict, description="how to reach the testbed")
    also: list[str] = Field(default_factory=list, description="further run folders to judge")


def campaigns(claims: Sequence[Claim], in_lab: bool) -> list[PlannedCampaign]:
    """Return the campaigns that the claims need, one for all claims with the same experiment and settings."""
    groups = grouped((claim for claim in claims if claim.is_measurable(in_lab)), lambda claim: claim.command)
    return [
        PlannedCampaign(
            folder=_folder_name(group[0]),
            experiment=group[0].experiment,
            settings=group[0].settings,
            claims=[claim.id for claim in group],
            minutes=group[0].minutes,
        )
        for group in groups.values()
    ]


def _folder_name(claim: Claim) -> str:
    name = "-".join([Path(claim.experiment).stem, *claim.settings])
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")


@dataclass(frozen=True)
class StudyFolder:
    """A folder with the plan, the claims, the run folders and the verdicts of one execution of a study."""

    path: Path
    plan: Plan
    claims: Claims

    @classmethod
    def create(cls, path: Path, study: str, plan: Plan) -> StudyFolder:
        """Create the folder of a study."""
        require_new(path, OTHER_FOLDER)
        with explained(f"cannot write {path}", "use another --output"):
            path.mkdir(parents=True, exist_ok=True)
            write_atomically(path / CLAIMS, claims_files.CLAIMS.read(study)[1])
            # The plan is written last, because a folder with a plan can be resumed.
            write_atomically(path / PLAN, yaml_text.dump(plan.model_dump(mode="json", exclude_none=True)))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> StudyFolder:
        """Return an existing folder of a study."""
        if not (path / PLAN).is_file():
            raise InputError(
                f"{path} is not the folder of a study: it has no {PLAN}",
                "name a folder that k8sdds reproduce created, such as runs/TIME-STUDY",
            )
        with explained(f"cannot read {path / PLAN}"):
            text = reading.text(path / PLAN, yaml_text.MAX_BYTES)
        return cls(path, yaml_text.parse(text, Plan, str(path / PLAN)), claims_files.load(str(path / CLAIMS)))

    def run(self, campaign: PlannedCampaign) -> Path:
        """Return the run folder of a campaign, which may not exist."""
        return self.path / campaign.folder

    def started(self) -> list[RunFolder]:
        """Return the run folders of the campaigns that have started."""
        return [RunFolder.open(self.run(c)) for c in self.plan.campaigns if self.is_started(c)]

    def is_complete(self, campaign: PlannedCampaign, retry_failed: bool = False) -> bool:
        """Return whether a campaign has ended and needs no further attempt."""
        path = self.run(campaign)
        ended = [event for event in RunFolder(path).events() if event["event"] == "ended"]
        return bool(ended) and not (retry_failed and ended[-1]["valid"] < ended[-1]["trials"])

    def is_started(self, campaign: PlannedCampaign) -> bool:
        """Return whether a campaign has a run folder, which can be resumed."""
        return (self.run(campaign) / CAMPAIGN).is_file()
