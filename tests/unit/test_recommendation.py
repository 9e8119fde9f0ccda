"""The files of a recommended configuration, and comparisons of configurations in incomplete blocks."""

from __future__ import annotations

import csv
import math
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from k8sdds import links
from k8sdds.analysis.requirements import Judgement
from k8sdds.analysis.selection import Fit
from k8sdds.analysis.statistics import one_sample
from k8sdds.campaign import applications, experiments, start, trial_length
from k8sdds.campaign import run as campaign
from k8sdds.campaign.expansion import candidates, expand
from k8sdds.campaign.racing import searched
from k8sdds.cli.app import app
from k8sdds.deploy.tuning import load as load_tuning
from k8sdds.model.application import Requirement
from k8sdds.model.link_choice import LinkChoice
from k8sdds.recommend import evidence, files, results, values
from k8sdds.recommend.answer import Answer, answer, of_run
from k8sdds.recommend.evidence import Evidence
from k8sdds.recommend.next_step import next_step
from k8sdds.results.record import TrialRecord
from k8sdds.system import yaml_text
from k8sdds.workloads import find
from tests.applications import Truth, application, folder
from tests.run_folders import rewritten

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
        for candidate in candidates(experiment).measurable
        if {applications.SHOWN.get(name, name): value for name, value in candidate.choices} == choices
    )
    plain = [
        cell.model_copy(update={"middleware_config": "", "middleware_config_sha256": ""})
        for cell in confirmed
    ]
    assert [cell.cell_id for cell in plain] == [cell.cell_id for cell in wanted]
    assert all(cell.middleware_config.endswith("measured/cyclonedds.xml") for cell in confirmed)


def test_the_confirmation_measures_over_the_links_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses.txt").write_text("0001")
    found = answered(tmp_path)
    link = links.resolve(LinkChoice.model_validate({"like": "lte", "loss": {"file": "losses.txt"}}))
    over = found.evidence.application.model_copy(update={"link": link})
    files.write(replace(found, evidence=replace(found.evidence, application=over)), tmp_path / "out")
    confirmed = expand(experiments.load(str(tmp_path / "out" / "confirm.yaml")))
    assert {cell.link.describe() for cell in confirmed.cells} == {"links lte, loss from losses.txt"}
    assert confirmed.experiment.duration_s == 60


@pytest.mark.parametrize("of_folders", [False, True])
def test_a_configuration_with_a_trial_without_a_valid_attempt_is_not_recommended(
    tmp_path: Path, of_folders: bool
) -> None:
    """Its other trials are those that did not lose samples."""
    choices = {"networks": ["flannel-hostgw", "weavenet"], "receive_mode": "listener", "transport": "unicast"}
    robot = application(choices=choices | {"middleware": "cyclonedds", "message_bytes": "auto"})
    experiment = applications.experiment(robot)
    run = folder(tmp_path / "run", experiment)

    def found() -> Answer:
        return answer(
            evidence.of_folders(robot, [str(run.path)])
            if of_folders
            else evidence.of_own_run(run, experiment)
        )

    def verdicts() -> dict[str, str]:
        return {str(each.option.choices["network"]): each.verdict for each in found().ranked}

    assert verdicts() == {"flannel-hostgw": "met", "weavenet": "met"}
    records = run.attempts()
    lost = [row for row in records if row["network"] == "flannel-hostgw"][:2]
    for row, reason in zip(lost, ("lost-samples: 214 of 9000", "interrupted: Ctrl-C"), strict=True):
        row |= {"valid": False, "reason": reason}
    run = rewritten(run, records)
    assert verdicts() == {"flannel-hostgw": "undecided", "weavenet": "met"}
    texts = [row[0].small for table in results.tables(found()) for row in table.rows]
    why = "a trial without a valid attempt (lost-samples: 214 of 9000)"
    assert f"camera: {why}" in texts
    assert [each["rejected"] for each in results.data(found())["configurations"]] == [{}, {"camera": why}]
    results.write(found(), tmp_path / "out")
    lines = list(csv.DictReader((tmp_path / "out" / "recommendation.csv").read_text().splitlines()))
    assert {(line["verdict"], line["why"]) for line in lines} == {("met", ""), ("undecided", why)}
    run = rewritten(run, [row for row in records if row["network"] == "flannel-hostgw"])
    assert f"It is undecided at best, because of camera: {why}." in results.lead(found())
    again = (
        f"To decide it, measure {found().ranked[0].option.describe()} again: a trial of it has no valid attempt",
        "k8sdds recommend robot",
    )
    retry = (
        "To decide it, measure the trials without a valid attempt again",
        f"k8sdds run --resume {run.path} --retry-failed",
    )
    assert next_step(found(), None) == (again if of_folders else retry)
    # An interrupted attempt shows nothing of its trial.
    run = rewritten(run, [row for row in records if row["reason"] != lost[0]["reason"]])
    assert verdicts() == {"flannel-hostgw": "met", "weavenet": "met"}


def test_attempts_without_a_result_do_not_decide_what_is_usual(tmp_path: Path) -> None:
    """In another environment, four trials have three invalid attempts each."""
    robot = application(
        choices={
            "networks": "weavenet",
            "receive_mode": "listener",
            "middleware": "cyclonedds",
            "transport": "unicast",
        }
    )
    runs = [folder(tmp_path / name, applications.experiment(robot)) for name in ("valid", "invalid")]
    own, other = (run.attempts() for run in runs)
    assert len(own) < 12
    other = [row | {"instances": 3, "valid": False} for row in other[:4]]
    lost = [row | {"reason": f"lost-samples: {n}"} for n in range(3) for row in other]
    rewritten(runs[1], lost)

    def left(names: list[str]) -> Evidence:
        return evidence.of_folders(robot, [str(tmp_path / name) for name in names])

    for mixed in (left(["valid", "invalid"]), left(["invalid", "valid"])):
        assert mixed.trials == len(own) and not any(option.rejected for option in mixed.options)
        assert [note.partition(", with")[0] for note in mixed.notes] == ["4 trials left out"]
    option, *_ = left(["invalid"]).options
    assert option.rejected["camera"]["reason"] == "lost-samples: 2"


def test_a_folder_that_is_named_twice_or_copied_counts_once(tmp_path: Path) -> None:
    robot = application()
    path = folder(tmp_path / "run", applications.experiment(robot)).path
    (tmp_path / "link").symlink_to(path)
    shutil.copytree(path, tmp_path / "copy")
    once, twice = (
        answer(evidence.of_folders(robot, [str(name) for name in names]))
        for names in ([path], [path, tmp_path / "link", tmp_path / "copy"])
    )
    assert [each.judgements for each in twice.ranked] == [each.judgements for each in once.ranked]
    assert twice.evidence.trials == once.evidence.trials


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


def test_trials_that_are_too_short_lead_to_longer_ones_not_to_more(tmp_path: Path) -> None:
    experiment = applications.experiment(
        application(duration_s=5, flows=[TWO[0] | {"delay": "p99 <= 10 ms"}])
    )
    run = folder(
        tmp_path / "run", experiment, delay_p99_us=None, delay_count=500,
        missing={"delay_p99_us": "500 values, 1000 are needed"},
    )  # fmt: skip
    found = answer(evidence.of_own_run(run, experiment))
    assert found.verdict == "undecided"
    assert next_step(found, None) == (
        "To decide it, measure trials of 16 s (about 17 min)",
        "k8sdds recommend robot.yaml --duration 16",
    )


def test_a_percentile_that_one_repetition_lost_is_not_called_close_to_its_limit(tmp_path: Path) -> None:
    reason = "60 of 100 values above it are missing"
    robot = application(
        choices={"networks": "weavenet", "receive_mode": "listener", "middleware": "cyclonedds"}
    )
    experiment = applications.experiment(robot)
    run = folder(tmp_path / "run", experiment)
    records = run.attempts()
    for row in records:
        if row["repetition"] == 0:
            row |= {"delay_p90_us": None, "delay_count": 9000, "missing": {"delay_p90_us": reason}}
    found = answer(evidence.of_own_run(rewritten(run, records), experiment))
    assert found.verdict == "undecided"
    what, _ = next_step(found, None)
    assert what == (
        f"To decide about camera: p90 delay <= 10 ms ({reason}), lower the rate, so that fewer"
        " values are missing"
    )


def test_a_search_needs_trials_for_further_repetitions(tmp_path: Path) -> None:
    experiment = applications.experiment(application(flows=[TWO[0] | {"delay": "p90 <= 3 ms"}]))
    own = evidence.of_own_run(folder(tmp_path / "run", experiment, Truth(drift=0.3)), experiment)
    found = answer(own)
    assert found.recommended is not None and (further := found.recommended.further)
    _, command = next_step(found, None)
    assert command.endswith(f" --repeat {5 + further} --max-trials {own.trials + 2 * further}")


def test_a_disturbed_search_is_repeated_without_other_work_and_with_the_accepted_duration(
    tmp_path: Path,
) -> None:
    experiment = applications.experiment(application(duration_s=8, flows=[TWO[0] | {"delay": "p90 <= 3 ms"}]))
    busy = ["disturbed: other processes used 178 % of a core during the measured interval"]
    run = folder(tmp_path / "run", experiment, Truth(drift=0.3), warnings=busy)
    own = evidence.of_own_run(run, experiment)
    what, command = next_step(answer(own), None)
    assert re.fullmatch(
        rf"Stop other work on these machines, which disturbed {own.trials} of {own.trials} trials\."
        r" To decide it, measure about \d+ repetitions \(about [\d hmin]+\)",
        what,
    )
    assert " --duration 8 --repeat " in command and "--duration=5" not in command


def test_what_is_tied_has_an_interval_that_contains_no_difference(tmp_path: Path) -> None:
    """At the level of the test, 0 % is inside the interval; at 95 % it would be outside of many."""
    experiment = applications.experiment(application())
    truth = Truth(cpu={"kube-router": 1.03, "flannel-vxlan": 1.05}, noise=0.015)
    found = answer(evidence.of_own_run(folder(tmp_path / "run", experiment, truth), experiment))
    assert not found.ranked[0].tied
    contradicting = 0
    for each in found.ranked[1:]:
        assert each.against is not None
        (low, high), (low_95, _) = each.bounds, each.against.interval()
        assert low is not None and high is not None and low_95 is not None
        assert each.tied == (low <= 1 <= high)
        contradicting += each.tied and low_95 > 1
    assert contradicting, "otherwise the test shows nothing"


def test_one_repetition_shows_no_difference_and_none_is_claimed(tmp_path: Path) -> None:
    experiment = applications.experiment(application(repetitions=1))
    found = answer(evidence.of_own_run(folder(tmp_path / "run", experiment), experiment))
    text = " ".join(results.lead(found))
    assert "% of one core, no interval." in text and "(too few repetitions for a test)" in text
    required, worth, ranking = results.tables(found)
    reason = "one repetition has no interval"
    assert [row[2].small for row in required.rows if row[1].text == "p50 delay"] == [reason]
    assert all(row[1].text.endswith(", no interval") for row in worth.rows)
    assert [row[2].text.endswith(", no interval") for row in ranking.rows] == [False] + [True] * (
        len(ranking.rows) - 1
    )


def test_a_delay_without_a_value_has_its_reason(tmp_path: Path) -> None:
    experiment = applications.experiment(application(flows=TWO[:1]))
    reason = "7 episodes above it, 10 are needed (240 values)"
    run = folder(tmp_path / "run", experiment, delay_p50_us=None, missing={"delay_p50_us": reason})
    required, *_ = results.tables(answer(evidence.of_own_run(run, experiment)))
    assert [row[2].small for row in required.rows if row[1].text == "p50 delay"] == [reason]


def test_networks_that_were_measured_with_other_settings_are_not_called_unmeasured() -> None:
    known = application(choices={"networks": ["flannel-vxlan", "kube-router"], "receive_mode": "listener"})
    experiment = searched(known, 12)
    chance, truth = random.Random(1), Truth()
    wanted = {("flannel-vxlan", "cyclonedds"), ("kube-router", "fastdds")}
    rows = [
        vars(truth.record(trial, chance))
        for trial in expand(applications.experiment(known)).trials("lab")
        if (trial.cell.network, trial.cell.middleware) in wanted
    ]
    found = answer(evidence.of_trials(experiment, rows, {}, "run"))
    (worth,) = (each for each in found.worth if each.choice == "network" and each.quantity == "cpu")
    assert worth.contrast is None
    assert worth.what == "flannel-vxlan instead of kube-router"
    shown = {row[0].text: row[0].small for row in results.tables(found)[1].rows}
    assert shown[worth.what] == "no repetition compares configurations that differ only in this"


def test_the_page_has_figures_and_links_to_the_files(tmp_path: Path) -> None:
    found = answered(tmp_path, transport=["unicast", "multicast"])
    results.write(found, tmp_path / "out")
    files.write(found, tmp_path / "out" / files.FOLDER)
    page = (tmp_path / "out" / "recommendation.html").read_text()
    for slug in ("requirements", "configurations", "worth"):
        assert f'id="figure-recommendation-{slug}"' in page
        assert (tmp_path / "out" / f"recommendation-{slug}.png").is_file()
    linked = re.findall(r'<a href="([^"]+)"', page)
    assert len(linked) == 9 and all((tmp_path / "out" / link).is_file() for link in linked)
    assert '<span class="word">run</span> <span class="word">configuration/confirm.yaml</span>' in page
    for slug in ("requirements", "configurations"):
        assert f'id="figure-recommendation-{slug}" class="narrow"' in page, "a phone shows it whole"
    assert re.search(r"multicast instead of unicast: -\d+ \[-\d+, -\d+\]", page), "the label has the interval"


def test_delays_have_the_unit_of_their_limits_and_signs_of_their_verdicts(tmp_path: Path) -> None:
    found = answered(tmp_path)
    requirements, *_ = results.tables(found)
    rows = {(where.text, what.text): (where.sign, value.text) for where, what, value, _ in requirements.rows}
    sign, value = rows["camera", "p90 delay <= 10 ms"]
    assert sign == "✓" and re.fullmatch(r"[23]\.\d+\sms \[[23]\.\d+, [34]\.\d+\]", value)
    for flow in ("camera", "commands"):
        assert rows[flow, "p50 delay"][0] == " " and "ms [" in rows[flow, "p50 delay"][1]
    assert ("commands", "p90 delay") in rows and ("camera", "p90 delay") not in rows
    blind = Judgement(Requirement("camera", "blind_ms", 500, text=""), "met", 312.4, 290.1, 340.0, 5, None)
    assert values.measured(found.evidence.application, blind) == "312.4\N{NO-BREAK SPACE}ms [290.1, 340]"
    measured = TrialRecord(delay_p90_us=33_012.3, deadline_missed_percent=2)
    assert find("paced").describe(measured) == "delay p90 33.0 ms, 2.00 % missed the deadline", (
        "as on the way"
    )
    assert find("paced").describe(TrialRecord()) == "delay unknown"


def test_too_short_trials_are_found_before_they_are_measured(tmp_path: Path) -> None:
    """The 99th percentile of 100 samples/s needs 1,011 samples; at 5 %, a loss below 1 % in one trial needs 300."""
    choices = {
        "networks": "kube-router", "middleware": "cyclonedds", "receive_mode": "listener", "message_bytes": "auto",
    }  # fmt: skip
    flow = TWO[0] | {"subscribers": 1, "delay": ["p50 <= 5 ms", "p99 <= 10 ms"], "loss_percent": 1}
    short = applications.experiment(application(flows=[flow], choices=choices, duration_s=2, repetitions=1))
    assert [samples.describe(2) for samples in trial_length.undecidable(short, 1)] == [
        "camera: p99 delay <= 10 ms needs 1,011 samples, a trial has 200",
        "camera: loss <= 1 % needs 300 samples, 1 repetition has 200",
    ]
    longer = trial_length.extended(short, trial_length.undecidable(short, 1))
    assert longer.duration_s == 16 and not trial_length.undecidable(longer, 1)
    default = applications.experiment(application(flows=[flow], choices=choices))
    assert trial_length.undecidable(default, 1) == []
    blind = flow | {"delay": ["p50 <= 5 ms", "blind <= 3 s", "age p99 <= 2.5 s"], "loss_percent": None}
    experiment = applications.experiment(application(flows=[blind], choices=choices, duration_s=2))
    assert [samples.describe(2) for samples in trial_length.undecidable(experiment, 1)] == [
        "camera: blind <= 3 s needs 300 samples, a trial has 200",
        "camera: age p99 <= 2.5 s needs 250 samples, a trial has 200",
    ]

    lines: list[str] = []
    display = SimpleNamespace(line=lines.append)
    testbed: Any = SimpleNamespace(cores=lambda: 2)
    for agrees, seconds in ((True, 16), (False, 2)):
        request = campaign.Request(short, "x", tmp_path, 1, longer=lambda yes=agrees: yes)
        assert campaign._decidable(expand(short), request, testbed, display).experiment.duration_s == seconds
    assert lines[0] == "Trials of 2 s cannot decide 2 of 4 requirements:"
    assert lines[3] == "Trials of 16 s can (--duration 16): 17 s instead of 3 s."


def test_a_long_search_needs_confirmation_and_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = searched(application(flows=[TWO[0] | {"delay": "p99.99 <= 10 ms"}]))
    testbed: Any = SimpleNamespace(
        name="lab",
        supported_subset=lambda experiment, _: (experiment, []),
        blocks=lambda *_: [],
        cores=lambda: 2,
        preparation_s=lambda _: 0,
        interference=list,
    )
    monkeypatch.setattr(campaign.supported, "subset", lambda experiment, *_: (experiment, []))
    monkeypatch.setattr(campaign.preflight, "check", lambda *_: [])
    lines: list[str] = []
    display: Any = SimpleNamespace(line=lines.append)

    def declined() -> None:
        raise InterruptedError

    request = campaign.Request(long, "x", tmp_path / "run", 1, confirm=declined)
    with pytest.raises(InterruptedError):
        campaign.run(request, testbed, display)
    assert not (tmp_path / "run").exists()
    assert campaign.run(replace(request, dry_run=True), testbed, display) is None
    hint = (
        "To make it shorter: fewer networks (--network); fewer trials (--max-trials); missed_percent instead of"
        " camera: p99.99 delay <= 10 ms, with a shorter --duration"
    )
    assert lines.count(hint) == 2


def test_the_report_of_a_search_states_its_verdict_and_what_was_not_measured(tmp_path: Path) -> None:
    """Two trials of one network are too short for any percentile; the baseline was not measured with fastdds."""
    known = application(flows=[TWO[0] | {"missed_percent": 1, "delay": []}])
    experiment = searched(known, 12)
    unknown = dict.fromkeys(("delay_p50_us", "delay_p90_us", "delay_p99_us"))
    run = folder(tmp_path / "run", applications.experiment(known), **unknown)
    (run.path / "experiment.yaml").write_text(start.experiment_yaml(experiment))
    rewritten(
        run,
        (
            row
            for row in run.attempts()
            if (row["network_label"] == experiment.baseline) <= (row["middleware"] == "cyclonedds")
        ),
    )
    assert CliRunner().invoke(app, ["report", str(run.path)]).exit_code == 0
    page = (run.report / "report.html").read_text()
    found = of_run(run)
    assert found is not None
    assert all(f'<p class="verdict">{sentence}</p>' in page for sentence in results.lead(found)[:2])
    assert 'href="recommendation.html"' in page and (run.report / "recommendation.html").is_file()
    assert f"{experiment.baseline} was not measured in" in page and "has no valid trial in" not in page
    assert not re.search(r"\bn = 0\b", page) and "n = 5" in page
