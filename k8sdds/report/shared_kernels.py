"""Find out from the facts of a cluster which of its nodes share a kernel."""

from __future__ import annotations

from typing import Any


def sharing(facts: Any) -> str:
    """Return the names of nodes that share a kernel, such as `n1 and n2`; empty if each has its own."""
    nodes = facts.get("nodes") if isinstance(facts, dict) else None
    kernels: dict[str, list[str]] = {}
    for name, node in (nodes if isinstance(nodes, dict) else {}).items():
        if isinstance(node, dict) and node.get("boot_id"):
            kernels.setdefault(str(node["boot_id"]), []).append(str(name))
    return "; ".join(" and ".join(names) for names in kernels.values() if len(names) > 1)


def all_share(facts: Any) -> bool:
    """Return whether all boot ids in the facts, at any depth, are equal."""
    boot_ids: set[str] = set()
    nodes = 0

    def collect(value: Any, inside_boot_id: bool) -> None:
        nonlocal nodes
        if isinstance(value, dict):
            for key, item in value.items():
                collect(item, inside_boot_id or str(key).startswith("boot_id"))
        elif isinstance(value, list):
            for item in value:
                collect(item, inside_boot_id)
        elif inside_boot_id and value:
            nodes += 1
            boot_ids.add(str(value))

    collect(facts, False)
    return nodes > 1 and len(boot_ids) == 1
