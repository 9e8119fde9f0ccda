"""Build a lab network for one test. Also used in the virtual machine, which has no pytest."""

from __future__ import annotations

from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan


def build(plan: Plan) -> LabNetwork:
    """Return a lab network that the caller must close; on failure, leave nothing behind."""
    lab_network = LabNetwork(plan, Sandbox(f"test-{plan.key.network}"))
    try:
        lab_network.build({})
    except BaseException:
        lab_network.close()
        raise
    return lab_network
