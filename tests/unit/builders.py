"""Cells, trials and outputs of trials, for tests of what is planned, started, recorded and refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k8sdds.campaign import start
from k8sdds.campaign.expansion import Expansion
from k8sdds.campaign.experiments import KNOWN
from k8sdds.model.experiment import Experiment
from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import DISCOVERY_SERVER, Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.workloads import TrialOutputs


def cell(network: str = "host", **changes: Any) -> Cell:
    """Return a throughput test on a network, with changes."""
    return Cell(**{"network": network, "test": "throughput", "payload_bytes": 1024, **changes})


def trial(
    of: Cell, testbed: str = "lab", repetition: int = 0, duration_s: float = 1, warmup_s: float = 0
) -> Trial:
    return Trial(cell=of, testbed=testbed, repetition=repetition, duration_s=duration_s, warmup_s=warmup_s)


def experiment(*sweeps: dict[str, Any], **keys: Any) -> Experiment:
    """Return an experiment with these sweeps, as the user writes it."""
    data = {"name": "mine", "sweeps": sweeps or [{"networks": ["host"]}]} | keys
    return Experiment.model_validate(data, context=KNOWN)


def written_run(of: Expansion, folder: Path) -> Path:
    """Write the files of the user and the experiment as into a run folder; return the folder."""
    experiment, files = start.run_folder_files(of)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "experiment.yaml").write_text(experiment)
    return folder


def named(name: str) -> Participant:
    return DISCOVERY_SERVER if name == "discovery" else Participant.named(name)


def outputs(
    of: Trial, meters: Mapping[str, Any], summaries: Mapping[str, Any] | None = None, **measured: Any
) -> TrialOutputs:
    """Return the outputs of a trial whose participants ended without an error.

    Args:
        of: The trial.
        meters: What the supervisor of each participant measured.
        summaries: What participants reported.
        measured: Other fields of the measurement.
    """
    outcomes = {name: Outcome(named(name), 0, read) for name, read in meters.items()}
    reported = {named(name): Summary(data) for name, data in (summaries or {}).items()}
    return TrialOutputs(of, Measurement(outcomes, None, {}, **measured), Path(), reported)
