"""Provide a lab network with a publisher, a subscriber and an intruder's pod, and their credentials."""

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
from tests.lab.security.attacks import Field


@pytest.fixture(scope="session")
def _session_field() -> Iterator[Field]:
    cell = Cell(network="kube-router", test="throughput", payload_bytes=512, subscribers=2)
    with Lab(f"attacks-{os.getpid()}") as lab:
        lab.up([cell])
        (lab_network,) = lab.networks.values()
        now = datetime.now(UTC).replace(microsecond=0)
        # Valid since long ago, so that they are also valid for an intruder with a slow clock.
        validity = Validity(now - timedelta(days=30), now + timedelta(days=1))
        yield Field(lab_network, Credentials(validity, command.DOMAINS))


@pytest.fixture
def field(_session_field: Field) -> Iterator[Field]:
    """Return the lab network with its credentials; kill all programs after the test."""
    yield _session_field
    _session_field.end_all()
