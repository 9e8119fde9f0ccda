"""Provide real processes, namespaces and cgroups for the tests of k8sdds-supervisor."""

import os
import subprocess
import uuid
from pathlib import Path

import pytest
from supervisor_tools import Supervisor, wait_until

from k8sdds.system.cgroups import hierarchies
from k8sdds.system.paths import native_program


@pytest.fixture
def supervisor(tmp_path):
    supervisor = Supervisor(Path(native_program("k8sdds-supervisor")), tmp_path)
    yield supervisor
    supervisor.close()


@pytest.fixture
def new_cgroup():
    """Create children of the own cgroup of a v1 controller (or 'unified'), and remove them after the test."""
    created = []

    def make(controller):
        own = {name: folder for names, folder, _ in hierarchies() for name in names.split(",")}
        parent = own.get(controller)
        if parent is None or not os.access(parent, os.W_OK):
            pytest.skip(f"cannot create a cgroup of {controller} on this host")
        created.append(parent / f"supervisor-test-{uuid.uuid4().hex[:8]}")
        created[-1].mkdir()
        return created[-1]

    yield make
    for path in created:
        wait_until(lambda path=path: not (path / "cgroup.procs").read_text(), f"{path} to be empty")
        path.rmdir()


@pytest.fixture(scope="session")
def unshare():
    """Return the unshare command that works on this host: with a user namespace unless run as root."""
    flags = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    created = ["unshare", *flags, "--pid", "--fork", "--mount", "--uts", "--net", "true"]
    if subprocess.run(created, capture_output=True).returncode:
        pytest.skip("cannot create namespaces on this host")
    return ["unshare", *flags]
