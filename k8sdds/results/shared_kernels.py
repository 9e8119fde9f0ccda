"""Find out from the facts of a cluster which of its nodes share a kernel."""

from __future__ import annotations

from typing import Any


def sharing(facts: Any) -> str:
    """Return the names of nodes that share a kernel, such as `n1 and n2`; empty if each has its own."""
    kernels: dict[str, list[str]] = {}
    for name, boot_id in _boot_ids(facts).items():
        if boot_id:
            kernels.setdefault(boot_id, []).append(name)
    return "; ".join(" and ".join(names) for names in kernels.values() if len(names) > 1)


def all_share(facts: Any) -> bool:
    """Return whether there are several nodes, and all are known to have the same kernel."""
    boot_ids = list(_boot_ids(facts).values())
    return len(boot_ids) > 1 and len(set(boot_ids)) == 1 and bool(boot_ids[0])


def _boot_ids(facts: Any) -> dict[str, str]:
    """Return the boot id of each node, by its name; empty if it is unknown."""
    nodes = facts.get("nodes") if isinstance(facts, dict) else None
    return {
        str(name): str(node.get("boot_id") or "")
        for name, node in (nodes if isinstance(nodes, dict) else {}).items()
        if isinstance(node, dict)
    }
