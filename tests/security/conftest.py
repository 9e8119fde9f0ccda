"""A pod network with a publisher, a subscriber and a place for an intruder; and credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from k8sdds.model.trial import Cell
from k8sdds.perftest import command
from k8sdds.security.authority import Validity
from k8sdds.security.credentials import Credentials
from k8sdds.testbeds.lab.testbed import Lab
from tests.security.attacks import Field


@pytest.fixture(scope="session")
def _standing() -> Iterator[Field]:
    cell = Cell(network="kube-router", test="throughput", payload_bytes=512, subscribers=2)
    with Lab(f"attacks-{os.getpid()}") as lab:
        lab.up([cell])
        (lab_network,) = lab.networks.values()
        now = datetime.now(UTC).replace(microsecond=0)
        # For long, so that they hold for an intruder too whose clock is slow.
        validity = Validity(now - timedelta(days=30), now + timedelta(days=1))
        yield Field(lab_network, Credentials(validity, command.DOMAINS))


@pytest.fixture
def field(_standing: Field) -> Iterator[Field]:
    """The lab_network with its credentials; what a test started is ended."""
    yield _standing
    _standing.end_all()
