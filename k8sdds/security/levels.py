"""Levels of protection: the files of security/, and a cell's own parts on top of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from k8sdds.model.security import NONE, Protection
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared


def names() -> list[str]:
    """Names of the levels, `none` first."""
    return [NONE, *sorted(path.stem for path in shared("security").glob("*.yaml"))]


def load(name: str) -> Protection | None:
    """A level by its name; None for `none`. An unknown name is an InputError."""
    if name == NONE:
        return None
    path = shared("security") / f"{name}.yaml"
    if not path.is_file():
        hint = yaml_text.nearest(name, names())
        raise InputError(f"there is no security level {name!r}{hint}", f"known: {', '.join(names())}")
    return read(path)


def read(path: Path) -> Protection:
    """A level from a file; mistakes in it are InputErrors with file and line."""
    return yaml_text.parse(path.read_text(encoding="utf-8"), Protection, str(path))


def resolve(security: str, options: dict[str, Any]) -> Protection | None:
    """What a cell's `security` and `security_options` mean; None: no DDS Security."""
    if not options:
        return load(security)
    base = load(options["level"]) if "level" in options else Protection()
    if base is None:
        return None
    parts = {key: value for key, value in options.items() if key != "level"}
    return Protection.model_validate(base.model_dump() | parts)
