"""Group items, such as the rows of a table, by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order in which the keys first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def by_columns(
    rows: Iterable[dict[str, Any]], columns: Iterable[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the rows by their values in some columns."""
    names = tuple(columns)
    return grouped(rows, lambda row: tuple(row[name] for name in names))
