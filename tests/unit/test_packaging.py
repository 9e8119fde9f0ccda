"""The project declares what it imports, and its files agree on the version."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from k8sdds.versions import K8SDDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_IMPORTED = {"pyarrow"}
"""Declared, because another package loads it when k8sdds calls it."""
OWN_ENVIRONMENT = ROOT / "tests" / "unit" / "artifact" / "crate_validator.py"
"""Runs in an environment of its own, with packages that conflict with those of the project."""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: Iterable[str]) -> set[str]:
    return {normalized(re.split(r"[\s<>=!~\[;]", requirement)[0]) for requirement in requirements}


def modules_of(*folders: str) -> set[str]:
    return {path.stem for folder in folders for path in (ROOT / folder).rglob("*.py")}


def imported(folder: str, own: Iterable[str]) -> set[str]:
    """Return the distributions that the Python files of a folder import."""
    modules = set()
    for path in (ROOT / folder).rglob("*.py"):
        if path == OWN_ENVIRONMENT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules.add((node.module or "").partition(".")[0])
    distributions = metadata.packages_distributions()
    return {
        normalized(distributions.get(module, [module])[0])
        for module in modules - set(own) - set(sys.stdlib_module_names)
    }


def test_dependencies_are_the_imported_packages() -> None:
    assert declared(PROJECT["dependencies"]) == imported("k8sdds", own=["k8sdds"]) | NOT_IMPORTED


def test_extra_test_has_what_the_tests_import() -> None:
    test = declared(PROJECT["optional-dependencies"]["test"])
    own = {"k8sdds", "tests", *modules_of("tests", "benchmarks")}
    assert imported("tests", own) <= declared(PROJECT["dependencies"]) | test


def test_constraints_pin_every_dependency() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    extras = PROJECT["optional-dependencies"]
    expected = declared([*PROJECT["dependencies"], *extras["test"], *extras["docs"]])
    assert expected <= {normalized(name) for name in pins}


def test_the_source_distribution_has_the_files_that_the_readme_links_to() -> None:
    linked = re.findall(r"\]\(([\w.]+)\)", (ROOT / "README.md").read_text())
    included = (ROOT / "MANIFEST.in").read_text().split()
    assert "SECURITY.md" in linked and set(linked) <= set(included)


def test_files_agree_on_the_version() -> None:
    cmake = (ROOT / "perftest-images/CMakeLists.txt").read_text()
    assert f"project(k8sdds-images VERSION {K8SDDS} " in cmake
    assert (
        f"project(k8sdds-supervisor VERSION {K8SDDS} "
        in (ROOT / "perftest-images/supervisor/CMakeLists.txt").read_text()
    )
    assert f"\nversion: {K8SDDS}\n" in (ROOT / "CITATION.cff").read_text()


def test_changelog_has_the_version_first() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert [*headings, K8SDDS][1] == K8SDDS
