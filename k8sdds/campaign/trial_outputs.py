"""Read the output files of the participants of an attempt."""

from __future__ import annotations

from pathlib import Path

from k8sdds import middleware
from k8sdds.model.measurement import Measurement
from k8sdds.model.trial import Trial
from k8sdds.workloads import TrialOutputs


def read(trial: Trial, measurement: Measurement, folder: Path) -> TrialOutputs:
    """Return the outputs of an attempt; `folder` holds one folder for each participant."""
    program = middleware.program_of(trial.cell)
    program.convert(trial, folder)
    summaries = {
        participant: program.summary(trial, participant, folder) for participant in trial.cell.participants
    }
    return TrialOutputs(trial, measurement, folder, summaries)
