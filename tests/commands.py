"""Path of the command that tests run, and the environment in which they run it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

K8SDDS = Path(sys.prefix) / "bin" / "k8sdds"
WITHOUT_SCIPY = str(Path(__file__).parent / "without_scipy")


def variables(state: Path) -> dict[str, str]:
    """Return the environment of commands with a state folder. As for users, who do not need it, there is no scipy."""
    modules = os.pathsep.join(filter(None, [WITHOUT_SCIPY, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "K8SDDS_STATE_DIR": str(state), "PYTHONPATH": modules}


def environment(folder: Path, user: int | None = None) -> dict[str, str]:
    """Return the environment of a user who works in a folder, with a separate state folder."""
    state = folder / f"state-{user}"
    state.mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        open_for_all(folder)
        os.chown(state, user, user)
    return {**variables(state), "HOME": str(folder)}


def open_for_all(path: Path) -> None:
    """Make a test's folder accessible for other users, because pytest creates it for its own user only."""
    path.chmod(0o777)
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o001)
