"""Compute the overhead of protection: each protected cell relative to the same network without protection.

A cell is protected by DDS Security, by an encrypting network, or by both. The module `overhead` compares different
networks. This module compares a network with its unprotected variant, with the same pairing and intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8sdds.analysis import overhead
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.overhead import Row
from k8sdds.results.metrics import METRICS

NOT_PROTECTED = (None, "none")
_SECURITY = CONDITION.index("security")


def protections(best: list[Row], networks: Mapping[str, Any]) -> list[Row]:
    """Return the overhead of every protected cell whose unprotected counterpart was also measured.

    `best` are the valid trials, as rows from `overhead.plain_rows`. `networks` contains the run folder's facts by
    label. The fact `unprotected` is the name of the same network without encryption. Each row has
    `network_label`, the condition, `against` (the label it is compared with), `quantity`, `overhead_percent`,
    `ci_low_percent`, `ci_high_percent`, `n`, `seen` (whether the interval excludes 0) and
    `detectable_percent`.
    """
    cells = overhead.by_cell(best)
    unprotected_labels = _unprotected_labels(networks)
    rows = []
    for (label, *condition), trials in cells.items():
        against = unprotected_labels.get(label, label)
        if against == label and condition[_SECURITY] in NOT_PROTECTED:
            continue
        unprotected = [*condition[:_SECURITY], "none", *condition[_SECURITY + 1 :]]
        base = cells.get((against, *unprotected), [])
        for metric in METRICS.values():
            ratio, _ = overhead.paired(trials, base, metric)
            if ratio is None:
                continue
            rows.append(
                {UNIT: label, "against": against}
                | dict(zip(CONDITION, condition, strict=True))
                | {"quantity": metric.name}
                | overhead.columns_of(metric, ratio)
            )
    return rows


def _unprotected_labels(networks: Mapping[str, Any]) -> dict[str, str]:
    """Map the label of each encrypting network to the first label of the same network without encryption."""
    facts = {label: fact for label, fact in networks.items() if isinstance(fact, Mapping)}
    first: dict[Any, str] = {}
    for label, fact in facts.items():
        first.setdefault(fact.get("name"), label)
    names = {label: fact.get("unprotected") for label, fact in facts.items()}
    return {label: first[name] for label, name in names.items() if name and name in first}
