"""Fixtures with lab networks in real namespaces, and a small experiment on some."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS, find
from k8sdds.system import kernel_features
from k8sdds.system.cgroups import own_cgroup
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab
from tests.conftest import IN_VIRTUAL_MACHINE
from tests.measuring import experiment

PROGRAMS_END_S = 10
"""How long programs of ended tests may take to end."""
SMALL_SWEEP = """\
  - networks: [host, weavenet]
    test: [throughput, latency]
    payload_bytes: 1024
"""
TRIALS = 8
"""Number of trials of `small`."""
ONE_TRIAL = ("--repeat", "1", "--duration", "0.1", "--set", "networks=host", "--set", "test=throughput")
"""Arguments that reduce `small` to what takes the least time."""


def cell(network: str, **changes: object) -> Cell:
    """Return a small cell on a network: one publisher, two subscribers, three nodes."""
    return Cell(
        **{"network": network, "test": "throughput", "payload_bytes": 1024, "subscribers": 2, **changes}
    )


def enter(lab_network: LabNetwork, place: str) -> list[str]:
    """Return the command prefix that runs a command in a pod or on a node."""
    return (
        lab_network.enter(place)
        if place in lab_network.plan.datapath.attachments
        else lab_network.sandbox.enter(place)
    )


def output_of(lab_network: LabNetwork, place: str, *argv: str) -> str:
    done = subprocess.run([*enter(lab_network, place), *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_of(lab_network: LabNetwork, place: str, *argv: str) -> Any:
    return json.loads(output_of(lab_network, place, *argv))


def address_of(lab_network: LabNetwork, pod: str) -> str:
    return lab_network.plan.datapath.attachments[pod].address


def up(lab: Lab, one: Cell) -> LabNetwork:
    """Build the network of a cell, and return it."""
    lab.up([one])
    (lab_network,) = lab.networks.values()
    return lab_network


@pytest.fixture(autouse=True, scope="session")
def own_cgroups(worker_id: str) -> Iterator[None]:
    """Give each process of parallel tests a cgroup of its own, below which its labs create those of their pods.

    So each finds only its own leftovers. Cgroups with CPU limits are below the root instead where there is only v2.
    A process that is alone keeps its cgroup, which may have a share of real-time priority.
    """
    # Several controllers of v1 may share a hierarchy.
    present = {} if worker_id == "master" else dict.fromkeys(own_cgroup().folders.values())
    parents = [folder for folder in present if os.access(folder, os.W_OK)]
    name, pid = f"tests-{os.getpid()}", str(os.getpid())
    for parent in parents:
        (parent / name).mkdir()
        (parent / name / "cgroup.procs").write_text(pid)
    yield
    for parent in parents:
        (parent / "cgroup.procs").write_text(pid)
        remove(parent / name)


def remove(cgroup: Path) -> None:
    """Remove a cgroup when the last programs that tests started have ended. Fail if any of them or a child remains."""
    deadline = time.monotonic() + PROGRAMS_END_S
    while True:
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        children = [path.name for path in cgroup.iterdir() if path.is_dir()]
        assert time.monotonic() < deadline, (cgroup, (cgroup / "cgroup.procs").read_text(), children)
        time.sleep(0.05)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Yield a lab without networks and close it after the test."""
    with Lab(f"test-{os.getpid()}") as lab:
        yield lab


def missing_feature(network: str) -> str:
    """Return the feature of this machine that a network needs and that is missing, or an empty string."""
    missing = (f.name for f in find(network).requirements({}) if not kernel_features.available(f))
    return next(missing, "")


def skip_if_unavailable(network: str) -> None:
    if missing := missing_feature(network):
        elsewhere = f", {IN_VIRTUAL_MACHINE}" if missing in _IN_VIRTUAL_MACHINE else ""
        pytest.skip(f"{network}: this machine has no {missing}{elsewhere}")


_IN_VIRTUAL_MACHINE = ("ipip",)


class Built(dict[str, LabNetwork]):
    """Lab networks by network; a test that asks for one that this machine cannot build is skipped."""

    def __missing__(self, network: str) -> LabNetwork:
        skip_if_unavailable(network)
        raise KeyError(network)


@pytest.fixture(scope="session")
def lab_networks() -> Iterator[dict[str, LabNetwork]]:
    """Yield a small lab network of every network that this machine can build, by network name."""
    with Lab(f"tests-{os.getpid()}") as lab:
        lab.up(cell(name) for name in NETWORKS if not missing_feature(name))
        yield Built({item.plan.cell.network: item for item in lab.networks.values()})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write an experiment with two short repetitions of each test on two networks, and return its path."""
    path = tmp_path / "small.yaml"
    keys = {"name": "small", "baseline": "host", "repetitions": 2, "duration_s": 0.3, "warmup_s": 0.1}
    path.write_text(experiment(SMALL_SWEEP, **keys))
    return path
