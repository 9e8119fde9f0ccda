"""What changes within one network when one setting changes: multicast against unicast, best effort against
reliable. Overheads compare networks; contrasts compare settings, with the same pairing and intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from k8sdds.analysis import conditions, statistics
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.overhead import QUANTITIES, Row, paired

_PLAIN = ("unicast", "reliable", "none", "listener", "cyclonedds")
"""Values that others are compared with; where none of them was measured, the first of the sorted values."""


def contrasts(trials: list[Row], quantity: str) -> list[Row]:
    """Every pair of settings that differ in one column only, for each network, payload and subscribers.

    `trials` are rows as `overhead.plain_rows` gives them. Each result has `column`, `value`, `reference`,
    `network_label`, the columns that tell settings apart, `subscribers`, `payload_bytes`, `test`, `ratio`
    (value/reference), `change_percent`, `ci_low_percent`, `ci_high_percent`, `n`, `seen` and
    `detectable_percent`.
    """
    columns = [name for name in conditions.distinguishing(trials) if name != "subscribers"]
    axes = ("test", "payload_bytes", "subscribers")
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for trial in trials:
        cells[(trial[UNIT], *(trial[name] for name in (*axes, *columns)))].append(trial)
    found = []
    for position, column in enumerate(columns, start=1 + len(axes)):
        reference = reference_of({key[position] for key in cells})
        for key, rows in cells.items():
            if key[position] == reference:
                continue
            base = cells.get((*key[:position], reference, *key[position + 1 :]), [])
            ratio, _ = paired(rows, base, QUANTITIES[quantity])
            if ratio is None:
                continue
            change = [None if r is None else 100 * (r - 1) for r in (ratio.value, ratio.low, ratio.high)]
            found.append(
                {"column": column, "value": key[position], "reference": reference, "quantity": quantity}
                | dict(zip((UNIT, *axes, *columns), key, strict=True))
                | dict(zip(("change_percent", "ci_low_percent", "ci_high_percent"), change, strict=True))
                | {"ratio": ratio.value, "n": ratio.n, "seen": ratio.seen}
                | {"detectable_percent": statistics.detectable_percent(ratio.spread, ratio.n)}
            )
    return found


def compared(rows: list[Row]) -> Iterator[tuple[str, list[Row], dict[str, Any]]]:
    """Each contrast among the rows of `contrasts`: in words (`multicast against unicast`), with what is
    `shown` of it."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["column"], row["value"], row["reference"]].append(row)
    for (column, value, reference), every in groups.items():
        versus = f"{conditions.describe({column: value})} against {conditions.describe({column: reference})}"
        yield versus, *shown(every)


def shown(rows: list[Row]) -> tuple[list[Row], dict[str, Any]]:
    """Of the rows of one contrast those of one setting, where further settings were varied too: the one with
    the most rows, or else the first. And which setting that is, empty where nothing else was varied."""
    axes = ("test", "payload_bytes", "subscribers", rows[0]["column"])
    names = [name for name in conditions.CONDITION if name in rows[0] and name not in axes]
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    settings: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        settings[tuple(row[name] for name in varied)].append(row)
    chosen = max(settings, key=lambda setting: len(settings[setting]))
    return settings[chosen], dict(zip(varied, chosen, strict=True))


def reference_of(values: set[Any]) -> Any:
    """The plain value among the measured ones."""
    plain = [value for value in _PLAIN if value in values]
    return plain[0] if plain else min(values, key=lambda value: (str(type(value)), value or 0))
