"""A lab_network of its own for one test; used in the virtual machine as well, where there is no pytest."""

from __future__ import annotations

from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan


def built(made: Plan) -> LabNetwork:
    """A lab_network that is up, to be closed; nothing is left where it does not come up."""
    lab_network = LabNetwork(made, Sandbox(f"test-{made.key.network}"))
    try:
        lab_network.build({})
    except BaseException:
        lab_network.close()
        raise
    return lab_network
