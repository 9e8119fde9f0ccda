"""Provide real processes, namespaces and cgroups for the tests of k8sdds-supervisor."""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from supervisor_tools import Supervisor, wait_until

from k8sdds.system.paths import native_program


@pytest.fixture
def supervisor(tmp_path):
    supervisor = Supervisor(Path(native_program("k8sdds-supervisor")), tmp_path)
    yield supervisor
    supervisor.close()


def _cgroup(parent: Path):
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return None
    path = parent / f"supervisor-test-{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir()
    except OSError:
        return None
    return path


def _own(controller):
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


@pytest.fixture
def new_cgroup():
    """Create children of the own cgroup of a v1 controller (or 'unified'), and remove them after the test."""
    created = []

    def make(controller):
        base = Path("/sys/fs/cgroup")
        if controller == "unified":
            parent = base / "unified" if (base / "unified").is_dir() else base
            parent = parent / _own("") if (parent / "cgroup.controllers").exists() else Path("/nonexistent")
        else:
            parent = base / controller / _own(controller)
        path = _cgroup(parent)
        if path is None:
            pytest.skip(f"cannot create a cgroup of {controller} on this host")
        created.append(path)
        return path

    yield make
    for path in created:
        wait_until(lambda path=path: not (path / "cgroup.procs").read_text(), f"{path} to be empty")
        path.rmdir()


def can_unshare(*flags):
    if not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def unshare():
    """Return the unshare command that works on this host: with a user namespace unless run as root."""
    flags = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if not can_unshare(*flags, "--pid", "--fork", "--mount", "--uts", "--net"):
        pytest.skip("cannot create namespaces on this host")
    return ["unshare", *flags]
