"""The installed package finds its data files outside of the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SHIPPED = ("deploy", "experiments", "perftest-images", "profiles", "qos", "security")


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
    # Only the folder of the dependencies is on the path, not the checkout.
    (Path(site) / "dependencies.py").write_text(
        "import sys\nsys.path.append(" + repr(sysconfig.get_path("purelib")) + ")\n"
    )
    (Path(site) / "dependencies.pth").write_text("import dependencies\n")
    return folder / "venv" / "bin" / "k8sdds"


def files(folder: Path) -> set[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder) for path in found}


def output(program: Path, folder: Path, *args: str) -> str:
    done = subprocess.run([str(program), *args], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_experiments_and_profiles_are_found_from_any_folder(installed: Path, tmp_path: Path) -> None:
    names = [row["name"] for row in json.loads(output(installed, tmp_path, "list", "--json"))]
    assert "multicast-12sub" in names
    shown = json.loads(output(installed, tmp_path, "show", "multicast-12sub", "--json"))
    line = shown["cells"][0]["commands"]["pub0"]
    assert "/k8sdds/_shipped/qos/strict-reliable.xml" in line
    assert str(CHECKOUT) not in line


def test_all_files_are_installed(installed: Path) -> None:
    package = next((installed.parent.parent / "lib").glob("python*/site-packages/k8sdds"))
    assert files(package) >= files(CHECKOUT / "k8sdds")
    for folder in SHIPPED:
        assert files(package / "_shipped" / folder) == files(CHECKOUT / folder)


def test_error_names_missing_native_programs_and_the_fix(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(installed), "run", "quickstart"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert "k8sdds-perftest is not in" in done.stderr
    assert "make setup" in done.stderr
