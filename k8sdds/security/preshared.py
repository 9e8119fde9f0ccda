"""Pre-shared keys of networks that encrypt, from a file of the user's that nobody else can read."""

from __future__ import annotations

import stat
from pathlib import Path

from k8sdds.system.errors import InputError

MIN_CHARACTERS = 96
"""The least that flannel takes."""


def read(path: Path, where: str, least: int = 0) -> str:
    """The key in a file. `where`: the option or key that names the file, for messages."""
    remedy = f"make one: (umask 077; openssl rand -hex 64 > {path})"
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"{where}: cannot read {path}: {error.strerror}", remedy) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: {path} is not text", remedy) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{where}: others can read {path}", f"chmod 600 {path}")
    if not text or any(not sign.isprintable() for sign in text):
        raise InputError(f"{where}: {path} does not hold one line of text", remedy)
    if any(sign in text for sign in '"\\'):
        raise InputError(f"{where}: {path} holds quotation marks or backslashes", remedy)
    if len(text) < least:
        raise InputError(f"{where}: {len(text)} characters; flannel-ipsec wants {least}", remedy)
    return text
