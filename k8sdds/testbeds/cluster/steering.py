"""Steer the received packets of local nodes to the cores of their participants (RPS), as the lab does for its nodes.

Local nodes share one kernel. Without steering, the sender's core also does the receive work of the other node, which no
sender on another machine does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.model.trial import Cell
from k8sdds.system.errors import K8sddsError
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.nodes import NodeInfo, one_kernel

MASK_FILE = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
SHARED_KERNEL = (
    "the nodes share one kernel, so the sender's core also does the receive work of the other nodes"
)


class Steering:
    """The steering of received packets on the nodes of a cluster. Nodes on separate machines do not need it."""

    def __init__(self, cluster: str, nodes: Sequence[NodeInfo]) -> None:
        """Contact nothing yet. `cluster`: its name; empty: k8sdds did not deploy it."""
        self._cluster = cluster
        self._share_kernel = one_kernel(nodes)
        self._masks: dict[str, str] = {}

    def apply(self, cell: Cell, layout: core_layout.Layout, node_of: Mapping[str, str]) -> str:
        """Steer the packets that each node receives to the cores of its participants, if the cell's layout does so.

        Args:
            cell: What is measured.
            layout: Cores of the participants.
            node_of: Participant to node.

        Returns:
            Why packets cannot be steered; empty if they are, or need not be.
        """
        if not self._share_kernel:
            return ""
        masks = core_layout.steering(cell.layout, layout, node_of)
        reason = self._write(masks)
        return (
            f"packets: {SHARED_KERNEL}: {reason}"
            if reason and any(map(core_layout.steers, masks.values()))
            else ""
        )

    def close(self) -> None:
        """Switch the steering off again."""
        self._write(dict.fromkeys(self._masks, core_layout.NOT_STEERED))

    def _write(self, masks: Mapping[str, str]) -> str:
        """Write the masks that differ from the current ones. Return why this failed; empty: it did not."""
        if not self._cluster:
            return "k8sdds did not create these nodes"
        # Imported here because other clusters need no local nodes.
        from k8sdds import nodes

        try:
            for node, mask in masks.items():
                if self._masks.get(node) != mask:
                    nodes.run(self._cluster, node, ["sh", "-c", f"echo {mask} > {MASK_FILE}"])
                    self._masks[node] = mask
        except K8sddsError as error:
            return error.message
        return ""
