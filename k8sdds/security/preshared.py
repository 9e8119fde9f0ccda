"""Read pre-shared keys of encrypted networks from files that only the user can read."""

from __future__ import annotations

import stat
from pathlib import Path

from k8sdds.system.errors import InputError


def read(path: Path, source: str, min_characters: int = 0) -> str:
    """Return the key in a file.

    Args:
        path: The file: one line of text, mode 0600.
        source: The option or key that names the file, for error messages.
        min_characters: Minimum length of the key.

    Raises:
        InputError: The file cannot be read, others can read it, or its content is not a valid key.
    """
    remedy = f"create a key: (umask 077; openssl rand -hex 64 > {path})"
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"{source}: cannot read {path}: {error.strerror}", remedy) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: {path} is not UTF-8 text", remedy) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{source}: other users can read {path}", f"chmod 600 {path}")
    if not text or any(not character.isprintable() for character in text):
        raise InputError(f"{source}: {path} does not contain exactly one line of text", remedy)
    if any(character in text for character in '"\\'):
        raise InputError(f"{source}: {path} contains quotation marks or backslashes", remedy)
    if len(text) < min_characters:
        raise InputError(f"{source}: the key has {len(text)} characters, fewer than {min_characters}", remedy)
    return text
