"""Hash the content of folders."""

from __future__ import annotations

import hashlib
from pathlib import Path


def add_folder(key: hashlib._Hash, folder: Path) -> None:
    """Add the paths and the content of all files of a folder to a hash."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        key.update(f"\n{path.relative_to(folder)} ".encode() + hashlib.sha256(path.read_bytes()).digest())
