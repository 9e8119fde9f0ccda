"""A bench of its own for one test; used in the virtual machine as well, where there is no pytest."""

from __future__ import annotations

from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan


def built(made: Plan) -> LabNetwork:
    """A bench that is up, to be closed; nothing is left where it does not come up."""
    bench = LabNetwork(made, Sandbox(f"test-{made.key.network}"))
    try:
        bench.build({})
    except BaseException:
        bench.close()
        raise
    return bench
