"""Group items, such as the rows of a table, by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Row = dict[str, Any]
"""A row of a table: values by column."""
Item = TypeVar("Item")
Key = TypeVar("Key")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order in which the keys first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def by_columns(rows: Iterable[Row], columns: Iterable[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by their values in some columns."""
    names = tuple(columns)
    return grouped(rows, lambda row: tuple(row[name] for name in names))
