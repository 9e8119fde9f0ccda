"""Named links: values with sources, what takes from them, and links as an axis of experiments and applications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from k8sdds import links
from k8sdds.analysis import conditions
from k8sdds.campaign import applications, experiments, preflight, start, trial_length
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.record import description
from k8sdds.cli.app import app
from k8sdds.cli.options import Changes
from k8sdds.model.application import Application
from k8sdds.model.axis import axes, compact
from k8sdds.model.experiment import Experiment
from k8sdds.model.impairments import Loss, Rate
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.trial import AXES, Cell
from k8sdds.recommend import evidence
from k8sdds.results.tidy import _row
from k8sdds.system.errors import InputError
from tests.unit import builders
from tests.unit.test_axes import APPLICATION, folder, record, used

NAMES = {
    "wifi-office", "wifi-roaming", "lte", "5g-urban", "leo-satellite", "industrial-ethernet-errors", "long-cable",
}  # fmt: skip


def resolved(**choice: Any) -> Link:
    return links.resolve(LinkChoice.model_validate(choice)).link


def experiment(text: str) -> Experiment:
    return links.resolved(builders.experiment(duration_s=60, link=text))


# -- the installed links ------------------------------------------------------------------------------


def test_the_installed_links_are_those_that_the_documents_name() -> None:
    assert set(links.LINKS.names()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_value_of_a_link_states_its_source(name: str) -> None:
    link = links.load(name)
    assert link.name == name and link.title and link.link.is_shaped
    values = links.keys(link.model_dump(mode="json", exclude_unset=True, exclude=set(links.ABOUT)))
    without = [
        key for key in values if not any(f"{key}.".startswith(f"{source}.") for source in link.sources)
    ]
    assert not without
    # A source names a paper, a data set or a standard with its conditions; anything else is an assumption.
    assert all(len(text) > 30 or text.lower().startswith("assumption") for text in link.sources.values())


def test_the_rate_of_a_roaming_robot_falls_before_it_is_silent() -> None:
    roaming = links.load("wifi-roaming").link
    slow, silent = roaming.outages[0].phases(30)
    assert (slow.rate_mbit, silent.rate_mbit) == (6, 0)
    assert slow.at_us + slow.for_us == silent.at_us
    assert "no outages" in roaming.kernel_obstacle
    assert not links.load("wifi-office").link.kernel_obstacle


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nlike: lte\n", "x.yaml:2: like: a file of a link states all of its values"),
        ("name: x\nmtu: [1500, 9000]\n", "x.yaml:2: mtu: a link has one value"),
        ("name: x\ndelay_us: 5\nsources: {delay: paper}\n", "x.yaml:3: sources: there is no value 'delay'"),
        ("delay_us: 5\n", "name: this key is missing"),
        ("name: x\nlos_percent: 5\n", "did you mean 'loss_percent'?"),
        ("name: x\ndelay: {jitter_us: 5}\n", "x.yaml:2: delay.jitter_us: needs mean_us"),
    ],
)
def test_a_wrong_file_of_a_link_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        resolved(like=str(tmp_path / "x.yaml"))
    assert message in caught.value.message


def test_an_unknown_link_suggests_a_known_one() -> None:
    with pytest.raises(InputError, match=r"there is no link 'wifi-ofice'.*did you mean 'wifi-office'"):
        resolved(like="wifi-ofice")


def test_the_file_of_a_link_is_shown_like_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hall.yaml").write_text(links.LINKS.copy("lte", "hall"))
    for name in ("lte", "./hall.yaml", "hall"):
        shown = CliRunner().invoke(app, ["show", name]).stdout
        assert "up: 28 ms ± 8 ms delay" in shown and "MobiSys 2012" in shown, name
    # A file that is no link is read as an experiment.
    (tmp_path / "hall.yaml").write_text("name: hall\nlink: {rate_mbit: 5}\nsweep: []\n")
    assert "sweeps" in CliRunner().invoke(app, ["show", "hall"]).exception.message  # type: ignore[union-attr]


# -- taking from a link -------------------------------------------------------------------------------


def test_a_link_takes_the_values_of_another_and_changes_those_that_it_sets() -> None:
    lte = resolved(like="lte")
    changed = resolved(like="lte", rate_mbit=54, up={"loss": {"percent": 1}}, mtu=9000, engine="userspace")
    assert lte.directions["up"].rate == Rate(mbit=6)
    # A key for both directions replaces those of each.
    assert {direction.rate for direction in changed.directions.values()} == {Rate(mbit=54)}
    assert changed.directions["up"].loss == Loss(percent=1)
    assert changed.directions["down"].loss == lte.directions["down"].loss
    assert [changed.directions[way].delay == lte.directions[way].delay for way in ("up", "down")] == [
        True,
        True,
    ]
    assert changed.outages == lte.outages
    assert lte.describe() == "links lte"
    assert changed.describe() == "links lte, 54 Mbit/s, up 1 % loss, userspace engine, MTU 9000"
    assert resolved(like="lte", outages=[]).describe() == "links lte, no outages"
    assert resolved(like="lte", name="our-van", rate_mbit=20).describe() == "links our-van"
    assert resolved(like="lte") == resolved(like="lte", mtu=1500)


def test_what_contradicts_the_link_is_named() -> None:
    with pytest.raises(InputError, match=r"link like wifi-roaming: engine: netem has no outages"):
        resolved(like="wifi-roaming", engine="kernel")


def test_two_links_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two different links are named 'lte'"):
        experiment(["lte", {"name": "lte", "delay_us": 5}])  # type: ignore[arg-type]


def test_a_copied_link_is_measured_like_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(links.LINKS.copy("lte", "mine"))
    own = resolved(like="./mine.yaml")
    assert own == resolved(like="lte").model_copy(update={"name": "mine"}) == resolved(like="mine")


# -- an axis ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [Link(), *(links.load(name).link for name in sorted(NAMES))])
def test_links_separate_cells_and_are_recorded_and_described(known: Link) -> None:
    cell = Cell(network="host", test="throughput", payload_bytes=1024, link=known)
    plain = cell.model_copy(update={"link": Link()})
    assert (cell.cell_id == plain.cell_id) == (known == Link())
    row = _row({"network": "host", "link": AXES["link"].recorded(known)})
    assert AXES["link"].parsed(row["link"]) == known
    assert conditions.describe({"link": row["link"]}) == known.describe()
    # Only numbers have columns of their own.
    assert {key for key in row if key.startswith("link_")} <= {f"link_{name}" for name in axes(Link)}
    assert not any(isinstance(row[key], str) for key in row if key.startswith("link_"))


def test_several_links_of_an_experiment_are_combined_with_its_lists() -> None:
    several = experiment(["wifi-office", {"like": "lte", "mtu": [1500, 9000]}])  # type: ignore[arg-type]
    found = [cell.link.describe() for cell in expand(several).cells]
    assert found == ["links wifi-office", "links lte", "links lte, MTU 9000"]
    again = Experiment.model_validate(
        several.model_dump(mode="json", exclude_none=True), context=experiments.KNOWN
    )
    assert expand(again).cells == expand(several).cells


def test_the_run_folder_does_not_need_the_file_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(links.LINKS.copy("lte", "mine"))
    for link in (
        {"like": str(tmp_path / "mine.yaml")},
        ["long-cable", {"like": str(tmp_path / "mine.yaml"), "nodes": "publishers"}],
    ):
        original = expand(experiment(link))  # type: ignore[arg-type]
        text, _ = start.run_folder_files(original)
        (tmp_path / "experiment.yaml").write_text(text)
        assert "like" not in text and str(tmp_path) not in text
        assert expand(experiments.load(str(tmp_path / "experiment.yaml"))).cells == original.cells


def arguments(**options: Any) -> Any:
    return Changes(**options).arguments


def test_the_option_link_changes_experiments_and_applications() -> None:
    one = applications.load_experiment("quickstart", arguments(link=["lte"], settings=["link.rate_mbit=54"]))
    assert {cell.link.describe() for cell in expand(one).cells} == {"links lte, 54 Mbit/s"}
    both = applications.load_experiment("security-4sub", arguments(link=["lte", "long-cable"]))
    assert {cell.link.describe() for cell in expand(both).cells} == {"links lte", "links long-cable"}
    robot = applications.load_experiment("teleoperation", arguments(link=["wifi-roaming"]))
    assert {cell.link.describe() for cell in expand(robot).cells} == {"links wifi-roaming"}
    # A trial of an application has the share of outages that its link has.
    assert robot.duration_s == trial_length.default_s(robot.application) == 30  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="an application has one link"):
        applications.load_experiment("teleoperation", arguments(link=["lte", "long-cable"]))
    with pytest.raises(InputError, match="there is no link 'ltee'"):
        applications.load_experiment("quickstart", arguments(link=["ltee"]))


def test_trials_that_end_before_the_first_outage_are_refused() -> None:
    short = experiment("wifi-roaming").model_copy(update={"duration_s": 15})
    (problem,) = preflight.contradictions(expand(short))
    assert "the first outage ends after 15.5 s" in problem.what and "at least 16" in problem.remedy
    assert not preflight.contradictions(expand(experiment("wifi-roaming")))


def over_link(**choice: Any) -> Application:
    return APPLICATION.model_copy(update={"link": links.resolve(LinkChoice(**choice))})


def test_an_application_is_judged_by_trials_over_its_link(tmp_path: Path) -> None:
    # A testbed decides on the engine if the application leaves it open.
    lte = AXES["link"].recorded(resolved(like="lte", engine="userspace"))
    folders = [folder(tmp_path / "a", 4), folder(tmp_path / "b", 2, link=lte)]
    folders.append(folder(tmp_path / "c", 1, link={"unknown": 1}))
    over = over_link(like="lte")
    found = evidence.of_folders(over, folders)
    assert used(found) == [2]
    assert found.notes[0] == ("5 trials left out: the application does not allow their links (required: lte)")
    with pytest.raises(InputError, match=r"any measured configuration: links \(required: long-cable\)"):
        evidence.of_folders(over_link(like="long-cable"), folders)
    # Without a link, the environment with most trials counts.
    assert used(evidence.of_folders(APPLICATION, folders)) == [4]
    kernel = over_link(like="lte", outages=[], engine="kernel")
    with pytest.raises(InputError, match=r"links \(required: lte, no outages, kernel engine\)"):
        evidence.of_folders(kernel, folders)
    own = links.with_engines(applications.experiment(over), has_netem=True)
    (measured,), wanted = own.link, over.link
    assert links.allows(APPLICATION.link.link, measured.link) and links.allows(wanted.link, measured.link)
    assert links.allows(Link(), None) and not links.allows(wanted.link, None)
    assert not links.allows(wanted.link, APPLICATION.link.link)


def test_a_record_names_the_link_and_its_values() -> None:
    (trial, *_) = expand(experiment("wifi-roaming")).trials("lab")
    recorded = description(trial)["link"]
    assert recorded["name"] == "wifi-roaming" and recorded["outages"][0]["kind"] == "wifi"
    assert json.loads(compact(recorded)) == recorded
    assert record()["link"] == AXES["link"].recorded(Link())
