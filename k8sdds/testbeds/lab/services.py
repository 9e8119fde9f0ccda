"""Read how a client reaches the measured Service of a lab network, and what the nodes have translated for it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from k8sdds.model.services import HEADLESS
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER
from k8sdds.networks.common import kube_proxy
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.plan import Plan
from k8sdds.testbeds.lab.topology import services_of
from k8sdds.workloads.transactions import PORT


def address(plan: Plan) -> tuple[str, int] | None:
    """Return the address and port by which the client reaches the server; None means those of the server's pod."""
    wanted = services_of(plan.cell)
    if wanted is None:
        return None
    client = next(pod for pod in plan.topology.pods if pod.name == FIRST_PUBLISHER.name)
    return kube_proxy.address(wanted, plan.topology.nodes[client.node], PORT)


def connections(plan: Plan, sandbox: Sandbox, name: str) -> int:
    """Return how many connections to the measured Service a node has translated so far.

    A headless Service needs no translation: then connections to any Service count, and tracked ones to the server.
    """
    wanted, endpoint = services_of(plan.cell), plan.datapath.attachments[FIRST_SUBSCRIBER.name].address
    assert wanted is not None
    node = next(node for node in plan.topology.nodes if node.name == name)
    argv = kube_proxy.counters_command(node, wanted, endpoint, PORT)
    translated = kube_proxy.translated(_shown(sandbox, name, argv))
    if wanted.via == HEADLESS:
        tracked = _shown(sandbox, name, ["cat", "/proc/net/nf_conntrack"])
        translated += kube_proxy.translated_entries(tracked, PORT)
    return translated


def _shown(sandbox: Sandbox, node: str, argv: Sequence[str]) -> str:
    return subprocess.run([*sandbox.enter(node), *argv], capture_output=True, text=True).stdout
