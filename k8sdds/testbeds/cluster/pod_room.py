"""Check that the nodes of a cluster have room for the pods of pod-start tests. Makes no changes."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from k8sdds import versions, workloads
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.system.errors import InputError, Problem
from k8sdds.testbeds.cluster import placement
from k8sdds.testbeds.cluster.nodes import NodeInfo, usable
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.workloads.pod_start import MAX_PODS

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
    candidates = usable(nodes, versions.BUNDLE_ARCHITECTURES)
    running, addressed = _running(client)
    own = _own_pods(cells, candidates)
    found: dict[str, Problem] = {}
    for cell in starting:
        try:
            places = dict.fromkeys(slot.node for slot in placement.slots(cell, candidates).values())
        except InputError:
            continue  # reported by `preflight.placement_problems`
        room = {node.name: _room(node, cell, running[node.name] + own[node.name], addressed[node.name] + own[node.name])
                for node in candidates if node.name in places}  # fmt: skip
        if problem := shortage(cell, room):
            found.setdefault(problem.what, problem)
    return list(found.values())


def shortage(cell: Cell, room: Mapping[str, tuple[int, str]]) -> Problem | None:
    """Return that the pods of a cell do not fit, or None.

    Args:
        cell: The cell.
        room: Number of pods that fit on each node, and what limits it.
    """
    wanted, free = workloads.find(cell.test).started_pods(cell), sum(count for count, _ in room.values())
    if wanted <= free:
        return None
    limits = "; ".join(f"{node} has room for {count}: {why}" for node, (count, why) in room.items())
    return Problem(
        f"{cell.describe()}: its {wanted} pods do not fit on the nodes of its participants ({limits})",
        f"start at most {free} (set pods of the test), place participants on other nodes, end other pods, or raise"
        " maxPods of the kubelets and the size of their ranges (--node-cidr-mask-size of kube-controller-manager)",
        input=True,
    )


def _room(node: NodeInfo, cell: Cell, pods: int, addressed: int) -> tuple[int, str]:
    """Return how many pods fit on a node next to its own, and what limits the number.

    Args:
        node: The node.
        cell: The cell whose pods are to fit.
        pods: The pods of the node.
        addressed: Those with an address of the node's range.
    """
    limits = []
    if node.max_pods:
        limits.append(
            (
                node.max_pods - pods,
                f"its kubelet runs at most {node.max_pods}, and {pods} run or are reserved",
            )
        )
    # The plugins of other networks assign addresses from ranges of their own.
    if find(cell.network).cni_plugins is not None:
        for text in node.pod_ranges:
            most = _addresses(text)
            limits.append(
                (
                    most - addressed,
                    f"its range {text} has {most} addresses, and {addressed} are used or reserved",
                )
            )
    room, why = min(limits, default=(MAX_PODS, "no limit is known"))
    return max(room, 0), why


def _addresses(text: str) -> int:
    return ipaddress.ip_network(text, strict=False).num_addresses - UNASSIGNED


def _own_pods(cells: Sequence[Cell], nodes: Sequence[NodeInfo]) -> Counter[str]:
    """Return how many pods a campaign keeps on each node."""
    slots: dict[Slot, None] = {}
    for cell in cells:
        try:
            slots |= dict.fromkeys(placement.slots(cell, nodes).values())
        except InputError:
            continue
    return Counter({node.name: OWN_PODS for node in nodes}) + Counter(slot.node for slot in slots)


def _running(client: KubernetesClient) -> tuple[Counter[str], Counter[str]]:
    """Return how many pods each node runs, and how many of them have addresses of their own, not the node's.

    Both are empty if this user may not list pods.
    """
    if not client.is_allowed("list", "", "pods"):
        return Counter(), Counter()
    listed = client.get(f"{CORE}/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")["items"]
    specs = [pod["spec"] for pod in listed]
    addressed = [spec for spec in specs if not spec.get("hostNetwork")]
    return _by_node(specs), _by_node(addressed)


def _by_node(specs: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(spec.get("nodeName", "") for spec in specs)
