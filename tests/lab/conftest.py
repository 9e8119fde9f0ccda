"""Fixtures with lab networks in real namespaces."""

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
    """Return the stdout of a command in a pod or on a node."""
    done = subprocess.run([*enter(lab_network, place), *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_of(lab_network: LabNetwork, place: str, *argv: str) -> Any:
    """Return the parsed JSON output of a command in a pod or on a node."""
    return json.loads(output_of(lab_network, place, *argv))


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Yield a lab without networks and close it after the test."""
    with Lab(f"test-{os.getpid()}") as lab:
        yield lab


@pytest.fixture(scope="session")
def lab_networks() -> Iterator[dict[str, LabNetwork]]:
    """Yield a small lab network of every network, by network name."""
    from k8sdds.networks import NETWORKS

    with Lab(f"tests-{os.getpid()}") as lab:
        lab.up(cell(name) for name in NETWORKS)
        yield {lab_network.plan.key.network: lab_network for lab_network in lab.networks.values()}
