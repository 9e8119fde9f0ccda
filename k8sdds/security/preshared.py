"""Read pre-shared keys of encrypted networks from files that only the user can read."""

from __future__ import annotations

from pathlib import Path

from k8sdds.system import private_files
from k8sdds.system.errors import InputError


def read(path: Path, source: str, min_characters: int = 0) -> str:
    """Return the key in a file of mode 0600 with one line. `source` is the option or key that names the file."""
    remedy = f"create a key: (umask 077; openssl rand -hex 64 > {path})"
    text = private_files.read_line(path, source, remedy)
    if any(character in text for character in '"\\'):
        raise InputError(f"{source}: {path} contains quotation marks or backslashes", remedy)
    if len(text) < min_characters:
        message = f"the key has {len(text)} characters; at least {min_characters} are required"
        raise InputError(f"{source}: {message}", remedy)
    return text
