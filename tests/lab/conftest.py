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


def enter(lab_network: LabNetwork, place: str) -> list[str]:
    """The words that run a command in a pod, or on a node."""
    return (
        lab_network.enter(place)
        if place in lab_network.plan.datapath.attachments
        else lab_network.sandbox.enter(place)
    )


def said(lab_network: LabNetwork, place: str, *argv: str) -> str:
    """What a command prints in a pod or on a node."""
    done = subprocess.run([*enter(lab_network, place), *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_of(lab_network: LabNetwork, place: str, *argv: str) -> Any:
    """The same for a command that prints JSON."""
    return json.loads(said(lab_network, place, *argv))


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab without lab_networks, removed afterwards."""
    with Lab(f"test-{os.getpid()}") as made:
        yield made


@pytest.fixture(scope="session")
def lab_networks() -> Iterator[dict[str, LabNetwork]]:
    """One small lab_network of every network, side by side."""
    from k8sdds.networks import NETWORKS

    with Lab(f"tests-{os.getpid()}") as made:
        made.up(cell(name) for name in NETWORKS)
        yield {lab_network.plan.key.network: lab_network for lab_network in made.networks.values()}
