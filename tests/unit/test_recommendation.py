"""The files of a recommended configuration, and comparisons of configurations in incomplete blocks."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from k8sdds.analysis.selection import Fit
from k8sdds.analysis.tests import one_sample
from k8sdds.campaign import applications, experiments
from k8sdds.campaign.expansion import expand
from k8sdds.deploy.tuning import load as load_tuning
from k8sdds.recommend import evidence, files
from k8sdds.recommend.answer import Answer, answer
from k8sdds.system import yaml_text
from tests.applications import application, folder

TWO = [
    {"name": "camera", "payload_bytes": 65536, "rate": 100, "subscribers": 2, "delay": "p90 <= 10 ms"},
    {"name": "commands", "payload_bytes": 64, "rate": 100, "reliability": "any", "deadline_ms": 5},
]


def answered(path: Path, **choices: Any) -> Answer:
    known = {"networks": "weavenet", "receive_mode": "listener", "middleware": "cyclonedds"} | choices
    experiment = applications.experiment(application(flows=TWO, choices=known))
    return answer(evidence.of_own_run(folder(path / "run", experiment), experiment))


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
@pytest.mark.parametrize("transport", ["unicast", "multicast"])
def test_the_files_are_well_formed_and_described(middleware: str, transport: str, tmp_path: Path) -> None:
    found = answered(tmp_path, middleware=middleware, transport=transport, tuning="tcp-buffers")
    paths = files.write(found, tmp_path / "out")
    names = {str(path.relative_to(tmp_path / "out")) for path in paths}
    wanted = {
        "README.md",
        f"{middleware}.xml",
        f"measured/{middleware}.xml",
        "qos-camera.xml",
        "qos-commands.xml",
    }
    assert names == wanted | {"network.sh", "99-k8sdds.conf", "pods.yaml", "confirm.yaml"}
    for path in paths:
        if path.suffix == ".xml":
            ElementTree.parse(path)
    readme = paths[0].read_text()
    assert all(f"`{name}`" in readme for name in names - {"README.md"})
    config, deployment = yaml_text.load_all((tmp_path / "out" / "pods.yaml").read_text())
    assert config["data"][f"{middleware}.xml"] == (tmp_path / "out" / f"{middleware}.xml").read_text()
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False and "hostNetwork" not in pod
    container = pod["containers"][0]
    assert container["env"] and container["resources"]["requests"]["cpu"].endswith("m")
    sysctls = (tmp_path / "out" / "99-k8sdds.conf").read_text()
    assert "net.core.rmem_max = 8388608" in sysctls
    assert all(f"{key} = {value}" in sysctls for key, value in load_tuning("tcp-buffers").sysctls.items())
    assert 'k8sdds network switch "$1" weavenet' in (tmp_path / "out" / "network.sh").read_text()


def test_the_confirmation_measures_the_recommended_cells_with_the_file(tmp_path: Path) -> None:
    found = answered(tmp_path, transport=["unicast", "multicast"], message_bytes=["auto", "max"])
    files.write(found, tmp_path / "out")
    confirmed = expand(experiments.load(str(tmp_path / "out" / "confirm.yaml"))).cells
    experiment = applications.experiment(found.evidence.application)
    assert found.recommended is not None
    choices = {name: value for name, value in found.recommended.option.choices.items()}
    wanted = next(
        candidate.cells
        for candidate in applications.candidates(experiment).measurable
        if {applications.SHOWN.get(name, name): value for name, value in candidate.choices} == choices
    )
    plain = [
        cell.model_copy(update={"middleware_config": "", "middleware_config_sha256": ""})
        for cell in confirmed
    ]
    assert [cell.cell_id for cell in plain] == [cell.cell_id for cell in wanted]
    assert all(cell.middleware_config.endswith("measured/cyclonedds.xml") for cell in confirmed)


def test_configurations_are_compared_through_others() -> None:
    """A and C were never measured in the same block."""
    chance = random.Random(5)
    truth = {"a": 0.0, "b": 0.3, "c": 0.5}
    blocks = {number: chance.gauss(0, 1) for number in range(8)}

    def measured(key: str, numbers: range) -> dict[int, float]:
        return {number: truth[key] + blocks[number] + chance.gauss(0, 0.01) for number in numbers}

    fit = Fit(
        {"a": measured("a", range(4)), "b": measured("b", range(8)), "c": measured("c", range(4, 8)), "d": {}}
    )
    found = fit.contrast(("c", "a"))
    assert found is not None
    low, high = found.interval()
    assert low is not None and high is not None and low < math.exp(0.5) < high and high / low < 1.1
    assert fit.contrast(("d", "a")) is None
    alone = Fit({"a": {1: 0.0, 2: 0.1}, "b": {3: 0.0, 4: 0.1}})
    assert alone.contrast(("a", "b")) is None, "no block connects them"


def test_two_configurations_are_compared_by_the_paired_t_test() -> None:
    chance = random.Random(2)
    own, other = ([chance.gauss(0, spread) for _ in range(6)] for spread in (1, 4))
    found = Fit({"a": dict(enumerate(own)), "b": dict(enumerate(other))}).contrast(("a", "b"))
    wanted = one_sample([x - y for x, y in zip(own, other, strict=True)])
    assert found is not None
    assert (found.log, found.error, found.df, found.n) == pytest.approx(
        (wanted.log, wanted.error, wanted.df, wanted.n)
    )


def test_each_configuration_has_its_own_spread_if_it_was_measured_often() -> None:
    chance = random.Random(4)
    spreads = dict.fromkeys("abcdefgh", 1.0) | {"noisy": 10.0}
    measured = {key: {b: chance.gauss(0, spread) for b in range(8)} for key, spread in spreads.items()}
    measured["once"] = {0: 0.0}
    fit = Fit(measured)
    quiet, noisy, once = (fit.contrast((key, "a")) for key in ("b", "noisy", "once"))
    assert quiet and noisy and once and quiet.error and noisy.error and once.df
    assert noisy.error > 3 * quiet.error
    assert once.df > 14, "it is assumed to have the spread of all trials"


def test_intervals_in_incomplete_blocks_contain_the_truth() -> None:
    chance, inside = random.Random(9), 0
    for _ in range(400):
        blocks = [chance.gauss(0, 0.5) for _ in range(6)]
        measured = {
            key: {b: key / 10 + blocks[b] + chance.gauss(0, 0.05) for b in chance.sample(range(6), 3)}
            for key in range(6)
        }
        contrast = Fit(measured).contrast((5, 0))
        low, high = contrast.interval() if contrast else (None, None)
        inside += low is not None and high is not None and low <= math.exp(0.5) <= high
    assert 360 <= inside <= 395, "380 ± four standard deviations"
