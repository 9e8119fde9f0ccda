"""Remove the leftovers of all networks from a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.model.ip_families import Subnet
from k8sdds.system.ssh import Host

ATTEMPTS = 4
"""How often leftovers are removed: an agent that is stopping may create more after the first removal."""
TIMEOUT_S = 90


@dataclass(frozen=True)
class Cleanup:
    """The result of a cleanup of one node."""

    found: tuple[NetworkLeftover, ...]
    """Everything that was found, removed or not."""
    remaining: tuple[NetworkLeftover, ...]
    """What could not be removed."""
    errors: tuple[str, ...]
    """Last lines that the removal printed to stderr."""


def remove_leftovers(host: Host, addresses: Sequence[str], pod_cidrs: Sequence[Subnet]) -> Cleanup:
    """Remove everything that networks left on a node where agents have been stopped.

    Args:
        host: The node.
        addresses: IP addresses of the cluster's nodes.
        pod_cidrs: The cluster's ranges of pods.

    Raises:
        HostError: The node cannot be reached.
    """

    def probe() -> list[NetworkLeftover]:
        state = node_state.parse(host.run(footprint.probe_script()).out)
        return footprint.leftovers(state, addresses, pod_cidrs)

    found: dict[NetworkLeftover, None] = {}
    errors: list[str] = []
    remaining = probe()
    for _ in range(ATTEMPTS):
        if not remaining:
            break
        found |= dict.fromkeys(remaining)
        done = host.run(footprint.removal_script(remaining), timeout_s=TIMEOUT_S)
        errors = done.err.strip().splitlines()[-5:]
        remaining = probe()
    return Cleanup(tuple(found), tuple(remaining), tuple(errors))
