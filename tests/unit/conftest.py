"""Run the command within the test process, because starting Python for every call takes most of the time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from k8sdds.cli import main, terminal
from tests.commands import environment
from tests.conftest import Command
from tests.reports import reports, small_images  # noqa: F401 (fixtures)

# Collecting the tests creates hundreds of thousands of objects, and none of them is garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collections, which otherwise visit them again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def k8sdds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Return the function of tests/conftest.py, without a process of its own for each call."""

    def run(*args: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch, open(os.devnull) as nothing:
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["k8sdds", *args])
            patch.setattr(sys, "stdin", nothing)
            # The command replaces them.
            patch.setattr(sys, "stdout", sys.stdout)
            patch.setattr(sys, "stderr", sys.stderr)
            for name, value in environment(tmp_path, user).items():
                patch.setenv(name, value)
            # The consoles of an earlier call may be those of a terminal.
            terminal.console.cache_clear()
            capfd.readouterr()
            try:
                with _effective_user(user), pytest.raises(SystemExit) as ended:
                    main.run()
            finally:
                terminal.set_verbosity(terminal.Verbosity.NORMAL)
        return subprocess.CompletedProcess(args, ended.value.code, *capfd.readouterr())

    return run


@contextmanager
def _effective_user(user: int | None) -> Iterator[None]:
    """Act as another user, who has no privileges."""
    if user is None:
        yield
        return
    own, group = os.geteuid(), os.getegid()
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(own)
        os.setegid(group)
