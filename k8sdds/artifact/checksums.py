"""SHA256SUMS: one line per file, as `sha256sum` writes it and `sha256sum --check` reads it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

NAME = "SHA256SUMS"

_LINE = re.compile(r"(?P<escaped>\\?)(?P<sum>[0-9a-f]{64}) [ *](?P<path>.+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}


def digest(content: bytes) -> str:
    """The SHA-256 of a content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def write(sums: Mapping[str, str]) -> str:
    """The text for {path: sum}, sorted by path."""
    lines = []
    for path, value in sorted(sums.items()):
        escaped = "".join(_ESCAPES.get(character, character) for character in path)
        lines.append(f"{'' if escaped == path else chr(92)}{value}  {escaped}\n")
    return "".join(lines)


def read(text: str) -> dict[str, str]:
    """{path: sum}. Raises ValueError with the number of the first line that is none, or a path's second."""
    sums: dict[str, str] = {}
    # Only \n ends a line: a path may hold characters that str.splitlines takes for ends.
    lines = text.split("\n")
    if lines.pop():
        raise ValueError("its last line has no end")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not a checksum and a path")
        path = match["path"]
        if match["escaped"]:
            path = re.sub(r"\\.", lambda found: _MEANINGS.get(found[0], found[0]), path)
        if path in sums:
            raise ValueError(f"line {number} names {path} again")
        sums[path] = match["sum"]
    return sums
