"""Read `--map GLOB:KEY=VALUE,…`, which specifies settings that the logs in a folder do not contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from k8sdds.importing import files
from k8sdds.system.errors import InputError
from k8sdds.system.yaml_text import nearest
from k8sdds.workloads import WORKLOADS

_EXAMPLE = "such as --map 'cluster-b/*:network=calico,repetition=2'"


def _choice(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"one of {', '.join(values)}")
        return text

    return read


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ValueError("a whole number")
    return int(text)


def _positive(text: str) -> int:
    if _whole(text) < 1:
        raise ValueError("a whole number from 1")
    return int(text)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._+()-]{0,60}", text):
        raise ValueError("a name of letters, digits and ._+()-")
    return text


KEYS: dict[str, Callable[[str], Any]] = {
    "network": _name,
    "label": _name,
    "test": _choice(*WORKLOADS),
    "payload_bytes": _positive,
    "reliability": _choice("reliable", "best-effort"),
    "transport": _choice("unicast", "multicast"),
    "subscribers": _positive,
    "publishers": _positive,
    "repetition": lambda text: _positive(text) - 1,
    "middleware": _name,
    "security": _name,
    "qos": _name,
    "mtu_bytes": _positive,
    "fidelity": _choice("real", "equivalent", "modelled"),
    "publisher_node": _name,
    "keep": _choice("yes"),
}
"""Maps each key to the function that parses its value. `repetition` counts from 1, as in folder names. `keep=yes`
includes a backup."""


@dataclass(frozen=True)
class Rule:
    """One `--map` option."""

    glob: str
    values: dict[str, Any]


def rules(texts: Iterable[str]) -> list[Rule]:
    """Return the rules in the given order. Raises InputError for a rule with an invalid format."""
    return [_rule(text) for text in texts]


def values(rules: list[Rule], path: PurePosixPath) -> dict[str, Any]:
    """Return the settings of a file according to all rules. Later rules take precedence."""
    merged: dict[str, Any] = {}
    for rule in rules:
        if files.fits(rule.glob, path):
            merged |= rule.values
    return merged


def _rule(text: str) -> Rule:
    glob, colon, pairs = text.rpartition(":")
    if not colon or not glob or "=" not in pairs:
        raise InputError(f"--map {text!r} is not GLOB:KEY=VALUE", _EXAMPLE)
    given: dict[str, Any] = {}
    for pair in pairs.split(","):
        key, _, value = (part.strip() for part in pair.partition("="))
        if key not in KEYS:
            hint = nearest(key, list(KEYS))
            raise InputError(f"--map: unknown key {key!r}{hint}", f"keys: {', '.join(KEYS)}")
        try:
            given[key] = KEYS[key](value)
        except ValueError as error:
            raise InputError(f"--map {key}={value!r} should be {error}", _EXAMPLE) from None
    return Rule(glob, given)
