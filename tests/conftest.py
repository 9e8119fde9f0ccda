"""What several test folders share: the command, and what of the lab is on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from k8sdds.system import cgroups
from tests.clusters import one_machine  # noqa: F401 (a fixture)

K8SDDS = Path(sys.prefix) / "bin" / "k8sdds"
NOBODY = 65534

# A busy machine makes an example slow, and a timing never decides a test.
hypothesis.settings.register_profile("k8sdds", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("k8sdds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the deployed cluster comes last, so that the cluster disturbs nothing else and goes at once."""
    items.sort(key=lambda item: "one_machine" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On CI nothing is left out: what a person's machine may lack makes a test fail there."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"left out, but this is CI: {report.longrepr}"
    return report


def open_for_all(path: Path) -> None:
    """Let an ordinary user work in a test's folder, which pytest makes for its own user alone."""
    path.chmod(0o777)
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o001)


Command = Callable[..., subprocess.CompletedProcess[str]]


def environment(folder: Path, user: int | None = None) -> dict[str, str]:
    """The environment of a user who works in a folder, with a state folder of its own."""
    state = folder / f"state-{user}"
    state.mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        open_for_all(folder)
        os.chown(state, user, user)
    return {**os.environ, "HOME": str(folder), "K8SDDS_STATE_DIR": str(state)}


@pytest.fixture
def k8sdds(tmp_path: Path) -> Command:
    """Run the command as a user would, from an empty folder; `user` runs it as an ordinary one."""

    def run(*words: str, timeout_s: float = 120, user: int | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(K8SDDS), *words],
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
    """What a lab could leave on a machine."""

    links: tuple[str, ...]
    network_namespaces: tuple[str, ...]
    mounts: tuple[str, ...]
    processes: tuple[str, ...]
    cgroups: tuple[str, ...]


def traces(folder: Path) -> Traces:
    """The host's links, named network namespaces, mounts and k8sdds cgroups now, and the processes that a
    command run in `folder` has started."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                environ = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            # Participants have a clean environment, but their files are in the folder.
            if str(folder) in environ or str(folder) in line:
                processes.append(line.replace("\0", " ")[:100])
    netns = Path("/run/netns")
    return Traces(
        links=tuple(sorted(os.listdir("/sys/class/net"))),
        network_namespaces=tuple(sorted(os.listdir(netns))) if netns.is_dir() else (),
        mounts=tuple(
            sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        ),
        processes=tuple(sorted(processes)),
        cgroups=tuple(
            sorted(
                str(found) for parent in cgroups.own_cgroup().folders.values() for found in parent.glob("k8sdds-*")
            )
        ),
    )


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fails the test if it leaves anything of the lab on the machine."""
    before = traces(tmp_path)
    yield
    assert traces(tmp_path) == before
