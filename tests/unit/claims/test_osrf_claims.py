"""The claims of OSRF's report, judged by its own data and by a run in the lab."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from k8sdds import claims
from k8sdds.campaign import experiments
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.record import description
from k8sdds.claims.judge import judge
from k8sdds.importing import Import, import_folder
from k8sdds.model.trial import Cell
from k8sdds.results.run_folder import SCHEMA, RunFolder
from tests.published_data import OSRF
from tests.unit.fuzzing.readers import CORPUS

INVENTED = CORPUS / "osrf" / "invented-MininetResults.csv"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Import:
    return import_folder(OSRF.folder() / "MininetResults.csv", tmp_path_factory.mktemp("osrf") / "run")


def test_the_conditions_are_those_of_the_experiment(published: Import) -> None:
    """A claim selects the same cells in the report's data and in a run of lossy-grid."""
    theirs = {row.cell.condition for row in published.sources[0].rows.values()}
    cells = expand(experiments.load("lossy-grid")).cells
    ours = {cell.condition for cell in cells}
    assert len(theirs) == 90 and theirs == ours


VERDICTS = {
    "fewer-lost-at-10": "supported",
    "fewer-lost-at-20": "supported",
    "fewer-lost-at-30": "not enough data",
    "lower-delay-at-10": "supported",
    "higher-delay-at-20-on-300": "not enough data",
    "large-samples-fail-at-10": "supported",
    "only-cyclone-delivers": "not enough data",
    "no-loss-delivers": "supported",
    "synchronous-is-clamped": "supported",
    "synchronous-rates-alike": "supported",
    "more-loss-faster-publisher": "contradicted",
    "less-memory": "supported",
    "less-cpu-where-delivered": "contradicted",
    "build-farm": "not testable here",
    "wifi-stops-at-100-hz": "not testable here",
}


def test_verdicts_on_the_published_data(published: Import) -> None:
    results = judge(claims.load("osrf-galactic-2021"), [published.run])
    assert {result.claim.id: result.verdict for result in results} == VERDICTS
    by_id = {result.claim.id: result for result in results}
    # The means of lost_prct in the report's figures: 4.3 % of Cyclone DDS and 12.7 % of Fast DDS at 54 Mbit/s.
    first = by_id["fewer-lost-at-10"].best(imported=True)
    assert first is not None and first.points[0].data.contrast is not None
    assert first.points[0].data.contrast.n == 10 and 0.14 < first.points[0].data.contrast.ratio < 0.57
    assert "cyclonedds" in by_id["more-loss-faster-publisher"].reason
    assert "512 KiB, 1000" in by_id["less-cpu-where-delivered"].reason


# -- a run in the lab ------------------------------------------------------------------------------------------


def in_the_lab(path: Path, lost_percent: Callable[[Cell], float]) -> RunFolder:
    """Return a run of the experiment whose trials lost so many samples, times a noise that depends on the cell."""
    expansion = expand(experiments.load("lossy-grid"))
    run = RunFolder.create(path, {"schema": SCHEMA, "testbed": {"name": "lab", "facts": {}}}, "")
    attempts = []
    for trial in expansion.trials("lab"):
        lost = lost_percent(trial.cell) * random.Random(trial.trial_id).uniform(0.99, 1.01)
        identity = {"trial_id": trial.trial_id, "cell_id": trial.cell.cell_id, "attempt": 1, "testbed": "lab"}
        attempts.append(description(trial) | identity | {"valid": True, "lost_percent": lost})
    run.append_attempts(attempts)
    return run


@pytest.mark.parametrize(("factor", "verdict"), [(2.0, "supported"), (0.5, "contradicted")])
def test_a_run_of_the_same_conditions_is_judged(tmp_path: Path, factor: float, verdict: str) -> None:
    """The verdict comes from the lab, and the published data is shown next to it."""

    def lost_percent(cell: Cell) -> float:
        return (factor if cell.middleware == "fastdds" else 1) * (1 if cell.payload_bytes == 1024 else 30)

    runs = [in_the_lab(tmp_path / "lab", lost_percent), import_folder(INVENTED, tmp_path / "run").run]
    results = {result.claim.id: result for result in judge(claims.load("osrf-galactic-2021"), runs)}
    for name in ("fewer-lost-at-10", "fewer-lost-at-20", "fewer-lost-at-30"):
        assert results[name].verdict == verdict, results[name].reason
        assert len([each for each in results[name].verdicts if not each.imported]) == 1, "one variant"
    assert results["large-samples-fail-at-10"].verdict == "supported"
    assert {each.imported for each in results["fewer-lost-at-10"].verdicts} == {True, False}


def test_the_command_judges_an_imported_table(k8sdds, tmp_path: Path) -> None:
    import_folder(INVENTED, tmp_path / "imported")
    judged = k8sdds("claims", "imported", "--claims", "osrf-galactic-2021", "--json")
    assert judged.returncode == 0, judged.stderr
    verdicts = json.loads(judged.stdout)["verdicts"]
    assert "large-samples-fail-at-10" not in verdicts["contradicted"]
    assert "fewer-lost-at-20" in verdicts["not enough data"], "the table has only 10 % loss"
