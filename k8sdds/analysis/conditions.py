"""Define which columns of the tidy table distinguish cells, apart from the network.

A *condition* has one value for each column in `CONDITION`: the requested DDS and machine settings. Networks are
compared within a condition. A *setting* is a condition without test and payload, reduced to the columns that
differ in a campaign. Each setting becomes a table or a row of a figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k8sdds.model.axis import named
from k8sdds.model.options import OPTION_COLUMNS
from k8sdds.model.trial import AXES

_FIRST = ("test", "payload_bytes")
_AXES = tuple(name for name in AXES if name not in ("network", *_FIRST))
CONDITION = (*_FIRST, *OPTION_COLUMNS, *_AXES, "testbed")
"""Every dimension of a cell except the network, the most interesting to readers first."""

COMPARABLE = tuple(name for name in CONDITION if name not in ("testbed", "nodes"))
"""Columns in which compared cells may have to be equal: the testbed can be what is compared, and the number of nodes
follows from the participants."""

OBSERVED = ("tcp_congestion_control",)
"""What trials found and did not set. It does not distinguish cells, but reports and comparisons state it."""

_TITLES = {"tcp_congestion_control": "TCP congestion control"}

UNIT = "network_label"
"""The column that identifies what is compared: variants such as `weavenet-1376` count as separate networks."""

_SETTING = tuple(name for name in CONDITION if name not in ("test", "payload_bytes"))


def distinguishing(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the smallest set of columns that distinguishes the settings of the rows, in the order of CONDITION.

    A column counts only if its values differ within the same test. Otherwise a layout that depends on the test,
    or a number of nodes that depends on the number of subscribers, would split tables that belong together.
    """
    settings = {(row["test"], *(row[name] for name in _SETTING)) for row in rows}
    tests = {setting[0] for setting in settings}
    kept: list[int] = []

    def classes(columns: list[int]) -> int:
        return len({(setting[0], *(setting[i] for i in columns)) for setting in settings})

    # Transport, reliability and subscribers come first, so columns that depend on them are omitted.
    for column in range(1, len(_SETTING) + 1):
        if classes([*kept, column]) > classes(kept):
            kept.append(column)
    assert classes(kept) == len(settings) or not tests
    return tuple(_SETTING[column - 1] for column in kept)


def differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the conditions in which rows differ, except those that users did not set and that follow from others."""
    return [
        name
        for name in CONDITION
        if len({row[name] for row in rows}) > 1
        and not (name in AXES and all(AXES[name].is_usual(row) for row in rows))
    ]


def describe(values: Mapping[str, Any]) -> str:
    """Describe the given columns of a condition, such as `unicast, reliable, 4 subscribers`."""
    parts = [_describe(name, values[name]) for name in (*CONDITION, *OBSERVED) if name in values]
    return ", ".join(part for part in parts if part)


def named_setting(name: str, value: Any) -> str:
    """Describe a setting also where it is not set: `0.3 CPUs per pod`, `no CPU limit`."""
    unset = AXES[name].unset if name in AXES else ""
    return _describe(name, value) or unset or f"no {name.replace('_', ' ')}"


def _describe(name: str, value: Any) -> str:
    axis = AXES.get(name) or OPTION_COLUMNS.get(name)
    return axis.phrase(value) if axis else named(_TITLES.get(name, name))(value)
