"""Test the setting for the user's own configuration of a middleware, up to the run folder's copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.campaign import contradictions, experiments
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.record import description
from k8sdds.system.errors import InputError
from tests.unit import builders

EXPERIMENT = """\
name: mine
sweeps:
  - networks: host
    middleware: [{middleware}]
    middleware_config: tuned.xml
  - networks: host
    test: latency
"""


def expansion(
    folder: Path, middleware: str = "cyclonedds", content: str | None = "<CycloneDDS/>"
) -> Expansion:
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text(EXPERIMENT.format(middleware=middleware))
    if content is not None:
        (folder / "tuned.xml").write_text(content)
    return expand(experiments.load(str(folder / "mine.yaml")))


def test_the_file_is_relative_to_the_experiment(tmp_path: Path) -> None:
    (cell, _) = expansion(tmp_path / "a").cells
    assert Path(cell.middleware_config) == tmp_path / "a" / "tuned.xml"
    assert "config tuned" in cell.describe()
    (trial, *_) = expansion(tmp_path / "a").trials("lab")
    assert description(trial)["middleware_config"] == "tuned.xml"


def test_the_content_identifies_a_cell_not_the_place(tmp_path: Path) -> None:
    (here, _), (there, _) = expansion(tmp_path / "a").cells, expansion(tmp_path / "b").cells
    (other, _) = expansion(tmp_path / "c", content="<CycloneDDS><Domain/></CycloneDDS>").cells
    assert here.cell_id == there.cell_id != other.cell_id
    plain = here.model_copy(update={"middleware_config": "", "middleware_config_sha256": ""})
    assert plain.cell_id != here.cell_id


def test_the_run_folder_is_complete(tmp_path: Path) -> None:
    """The copy of the experiment names the copy of the file, so that it expands to the same cells elsewhere."""
    original = expansion(tmp_path / "a")
    folder = builders.written_run(original, tmp_path / "run")
    (tmp_path / "a" / "tuned.xml").unlink()
    copied = expand(experiments.load(str(folder / "experiment.yaml")))
    assert [cell.cell_id for cell in copied.cells] == [cell.cell_id for cell in original.cells]


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), ("x" * 70_000, "larger than")])
def test_unusable_files(tmp_path: Path, content: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        expansion(tmp_path, content=content)
    assert refused.value.message.count("tuned.xml") == 1 and "another file" not in refused.value.message


@pytest.mark.parametrize(
    ("middleware", "message"), [("connext", "give `qos`"), ("raw", "setting middleware_config")]
)
def test_middlewares_without_such_a_file(tmp_path: Path, middleware: str, message: str) -> None:
    (cell, _) = expansion(tmp_path, middleware).cells
    cell = cell.model_copy(update={"reliability": "best-effort"})
    assert message in str(contradictions.unsupported(cell))
