"""Read files, JSON and JSON Lines that others wrote: within limits, with errors that name the place.

Everything that k8sdds reads from outside passes through this module, `yaml_text` or `xml_text`. They refuse what is too
large, nested too deeply, or not a value of the format, with an `UnreadableError`. Callers that must go on without the
content, such as a report of a campaign that was killed, catch it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import select
import stat
import unicodedata
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from k8sdds.system.errors import InputError
from k8sdds.system.faults import naming

MAX_BYTES = 16 * 1024 * 1024
"""Largest file or document, unless a reader has its own limit."""
MAX_LINE_BYTES = 4 * 1024 * 1024
"""Largest line of a JSON Lines file: 500 participants have records of less than 1 MiB."""
MAX_LINES_BYTES = 2 * 1024**3
"""Largest JSON Lines file."""
MAX_DEPTH = 50
"""Deepest nesting of lists and mappings."""
MAX_DIGITS = 1000
"""Longest number in JSON."""
WAIT_S = 10
"""How long a pipe may be silent."""

_UNPRINTABLE = re.compile(
    "[^\n\t -~\u00a0-\ud7ff\ue000-\U0010ffff]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"
)
"""Control characters, lone surrogates, and characters that end a line or change the direction of text."""


class UnreadableError(InputError):
    """A file or a text from outside cannot be read: too large, nested too deeply, damaged, or of another format."""


def printable(text: str) -> str:
    """Return text in which each control character and lone surrogate is a replacement character."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(path: Path | str) -> str:
    r"""Return a path on one line: bytes that are not UTF-8 and unprintable characters are escaped, such as `\xff`."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def unprintable(text: str) -> str | None:
    """Return the name of the first character of a text that cannot be printed, such as `U+001B`, or None."""
    match = _UNPRINTABLE.search(text)
    return f"U+{ord(match[0]):04X}" if match else None


def one_line(text: str, max_characters: int) -> str:
    """Return text as one printable line, shortened in the middle if it is too long."""
    line = " ".join(printable(unicodedata.normalize("NFC", text)).split())
    if len(line) <= max_characters:
        return line
    end = max_characters // 4
    return f"{line[: max_characters - end - 1]}…{line[-end:]}"


def unexpected(number: int, line: str, expected: str) -> ValueError:
    """Return the error for a line of a file that is not what is expected."""
    return ValueError(f"line {number}: {one_line(line, 40)!r} is not {expected}")


# --- files -----------------------------------------------------------------------------------------------


def data(path: Path | str, max_bytes: int = MAX_BYTES, remedy: str = "") -> bytes:
    """Return the content of a file or of a pipe to which something is written. Raises OSError, or UnreadableError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise UnreadableError(f"{path} is a device or a socket", remedy or "name a file")
        content = bytearray()
        while chunk := _chunk(descriptor, path, max_bytes + 1 - len(content)):
            content += chunk
        if len(content) > max_bytes:
            raise UnreadableError(f"{path} is larger than {max_bytes:,} bytes", remedy or "name another file")
        return bytes(content)
    finally:
        os.close(descriptor)


def _chunk(descriptor: int, path: Path | str, size: int) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(WAIT_S * 1000):
        raise UnreadableError(f"{path}: nothing was written to this pipe for {WAIT_S} s", "name a file")
    with naming(Path(path)):
        return os.read(descriptor, min(size, 1 << 20))


def text(path: Path | str, max_bytes: int = MAX_BYTES, remedy: str = "") -> str:
    """Return the text of a UTF-8 file. Raises OSError, or UnreadableError."""
    try:
        return data(path, max_bytes, remedy).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path} is not UTF-8 text", remedy or "save the file as UTF-8") from error


@contextlib.contextmanager
def explaining_file(key: str, path: Path | str, remedy: str, correct: str = "") -> Iterator[None]:
    """Turn errors within a `with` block into InputError that names a key and its file.

    `remedy` is for a file that cannot be read, and `correct` for its content (ValueError), if that is another one.
    """
    try:
        yield
    except UnreadableError as error:
        raise InputError(f"{key}: {error.message}", "name another file") from error
    except OSError as error:
        raise InputError(f"{key}: {escaped(path)}: {error.strerror or error}", remedy) from error
    except ValueError as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise InputError(f"{key}: {escaped(path)}: {why}", correct or remedy) from error


# --- JSON ------------------------------------------------------------------------------------------------


def json_value(document: str | bytes, source: str, remedy: str = "", max_bytes: int = MAX_BYTES) -> Any:
    """Return the value of a JSON document, in which all text is printable and all numbers are finite.

    `source` is the name of the file, or of what sent the document, for messages. Raises UnreadableError.
    """
    try:
        if len(document) > max_bytes:
            raise ValueError(f"it is larger than {max_bytes:,} bytes")
        if isinstance(document, bytes):
            document = document.decode("utf-8")
        _require_depth(document)
        # In JSON, all text of such a document is printable, and cleaning it takes longer than reading it.
        if document.isascii() and "\\" not in document and "\x7f" not in document:
            return _PRINTABLE_DECODER.decode(document)
        return _clean(_DECODER.decode(document))
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise UnreadableError(f"{source}: not valid JSON: {printable(reason)}", remedy) from error


def json_object(
    document: str | bytes, source: str, remedy: str = "", max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Return the object of a JSON document. Raises UnreadableError if the document is something else."""
    value = json_value(document, source, remedy, max_bytes)
    if not isinstance(value, dict):
        raise UnreadableError(f"{source}: expected a JSON object", remedy)
    return value


def json_file(path: Path, remedy: str = "", max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the object of a JSON file. Raises OSError, or UnreadableError."""
    return json_object(data(path, max_bytes, remedy), str(path), remedy, max_bytes)


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number of each line that is not empty, and its JSON object; None if the line is damaged.

    Raises OSError, or UnreadableError if the file is too large, or not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with naming(path), open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError(f"{path} is not a regular file", "restore it from a copy")
        if status.st_size > MAX_LINES_BYTES:
            raise UnreadableError(
                f"{path} is larger than {MAX_LINES_BYTES:,} bytes", "restore it from a copy"
            )
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES)
                yield number, None
            elif line.strip():
                yield number, _object_or_none(line)


def _object_or_none(line: bytes) -> dict[str, Any] | None:
    try:
        return json_object(line, "line")
    except UnreadableError:
        return None


_BRACKETS = re.compile(r"[\[\]{}]")
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


def _require_depth(document: str) -> None:
    """Raise ValueError if lists and objects are nested too deeply; the decoder would use up the stack."""
    if document.count("[") + document.count("{") <= MAX_DEPTH:
        return
    # Without escaped quotes, every second part between quotes is outside strings; a loop over strings takes longer.
    outside = "".join(document.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    if max(accumulate(map(_DEPTH.__getitem__, _BRACKETS.findall(outside))), default=0) > MAX_DEPTH:
        raise ValueError(f"lists and objects are nested more than {MAX_DEPTH} levels deep")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if len(digits) > MAX_DIGITS or not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is out of range")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_clean(key): _clean(value) for key, value in pairs}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else printable(value)
    if isinstance(value, list):
        return [_clean(item) if isinstance(item, str | list) else item for item in value]
    return value


_NUMBERS: dict[str, Any] = {"parse_int": _integer, "parse_float": _number, "parse_constant": _constant}
_DECODER = json.JSONDecoder(**_NUMBERS, object_pairs_hook=_pairs)
_PRINTABLE_DECODER = json.JSONDecoder(**_NUMBERS)
