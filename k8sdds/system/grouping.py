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


def merge_by_node(texts: Iterable[tuple[str, str]], total: int = 0) -> list[str]:
    """Return the texts about nodes, given as (node, text), as lines: `pi1: TEXT` or `2 nodes (pi1, pi2): TEXT`.

    Each text occurs once, at its first place. With the number of all nodes, `total`, a text about all of them
    begins with `all 3 nodes`.
    """
    lines = []
    for text, pairs in grouped(texts, lambda pair: pair[1]).items():
        names = list(dict.fromkeys(name for name, _ in pairs))
        who = names[0] if len(names) == 1 else f"{len(names)} nodes ({', '.join(names)})"
        lines.append(f"{f'all {total} nodes' if len(names) == total > 1 else who}: {text}")
    return lines


def by_columns(rows: Iterable[Row], columns: Iterable[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by their values in some columns."""
    names = tuple(columns)
    return grouped(rows, lambda row: tuple(row[name] for name in names))
