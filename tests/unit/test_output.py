"""Results as text, JSON, YAML and CSV: all formats have the same content."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from k8sdds.cli import list as listing
from k8sdds.cli import output, terminal
from k8sdds.cli.app import command_tree
from k8sdds.report import export
from tests.conftest import Command

ROWS = [
    ("list",), ("list", "networks"), ("list", "applications"), ("network", "list"), ("show", "quickstart"), ("claims", "--list"),
    ("security", "levels"),
]  # fmt: skip
DOCUMENTS = [("testbed",), ("schema", "record")]


def yaml(text: str) -> object:
    return YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize("args", ROWS + DOCUMENTS, ids=" ".join)
def test_every_format_has_the_content_of_json(
    k8sdds: Command, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It expands all installed experiments, which takes longer than all else.
    monkeypatch.setattr(listing, "_experiments", cache(listing._experiments))
    as_json = ("--format", "json") if args[0] == "schema" else ("--json",)
    expected = k8sdds(*args, *as_json)
    assert expected.returncode == 0
    data = json.loads(expected.stdout)
    assert yaml(k8sdds(*args, "--format", "yaml").stdout) == data
    if args in DOCUMENTS:
        return
    items = data["cells"] if args[0] == "show" else list(data)
    rows = list(csv.DictReader(io.StringIO(k8sdds(*args, "--format", "csv").stdout)))
    assert len(rows) == len(items)
    if isinstance(items[0], dict):
        for row, item in zip(rows, items, strict=True):
            assert list(row) == list(item)
            assert all(row[key] == str(value) for key, value in item.items() if isinstance(value, str | int))


def test_a_format_that_a_result_does_not_have_is_refused(k8sdds: Command) -> None:
    done = k8sdds("testbed", "--format", "csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'csv' is not one of 'table', 'json', 'yaml'" in done.stderr
    done = k8sdds("list", "--json", "--format", "yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--json and --format yaml exclude each other" in done.stderr


def test_nothing_but_the_result_is_printed(k8sdds: Command) -> None:
    assert k8sdds("nodes", "ls", "--format", "csv").stdout == ""
    assert json.loads(k8sdds("lab", "ls", "--format", "json").stdout) == []


def test_every_reading_command_has_formats() -> None:
    tree = command_tree()
    reading = {
        "list", "show", "testbed", "schema", "report", "runs", "compare", "history", "claims", "status", "doctor",
        "network list", "nodes ls", "lab ls", "bundle list", "bundle cache", "security show", "security check", "security levels",
        "artifact verify",
    }  # fmt: skip
    for path in reading:
        command = tree
        for name in path.split():
            command = command.commands[name]
        assert any("--format" in param.opts for param in command.params), path


cells = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]))
)


@given(st.lists(st.fixed_dictionaries({"a": cells, "b, c": cells}), min_size=1))
def test_any_text_survives_csv(rows: list[dict[str, object]]) -> None:
    read = list(csv.DictReader(io.StringIO(export.to_csv(rows, ["a", "b, c"]))))
    assert read == [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]


def test_json_of_other_types_is_text() -> None:
    assert json.loads(output.to_json({"path": Path("/a")})) == {"path": "/a"}


def test_lists_have_one_line_for_each_name(k8sdds: Command) -> None:
    for kind in ("applications", "links"):
        names = [row["name"] for row in json.loads(k8sdds("list", kind, "--json").stdout)]
        lines = k8sdds("-q", "list", kind).stdout.splitlines()
        assert [line.split()[0] for line in lines[2:]] == names


def test_show_states_what_an_application_sends_and_requires(k8sdds: Command) -> None:
    line = "commands: 64 B × 100/s, 1 → 1, reliable; requires 98 % of 100 samples/s, p99 delay <= 10 ms"
    assert line in k8sdds("show", "commands").stdout


def test_a_table_shows_zero_and_marks_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.console.cache_clear()
    output.print_table([{"node": "a", "free_mb": 0, "kubelet": "", "tags": ["x", "y"]}])
    assert capsys.readouterr().out.splitlines()[2].split() == ["a", "0", "–", "x,", "y"]
    terminal.console.cache_clear()
