"""What protection costs: each protected cell against the same network without protection.

A cell is protected by DDS Security, by a network that encrypts, or by both. Overheads compare networks, and
this compares a network with itself, with the same pairing and intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import overhead, statistics
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.overhead import QUANTITIES, Row

if TYPE_CHECKING:
    import pandas as pd

NOT_PROTECTED = (None, "none")
_SECURITY = CONDITION.index("security")


def protections(best: pd.DataFrame, networks: Mapping[str, Any]) -> list[Row]:
    """The overhead of protection for every protected cell whose unprotected one was measured too.

    `networks`: the run folder's facts by label; their `unprotected` names the network that remains without
    the encryption. Each row has network_label, the condition, `against` (the label compared with),
    `quantity`, `overhead_percent`, `ci_low_percent`, `ci_high_percent`, `n`, `seen` and `detectable_percent`.
    """
    cells = overhead.by_cell(best)
    plain_labels = _plain_labels(networks)
    found = []
    for (label, *condition), trials in cells.items():
        plain = plain_labels.get(label, label)
        if plain == label and condition[_SECURITY] in NOT_PROTECTED:
            continue
        unprotected = [*condition[:_SECURITY], "none", *condition[_SECURITY + 1 :]]
        base = cells.get((plain, *unprotected), [])
        for quantity in QUANTITIES.values():
            ratio, _ = overhead.paired(trials, base, quantity)
            if ratio is None:
                continue
            cost = quantity.overhead(ratio)
            found.append(
                {UNIT: label, "against": plain}
                | dict(zip(CONDITION, condition, strict=True))
                | {"quantity": quantity.name, "overhead_percent": cost.percent}
                | {"ci_low_percent": cost.low, "ci_high_percent": cost.high, "n": ratio.n, "seen": ratio.seen}
                | {
                    "detectable_percent": statistics.detectable_percent(
                        ratio.spread, ratio.n, quantity.gain
                    )
                }
            )
    return found


def _plain_labels(networks: Mapping[str, Any]) -> dict[str, str]:
    """Label of each network that encrypts to the label of what it is without: the first of that name."""
    facts = {label: fact for label, fact in networks.items() if isinstance(fact, Mapping)}
    first: dict[Any, str] = {}
    for label, fact in facts.items():
        first.setdefault(fact.get("name"), label)
    wanted = {label: fact.get("unprotected") for label, fact in facts.items()}
    return {label: first[name] for label, name in wanted.items() if name and name in first}
