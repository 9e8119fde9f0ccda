"""Load protection levels from security/, and apply an experiment's changes to them."""

from __future__ import annotations

from typing import Any

from k8sdds.model.security import NONE, Protection
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared


def names() -> list[str]:
    """Return the names of all levels, `none` first."""
    return [NONE, *sorted(path.stem for path in shared("security").glob("*.yaml"))]


def load(name: str) -> Protection | None:
    """Return a level by name, or None for the level `none`."""
    if name == NONE:
        return None
    path = shared("security") / f"{name}.yaml"
    if not path.is_file():
        hint = yaml_text.nearest(name, names())
        raise InputError(f"unknown security level {name!r}{hint}", f"use one of: {', '.join(names())}")
    return yaml_text.parse(path.read_text(encoding="utf-8"), Protection, str(path))


def resolve(security: str, options: dict[str, Any]) -> Protection | None:
    """Return the protection for a cell's `security` and `security_options`, or None without DDS Security."""
    if not options:
        return load(security)
    base = load(options["level"]) if "level" in options else Protection()
    if base is None:
        return None
    parts = {key: value for key, value in options.items() if key != "level"}
    return Protection.model_validate(base.model_dump() | parts)
