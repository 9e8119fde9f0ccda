"""The generated parts of docs/reference/ are in step with the code, and every link of the documentation works."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from k8sdds.campaign import experiments
from k8sdds.cli.app import app
from k8sdds.deploy import profiles
from tests.unit.test_help import parse

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
COMMANDS = typer.main.get_command(app)
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_the_generated_pages_are_in_step_with_the_code() -> None:
    outdated = [path.name for path, _ in REFERENCE["outdated"]()]
    assert not outdated, "run: make docs"


def test_every_generated_part_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "mkdocs.yml", *PAGES))
    for part in REFERENCE["PARTS"]:
        assert text.count(f"<!-- generated: {part} -->") == 1


def test_every_result_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *PAGES))
    parts = runpy.run_path(str(ROOT / "scripts" / "results.py"))["PARTS"]
    assert set(re.findall(r"<!-- result: (.+) -->", text)) == set(parts)


@pytest.mark.parametrize(
    "schema", [experiments.json_schema(), profiles.schema()], ids=["experiment", "profile"]
)
def test_every_key_has_a_description(schema: dict[str, Any]) -> None:
    for definition in (schema, *schema["$defs"].values()):
        for key, value in definition.get("properties", {}).items():
            assert value.get("description"), f"{definition['title']}.{key} has no description"


def test_the_index_and_the_navigation_have_every_page() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES}
    links = re.findall(r"\]\(([^)#]+\.md)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert pages - set(links) == {"index.md"}
    navigation = yaml.dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert pages == set(re.findall(r"\S+\.md", navigation))


def test_the_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # A command ends with its code span, or with the gap before its explanation.
    for command in re.findall(r"(?:^|`)(k8sdds .+?)(?:  |`|$)", text, re.MULTILINE):
        parse(shlex.split(command)[1:])
    targets = re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)
    assert set(targets) <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.name
)
def test_links_work_on_a_forge_and_lead_from_pages_only_to_pages(page: Path) -> None:
    """The site contains only docs/: a link out of it would work on a forge, but not on the site."""
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
            assert page not in PAGES or (page.parent / target).resolve().is_relative_to(ROOT / "docs"), target


def unknown_options(command: str) -> list[str]:
    """Return the options of a command line that the command does not have."""
    group = COMMANDS
    words = command.split()
    while words and words[0] in getattr(group, "commands", {}):
        group = group.commands[words.pop(0)]
    known = {"-h", "--help", *(name for option in group.params for name in option.opts)}
    if "--" in words:
        words = words[: words.index("--")]
    given = [word.strip("[](),.;:").partition("=")[0] for word in words]
    return [name for name in given if re.match("--?[a-z]", name) and name not in known]


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES],
    ids=lambda page: page.name,
)
def test_commands_have_the_options_that_pages_use(page: Path) -> None:
    for line in page.read_text(encoding="utf-8").splitlines():
        # A command ends with its code span, or with the gap before its explanation.
        for command in re.findall(r"\bk8sdds ([a-z]\S*(?: [^\s`|][^\s`]*)*)", line):
            assert not unknown_options(command), f"{page.name}: k8sdds {command}"


def test_the_recording_names_no_place_of_the_machine_that_made_it() -> None:
    recording = (ROOT / "docs" / "images" / "quickstart.svg").read_text(encoding="utf-8")
    assert "k8sdds run quickstart" in recording and "valid trials" in recording
    assert not re.search("/(home|root|srv|tmp|usr|var)/", recording)
    assert re.findall(r"https?://[^\"]+", recording) == ["http://www.w3.org/2000/svg"]


def test_the_numbers_next_to_the_recording_are_of_the_recorded_run() -> None:
    recording = (ROOT / "docs" / "images" / "quickstart.svg").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    costs = re.findall(r"(\d[\d.]* \[[^\]]+\]) %", readme.partition("throughput of `host`")[2])
    assert len(costs) == 4
    for cost in costs:
        assert cost in recording
