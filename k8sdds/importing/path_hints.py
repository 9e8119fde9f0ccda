"""Read `--map GLOB:KEY=VALUE,…`, which specifies settings that the logs in a folder do not contain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from k8sdds.importing import files
from k8sdds.system.errors import InputError
from k8sdds.system.yaml_text import nearest
from k8sdds.workloads import WORKLOADS

_EXAMPLE = "such as --map 'cluster-b/*:network=calico,repetition=2'"


def _choice(*values: str) -> tuple[str, str]:
    return "|".join(map(re.escape, values)), f"one of {', '.join(values)}"


_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._+()-]{0,60}", "a name of letters, digits and ._+()-"
_NUMBER = r"0*[1-9][0-9]{0,9}", "a whole number from 1"
KEYS = {
    "network": _NAME, "label": _NAME, "test": _choice(*WORKLOADS), "payload_bytes": _NUMBER,
    "reliability": _choice("reliable", "best-effort"), "transport": _choice("unicast", "multicast"),
    "subscribers": _NUMBER, "publishers": _NUMBER, "repetition": _NUMBER, "middleware": _NAME, "security": _NAME,
    "qos": _NAME, "mtu_bytes": _NUMBER, "fidelity": _choice("real", "equivalent", "modelled"),
    "publisher_node": _NAME, "keep": _choice("yes"),
}  # fmt: skip
"""By key: pattern and description of its value. `repetition` counts from 1, as in folder names. `keep=yes` includes a
backup."""


@dataclass(frozen=True)
class Rule:
    """One `--map` option."""

    glob: str
    values: dict[str, Any]


def rules(texts: Iterable[str]) -> list[Rule]:
    """Return the rules in the given order."""
    return list(map(_rule, texts))


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
        pattern, description = KEYS[key]
        if not re.fullmatch(pattern, value):
            raise InputError(f"--map {key}={value!r} should be {description}", _EXAMPLE)
        given[key] = value if KEYS[key] != _NUMBER else int(value) - (key == "repetition")
    return Rule(glob, given)
