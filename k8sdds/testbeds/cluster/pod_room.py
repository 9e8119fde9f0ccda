"""Check that the nodes of a cluster have room for the pods of pod-start tests. Makes no changes."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence

from k8sdds import workloads
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.model.options import MAX_PODS
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.system.errors import InputError, Problem
from k8sdds.testbeds.cluster import permissions, placement
from k8sdds.testbeds.cluster.nodes import NodeInfo, usable
from k8sdds.testbeds.cluster.pods import Slot, memory_holder

OWN_PODS = 4
"""Pods of a campaign on a node that are not participants: two probes, meter, discovery server."""
UNASSIGNED = 3
"""Addresses of a range that no pod gets: that of the network, the gateway, and the broadcast address."""


def problems(cells: Sequence[Cell], nodes: Sequence[NodeInfo], client: KubernetesClient) -> list[Problem]:
    """Return the cells whose pods do not fit on the nodes of their participants.

    Nothing is checked if this user may not list nodes. Running pods count if this user may list pods.
    """
    starting = [cell for cell in cells if workloads.find(cell.test).started_pods(cell)]
    if not starting or not nodes:
        return []
    candidates = {node.name: node for node in usable(nodes)}
    running, addressed = _running(client)
    reserved = Counter(dict.fromkeys(candidates, OWN_PODS))
    reserved += Counter(
        slot.node for slot in {slot for cell in cells for slot in _slots(cell, candidates.values())}
    )
    found: dict[str, Problem] = {}
    for cell in starting:
        rooms = {
            name: _room(
                candidates[name], cell, running[name] + reserved[name], addressed[name] + reserved[name]
            )
            for name in dict.fromkeys(slot.node for slot in _slots(cell, candidates.values()))
        }
        wanted, free = workloads.find(cell.test).started_pods(cell), sum(count for count, _ in rooms.values())
        if rooms and wanted > free:
            limits = "; ".join(f"{node} has room for {count}: {why}" for node, (count, why) in rooms.items())
            what = (
                f"{cell.describe()}: its {wanted} pods do not fit on the nodes of its participants ({limits})"
            )
            remedy = (
                f"start at most {free} (set pods of the test), place participants on other nodes, end other pods, or"
                " raise maxPods of the kubelets and the size of their ranges (--node-cidr-mask-size of"
                " kube-controller-manager)"
            )
            found.setdefault(what, Problem(what, remedy, input=True))
    return list(found.values())


def _slots(cell: Cell, nodes: Iterable[NodeInfo]) -> list[Slot]:
    """Return the slots of a cell's participants, and of the pods whose memory they share.

    The list is empty if `preflight.placement_problems` reports the placement of the cell.
    """
    try:
        slots = placement.slots(cell, list(nodes)).values()
    except InputError:
        return []
    return [*slots, *(memory_holder(slot.node) for slot in slots if slot.shares_with_node)]


def _room(node: NodeInfo, cell: Cell, pods: int, addressed: int) -> tuple[int, str]:
    """Return how many pods fit on a node next to its own, and the limit that applies.

    `pods`: the pods of the node; `addressed`: those with an address of the node's range.
    """
    limits = []
    if node.max_pods:
        why = f"its kubelet runs at most {node.max_pods}, and {pods} run or are reserved"
        limits.append((node.max_pods - pods, why))
    # The plugins of other networks assign addresses from ranges of their own.
    for text in node.pod_ranges if find(cell.network).cni_plugins is not None else ():
        most = ipaddress.ip_network(text, strict=False).num_addresses - UNASSIGNED
        why = f"its range {text} has {most} addresses, and {addressed} are used or reserved"
        limits.append((most - addressed, why))
    room, why = min(limits, default=(MAX_PODS, "no limit is known"))
    return max(room, 0), why


def _running(client: KubernetesClient) -> tuple[Counter[str], Counter[str]]:
    """Return how many pods each node runs, and how many have addresses of their own; empty if they cannot be listed."""
    running = "status.phase!=Succeeded,status.phase!=Failed"
    listed = permissions.readable(client, f"{CORE}/pods", fieldSelector=running)
    specs = [pod["spec"] for pod in listed["items"]] if listed else []
    return (
        Counter(spec.get("nodeName", "") for spec in specs),
        Counter(spec.get("nodeName", "") for spec in specs if not spec.get("hostNetwork")),
    )
