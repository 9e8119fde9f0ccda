"""Figures of outages, from a recorded one: over time, and by its length."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds.report import content, csv_tables, html, summary, tables
from k8sdds.report.content import Content
from k8sdds.report.figures import levels, outages, over_time
from k8sdds.report.formats import number
from k8sdds.results import arrivals, link_statistics
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
        "test",
        "outage_what",
        "outage_where",
        "outage_after_s",
        "outage_s",
        "outage_blind_ms",
        "recovery_first_ms",
        "recovery_full_ms",
    )
    values = {name: RECORD[name] for name in names}
    plan = folders.Plan(("host", "weavenet"), (1024,), ("paced",), 2, histograms=False)
    run = folders.make(tmp_path / "run", plan)
    path = run.path / "trials.jsonl"
    attempts = []
    for line in path.read_text().splitlines():
        attempt = json.loads(line) | values
        length = LENGTHS[attempt["repetition"] % 2]
        blind = BLIND_MS * length
        cell = f"{attempt['cell_id']}-{length:g}"
        attempts.append(attempt | {"cell_id": cell, "outage_for_s": length, "outage_blind_ms": blind})
        raw = run.raw(attempt["trial_id"], attempt["attempt"])
        shutil.copytree(RECORDED, raw, dirs_exist_ok=True)
    path.write_text("".join(json.dumps(attempt) + "\n" for attempt in attempts))
    return content.read(run)


def ended(run: RunFolder) -> Content:
    """The same, but the first trial of weavenet ended before its subscriber recovered."""
    path = run.path / "trials.jsonl"
    attempts = [json.loads(line) for line in path.read_text().splitlines()]
    first = next(attempt for attempt in attempts if attempt["network"] == "weavenet")
    first["duration_s"] = first["outage_after_s"] + first["outage_s"] + 3
    first |= {"recovery_full_ms": None, "missing": {"recovery_full_ms": "not recovered within 3000 ms"}}
    path.write_text("".join(json.dumps(attempt) + "\n" for attempt in attempts))
    return content.read(run)


def test_trials_that_end_before_the_recovery_are_stated_and_drawn(measured: Content, tmp_path: Path) -> None:
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
    (caveat,) = [text for text in summary.caveats(changed) if "have no mean" in text]
    assert "weavenet (1 of 2: not recovered within 3000 ms)" in caveat
    written = csv_tables.texts(changed)
    assert "recovery_full_ms,weavenet,1,not recovered within 3000 ms" in written["missing.csv"]
    table = written["levels.csv"]
    assert table.count("recovery_full_ms") == 3, "one of the four cells has none"


def test_an_outage_is_drawn_over_time_with_its_link(measured: Content, tmp_path: Path) -> None:
    setting = next(one for one in measured.settings if one.trials[0]["outage_for_s"] == 1)
    figure = over_time.draw(measured, setting, tmp_path)
    assert figure is not None and figure.section == outages.OUTAGE
    assert f"host: outage of 1000 ms, blind for {number(BLIND_MS)} ms" in figure.alt
    assert "weavenet: outage" in figure.alt
    assert "the links dropped" in figure.caption
    assert (tmp_path / f"{figure.slug}.png").stat().st_size > 10_000
    for path in measured.run.path.glob(f"raw/*/1/{link_statistics.FILE}"):
        path.unlink()
    without = over_time.draw(measured, setting, tmp_path)
    assert without is not None and "dropped" not in without.caption
    for path in measured.run.path.glob("raw/*/1/outage.json"):
        path.unlink()
    assert over_time.draw(measured, setting, tmp_path) is None


def test_a_trial_over_impaired_links_is_drawn_as_a_whole(measured: Content, tmp_path: Path) -> None:
    for path in measured.run.path.glob("raw/*/1/outage.json"):
        path.unlink()
    trials = measured.run.path / "trials.jsonl"
    trials.write_text(trials.read_text().replace('"test": "outage"', '"test": "paced"'))
    changed = content.read(measured.run)
    figure = over_time.draw(changed, changed.settings[0], tmp_path)
    assert figure is not None and (figure.section, figure.slug[:13]) == ("paced", "link-timeline")
    assert "host: 600 samples in 5.99 s" in figure.alt and "the links dropped" in figure.caption
    trial = over_time._read(changed, changed.settings[0].trials[0])
    outage = arrivals.interruption(RECORDED)
    assert trial is not None and outage is not None
    ((begin, end),) = trial.spans
    assert end - begin == pytest.approx(outage.length_s, abs=0.01), "links.json has its outage, too"
    assert begin == pytest.approx((outage.failed_us - trial.arrivals[0].at_us) / 1e6, abs=0.01)


def test_recoveries_are_drawn_by_length(measured: Content, tmp_path: Path) -> None:
    (figure,) = outages.recoveries(measured, tmp_path)
    assert f"recovery, host: {number(FULL_MS)} ms after 1 s, {number(FULL_MS)} ms after 5 s" in figure.alt
    assert "recovery, weavenet: " in figure.alt
    assert "triangles" not in figure.caption
    overhead = replace(figure, slug="overhead", section="overheads")
    assert html._context(measured, [overhead, figure])["main_figure"] is figure


def test_a_single_length_has_no_curve(measured: Content, tmp_path: Path) -> None:
    measured.best[:] = [row for row in measured.best if row["outage_for_s"] == 1]
    assert outages.recoveries(measured, tmp_path) == []


def test_each_headline_metric_has_a_figure_of_its_own(measured: Content, tmp_path: Path) -> None:
    drawn = [
        levels.headline(measured, measured.settings[0], tmp_path, name) for name in find("outage").headlines
    ]
    slugs = [figure.slug for figure in drawn if figure]
    assert len(set(slugs)) == len(drawn) == 2
    assert slugs[0].startswith("outage-outage-of-") and slugs[1].startswith("outage-blind-in-the-outage-")
