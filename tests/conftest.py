"""Fixtures of several test folders: the command, and a check for leftovers of the lab on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from k8sdds.system.cgroups import PodCgroups
from tests.commands import K8SDDS, environment
from tests.published_data import OSRF

pytest_plugins = ["tests.clusters"]

# Tests never contact the servers of official builds. Those that need them use servers of their own.
os.environ["K8SDDS_SOFTWARE_FROM"] = "modules"

NOBODY = 65534
IN_VIRTUAL_MACHINE = "tested in the virtual machine (make test-all)"
"""Part of the reason to skip a test of a network whose kernel module few machines have."""
IMAGES_MISSING = "archives of images are missing"
"""Start of the reason to skip a test of a real daemon whose image the user has to provide (tests/image_archives.py)."""
RCLPY_MISSING = "K8SDDS_TEST_RCLPY names no Python with rclpy"
"""Reason to skip a test with nodes of rclpy, whose packages the user has to provide."""

# Processes that a shell starts in the background ignore SIGINT, and the programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples may be slow on a busy machine, and no test depends on their duration.
for _name, _examples in (("sample", 30), ("all", 300)):
    hypothesis.settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each property without the long tests."""
    hypothesis.settings.load_profile("sample" if config.option.markexpr == "not long" else "all")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skipped tests into failures on CI, where all prerequisites must be installed.

    Only the kernel of the machine, images of networks, rclpy and the data of another project cannot be installed.
    """
    report = yield
    not_installable = (IN_VIRTUAL_MACHINE, IMAGES_MISSING, RCLPY_MISSING, OSRF.repository)
    if (
        report.skipped
        and os.environ.get("CI")
        and not any(reason in report.longrepr[2] for reason in not_installable)
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {report.longrepr}"
    return report


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def k8sdds(tmp_path: Path) -> Command:
    """Return a function that runs the command from an empty folder; `user`: ID of an ordinary user."""

    def run(*args: str, timeout_s: float = 600, user: int | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(K8SDDS), *args],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=tmp_path,
            env=environment(tmp_path, user),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
        )

    return run


@dataclass(frozen=True)
class Traces:
    """What a lab may leave on a machine."""

    links: tuple[str, ...]
    network_namespaces: tuple[str, ...]
    mounts: tuple[str, ...]
    processes: tuple[str, ...]
    cgroups: tuple[str, ...]


def of_another_process(cgroup: str) -> bool:
    """Return whether the name of a cgroup ends with the ID of a running process that is not this one."""
    pid = cgroup.rpartition("-")[2]
    return pid != str(os.getpid()) and Path("/proc", pid, "stat").exists()


def traces(folder: Path) -> Traces:
    """Return the machine's links, network namespaces, mounts and k8sdds cgroups, and the processes of a folder.

    The processes are those that a command run in `folder` has started. What other tests use at the same time is left
    out: network namespaces of perftest, and cgroups with the ID of another running process at the end of their name.
    Parallel tests share those below the root and, except in the lab, those below their own cgroup.
    """
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                environ = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            # Participants have a clean environment, but their command lines name the folder.
            if str(folder) in environ or str(folder) in line:
                processes.append(line.replace("\0", " ")[:100])
    netns = Path("/run/netns")
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    owned = [
        str(path)
        for parent in {
            Path(top).parent for limited in (False, True) for top in PodCgroups("", limited).folders
        }
        for path in parent.glob("k8sdds-*")
        if not of_another_process(path.name)
    ]
    return Traces(
        links=tuple(sorted(os.listdir("/sys/class/net"))),
        network_namespaces=tuple(sorted(path.name for path in netns.glob("*") if path.name[:3] != "pt-")),
        mounts=tuple(sorted(path for path in mounts if not path.startswith(str(netns)))),
        processes=tuple(sorted(processes)),
        cgroups=tuple(sorted(owned)),
    )


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fail the test if it leaves anything of the lab on the machine."""
    before = traces(tmp_path)
    yield
    assert traces(tmp_path) == before
