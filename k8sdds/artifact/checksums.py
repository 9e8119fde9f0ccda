"""Write and read SHA256SUMS in the format of `sha256sum` and `sha256sum --check`."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping

NAME = "SHA256SUMS"

_LINE = re.compile(r"(?P<escaped>\\?)(?P<sum>[0-9a-f]{64}) [ *](?P<path>.+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escape: character for character, escape in _ESCAPES.items()}


def digest(content: bytes | bytearray) -> str:
    """Return the SHA-256 of some content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def write(sums: Mapping[str, str]) -> str:
    """Return the text of SHA256SUMS, sorted by path, for checksums by path."""
    lines = []
    for path, value in sorted(sums.items()):
        escaped = "".join(_ESCAPES.get(character, character) for character in path)
        lines.append(f"{'' if escaped == path else chr(92)}{value}  {escaped}\n")
    return "".join(lines)


def size(paths: Iterable[str]) -> int:
    """Return an upper bound for the size of SHA256SUMS for these paths."""
    return sum(68 + 2 * len(path.encode()) for path in paths)


def read(content: bytes | bytearray) -> dict[str, str]:
    """Return the checksums by path. Raises ValueError, which names the line."""
    sums: dict[str, str] = {}
    # Only "\n" ends a line: a path may contain other characters that str.splitlines treats as line ends.
    for number, line in enumerate(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="\n"), 1):
        if not line.endswith("\n"):
            raise ValueError("the last line is incomplete")
        match = _LINE.fullmatch(line[:-1])
        if match is None:
            raise ValueError(f"line {number} is not a checksum and a path")
        path = match["path"]
        if match["escaped"]:
            path = re.sub(r"\\.", lambda escape: _UNESCAPES.get(escape[0], escape[0]), path)
        if path in sums:
            raise ValueError(f"line {number} repeats {path!a}")
        sums[path] = match["sum"]
    return sums
