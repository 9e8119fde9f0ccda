"""What a testbed can measure of an application."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.campaign import applications, preflight, supported
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.racing import searched
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Trial
from k8sdds.networks import suggested
from k8sdds.recommend import evidence
from k8sdds.system.errors import Problem
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.preflight import missing_networks, reduce_networks
from tests.applications import application, folder
from tests.unit import builders


class Place:
    """A testbed with these networks and without node tuning, which checks as a cluster does."""

    name = "cluster"

    def __init__(self, *networks: str, installed: str | None = None) -> None:
        self.networks = networks
        self.installed = installed
        self.checks = 0

    def supported_subset(
        self, experiment: Experiment, requested: Sequence[str]
    ) -> tuple[Experiment, list[str]]:
        if self.installed is None:
            return experiment, []
        return reduce_networks(experiment, self.networks, requested, self.installed)

    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        self.checks += 1
        tuned = [
            Problem(f"tuning {trial.cell.tuning}: no access")
            for trial in trials
            if trial.cell.tuning != "none"
        ]
        return [*missing_networks([trial.cell for trial in trials], self.networks), *tuned]


CHOICES = {
    "networks": ["flannel-vxlan", "flannel-hostgw", "kube-router"],
    "tuning": ["none", "rt"],
    "receive_mode": ["listener"],
}


def reduced(
    place: Place, choices: dict[str, list[str]], *required: str
) -> tuple[ApplicationExperiment, list[str]]:
    experiment = applications.experiment(application(choices=choices))
    fitting, removed = place.supported_subset(experiment, required)
    found, names = supported.subset(expand(fitting), removed, place, required)
    assert isinstance(found.experiment, ApplicationExperiment)
    assert found.cells == expand(found.experiment).cells
    return found.experiment, names


def test_choices_that_the_testbed_does_not_have_are_left_out_with_the_reason() -> None:
    place = Place("host", "flannel-hostgw", "kube-router")
    experiment, names = reduced(place, CHOICES)
    assert names == ["flannel-vxlan", "tuning rt"]
    assert experiment.baseline == "flannel-hostgw"
    cells = expand(experiment).cells
    assert {cell.network for cell in cells} == {"flannel-hostgw", "kube-router"}
    assert {cell.tuning for cell in cells} == {"none"}
    assert {cell.middleware for cell in cells} == {"cyclonedds", "fastdds"}
    reasons = {(each.choice, each.value): each.why for each in experiment.left_out}
    assert "does not have the network flannel-vxlan" in reasons["network", "flannel-vxlan"]
    assert reasons["tuning", "rt"] == "tuning rt: no access"
    # One check for each combination of the choices that depend on the testbed, not for each cell.
    assert place.checks <= 3 * 2 * 2


def test_the_answer_names_what_the_testbed_does_not_have(tmp_path: Path) -> None:
    experiment, _ = reduced(Place("flannel-hostgw", "kube-router"), CHOICES)
    run = folder(tmp_path / "run", experiment)
    own = evidence.own_application(run)
    assert own is not None
    excluded = dict(
        (next(iter(choices.items())), why) for choices, why in evidence.of_own_run(run, own).excluded
    )
    assert "does not have the network" in excluded["network", "flannel-vxlan"]
    # A reason that names the value is not preceded by it.
    assert excluded["tuning", "rt"] == "tuning rt: no access"


def test_networks_that_the_user_requests_are_not_left_out() -> None:
    experiment, names = reduced(Place("flannel-hostgw"), CHOICES, "flannel-vxlan")
    assert names == ["kube-router", "tuning rt"]
    assert supported.labels(experiment) == ["flannel-vxlan", "flannel-hostgw"]


def test_if_nothing_can_be_measured_the_check_reports_it() -> None:
    experiment, names = reduced(Place("weavenet"), CHOICES)
    assert (names, experiment.left_out) == ([], [])
    assert supported.labels(experiment) == CHOICES["networks"]


def test_the_network_of_a_foreign_cluster_replaces_the_default_networks() -> None:
    experiment, names = reduced(
        Place("host", "cilium-vxlan", installed="cilium-vxlan"), {"receive_mode": ["listener"]}
    )
    assert supported.labels(experiment) == ["cilium-vxlan"]
    assert experiment.baseline == "cilium-vxlan"
    assert names == list(suggested())


def test_more_participants_than_can_find_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_layout, "available", lambda: (0, 1))

    def of(subscribers: int, test: str = "throughput") -> Expansion:
        sweep = {"networks": "host", "payload_bytes": 64, "subscribers": subscribers, "test": test}
        return expand(builders.experiment(sweep))

    lab: Any = SimpleNamespace(name="lab", check=lambda _: [])
    monkeypatch.setattr(preflight, "_program_problems", lambda *_: [])
    (problem,) = preflight.check(of(500), lab)
    assert problem.input and problem.what.startswith("501 participants do not fit on 2 cores")
    assert preflight.check(of(100), lab) == preflight.check(of(500, "capacity"), lab) == []
    assert preflight.check(of(500), Place("host")) == []
    assert preflight.trial_s(of(500)) > preflight.trial_s(of(50)) + 60 > preflight.trial_s(of(4)) + 60
    start_s = 501 * preflight.START_CPU_S + 501**2 * preflight.MATCH_CPU_S
    without = preflight.trial_s(of(500), 0)
    assert preflight.trial_s(of(500), 8) == pytest.approx(without - preflight.OVERHEAD_S + start_s / 8)


def test_everything_that_a_search_may_add_is_checked() -> None:
    expansion = expand(searched(application(repetitions=5)))
    assert {trial.cell.cell_id for trial in preflight.every_trial(expansion, "lab")} == {
        cell.cell_id for cell in expansion.cells
    }
    assert len(expansion.first) < len(expansion.cells)
