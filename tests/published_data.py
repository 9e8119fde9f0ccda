"""Find the data that the study's authors published, which has no license and is therefore not part of the project.

`python -m tests.published_data` (make test-data) clones what the tests use.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

VARIABLE = "K8SDDS_TEST_DATA"
"""Environment variable with the folder of the data: a clone of the repository, or a folder that contains a copy."""
REPOSITORY = "https://github.com/doc-vu/K8sDDS"
COMMIT = "6f22a562b79a7898dab6712eee07c8dd1c3a5844"
FILES = (
    "/Data/BestEffort/latencyTest/**/rtiperftest-*",
    "/Data/BestEffort/latencyTest/**/metrics.csv",
    "/Data/CNI-Test/**/rtiperftest-*",
    "/Data/CNI-Test/**/metrics.csv",
    "/Data/CNI-Test/**/readme.txt",
)
"""Patterns of the files that the tests use."""
CLONE = Path(__file__).parents[1] / "build" / "test-data"
INSIDE = ("Data", "data/k8sdds-artifact")
"""Where the logs are in a clone, and in a folder with data of several projects."""


def artifact_folder() -> Path:
    """Return the folder with the published logs. Skips the test if there is none."""
    given = os.environ.get(VARIABLE)
    top = Path(given) if given else CLONE
    for inside in INSIDE:
        if (top / inside).is_dir():
            return (top / inside).resolve()
    if given:
        pytest.fail(f"{VARIABLE}={given}: contains neither {' nor '.join(INSIDE)}", pytrace=False)
    pytest.skip(f"the data published with the study is missing: run make test-data, or set {VARIABLE}")


def clone(folder: Path, repository: str = REPOSITORY, commit: str = COMMIT) -> None:
    """Clone the files that the tests use, at a fixed commit. A clone that was interrupted is completed."""

    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(folder), *args], check=True, stdin=subprocess.DEVNULL)

    folder.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet")
    git("config", "remote.origin.url", repository)
    git("sparse-checkout", "set", "--no-cone", *FILES)
    # The commit id is a hash of the content, so nobody can change the data unnoticed.
    git("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit)
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", commit)


def main() -> None:
    """Clone the data into the folder in which the tests look for it."""
    try:
        clone(CLONE)
    except FileNotFoundError:
        sys.exit("git is not installed\n  → install it, and run make test-data again")
    except subprocess.CalledProcessError:  # git has printed the reason
        sys.exit(
            f"cannot clone {REPOSITORY}\n  → run make test-data again, or set {VARIABLE} to a clone of it"
        )
    print(f"{CLONE}: {REPOSITORY} at {COMMIT}")


if __name__ == "__main__":
    main()
