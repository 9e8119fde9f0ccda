"""Read pre-shared keys of encrypted networks from files that only the user can read."""

from __future__ import annotations

from pathlib import Path

from k8sdds.system import private_files
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
    text = private_files.read_line(path, source, remedy)
    if any(character in text for character in '"\\'):
        raise InputError(f"{source}: {path} contains quotation marks or backslashes", remedy)
    if len(text) < min_characters:
        message = f"the key has {len(text)} characters; at least {min_characters} are required"
        raise InputError(f"{source}: {message}", remedy)
    return text
