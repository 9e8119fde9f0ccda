"""Name the machine or the cluster that measured the trials of a run folder, and its nodes that share a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import grouped

CPU_MANAGER = "cpu_manager"
"""Fact of a node: the policy of the CPU manager of its kubelet."""
UNKNOWN_CPU = "unknown CPU"
SWITCH_SINCE = 3
"""Version of the run folder since which the switch between nodes of one kernel has no packet filters, and local nodes
of a cluster steer received packets. Before, the rate of `host` was 12 to 20 % lower
(docs/explanation/lab-and-cluster.md)."""


def machine_identity(run: RunFolder) -> str | None:
    """Return a text that is equal for run folders of the same hardware, kernel and cluster, and differs for others.

    It contains CPU model, number of cores and kernel release. On a cluster it starts with the UID of the cluster, and
    contains each kind of node that carried pods when the campaign started. It does not depend on the number of nodes.
    None means that the run folder does not name its machine, for example because its trials are imported.
    """
    facts = run.facts
    nodes = facts.get("nodes")
    if not isinstance(nodes, dict):
        return _machine(facts)
    known = [node for node in nodes.values() if isinstance(node, dict)]
    measured = [node for node in known if node.get("cpu_model")] or known
    # A user who may not read the UID of a cluster knows at least the names of its nodes.
    cluster = f"cluster {facts.get('cluster_uid') or 'of ' + ', '.join(sorted(nodes))}"
    return "; ".join([cluster, *sorted(set(filter(None, map(_machine, measured))))])


def has_old_switch(run: RunFolder) -> bool:
    """Return whether nodes of one kernel were connected as by earlier versions, which `SWITCH_SINCE` describes."""
    old = int(run.campaign.get("schema") or 1) < SWITCH_SINCE
    return old and (not isinstance(run.facts.get("nodes"), dict) or all_share_a_kernel(run.facts))


def _machine(facts: Mapping[str, Any]) -> str | None:
    """Describe one machine; None if nothing of it is known."""
    model, cores = facts.get("cpu_model"), facts.get("cpu_count")
    kernel = facts.get("kernel") or facts.get("kernelVersion")
    if not (model or cores or kernel):
        return None
    return f"{model or UNKNOWN_CPU}, {cores or 'unknown'} cores, kernel {kernel or 'unknown'}"


def cpu_managers(facts: Any) -> dict[str, list[str]]:
    """Return each policy of the CPU managers of a cluster's kubelets, with the names of its nodes; "" if unknown."""
    policies = {name: str(node.get(CPU_MANAGER) or "") for name, node in _nodes(facts).items()}
    return grouped(policies, policies.__getitem__)


def sharing_a_kernel(facts: Any) -> str:
    """Return the names of nodes that share a kernel, such as `n1 and n2`; empty if each has its own."""
    boot_ids = _boot_ids(facts)
    kernels = grouped(filter(boot_ids.get, boot_ids), boot_ids.__getitem__)
    return "; ".join(" and ".join(names) for names in kernels.values() if len(names) > 1)


def all_share_a_kernel(facts: Any) -> bool:
    """Return whether there are several nodes, and all are known to have the same kernel."""
    boot_ids = list(_boot_ids(facts).values())
    return len(boot_ids) > 1 and len(set(boot_ids)) == 1 and bool(boot_ids[0])


def _boot_ids(facts: Any) -> dict[str, str]:
    """Return the boot id of each node, by its name; empty if it is unknown."""
    return {name: str(node.get("boot_id") or "") for name, node in _nodes(facts).items()}


def _nodes(facts: Any) -> dict[str, dict[str, Any]]:
    """Return the facts about each node of a cluster, by its name."""
    nodes = facts.get("nodes") if isinstance(facts, dict) else None
    known = nodes.items() if isinstance(nodes, dict) else ()
    return {str(name): node for name, node in known if isinstance(node, dict)}
