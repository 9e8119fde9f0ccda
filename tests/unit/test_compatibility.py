"""Files and commands of version 0.1.0 still work: recorded inputs load and report the same numbers."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from k8sdds.campaign import experiments, start
from k8sdds.campaign.expansion import expand
from k8sdds.cli.app import app
from k8sdds.deploy import profiles
from k8sdds.report import content, csv_tables
from k8sdds.results.columns import SHARES
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError

RECORDED = Path(__file__).parent / "recorded" / "version-0.1.0"
EXPECTED = json.loads((RECORDED / "expected.json").read_text())
TABLES = sorted(path.name for path in (RECORDED / "tables").iterdir())


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    shutil.copytree(RECORDED / "run-folder", folder)
    csv_tables.write(content.read(RunFolder(folder)), folder / "tables")
    return folder / "tables"


@pytest.mark.parametrize("name", TABLES)
def test_a_recorded_run_folder_reports_the_same_numbers(name, tables):
    recorded = rows(RECORDED / "tables" / name)
    if not recorded:
        assert not (tables / name).exists()
        return
    # Later versions end intervals of shares at 0 and 100 %.
    for row in recorded:
        if row.get("unit") in SHARES and row.get("ci_low"):
            row |= {
                "ci_low": f"{max(float(row['ci_low']), 0):.10g}",
                "ci_high": f"{min(float(row['ci_high']), max(100, float(row['mean']))):.10g}",
            }
    # Later versions add columns, and leave out empty ones and shared conditions.
    (conditions,) = [row for row in rows(tables / "conditions.csv") if row["table"] == name[:-4]]
    shared = {key: value for key, value in conditions.items() if value}
    empty = dict.fromkeys(recorded[0], "")
    # Stale samples were counted, but were no quantity of their own.
    known = [row for row in rows(tables / name) if row.get("quantity") != "out_of_order"]
    assert [{key: (empty | shared | row)[key] for key in empty} for row in known] == recorded


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return [{name: ten_digits(text) for name, text in row.items()} for row in csv.DictReader(file)]


def ten_digits(text: str) -> str:
    """Return a number as tables print it; columns without a type had more digits in version 0.1.0."""
    try:
        return f"{float(text):.10g}"
    except ValueError:
        return text


def test_a_campaign_with_other_definitions_is_not_resumed():
    with pytest.raises(InputError, match=r"older k8sdds started .* \(schema 1, now \d\)"):
        start.resume(RunFolder(RECORDED / "run-folder"), expansion=None, testbed=None, observer=None)


@pytest.mark.parametrize("name", sorted(EXPECTED["experiments"]))
def test_a_recorded_experiment_expands_to_the_same_cells(name):
    expansion = expand(experiments.load(str(RECORDED / "experiments" / f"{name}.yaml")))
    assert [cell.cell_id for cell in expansion.cells] == EXPECTED["experiments"][name]


@pytest.mark.parametrize("name", sorted(EXPECTED["profiles"]))
def test_a_recorded_profile_reads_the_same(name):
    profile = profiles.load(str(RECORDED / "profiles" / f"{name}.yaml")).model_dump(mode="json")
    assert recorded_part(profile, EXPECTED["profiles"][name]) == EXPECTED["profiles"][name]


def recorded_part(data: Any, recorded: Any) -> Any:
    """Return data with the recorded keys only: later versions add keys."""
    if isinstance(data, dict) and isinstance(recorded, dict):
        return {key: recorded_part(data[key], recorded[key]) for key in recorded}
    if isinstance(data, list) and isinstance(recorded, list):
        return [recorded_part(item, expected) for item, expected in zip(data, recorded, strict=True)]
    return data


def test_every_recorded_command_and_option_exists():
    commands = parameters(typer.main.get_command(app))
    for command, names in json.loads((RECORDED / "commands.json").read_text()).items():
        existing = {name for param in commands[command] for name in (*param.opts, *param.secondary_opts)}
        # `-n` was short for --network; now it means --namespace, as in kubectl.
        assert set(names) - {"-n"} <= existing, command
    short = {name: param.opts for name, params in commands.items() for param in params if "-n" in param.opts}
    assert set(short) == {"run", "recommend", "testbed", "clean"}
    assert all("--namespace" in names for names in short.values())


def parameters(command, path: tuple[str, ...] = ()) -> dict[str, list]:
    """Map each command to its parameters."""
    result = {" ".join(path): list(command.params)}
    for name, sub in getattr(command, "commands", {}).items():
        result |= parameters(sub, (*path, name))
    return result
