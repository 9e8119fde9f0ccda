"""Find the data that the authors of studies published, which is not part of the project.

`python -m tests.published_data` (make test-data) clones what the tests use.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "K8SDDS_TEST_DATA"
"""Environment variable with the folder of the data: a clone of one of the repositories, or a folder with copies of both."""
CLONES = Path(__file__).parents[1] / "build"


@dataclass(frozen=True)
class Published:
    """A repository with published data."""

    repository: str
    commit: str
    files: tuple[str, ...]
    """Patterns of the files that the tests use."""
    clone: str
    """Name of the folder with the clone."""
    inside: tuple[str, ...]
    """Where the data is in a clone, and in a folder with data of several projects."""

    def folder(self) -> Path:
        """Return the folder with the data. Skips the test if there is none."""
        given = os.environ.get(VARIABLE)
        top = Path(given) if given else CLONES / self.clone
        for inside in self.inside:
            if (top / inside).is_dir():
                return (top / inside).resolve()
        if given and not any((top / inside).is_dir() for other in ALL for inside in other.inside):
            of_all = ", ".join(inside for other in ALL for inside in other.inside)
            pytest.fail(f"{VARIABLE}={given}: contains none of {of_all}", pytrace=False)
        pytest.skip(f"the data of {self.repository} is missing: run make test-data, or set {VARIABLE}")


ARTIFACT = Published(
    "https://github.com/doc-vu/K8sDDS",
    "6f22a562b79a7898dab6712eee07c8dd1c3a5844",
    (
        "/Data/BestEffort/latencyTest/**/rtiperftest-*",
        "/Data/BestEffort/latencyTest/**/metrics.csv",
        "/Data/CNI-Test/**/rtiperftest-*",
        "/Data/CNI-Test/**/metrics.csv",
        "/Data/CNI-Test/**/readme.txt",
    ),
    "test-data",
    ("Data", "data/k8sdds-artifact"),
)
OSRF = Published(
    "https://github.com/osrf/TSC-RMW-Reports",
    "9afa701b299f707181580605123ecea8cf1ad53b",
    ("/galactic/MininetResults.csv",),
    "test-data-osrf",
    ("galactic", "data/tsc-rmw-reports"),
)
ALL = (ARTIFACT, OSRF)


def clone(data: Published, folder: Path) -> None:
    """Clone the files that the tests use, at a fixed commit. A clone that was interrupted is completed."""

    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(folder), *args], check=True, stdin=subprocess.DEVNULL)

    folder.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet")
    git("config", "remote.origin.url", data.repository)
    git("sparse-checkout", "set", "--no-cone", *data.files)
    # The commit id is a hash of the content, so nobody can change the data unnoticed.
    git("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", data.commit)
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", data.commit)


def main() -> None:
    """Clone the data into the folders in which the tests look for it."""
    for data in ALL:
        try:
            clone(data, CLONES / data.clone)
        except FileNotFoundError:
            sys.exit("git is not installed\n  → install it, and run make test-data again")
        except subprocess.CalledProcessError:  # git has printed the reason
            sys.exit(
                f"cannot clone {data.repository}\n  → run make test-data again, or set {VARIABLE} to a clone of it"
            )
        print(f"{CLONES / data.clone}: {data.repository} at {data.commit}")


if __name__ == "__main__":
    main()
