"""Commands in locales whose encoding is not UTF-8."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.commands import K8SDDS, environment


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("utf-8", marks=pytest.mark.long)])
def test_commands_work_in_every_locale(tmp_path: Path, encoding: str) -> None:
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": str(int(encoding == "utf-8"))}
    done = subprocess.run(
        [str(K8SDDS), "run", "quickstart", "--dry-run", "-o", "größe"],
        capture_output=True, cwd=tmp_path, env=environment(tmp_path) | locale,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr.count(b"internal error")
    done.stdout.decode(encoding)
    named = [str(K8SDDS).encode(), b"run", b"quickstart", b"-o", b"o_\xff"]
    done = subprocess.run(named, capture_output=True, cwd=tmp_path, env=environment(tmp_path) | locale)
    assert done.returncode == 2 and b"is not valid UTF-8" in done.stderr
