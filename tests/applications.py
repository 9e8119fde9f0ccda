"""Make the records of campaigns that measure applications, with known effects of every choice."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k8sdds.campaign import start
from k8sdds.campaign.expansion import Candidate, candidates, expand
from k8sdds.campaign.record import description
from k8sdds.campaign.trial_loop import plan_json
from k8sdds.model.application import Application, ApplicationExperiment
from k8sdds.model.trial import Cell, Trial
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import SCHEMA, RunFolder
from k8sdds.testbeds import Block

CPU: Mapping[str, float] = {
    "flannel-vxlan": 1.3, "kube-router": 1.1, "weavenet": 1.5, "fastdds": 1.4, "multicast": 0.6, "waitset": 1.1,
    "best-effort": 0.9, "max": 0.8,
}  # fmt: skip
"""Factor of the CPU time by value of a choice; all others: 1."""


@dataclass
class Truth:
    """What the trials of an application measure: effects of choices, of the block, and noise."""

    cpu: Mapping[str, float] = field(default_factory=lambda: CPU)
    delay_us: float = 2000.0
    delay: Mapping[str, float] = field(default_factory=dict)
    pairs: Mapping[frozenset[str], float] = field(default_factory=dict)
    """Factors of the CPU time of two values together."""
    noise: float = 0.03
    drift: float = 0.05
    """Standard deviation of the logarithms of a trial and of a block."""

    def cpu_percent(self, cell: Cell) -> float:
        """Return the CPU time of each participant without noise."""
        values = _values(cell)
        factors = [self.cpu.get(value, 1.0) for value in values]
        factors += [factor for pair, factor in self.pairs.items() if pair <= set(values)]
        return 10 * math.prod(factors)

    def record(self, trial: Trial, chance: random.Random, **changed: Any) -> TrialRecord:
        """Return the record of a valid trial."""
        cell = trial.cell
        block = random.Random(f"{trial.repetition}").gauss(0, self.drift)

        def noisy(value: float) -> float:
            return value * math.exp(block + chance.gauss(0, self.noise))

        delay = self.delay_us * math.prod(self.delay.get(value, 1.0) for value in _values(cell))
        sent = int(cell.rate * trial.duration_s * cell.publishers)
        used = noisy(self.cpu_percent(cell))
        metrics: dict[str, Any] = {
            "total_cpu_percent": 1.1 * used * cell.node_count,
            "nodes_cpu": {
                f"node{number}": {"participants": used, "shared": 0.1 * used} for number in range(cell.node_count)
            },
            "publisher_cpu_percent": noisy(self.cpu_percent(cell)),
            "subscriber_cpu_percent": noisy(self.cpu_percent(cell)),
            "achieved_rate_percent": 100.0, "sent": sent, "received": sent * cell.subscribers, "lost": 0,
            "lost_percent": 0.0, "deadline_missed_percent": 0.0, "delay_method": "shared clock",
            **{f"delay_{name}_us": noisy(delay * factor) for name, factor in DELAYS.items()},
        }  # fmt: skip
        identity = {
            "trial_id": trial.trial_id,
            "cell_id": cell.cell_id,
            "attempt": 1,
            "testbed": trial.testbed,
        }
        fixed = {"valid": True, "reason": None, "warnings": [], "block": trial.repetition, "order": 0}
        return TrialRecord(**identity | description(trial) | fixed | metrics | changed)


DELAYS = {"mean": 0.9, "p50": 0.8, "p90": 1.5, "p99": 3.0, "max": 9.0, "jitter": 0.3}
"""Quantities of the delay, relative to each other."""


def _values(cell: Cell) -> list[str]:
    values = (cell.network_label, cell.middleware, cell.transport, cell.reliability, cell.receive_mode)
    return [*values, str(cell.message_bytes), cell.security]


def application(**changes: Any) -> Application:
    """Return an application with one flow."""
    flow = {"name": "camera", "payload_bytes": 65536, "rate": 100, "subscribers": 2, "delay": "p90 <= 10 ms"}
    choices = {"networks": ["flannel-vxlan", "flannel-hostgw", "kube-router"], "receive_mode": ["listener"]}
    return Application.model_validate({"name": "robot", "flows": [flow], "choices": choices} | changes)


def trials_of(experiment: ApplicationExperiment) -> list[Trial]:
    """Return the first trials of an application's campaign in the lab."""
    return expand(experiment).trials("lab")


def folder(
    path: Path,
    experiment: ApplicationExperiment,
    truth: Truth | None = None,
    invalid: Sequence[str] = (),
    seed: int = 1,
    **changed: Any,
) -> RunFolder:
    """Create the run folder of a campaign in which all trials are valid, but those of these networks.

    Args:
        path: The run folder.
        experiment: What was measured.
        truth: The effects of all choices.
        invalid: Networks whose trials are all invalid.
        seed: Seed of the noise.
        changed: Columns of all trials with other values.
    """
    truth, chance, trials = truth or Truth(), random.Random(seed), trials_of(experiment)
    blocks = [
        Block(number, tuple(trial for trial in trials if trial.repetition == number))
        for number in sorted({trial.repetition for trial in trials})
    ]
    data = {
        "schema": SCHEMA, "campaign": path.name, "seed": 1, "experiment": experiment.name, "baseline": experiment.baseline,
        "started_at": "2026-01-01T00:00:00.000Z", "k8sdds_version": "0", "testbed": {"name": "lab", "facts": {"cpu_count": 4}},
        "networks": {}, "command": ["k8sdds", "recommend", "robot.yaml", "--seed", "1", "--duration=5", "-o", "out"], **plan_json(blocks),
    }  # fmt: skip
    run = RunFolder.create(path, data, start.experiment_yaml(experiment))
    records = []
    for trial in trials:
        lost = {"valid": False, "reason": "lost-samples: 3"} if trial.cell.network_label in invalid else {}
        records.append(truth.record(trial, chance, **lost | changed).as_json())
    run.append_attempts(records)
    return run


def best_of(experiment: ApplicationExperiment, truth: Truth) -> dict[str, Any]:
    """Return the choices with the least CPU time without noise, if all meet their requirements."""
    application = experiment.application

    def cost(candidate: Candidate) -> float:
        return sum(
            (flow.publishers + flow.subscribers) * truth.cpu_percent(cell)
            for flow, cell in zip(application.flows, candidate.cells, strict=True)
        )

    return dict(min(candidates(experiment).measurable, key=cost).choices)
