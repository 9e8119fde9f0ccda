"""Read secrets from files that only the user can read."""

from __future__ import annotations

import stat
from pathlib import Path

from k8sdds.system import reading
from k8sdds.system.errors import InputError

MAX_BYTES = 64 * 1024
"""Largest file with a secret."""


def read(path: Path, source: str, remedy: str) -> str:
    """Return the text of a file of mode 0600. `source` is the option or key that names the file."""
    try:
        mode = path.stat().st_mode
        text = reading.text(path, MAX_BYTES, remedy).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{source}: cannot read {path}: {reason}", remedy) from error
    except reading.UnreadableError as error:
        raise InputError(f"{source}: {error.message}", remedy) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{source}: other users can read {path}", f"chmod 600 {path}")
    return text


def read_line(path: Path, source: str, remedy: str) -> str:
    """Return the line of text in a file of mode 0600. `source` is the option or key that names the file."""
    text = read(path, source, remedy)
    if not text or any(not character.isprintable() for character in text):
        raise InputError(f"{source}: {path} does not contain exactly one line of text", remedy)
    return text
