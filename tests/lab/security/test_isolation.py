"""Verify which networks isolate the traffic of pods on one node from each other, without DDS Security."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from k8sdds.model.trial import Cell
from k8sdds.perftest import command
from k8sdds.security.credentials import Credentials
from k8sdds.testbeds.lab.testbed import Lab
from tests.lab.security.attacks import PATTERN, WIRE, Field


@pytest.mark.parametrize("network", ["host", "flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet"])
def test_a_foreign_pod_can_capture_traffic_only_on_host(network: str) -> None:
    cell = Cell(
        network=network, test="throughput", payload_bytes=512, publishers=2, subscribers=1, nodes=2,
        placement={"pub0": 0, "pub1": 0, "sub0": 1},
    )  # fmt: skip
    with Lab(f"sniff-{os.getpid()}") as lab:
        lab.up([cell])
        (lab_network,) = lab.networks.values()
        field = Field(lab_network, Credentials.valid_for(timedelta(days=1), command.DOMAINS))
        foreign = lab_network.plan.datapath.attachments["pub1"].interface
        try:
            with field.capture("pub1", foreign, WIRE, PATTERN) as observed:
                publisher, subscriber = field.pair("cyclonedds", None, "-executionTime", 0.3, "-warmUp", 0.1)
                assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        finally:
            field.end_all()
    assert subscriber.received > 100
    assert (observed["plain"] > 100) == (network == "host"), observed
