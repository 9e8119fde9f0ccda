"""Collect which software ran the networks of trials: agents, CNI plugins and kube-proxy, with versions and digests."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from k8sdds.analysis.overhead import Row


def network_software(rows: Iterable[Row]) -> dict[str, str]:
    """Return the software by component. Several versions of a component are joined."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    # Most trials of a campaign have the same text.
    for text in dict.fromkeys(row.get("network_software") for row in rows):
        for name, version in (json.loads(text) if text else {}).items():
            found[name][version] = None
    return {name: ", then ".join(versions) for name, versions in found.items()}


def installed_networks(rows: Iterable[Row]) -> dict[str, list[int]]:
    """Return the blocks during which each pod network was installed."""
    blocks: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row.get("installed_network") and row.get("block") is not None:
            blocks[row["installed_network"]].add(int(row["block"]))
    return {name: sorted(numbers) for name, numbers in blocks.items()}
