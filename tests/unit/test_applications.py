"""Applications: files, configurations, verdicts, and the answer from run folders."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from k8sdds.campaign import applications, experiments, new_experiment
from k8sdds.campaign.expansion import Candidates, background, candidates, expand
from k8sdds.campaign.experiments import Changes
from k8sdds.cli import run as command
from k8sdds.cli.app import app
from k8sdds.cli.output import Output
from k8sdds.cli.recommend import _evidence as evidence_of
from k8sdds.model.application import Application, ApplicationExperiment, Choices, Flow, parse_bound
from k8sdds.recommend import evidence, results
from k8sdds.recommend.answer import answer
from k8sdds.results.histograms import NOTHING_ARRIVED
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError, RequirementsNotMet, RequirementsUndecided
from tests.applications import Truth, application, best_of, folder, trials_of
from tests.conftest import Command
from tests.run_folders import rewritten
from tests.unit.test_init import all_keys_enabled, keys


def candidates_of(application: Application) -> Candidates:
    return candidates(applications.experiment(application))


@pytest.mark.parametrize("name", applications.APPLICATIONS.names())
def test_the_installed_applications_have_configurations_and_enough_samples(name: str) -> None:
    loaded = applications.load(name)
    experiment = applications.experiment(loaded)
    assert candidates(experiment).measurable
    for flow in loaded.flows:
        assert flow.delay or flow.missed_percent, f"{flow.name} has no limit of its delay"
    assert experiment.duration_s <= 16


def test_limits_of_the_delay() -> None:
    for text, bound in (
        ("p99 <= 10 ms", ("delay_p99_us", 10_000)),
        ("p99.9<=500us", ("delay_p999_us", 500)),
        (" max <= 1.5 s ", ("delay_max_us", 1_500_000)),
        ("blind <= 0.5 s", ("blind_ms", 500)),
        (" age  p99 <= 50 ms", ("age_p99_us", 50_000)),
        ("age mean<=500us", ("age_mean_us", 500)),
    ):
        assert parse_bound(text) == bound
    for wrong in (
        "p99 < 10 ms", "p95 <= 1 ms", "p99 <= 0 ms", "10 ms", "p99 <= -1 ms", "p99 <= 1e9 ms",
        "age p90 <= 1 ms",
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"p99|limit|p95|10 ms|age p90"):
            parse_bound(wrong)


def test_mistakes_name_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\nflows:\n  - name: a\n    payload_bytes: 64\n    rate: 10\n    delay: p99 <= 10\n    lost_percent: 1\n"
    )
    with pytest.raises(InputError) as error:
        applications.load(str(path))
    assert f"{path}:6: delay:" in error.value.message
    assert f"{path}:7: lost_percent: unknown key (did you mean 'loss_percent'?)" in error.value.message


def test_the_template_has_every_key_and_can_be_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = new_experiment.application("mine")
    path.write_text(text)
    written = applications.load(str(path))
    assert written.name == "mine" and candidates_of(written).measurable
    for model in (Application, Flow, Choices):
        assert set(model.model_fields) <= keys(text)
    path.write_text(all_keys_enabled(text))
    assert applications.load(str(path)) == written


def test_choices_without_effect_on_a_flow_share_its_cell() -> None:
    flows = [
        {"name": "camera", "payload_bytes": 65536, "rate": 30, "subscribers": 4},
        {"name": "commands", "payload_bytes": 64, "rate": 100},
    ]
    choices = {
        "networks": ["weavenet"], "middleware": ["cyclonedds"], "receive_mode": ["listener"], "batch_bytes": [0, 4096],
        "message_bytes": ["auto", "max"],
    }  # fmt: skip
    known = candidates_of(application(flows=flows, choices=choices)).measurable
    assert len(known) == 8, "transport × message_bytes × batch_bytes"
    cameras, commands = ([candidate.cells[flow] for candidate in known] for flow in (0, 1))
    transports = ("unicast", "multicast")
    assert {(cell.transport, cell.message_bytes, cell.batch_bytes) for cell in cameras} == {
        (transport, size, 0) for transport in transports for size in ("auto", "max")
    }
    assert {(cell.transport, cell.message_bytes) for cell in commands} == {("unicast", "auto")}
    assert {cell.batch_bytes for cell in commands} == {0, 4096}
    flows[1]["batch_bytes"] = 1024
    known = candidates_of(application(flows=flows, choices=choices)).measurable
    assert {candidate.cells[1].batch_bytes for candidate in known} == {1024}


def test_the_other_flows_run_as_the_background() -> None:
    flows = [
        {"name": "camera", "payload_bytes": 100_000, "rate": 10, "publishers": 2, "subscribers": 4},
        {"name": "commands", "payload_bytes": 64, "rate": 100},
    ]
    together = application(flows=flows)
    camera, commands = together.flows
    # 2 publishers × 8 Mbit/s, to four subscribers; by multicast, one copy for all.
    load = background(together, commands, "unicast")
    assert (load.flows, load.rate_mbit) == (8, 8)
    load = background(together, commands, "multicast")
    assert (load.flows, load.rate_mbit) == (2, 8)
    assert not background(together, camera, "unicast"), "51 kbit/s are left out"
    assert not background(application(flows=flows, together=False), commands, "unicast")


def test_samples_are_encrypted_once() -> None:
    choices = {
        "middleware": "cyclonedds",
        "receive_mode": "listener",
        "message_bytes": "auto",
        "transport": "unicast",
    }

    def pairs(security: str) -> set[tuple[str, str]]:
        known = [
            dict(each.choices)
            for each in candidates_of(application(security=security, choices=choices)).measurable
        ]
        return {(each["networks"], each["security"]) for each in known}

    encrypted = {("weavenet-encrypt", "none"), ("flannel-vxlan", "EncryptRTPS")}
    assert encrypted <= pairs("encrypted")
    assert pairs("encrypted").isdisjoint({("flannel-vxlan", "none"), ("weavenet-encrypt", "EncryptRTPS")})
    assert "none" not in {security for _, security in pairs("signed")}


def test_combinations_that_cannot_be_measured_are_left_out_with_the_reason() -> None:
    known = candidates_of(application())
    assert all(dict(each.choices)["transport"] == "unicast" for each in known.measurable)
    assert any("multicast" in why for _, why in known.excluded)


def test_the_experiment_of_a_run_folder_has_the_same_cells(tmp_path: Path) -> None:
    experiment = applications.experiment(application())
    path = folder(tmp_path / "run", experiment).path / "experiment.yaml"
    again = experiments.load(str(path))
    assert isinstance(again, ApplicationExperiment) and again.application == experiment.application
    ids, same = ([cell.cell_id for cell in expand(each).cells] for each in (again, experiment))
    assert ids == same
    changed = experiments.changed(again, Changes(repetitions=2))
    assert isinstance(changed, ApplicationExperiment) and changed.repetitions == 2
    data = changed.model_dump(mode="json", exclude_none=True)
    path.write_text(yaml_text.dump(data | {"sweeps": 2 * data["sweeps"]}))
    with pytest.raises(InputError, match="one sweep for each flow"):
        experiments.load(str(path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"repetitions": 1000, "choices": {"batch_bytes": list(range(0, 100))}}, "more than 100,000 trials"),
        ({"choices": {"batch_bytes": list(range(500))}}, "more than 10,000 combinations"),
        ({"flows": [{"name": "a", "payload_bytes": 64, "rate": 1e-4, "delay": "p99 <= 1 s"}]}, "duration_s: "),
        ({"choices": {"networks": "kube-router", "transport": "multicast"}}, "can be measured: .*multicast"),
    ],
)  # fmt: skip
def test_an_application_that_cannot_be_measured_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        expand(applications.experiment(application(**changes)))


def test_changes_of_the_command_line() -> None:
    settings = ["choices.middleware=[fastdds]", "flows=[{name: a, payload_bytes: 64, rate: 5}]"]
    changed = applications.changed(application(), Changes(["weavenet"], settings, 2, 7))
    assert [choice.name for choice in changed.choices.networks] == ["weavenet"]
    assert (changed.choices.middleware, changed.repetitions, changed.duration_s) == (["fastdds"], 2, 7)
    for wrong in ("choices.middlewares=a", "flow=1", "name"):
        with pytest.raises(InputError):
            applications.changed(application(), Changes(settings=[wrong]))
    with pytest.raises(ValidationError):
        application(flows=[{"name": "a", "payload_bytes": 64, "rate": 5}] * 2)


def test_the_answer_is_the_configuration_with_the_least_cpu_time(tmp_path: Path) -> None:
    experiment = applications.experiment(application())
    run = folder(tmp_path / "run", experiment, Truth(noise=0.005))
    found = answer(evidence.of_own_run(run, experiment))
    assert found.verdict == "met" and found.recommended is not None
    wanted = best_of(experiment, Truth())
    assert found.recommended.option.choices == {"network": wanted.pop("networks")} | wanted
    (middleware,) = [each for each in found.worth if each.quantity == "cpu" and each.other == "fastdds"]
    assert middleware.contrast and middleware.what == "cyclonedds instead of fastdds"
    low, high = middleware.contrast.interval()
    assert low and high and low < 1 / 1.4 < high and middleware.contrast.n == 5
    scores = [each.cost or 0 for each in found.ranked]
    assert len(scores) == len(candidates(experiment).measurable) and scores == sorted(scores)
    assert results.data(found)["recommended"]["verdict"] == "met"


def test_requirements_decide_before_the_objective(tmp_path: Path) -> None:
    """The cheapest network is too slow for the limit, or has no valid trial."""
    slow = Truth(noise=0.005, delay={"flannel-hostgw": 20.0})
    experiment = applications.experiment(application())
    for name, options in (("slow", {"truth": slow}), ("invalid", {"invalid": ["flannel-hostgw"]})):
        found = answer(evidence.of_own_run(folder(tmp_path / name, experiment, **options), experiment))
        assert found.recommended and found.recommended.option.choices["network"] == "kube-router"
        failing = [each for each in found.ranked if each.verdict == "not met"]
        assert {each.option.choices["network"] for each in failing} == {"flannel-hostgw"}


@pytest.mark.parametrize("of_folders", [False, True])
def test_a_configuration_with_which_no_sample_arrives_is_not_undecided(
    tmp_path: Path, of_folders: bool
) -> None:
    """Also in a single repetition, which has no interval."""
    experiment = applications.experiment(application(repetitions=1))
    run = folder(tmp_path / "run", experiment)
    records = run.attempts()
    for record in records:
        if record["network_label"] == "flannel-hostgw":
            record |= {"received": 0, "lost_percent": 100.0, "delay_count": 0}
            record |= {name: None for name in record if name.startswith("delay_p")}
            record["missing"] = dict.fromkeys(("delay_p50_us", "delay_p90_us"), NOTHING_ARRIVED)
    run = rewritten(run, records)
    found = (
        evidence.of_folders(application(), [str(run.path)])
        if of_folders
        else evidence.of_own_run(run, experiment)
    )
    failing = [each for each in answer(found).ranked if each.verdict == "not met"]
    assert {each.option.choices["network"] for each in failing} == {"flannel-hostgw"}
    why = "no sample arrived in 1 of 1 trials"
    assert {text for each in failing for text in each.option.failed.values()} == {why}
    texts = [row[0].plain for table in results.tables(answer(found)) for row in table.rows]
    assert any(f"fails camera: {why}" in text for text in texts)


def test_the_exit_code_is_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_figures", lambda *_: [])  # which take most of the time

    def conclude(limit: str, output: Path | None = None) -> None:
        flow = {"name": "camera", "payload_bytes": 65536, "rate": 100, "delay": f"p90 <= {limit} ms"}
        choices = {"networks": ["flannel-hostgw", "kube-router"], "middleware": "cyclonedds"}
        choices |= {"receive_mode": "listener", "message_bytes": "auto"}
        experiment = applications.experiment(application(flows=[flow], choices=choices))
        run = folder(tmp_path / limit, experiment, Truth(drift=0.3))
        command.conclude(answer(evidence.of_own_run(run, experiment)), output, Output(form="json"))

    conclude("10")
    with pytest.raises(RequirementsNotMet) as error:
        conclude("1")
    assert error.value.exit_code == 7 and error.value.remedy
    assert '"verdict": "not met"' in capsys.readouterr().out
    with pytest.raises(RequirementsUndecided) as error:
        conclude("3", tmp_path / "out")
    more = r": k8sdds recommend robot\.yaml --duration=5 --repeat \d+ --max-trials \d+$"
    assert error.value.exit_code == 8 and re.search(more, error.value.remedy)
    page = (tmp_path / "out" / "recommendation.html").read_text()
    assert "measured in 5 repetitions" in page and "ecommended" not in page
    assert "<h1>Undecided</h1>" in page and "Requirements of the most promising configuration" in page
    assert "Most promising: " in (tmp_path / "out/configuration/README.md").read_text()


def test_any_run_folder_is_evidence(tmp_path: Path) -> None:
    """Trials of other campaigns count by their settings; what is missing is named."""

    def measured(network: str) -> str:
        choices = {"networks": network, "receive_mode": "listener"}
        return str(folder(tmp_path / network, applications.experiment(application(choices=choices))).path)

    paths = [measured("flannel-vxlan"), measured("kube-router")]
    flows = [application().flows[0].model_dump(), {"name": "commands", "payload_bytes": 64, "rate": 100}]
    found = answer(evidence.of_folders(application(flows=flows, choices={}), paths))
    assert {each.option.choices["network"] for each in found.ranked} == {"flannel-vxlan", "kube-router"}
    assert found.verdict == "undecided"
    assert any("was not measured for commands" in note for note in results.findings(found))
    with pytest.raises(InputError, match="no trial in"):
        evidence.of_folders(application(flows=flows[1:]), paths)
    # Configurations of different folders are never compared within a repetition.
    alone = answer(evidence.of_folders(application(choices={"receive_mode": "listener"}), paths))
    first, other = (
        next(each for each in alone.ranked if each.option.choices["network"] == network)
        for network in ("flannel-vxlan", "kube-router")
    )
    assert (other.against is None) != (first.against is None) or alone.recommended in (other, first)


def test_only_what_the_application_allows_is_evidence(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", applications.experiment(application()))
    asked = application(choices={"networks": ["kube-router"], "middleware": ["fastdds"]})
    for found in (evidence.of_folders(asked, [str(run.path)]), evidence_of(asked, [run.path])):
        allowed = {(option.choices["network"], option.choices["middleware"]) for option in found.options}
        assert allowed == {("kube-router", "fastdds")}
    (note,) = evidence.of_folders(asked, [str(run.path)]).notes
    assert note.endswith("left out: the application does not allow their middleware, network")
    with pytest.raises(InputError, match="does not allow any measured configuration: encryption"):
        evidence.of_folders(application(security="encrypted"), [str(run.path)])


def test_a_changed_limit_needs_no_further_trial(tmp_path: Path) -> None:
    """The trials are those of the application's own campaign, with what failed in it."""
    run = folder(tmp_path / "run", applications.experiment(application()), invalid=["flannel-hostgw"])
    flow = application().flows[0].model_dump() | {"delay": "p90 <= 1 ms"}
    found = evidence_of(application(flows=[flow]), [run.path])
    assert {option.choices["network"] for option in found.options if option.failed} == {"flannel-hostgw"}
    assert answer(found).verdict == "not met"


def test_options_that_need_a_measurement_are_refused_with_run_folders(tmp_path: Path) -> None:
    for options in ("--dry-run", "--repeat 3", "--testbed lab", "--seed 1", "--yes", "--quick"):
        result = CliRunner().invoke(app, ["recommend", "commands", "--from", str(tmp_path), *options.split()])
        assert isinstance(result.exception, InputError), options
        assert result.exception.message == "--from measures nothing"
    result = CliRunner().invoke(app, ["recommend", "commands", "--yes", "--quick"])
    assert isinstance(result.exception, InputError) and "exclude each other" in result.exception.message


def test_run_and_show_take_an_experiment_or_an_application(k8sdds: Command, tmp_path: Path) -> None:
    text = new_experiment.application("b2").replace(
        "flows:", "choices: {networks: [host], middleware: fastdds}\nflows:"
    )
    (tmp_path / "b2.yaml").write_text(text)
    shown = k8sdds("show", "b2", "--json")
    assert {cell["network"] for cell in json.loads(shown.stdout)["cells"]} == {"host"}
    assert k8sdds("show", "./b2.yaml", "--json").stdout == shown.stdout
    for args, message in (
        (("run", "b2", "--paper"), "b2 is an application\n  → leave out what experiments have: --paper"),
        (("recommend", "quickstart"), "measure it: k8sdds run quickstart"),
        (("run", "camera-4-viewer"), "did you mean 'camera-4-viewers'?"),
        (("list", "experiment"), "did you mean 'experiments'?"),
        (("run", "b3.yaml"), "No such file"),
        (("list", "network"), "'applications', 'networks'"),
    ):
        done = k8sdds(*args)
        assert (done.returncode, done.stdout) == (2, "") and message in done.stderr


def test_means_within_limits_rank_before_the_objective_and_shares_have_possible_intervals(
    tmp_path: Path,
) -> None:
    """The cheapest network misses so many deadlines that two repetitions show nothing."""
    flow = {"name": "camera", "payload_bytes": 65536, "rate": 100, "missed_percent": 1}
    experiment = applications.experiment(application(flows=[flow], repetitions=2))
    run = folder(tmp_path / "run", experiment, Truth(noise=0.005))
    chance = random.Random(1)
    for trial in trials_of(experiment):
        late = trial.cell.network_label == "flannel-hostgw"
        missed = [[0.0, 0.9], [5.0, 45.0]][late][trial.repetition]
        changed = {"attempt": 2, "deadline_missed_percent": missed, "achieved_rate_percent": 100 - missed}
        run.append_attempts([Truth().record(trial, chance, **changed).as_json()])
    found = answer(evidence.of_own_run(run, experiment))
    best = found.ranked[0]
    assert {each.verdict for each in found.ranked} == {"undecided"}
    assert best.beyond == (0, 0.0) and best.option.choices["network"] != "flannel-hostgw"
    late = next(each for each in found.ranked if each.option.choices["network"] == "flannel-hostgw")
    assert late.beyond == (2, pytest.approx(25.0)) and (late.cost or 0) < (best.cost or 0)
    reached, missing = late.judgements
    assert reached.high == missing.high == 100.0 and reached.low == missing.low == 0.0
    *_, ranking = results.tables(found)
    shown = [row[0].small for row in ranking.rows if "flannel-hostgw" in row[0].text]
    assert "mean beyond camera: missed deadlines <= 1 % (25\N{NO-BREAK SPACE}%)" in shown[0]
