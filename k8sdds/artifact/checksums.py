"""Write and read SHA256SUMS in the format of `sha256sum` and `sha256sum --check`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

NAME = "SHA256SUMS"

_LINE = re.compile(r"(?P<escaped>\\?)(?P<sum>[0-9a-f]{64}) [ *](?P<path>.+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escape: character for character, escape in _ESCAPES.items()}


def digest(content: bytes) -> str:
    """Return the SHA-256 of some content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def write(sums: Mapping[str, str]) -> str:
    """Return the text of SHA256SUMS, sorted by path, for checksums by path."""
    lines = []
    for path, value in sorted(sums.items()):
        escaped = "".join(_ESCAPES.get(character, character) for character in path)
        lines.append(f"{'' if escaped == path else chr(92)}{value}  {escaped}\n")
    return "".join(lines)


def read(text: str) -> dict[str, str]:
    """Return the checksums by path.

    Raises:
        ValueError: A line is invalid or repeats a path. The message contains the line number.
    """
    sums: dict[str, str] = {}
    # Do not use str.splitlines: a path may contain other characters that it treats as line ends.
    lines = text.split("\n")
    if lines.pop():
        raise ValueError("the last line is incomplete")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not a checksum and a path")
        path = match["path"]
        if match["escaped"]:
            path = re.sub(r"\\.", lambda escape: _UNESCAPES.get(escape[0], escape[0]), path)
        if path in sums:
            raise ValueError(f"line {number} repeats {path}")
        sums[path] = match["sum"]
    return sums
