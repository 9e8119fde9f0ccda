"""Read the output files of the participants of an attempt."""

from __future__ import annotations

from pathlib import Path

from k8sdds import middleware, workloads
from k8sdds.model.measurement import Measurement
from k8sdds.model.trial import Trial
from k8sdds.results import histograms
from k8sdds.workloads import TrialOutputs


def read(trial: Trial, measurement: Measurement, folder: Path) -> TrialOutputs:
    """Return the outputs of an attempt; `folder` holds one folder for each participant."""
    implementation = middleware.find(trial.cell.middleware)
    summaries = {
        participant: implementation.summary(trial, folder / participant.name)
        for participant in trial.cell.participants
    }
    logged = {tag: histograms.read(folder, (tag,)) for tag in workloads.find(trial.cell.test).histograms}
    latencies = {tag: histogram for tag, histogram in logged.items() if histogram is not None}
    return TrialOutputs(trial, measurement, folder, summaries, latencies)
