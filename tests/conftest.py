"""What several test folders share: the command, and what of the lab is on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8sdds.testbeds.lab import cgroups

K8SDDS = Path(sys.prefix) / "bin" / "k8sdds"
NOBODY = 65534

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def k8sdds(tmp_path: Path) -> Command:
    """Run the command as a user would, from an empty folder; `user` runs it as an ordinary one."""

    def run(*words: str, timeout_s: float = 120, user: int | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        if user is not None:
            tmp_path.chmod(0o777)
            env["HOME"] = str(tmp_path)
        return subprocess.run(
            [str(K8SDDS), *words],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=tmp_path,
            env=env,
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


def traces() -> Traces:
    """The host's links, named network namespaces, mounts, k8sdds processes and k8sdds cgroups now."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "k8sdds-supervisor" in line or "k8sdds-perftest" in line:
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
                str(found) for folder in cgroups.own().folders.values() for found in folder.glob("k8sdds-*")
            )
        ),
    )


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails the test if it leaves anything of the lab on the machine."""
    before = traces()
    yield
    assert traces() == before
