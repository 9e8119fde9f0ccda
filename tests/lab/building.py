"""Build a lab network for one test. Also used in the virtual machine, which has no pytest."""

from __future__ import annotations

from k8sdds.model.trial import Cell
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan, make_plan
from tests import kernel_objects


def build(plan: Plan) -> LabNetwork:
    """Return a lab network that the caller must close; on failure, leave nothing behind."""
    lab_network = LabNetwork(plan, Sandbox(f"test-{plan.cell.network}"))
    try:
        lab_network.build({})
    except BaseException:
        lab_network.close()
        raise
    return lab_network


def objects(network: str) -> list[str]:
    """Return the kernel objects of a node and a pod of a lab network with three nodes."""
    cell = Cell(network=network, test="throughput", payload_bytes=1024, subscribers=2, nodes=3)
    lab_network = build(make_plan(cell))
    try:
        run, plan = lab_network.sandbox.run, lab_network.plan
        return kernel_objects.read(
            kernel_objects.Place(
                lambda script: run(["sh"], script, netns="node1"),
                plan.topology.nodes[1].address,
                lambda script: run(["sh"], script, netns="sub0"),
                plan.datapath.attachments["sub0"].address,
            )
        )
    finally:
        lab_network.close()
