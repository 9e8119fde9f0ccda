"""Local nodes steer received packets to the cores of their participants while a trial with the layout `split` runs."""

from __future__ import annotations

import pytest

from k8sdds import nodes
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.model.trial import Cell
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.node_settings import MASK_FILE, Steering
from k8sdds.testbeds.cluster.nodes import NodeInfo
from tests.clusters import Deployed


def test_received_packets_are_steered_until_the_campaign_ends(
    one_machine: Deployed, admin: KubernetesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))

    def masks() -> list[str]:
        return [
            nodes.run(one_machine.name, name, ["cat", MASK_FILE]).strip() for name in ("worker1", "worker2")
        ]

    before = masks()
    steering = Steering(
        one_machine.name, [NodeInfo.parse(node) for node in admin.get(f"{CORE}/nodes")["items"]]
    )
    layout = core_layout.assign("split", 1, 1, (0, 1))
    cell = Cell(network="host", test="throughput", payload_bytes=64)
    try:
        assert steering.apply(cell, layout, {"pub0": "worker1", "sub0": "worker2"}) == ""
        assert [int(mask, 16) for mask in masks()] == [1, 2]
        nodes.run(one_machine.name, "worker1", ["mount", "--bind", "/proc/version", MASK_FILE])
        try:
            with pytest.raises(PrerequisiteError, match=r"cannot switch off the steering .*worker1"):
                steering.close()
        finally:
            nodes.run(one_machine.name, "worker1", ["umount", MASK_FILE])
        assert [int(mask, 16) for mask in masks()] == [1, 0]
    finally:
        steering.close()
    assert masks() == before
