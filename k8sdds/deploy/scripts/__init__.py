"""Shell scripts and unit files for the machines of a cluster, one file each."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


def shell(name: str, **values: str) -> str:
    """Return the script NAME.sh, in which `@KEY@` stands for each of these values."""
    return re.sub("@([A-Z_]+)@", lambda key: values[key[1]], text(f"{name}.sh"))


@cache
def text(file: str) -> str:
    """Return the content of a file of this folder."""
    return (Path(__file__).parent / file).read_text(encoding="utf-8")
