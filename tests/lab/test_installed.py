"""The built package works outside of the source tree: its files, its commands, and `k8sdds setup`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import run_folders
from tests.unit.importing import logs

CHECKOUT = Path(__file__).parents[2]
SHIPPED = ("deploy", "docs", "experiments", "links", "perftest-images", "profiles", "qos", "security")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install k8sdds from a wheel into a new virtual environment that uses the current libraries."""
    folder = tmp_path_factory.mktemp("installed")
    # The wheel is built from the source distribution, so it also shows that this one is complete.
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(CHECKOUT)], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    # Only the folder of the dependencies is on the path, not the source tree.
    (Path(site) / "dependencies.py").write_text(
        "import sys\nsys.path.append(" + repr(sysconfig.get_path("purelib")) + ")\n"
    )
    (Path(site) / "dependencies.pth").write_text("import dependencies\n")
    return folder / "venv" / "bin" / "k8sdds"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache of a user who has not built the native programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def k8sdds(installed: Path, cache: Path, tmp_path: Path) -> Run:
    """Return a function that runs the installed command in an empty folder."""
    environment = {**os.environ, "K8SDDS_CACHE_DIR": str(cache), "K8SDDS_STATE_DIR": str(tmp_path / "state")}
    environment.pop("K8SDDS_LIBEXEC", None)

    def run(*args: str, code: int = 0, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(installed), *args], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert str(CHECKOUT) not in done.stdout + done.stderr
        return done

    return run


def files(folder: Path) -> set[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder) for path in found}


def test_all_files_are_installed(installed: Path) -> None:
    package = next((installed.parent.parent / "lib").glob("python*/site-packages/k8sdds"))
    assert files(package) >= files(CHECKOUT / "k8sdds")
    for folder in SHIPPED:
        assert files(package / "_shipped" / folder) == files(CHECKOUT / folder)


def test_experiments_are_found_from_any_folder(k8sdds: Run) -> None:
    names = [row["name"] for row in json.loads(k8sdds("list", "--json").stdout)]
    assert "multicast-12sub" in names
    shown = json.loads(k8sdds("show", "multicast-12sub", "--json").stdout)
    assert "/k8sdds/_shipped/qos/strict-reliable.xml" in shown["cells"][0]["commands"]["pub0"]
    assert "wifi-roaming" in [row["name"] for row in json.loads(k8sdds("list", "links", "--json").stdout)]
    k8sdds("init", "link", "mine", "--like", "lte")
    shown = json.loads(k8sdds("show", "quickstart", "--link", "mine", "--duration", "60", "--json").stdout)
    assert {cell["link"]["name"] for cell in shown["cells"]} == {"mine"}


def test_results_are_analyzed(k8sdds: Run, tmp_path: Path) -> None:
    run_folders.single(tmp_path / "made")
    k8sdds("report", "made")
    assert (tmp_path / "made" / "report" / "report.html").is_file()
    assert "flannel" in k8sdds("compare", "made@host", "made@flannel-hostgw").stdout
    assert "claim" in k8sdds("claims", "made").stdout


def test_logs_are_imported(k8sdds: Run, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "vxlan" / "1024B" / "run1"
    folder.mkdir(parents=True)
    publisher = logs.configuration(True) + logs.csv_latency() + logs.END
    (folder / "perftest-pub0.log").write_text(publisher)
    (folder / "perftest-sub0.log").write_text(logs.configuration(False) + logs.csv_throughput() + logs.END)
    assert "1 trial" in k8sdds("import", "logs", "--output", "imported").stdout
    assert "flannel-vxlan" in (tmp_path / "imported" / "trials.jsonl").read_text()


def test_messages_name_the_fix_and_pages_that_exist(k8sdds: Run) -> None:
    assert "k8sdds setup" in k8sdds("run", "quickstart", code=3).stderr
    assert "k8sdds setup" in k8sdds("doctor", code=3).stdout
    named = k8sdds("show", "quickstart", "--set", "payload=1", code=2).stderr.split("see: k8sdds ")[1].split()
    assert k8sdds(*named).stdout.startswith("# Experiment files")


@pytest.mark.long
def test_setup_builds_the_programs_that_the_lab_needs(k8sdds: Run, cache: Path, nothing_left: None) -> None:
    plan = k8sdds("setup", "--dry-run").stdout
    assert f"build the native programs in {cache}/libexec/" in plan
    assert "--yes" in k8sdds("setup", code=2).stderr
    assert not list(cache.glob("libexec/*/k8sdds-perftest"))
    k8sdds("setup", "--yes", timeout_s=1800)
    (program,) = cache.glob("libexec/*/k8sdds-perftest")
    assert k8sdds("setup", "--yes").stdout == "Ready. Next: k8sdds run quickstart\n"
    k8sdds("run", "quickstart", "--repeat", "1", "--duration", "1", "--output", "run", timeout_s=600)
    # The programs of this installation are not removed with the cache.
    assert "libexec" in k8sdds("bundle", "cache", "--empty").stdout
    assert program.is_file()
