"""Name the machine, or the cluster of machines, on which the trials of a run folder were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from k8sdds.results.run_folder import RunFolder

UNKNOWN_CPU = "unknown CPU"
SWITCH_SINCE = 3
"""Version of the run folder since which the switch between nodes of one kernel has no packet filters, and local nodes
of a cluster steer received packets. `host` is 12 to 20 % faster since then (docs/explanation/lab-and-cluster.md)."""
OLD_SWITCH = "nodes of an earlier version of k8sdds"


def machine_identity(run: RunFolder) -> str | None:
    """Return a text that is equal for run folders of the same hardware, kernel and cluster, and differs for others.

    It contains CPU model, number of cores and kernel release. On a cluster it starts with the UID of the cluster, and
    contains each kind of node that carried pods when the campaign started. It does not depend on the number of nodes.
    Nodes of one kernel that an earlier version of k8sdds connected differently are others.
    None means that the run folder does not name its machine, for example because its trials are imported.
    """
    facts = run.facts
    older = [OLD_SWITCH] if int(run.campaign.get("schema") or 1) < SWITCH_SINCE else []
    nodes = facts.get("nodes")
    if not isinstance(nodes, dict):
        machine = _machine(facts)
        return machine and "; ".join([machine, *older])
    known = [node for node in nodes.values() if isinstance(node, dict)]
    measured = [node for node in known if node.get("cpu_model")] or known
    one_kernel = len(known) > 1 and len({node.get("boot_id") for node in known}) == 1
    return "; ".join(
        [_cluster(facts, nodes), *sorted(set(_machines(measured))), *(older if one_kernel else [])]
    )


def _cluster(facts: Mapping[str, Any], nodes: Iterable[str]) -> str:
    """Name a cluster. A user who may not read its UID knows at least the names of its nodes."""
    return f"cluster {facts.get('cluster_uid') or 'of ' + ', '.join(sorted(nodes))}"


def _machines(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [text for text in map(_machine, nodes) if text]


def _machine(facts: Mapping[str, Any]) -> str | None:
    """Describe one machine; None if nothing of it is known."""
    model, cores = facts.get("cpu_model"), facts.get("cpu_count")
    kernel = facts.get("kernel") or facts.get("kernelVersion")
    if not (model or cores or kernel):
        return None
    return f"{model or UNKNOWN_CPU}, {cores or 'unknown'} cores, kernel {kernel or 'unknown'}"
