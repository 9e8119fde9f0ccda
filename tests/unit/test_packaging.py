"""The project declares what it imports, and its files agree on versions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.campaign import applications
from k8sdds.campaign.racing import searched
from k8sdds.system import faults
from k8sdds.versions import K8SDDS
from tests import applications as measured
from tests import run_folders

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
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


IMPORT = re.compile(
    r"^ *(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?(?: *#.*)?$)", re.MULTILINE
)
"""An absolute import, as the formatter writes it."""
distributions_of_modules = cache(metadata.packages_distributions)


def imported(folder: str, own: Iterable[str]) -> set[str]:
    """Return the distributions that the Python files of a folder import."""
    texts = [path.read_text() for path in (ROOT / folder).rglob("*.py") if path != OWN_ENVIRONMENT]
    modules = {"".join(names) for text in texts for names in IMPORT.findall(text)}
    distributions = distributions_of_modules()
    return {
        normalized(distributions.get(module, [module])[0])
        for module in modules - set(own) - set(sys.stdlib_module_names)
    }


def test_dependencies_are_the_imported_packages() -> None:
    everything = [*PROJECT["dependencies"], *(name for extra in faults.EXTRAS for name in EXTRAS[extra])]
    assert declared(everything) == imported("k8sdds", own=["k8sdds"]) | NOT_IMPORTED
    assert EXTRAS["all"] == [f"k8sdds[{','.join(faults.EXTRAS)}]"]


def test_the_modules_of_extras_are_known_to_the_message() -> None:
    distributions = distributions_of_modules()
    for extra, (_, modules) in faults.EXTRAS.items():
        names = {normalized(distributions[module][0]) for module in modules}
        assert names == declared(EXTRAS[extra])


WITHOUT_EXTRAS = """
import importlib, json, os, pkgutil, sys
from k8sdds.campaign import applications
from k8sdds.campaign.racing import searched
from k8sdds.system import faults
sys.modules |= {name: None for _, modules in faults.EXTRAS.values() for name in modules} | dict.fromkeys(("hdrh", "scipy"))
import k8sdds.cli
for module in pkgutil.iter_modules(k8sdds.cli.__path__):
    if module.name != "deploy_progress":  # only `deploy` imports it
        importlib.import_module(f"k8sdds.cli.{module.name}")
from k8sdds.cli.main import run
codes = []
for number, argv in enumerate(json.loads(sys.argv[1])):
    if not (child := os.fork()):
        os.dup2(os.open(f"{number}.stdout", os.O_CREAT | os.O_WRONLY), 1)
        os.dup2(os.open(f"{number}.stderr", os.O_CREAT | os.O_WRONLY), 2)
        sys.argv[1:] = argv
        run()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


def without_extras(folder: Path, *commands: tuple[str | Path, ...]) -> Iterator[tuple[int, str, str]]:
    """Return exit code, output and errors of commands, one after the other, without the packages of all extras."""
    argv = [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps(commands, default=str)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    for number, code in enumerate(json.loads(done.stdout)):
        output, errors = ((folder / f"{number}.{name}").read_text() for name in ("stdout", "stderr"))
        yield code, output, errors


MISSING = "Static figures need the Python package matplotlib"


def test_reports_comparisons_and_recommendations_need_no_extra(tmp_path: Path) -> None:
    run = run_folders.make(tmp_path / "run", run_folders.Plan(("host", "flannel-vxlan"), (1024,)))
    searched_run = measured.folder(tmp_path / "search", searched(applications.load("teleoperation"), 12))
    pdf, report, compare, recommend, status, init = without_extras(
        tmp_path,
        ("report", run.path, "--pdf"),
        ("report", run.path),
        ("compare", f"{run.path}@host", f"{run.path}@flannel-vxlan", "--output", "compared"),
        ("recommend", "teleoperation", "--from", searched_run.path, "--output", "recommended"),
        ("status", "one-machine"),
        ("init", "application", "--from", run.path),
    )
    assert pdf[0] == 3 and "static figures need" in pdf[2]
    assert report[0] == compare[0] == 0 and recommend[0] in (0, 7, 8), (report, compare, recommend)
    page = (run.report / "report.html").read_text()
    assert MISSING in page
    assert "explore-data" in page and not (run.derived / "trials.parquet").exists()
    assert MISSING in (tmp_path / "recommended" / "recommendation.html").read_text()
    assert init[0] == 3 and "recordings need the Python package lz4, which is not installed" in init[2]
    # A command that needs an extra names the fix.
    assert status[:2] == (3, "")
    assert status[2].splitlines() == [
        "k8sdds: clusters need the Python package urllib3, which is not installed",
        "  → run: make setup",
    ]


def test_extra_test_has_what_the_tests_import() -> None:
    test = declared(PROJECT["optional-dependencies"]["test"])
    own = {"k8sdds", "tests", *modules_of("tests", "benchmarks", "k8sdds/middleware/connext")}
    extras = {name for extra in faults.EXTRAS for name in declared(EXTRAS[extra])}
    elsewhere = {"rclpy"}  # of the interpreter that K8SDDS_TEST_RCLPY names
    assert imported("tests", own) <= declared(PROJECT["dependencies"]) | extras | test | elsewhere


def test_constraints_pin_every_dependency() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    extras = {name for extra, requirements in EXTRAS.items() if extra != "all" for name in requirements}
    assert declared([*PROJECT["dependencies"], *extras]) <= {normalized(name) for name in pins}


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


IMAGES = [value for name, value in vars(versions).items() if name.endswith("_IMAGE")]
MODULES = {
    "coredns": ("github.com/coredns/coredns", versions.COREDNS),
    "etcd": ("go.etcd.io/etcd/server/v3", versions.ETCD),
    "flanneld": ("github.com/flannel-io/flannel", versions.FLANNEL),
    "kubernetes": ("k8s.io/kubernetes", versions.KUBERNETES),
    "metrics-server": ("sigs.k8s.io/metrics-server", versions.METRICS_SERVER),
    "multus": ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4", versions.MULTUS),
}


@pytest.mark.parametrize("image", IMAGES)
def test_manifests_use_the_image(image: str) -> None:
    name = image.rpartition(":")[0]
    manifests = [*ROOT.glob("deploy/**/*.yaml"), ROOT / "perftest-images/connext/Containerfile"]
    result = [
        line for path in manifests for line in re.findall(rf"\b{re.escape(name)}:\S+", path.read_text())
    ]
    assert set(result) <= {image}


@pytest.mark.parametrize("program", MODULES)
def test_go_modules_pin_the_version(program: str) -> None:
    module, version = MODULES[program]
    text = (ROOT / "deploy" / "bundle" / program / "go.mod").read_text()
    assert f"{module} v{version}" in text


def test_metrics_server_has_the_port() -> None:
    text = (ROOT / "deploy/metrics-server/manifest.yaml").read_text()
    assert f"--secure-port={versions.METRICS_SERVER_PORT}\n" in text
    assert f"containerPort: {versions.METRICS_SERVER_PORT}}}" in text


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize(("requested", "expected"), [(None, "ON"), ("ON", "ON"), ("OFF", "OFF")])
def test_debian_packages_are_built_with_or_without_zenoh(requested: str | None, expected: str) -> None:
    """build-deb sets the variable to OFF if cargo cannot fetch the crates."""
    argv = ["make", "-n", "-f", ROOT / "scripts/debian/rules", "override_dh_auto_configure"]
    variables = {"PATH": os.environ["PATH"], **({"K8SDDS_ZENOH": requested} if requested else {})}
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == f"-DK8SDDS_ZENOH={expected}"


def test_crates_pin_the_version_of_zenoh() -> None:
    measured, direct = (
        tomllib.loads((ROOT / folder / "Cargo.toml").read_text())
        for folder in ("perftest-images/perftest/middleware/zenoh", "benchmarks/zenoh")
    )
    dependencies = measured["dependencies"]
    assert {dependencies[name]["version"] for name in ("zenoh", "zenohd")} == {f"={versions.ZENOH}"}
    # Any difference would look like overhead of k8sdds-perftest.
    assert direct["dependencies"]["zenoh"] == dependencies["zenoh"]
    assert direct["profile"] == measured["profile"]
    assert direct["package"]["rust-version"] == measured["package"]["rust-version"]


def test_benchmarks_use_the_locked_crates() -> None:
    measured, direct = (
        {
            (each["name"], each["version"])
            for each in tomllib.loads((ROOT / folder / "Cargo.lock").read_text())["package"]
        }
        for folder in ("perftest-images/perftest/middleware/zenoh", "benchmarks/zenoh")
    )
    assert len(direct) > 200
    assert {name for name, _ in direct - measured} == {"zenoh-direct"}


def test_the_licenses_are_those_of_the_locked_crates() -> None:
    folder = ROOT / "perftest-images/perftest/middleware/zenoh"
    lock = tomllib.loads((folder / "Cargo.lock").read_text())
    locked = {(package["name"], package["version"]) for package in lock["package"]}
    table = (folder / "LICENSES").read_text().partition("\n\n---")[0]
    listed = set(re.findall(r"^(\S+) (\S+): \S.*$", table, re.MULTILINE))
    # A crate that was updated, added or removed: run scripts/crate_licenses.py.
    assert len(listed) > 200 and listed <= locked
    of_zenoh = {name for name, _ in locked - listed if name.startswith("zenoh")}
    assert of_zenoh == {"zenoh-macros", "zenoh-stats"}  # macros, and a feature that is off
