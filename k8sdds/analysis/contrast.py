"""Compare settings within one network, such as multicast with unicast, or best effort with reliable.

Overheads compare networks; contrasts compare settings, with the same pairing and the same intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from k8sdds.analysis import conditions, statistics
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.overhead import paired
from k8sdds.model.trial import AXES
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, by_columns


def contrasts(trials: list[Row], quantity: str) -> list[Row]:
    """Compare every pair of settings that differ in one column, for each network, payload and subscribers.

    `trials` are rows of `tidy.best`. Each result has `column`, `value`, `reference`,
    `network_label`, the columns that distinguish settings, `subscribers`, `payload_bytes`, `test`, `ratio`
    (value/reference), `change_percent`, `ci_low_percent`, `ci_high_percent`, `n`, `seen` (whether the
    confidence interval excludes 0) and `detectable_percent`.
    """
    columns = [name for name in conditions.distinguishing(trials) if name != "subscribers"]
    axes = ("test", "payload_bytes", "subscribers")
    cells = by_columns(trials, (UNIT, *axes, *columns))
    changes = []
    for position, column in enumerate(columns, start=1 + len(axes)):
        reference = reference_of(column, trials)
        for key, rows in cells.items():
            if key[position] == reference:
                continue
            base = cells.get((*key[:position], reference, *key[position + 1 :]), [])
            if base and not _differ_only_in(column, rows[0], base[0]):
                continue
            ratio, _ = paired(rows, base, METRICS[quantity])
            if ratio is None:
                continue
            change = ratio.overhead(gain=False)
            changes.append(
                {"column": column, "value": key[position], "reference": reference, "quantity": quantity}
                | dict(zip((UNIT, *axes, *columns), key, strict=True))
                | dict(zip(("change_percent", "ci_low_percent", "ci_high_percent"), change, strict=True))
                | {"ratio": ratio.ratio, "n": ratio.n, "seen": ratio.differs}
                | {"detectable_percent": statistics.detectable_percent(ratio)}
            )
    return changes


def _differ_only_in(column: str, one: Row, other: Row) -> bool:
    """Return whether two cells differ in one setting, apart from those that follow from it.

    The columns that distinguish the settings of a campaign do not suffice: if only Fast DDS was measured by shared
    memory, and only Cyclone DDS by unicast, the transport alone distinguishes them.
    """
    return all(
        one[name] == other[name]
        for name in conditions.CONDITION
        if name != column and (name not in AXES or column not in AXES[name].follows)
    )


def by_title(rows: list[Row]) -> Iterator[tuple[str, list[Row], dict[str, Any]]]:
    """Yield the title of each contrast among the rows of `contrasts`, and the result of `of_one_setting` for it.

    An example of a title is `multicast against unicast`.
    """
    for (column, value, reference), group in by_columns(rows, ("column", "value", "reference")).items():
        title = " against ".join(conditions.named_setting(column, each) for each in (value, reference))
        yield title, *of_one_setting(group)


def of_one_setting(rows: list[Row]) -> tuple[list[Row], dict[str, Any]]:
    """Select the rows of one contrast that a report shows, and the setting that they share.

    If further settings were varied, these are the rows of the setting with the most rows; if several settings
    have that many, the first one is used. If no further setting was varied, the returned setting is empty.
    """
    axes = ("test", "payload_bytes", "subscribers", rows[0]["column"])
    names = [name for name in conditions.CONDITION if name in rows[0] and name not in axes]
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    settings = by_columns(rows, varied)
    largest = max(settings, key=lambda setting: len(settings[setting]))
    return settings[largest], dict(zip(varied, largest, strict=True))


def reference_of(column: str, trials: Sequence[Row]) -> Any:
    """Return the usual value of a column if it was measured, otherwise the first measured value in sorted order."""
    usual = [row for row in trials if column in AXES and AXES[column].is_usual(row)]
    return min((row[column] for row in usual or trials), key=lambda value: (str(type(value)), value or 0))
