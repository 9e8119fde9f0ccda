"""To which cores the nodes steer received packets."""

from __future__ import annotations

from dataclasses import replace

from k8sdds.model.trial import Cell
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.node_settings import Steering
from tests.unit.test_cluster import nodes

NODES = {"pub0": "n1", "sub0": "n2"}


def test_split_steers_received_packets_to_the_cores_of_the_participants_and_other_layouts_do_not() -> None:
    masks = {}
    for name in ("split", "same", "free"):
        layout = core_layout.assign(name, 1, 1, (0, 1))
        masks[name] = core_layout.steering(name, layout, NODES)
    off = dict.fromkeys(NODES.values(), core_layout.NOT_STEERED)
    assert masks == {"split": {"n1": "00000001", "n2": "00000002"}, "same": off, "free": off}
    assert core_layout.mask(()) == core_layout.NOT_STEERED


def test_nodes_of_one_kernel_that_cannot_be_steered_are_reported() -> None:
    cell = Cell(network="host", test="throughput", payload_bytes=64)
    layout = core_layout.assign("split", 1, 1, (0, 1))
    one = nodes()
    assert "share one kernel" in Steering("", one).apply(cell, layout, NODES)
    latency = cell.model_copy(update={"layout": "same"})
    assert not Steering("", one).apply(latency, core_layout.assign("same", 1, 1, (0, 1)), NODES)
    machines = [replace(node, boot_id=node.name) for node in one]
    assert not Steering("", machines).apply(cell, layout, NODES)
