"""The cluster's nodes, and which participant goes to which of them. Pure: read from what the API says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds import networks, versions
from k8sdds.model.placement import packed, spread
from k8sdds.model.trial import Cell, Participant
from k8sdds.system.errors import InputError

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True)
class Node:
    """What the API says of a node."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    arch: str
    boot_id: str
    info: dict[str, Any]
    images: frozenset[str]
    unfit: str
    """Why no pod of ours would run there, or empty."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Node:
        """From a Node object."""
        meta, spec, status = data["metadata"], data.get("spec", {}), data.get("status", {})
        info = status.get("nodeInfo", {})
        return cls(
            name=meta["name"],
            labels=meta.get("labels", {}),
            annotations=meta.get("annotations", {}),
            arch=info.get("architecture", ""),
            boot_id=info.get("bootID", ""),
            info=info,
            images=frozenset(name for image in status.get("images", []) for name in image.get("names") or []),
            unfit=_unfit(spec, status),
        )


def _unfit(spec: dict[str, Any], status: dict[str, Any]) -> str:
    ready = next((one for one in status.get("conditions", []) if one.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        return f"not ready: {ready.get('message') or ready.get('reason') or 'no word from its kubelet'}"
    if spec.get("unschedulable"):
        return "cordoned"
    for taint in spec.get("taints", []):
        if taint.get("effect") in ("NoSchedule", "NoExecute"):
            return f"taint {taint['key']}"
    return ""


def usable(nodes: Sequence[Node], arches: Sequence[str]) -> list[Node]:
    """Where participants may go: workers before control planes, each by name."""
    fit = [node for node in nodes if not node.unfit and node.arch in arches]
    return sorted(fit, key=lambda node: (CONTROL_PLANE in node.labels, node.name))


def assign(cell: Cell, nodes: Sequence[Node]) -> dict[Participant, str]:
    """Participant to node. InputError where the cell asks for what these nodes cannot give."""
    if cell.nodes and cell.nodes > len(nodes):
        raise InputError(f"{cell.describe()}: nodes: {cell.nodes} are asked for, {len(nodes)} are there")
    if not isinstance(cell.placement, dict):
        count = cell.nodes or len(nodes)
        if count < 2:
            raise InputError(
                f"samples cross a link only between two nodes; {count} can take pods",
                "see: kubectl get nodes; kubectl describe node",
            )
        if cell.placement == "packed":
            numbers = packed(cell.publishers, cell.subscribers)
        else:
            numbers = spread(cell.publishers, cell.subscribers, count)
        return {participant: nodes[number].name for participant, number in numbers.items()}
    return {participant: _wanted(cell, participant, nodes) for participant in cell.participants}


def _wanted(cell: Cell, participant: Participant, nodes: Sequence[Node]) -> str:
    """The node that an explicit placement wants: a number, a name or a label."""
    assert isinstance(cell.placement, dict)
    wanted = cell.placement.get(participant.name, cell.placement.get(participant.short_role))
    if wanted is None:
        raise InputError(
            f"placement names no node for {participant}",
            "name one for it, or for all of its kind: pub, sub",
        )
    if isinstance(wanted, int):
        if not 0 <= wanted < len(nodes):
            raise InputError(
                f"placement puts {participant} on node {wanted}; there are 0 to {len(nodes) - 1}"
            )
        return nodes[wanted].name
    key, equals, value = wanted.partition("=")
    if equals:
        found = [node for node in nodes if node.labels.get(key) == value]
        if not found:
            raise InputError(f"no node that can take pods has the label {wanted}", "kubectl get nodes -L KEY")
        return found[participant.index % len(found)].name
    if wanted not in {node.name for node in nodes}:
        known = ", ".join(node.name for node in nodes)
        raise InputError(f"placement puts {participant} on {wanted!r}; nodes that take pods: {known}")
    return wanted


def installed_network(nodes: Sequence[Node]) -> str | None:
    """The pod network, by what it writes on the nodes; None where it cannot be told."""
    found = set()
    for node in nodes:
        found.add(networks.detect(node.annotations) or node.labels.get(versions.NETWORK_LABEL, ""))
    found.discard("")
    return found.pop() if len(found) == 1 else None


def one_kernel(nodes: Sequence[Node]) -> bool:
    """Whether several nodes run on one kernel."""
    return len(nodes) > 1 and len({node.boot_id for node in nodes}) == 1
