"""Shell scripts that run on the machines of a cluster, one file each."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


def shell(name: str, **values: str) -> str:
    """Return the script NAME.sh, in which `@KEY@` stands for each of these values."""
    return re.sub("@([A-Z_]+)@", lambda key: values[key[1]], _read(name))


@cache
def _read(name: str) -> str:
    return (Path(__file__).parent / f"{name}.sh").read_text(encoding="utf-8")
