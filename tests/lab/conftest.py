"""Benches on real namespaces."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from k8sdds.model.trial import Cell
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab


def cell(network: str, **changes: object) -> Cell:
    """A small cell on a network: one publisher, two subscribers, three nodes."""
    return Cell(
        **{"network": network, "test": "throughput", "payload_bytes": 1024, "subscribers": 2, **changes}
    )


def enter(bench: LabNetwork, place: str) -> list[str]:
    """The words that run a command in a pod, or on a node."""
    return bench.enter(place) if place in bench.plan.datapath.attachments else bench.sandbox.enter(place)


def said(bench: LabNetwork, place: str, *argv: str) -> str:
    """What a command prints in a pod or on a node."""
    done = subprocess.run([*enter(bench, place), *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_of(bench: LabNetwork, place: str, *argv: str) -> Any:
    """The same for a command that prints JSON."""
    return json.loads(said(bench, place, *argv))


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab without benches, removed afterwards."""
    with Lab(f"test-{os.getpid()}") as made:
        yield made


@pytest.fixture(scope="session")
def benches() -> Iterator[dict[str, LabNetwork]]:
    """One small bench of every network, side by side."""
    from k8sdds.networks import NETWORKS

    with Lab(f"tests-{os.getpid()}") as made:
        made.up(cell(name) for name in NETWORKS)
        yield {bench.plan.key.network: bench for bench in made.benches.values()}
