"""Figures of outages, from a recorded one: over time, and by its length."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds.report import caveats, content, csv_tables, figures, html, tables
from k8sdds.report.content import Content
from k8sdds.report.figures import levels, outages, over_time
from k8sdds.report.formats import number
from k8sdds.results import arrivals, link_statistics
from k8sdds.results.arrivals import Arrival
from k8sdds.results.run_folder import RunFolder
from k8sdds.workloads import find
from tests import run_folders as folders

RECORDED = Path(__file__).parents[1] / "recorded/outage"
RECORD = json.loads((RECORDED / "expected.json").read_text())["record"]
BLIND_MS, FULL_MS = RECORD["outage_blind_ms"], RECORD["recovery_full_ms"]
LENGTHS = (1.0, 5.0)


@pytest.fixture
def measured(tmp_path: Path) -> Content:
    """Two networks, each with outages of two lengths, of which the files are those of the recorded one."""
    names = (
        "test", "outage_what", "outage_where", "outage_after_s", "outage_s", "outage_observed_ms",
        "outage_blind_ms", "recovery_first_ms", "recovery_full_ms",
    )  # fmt: skip
    values = {name: RECORD[name] for name in names}
    plan = folders.Plan(("host", "weavenet"), (1024,), ("paced",), 2, histograms=False)
    run = folders.make(tmp_path / "run", plan)
    attempts = []
    for attempt in run.attempts():
        attempt |= values
        length = LENGTHS[attempt["repetition"] % 2]
        blind = BLIND_MS * length
        cell = f"{attempt['cell_id']}-{length:g}"
        attempts.append(attempt | {"cell_id": cell, "outage_for_s": length, "outage_blind_ms": blind})
        raw = run.raw(attempt["trial_id"], attempt["attempt"])
        shutil.copytree(RECORDED, raw, dirs_exist_ok=True)
    return content.read(folders.rewritten(run, attempts))


def ended(run: RunFolder) -> Content:
    """The same, but the first trial of weavenet ended before its subscriber recovered."""
    attempts = run.attempts()
    first = next(attempt for attempt in attempts if attempt["network"] == "weavenet")
    missing = {"recovery_full_ms": "not recovered within 3000 ms"}
    first |= {"outage_observed_ms": 3000, "recovery_full_ms": None, "missing": missing}
    return content.read(folders.rewritten(run, attempts))


def test_trials_that_end_before_the_recovery_are_stated_and_drawn(
    undrawn: None, measured: Content, tmp_path: Path
) -> None:
    changed = ended(measured.run)
    (figure,) = outages.recoveries(changed, tmp_path)
    assert "recovery, weavenet: " in figure.alt and "more than 3000 ms after" in figure.alt
    assert "Open triangles: 1 of 4 trials ended before they recovered" in figure.caption
    cells = {
        cell.plain
        for setting in changed.settings
        for table in tables.levels(changed, setting, "outage")
        for row in table.rows
        for cell in row
    }
    assert "–\n1 of 1: not recovered within 3000 ms" in cells
    (caveat,) = [text for text in caveats.notes(changed) if "have no mean" in text]
    assert "weavenet (1 of 2: not recovered within 3000 ms)" in caveat
    assert caveat.endswith("Measure longer, to see whether they recover.")
    written = csv_tables.texts(changed)
    assert "recovery_full_ms,weavenet,1,not recovered within 3000 ms" in written["missing.csv"]
    table = written["levels.csv"]
    assert table.count("recovery_full_ms") == 3, "one of the four cells has none"


def test_repetitions_that_recovered_do_not_count_as_those_that_did_not(measured: Content) -> None:
    run = measured.run
    changed = ended(folders.changed(run, lambda one: {"cell_id": one["network"]}))
    values = [row["recovery_full_ms"] for row in changed.best if row["network"] == "weavenet"]
    assert values == [None, None], "no mean of those that recovered is stated"
    measured_values = [row["recovery_full_ms"] for row in changed.as_measured if row["network"] == "weavenet"]
    assert sorted(value is None for value in measured_values) == [False, True], (
        "figures show what was measured"
    )
    written = csv_tables.texts(changed)
    assert "recovery_full_ms,weavenet,1,not recovered within 3000 ms" in written["missing.csv"]


def test_an_outage_is_drawn_over_time_with_its_link(
    full_size: None, measured: Content, tmp_path: Path
) -> None:
    setting = next(one for one in measured.settings if one.trials[0]["outage_for_s"] == 1)
    figure = over_time.draw(measured, setting, tmp_path, "outage")
    assert figure is not None and figure.section == "outage"
    assert f"host: outage of 1000 ms, blind for {number(BLIND_MS)} ms" in figure.alt
    assert "weavenet: outage" in figure.alt
    assert "the links dropped" in figure.caption
    assert (tmp_path / f"{figure.slug}.png").stat().st_size > 10_000
    for path in measured.run.path.glob(f"raw/*/1/{link_statistics.FILE}"):
        path.unlink()
    without = over_time.draw(measured, setting, tmp_path, "outage")
    assert without is not None and "dropped" not in without.caption
    for path in measured.run.path.glob("raw/*/1/outage.json"):
        path.unlink()
    assert over_time.draw(measured, setting, tmp_path, "outage") is None


def test_a_trial_over_impaired_links_is_drawn_as_a_whole(
    undrawn: None, measured: Content, tmp_path: Path
) -> None:
    for path in measured.run.path.glob("raw/*/1/outage.json"):
        path.unlink()
    run = measured.run
    changed = content.read(folders.changed(run, {"test": "paced"}))
    figure = over_time.draw(changed, changed.settings[0], tmp_path, "paced")
    assert figure is not None and (figure.section, figure.slug[:13]) == ("paced", "link-timeline")
    assert "host: 600 samples in 5.99 s" in figure.alt and "the links dropped" in figure.caption
    trial = over_time._read(changed, changed.settings[0].trials[0])
    outage = arrivals.interruption(RECORDED)
    assert trial is not None and outage is not None
    ((begin, end),) = trial.spans
    assert end - begin == pytest.approx(outage.length_s, abs=0.01), "links.json has its outage, too"
    assert begin == pytest.approx((outage.failed_us - trial.arrivals[0].at_us) / 1e6, abs=0.01)


def test_links_are_drawn_by_the_clock_of_the_subscriber(measured: Content) -> None:
    """On clusters, the statistics of each node's link have a start of their own."""
    for path in measured.run.path.glob(f"raw/*/1/{link_statistics.FILE}"):
        document = json.loads(path.read_text())
        for link in document["links"].values():
            link["started_us"] = document["started_us"]
        path.write_text(json.dumps(document | {"started_us": document["started_us"] + 7_000_000}))
    trial = over_time._read(measured, measured.best[0])
    assert trial is not None and trial.outage is not None
    (series,) = trial.ways["down"]
    times = over_time._times(trial, [series])
    dropped = [at for at, count in zip(times, series.outage, strict=True) if count]
    assert dropped and -0.1 < min(dropped) <= max(dropped) < trial.outage.length_s + 0.1
    # Links whose times are by another clock are not drawn.
    for path in measured.run.path.glob("raw/*/1/outage.json"):
        path.unlink()
    whole = over_time._read(measured, measured.best[0] | {"test": "paced"})
    assert whole is not None and whole.links is None and not list(whole.spans)


def test_each_test_of_a_setting_is_drawn_over_time(undrawn: None, measured: Content, tmp_path: Path) -> None:
    run, attempts = measured.run, measured.run.attempts()
    for attempt in [one for one in attempts if one["outage_for_s"] == 1]:
        names = {name: f"{attempt[name]}-paced" for name in ("trial_id", "cell_id")}
        own = {name: value for name, value in attempt.items() if not name.startswith(("outage", "recovery"))}
        attempts.append(own | names | {"test": "paced"})
        raw = run.raw(names["trial_id"], 1)
        shutil.copytree(RECORDED, raw)
        (raw / arrivals.INTERRUPTION).unlink()
    kept = [one for one in attempts if one.get("outage_for_s") != 5]
    changed = content.read(folders.rewritten(run, kept))
    (setting,) = changed.settings
    assert set(setting.tests) == {"outage", "paced"}
    drawn = [
        figure
        for task in figures.tasks(changed, tmp_path / "figures")
        if getattr(task, "args", ()) and getattr(task.args[0], "func", None) is over_time.draw
        for figure in task()
    ]
    shown = {(one.section, one.slug.partition("-")[0]) for one in drawn}
    assert shown == {("outage", "outage"), ("paced", "link")}
    assert all("host: " in one.alt and "weavenet: " in one.alt for one in drawn)


def test_a_long_trial_has_as_many_dots_as_can_be_told_apart(measured: Content) -> None:
    trial = over_time._read(measured, measured.best[0])
    assert trial is not None
    start_us, count = trial.zero_us, 20_000
    every = [Arrival(start_us + 1000 * at, 1, 1, 0, 100, 5000 if at == 4321 else 200) for at in range(count)]
    long = over_time._Trial(trial.row, every, None, None)
    dots = over_time._dots(long)
    assert over_time.MOST_DOTS / 2 < len(dots) <= over_time.MOST_DOTS
    assert dots[-1][0] == pytest.approx((count - 1) / 1000) and {last for _, last, _ in dots} == {0.1}
    (late,) = [at for at, _, longest in dots if longest == 5]
    assert late == pytest.approx(4.321, abs=0.02), "the longest delay of an interval is drawn"
    assert len(over_time._dots(over_time._Trial(trial.row, every[:900], None, None))) == 900


def test_recoveries_are_drawn_by_length(measured: Content, tmp_path: Path) -> None:
    (figure,) = outages.recoveries(measured, tmp_path)
    assert f"recovery, host: {number(FULL_MS)} ms after 1 s, {number(FULL_MS)} ms after 5 s" in figure.alt
    assert "recovery, weavenet: " in figure.alt
    assert "triangles" not in figure.caption
    overhead = replace(figure, slug="overhead", section="overheads")
    assert html._context(measured, [overhead, figure])["main_figure"] is figure


def test_figures_of_different_links_have_different_titles(
    undrawn: None, measured: Content, tmp_path: Path
) -> None:
    attempts = measured.run.attempts()
    for attempt in list(attempts):
        names = {name: f"{attempt[name]}-slow" for name in ("trial_id", "cell_id")}
        attempts.append(attempt | names | {"link": {"rate_mbit": 20, "loss_percent": 0, "delay_us": 0}})
    both = content.read(folders.rewritten(measured.run, attempts))
    fast, slow = (figure.title for figure in outages.recoveries(both, tmp_path))
    assert "links 100 Mbit/s" in fast and "links 20 Mbit/s" in slow
    (alone,) = outages.recoveries(measured, tmp_path)
    assert alone.title == fast, "links that are not plain are stated, also if all figures have them"


def test_a_single_length_has_no_curve(measured: Content, tmp_path: Path) -> None:
    measured.best[:] = [row for row in measured.best if row["outage_for_s"] == 1]
    assert outages.recoveries(measured, tmp_path) == []


def test_each_headline_metric_has_a_figure_of_its_own(
    undrawn: None, measured: Content, tmp_path: Path
) -> None:
    drawn = [
        levels.headline(measured, measured.settings[0], tmp_path, name) for name in find("outage").headlines
    ]
    slugs = [figure.slug for figure in drawn if figure]
    assert len(set(slugs)) == len(drawn) == 2
    assert slugs[0].startswith("outage-outage-of-") and slugs[1].startswith("outage-blind-in-the-outage-")
