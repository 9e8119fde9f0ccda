"""Run programs that others install, and read their output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from k8sdds.system.faults import explained


def run(
    argv: Sequence[str | Path],
    what: str,
    timeout_s: float,
    remedy: str = "run: k8sdds setup --for deploy",
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Return the exit code and the output of a program. `what` it does is for messages: `push the image`."""
    with explained(f"cannot {what}", remedy):
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=env,
            cwd=folder,
        )
