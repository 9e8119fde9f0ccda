"""Write files atomically: readers see the old content or the new content, never a part of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, data: str | bytes, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file through a temporary file in the same folder that is then renamed.

    Args:
        path: The file to create or replace.
        data: Its content; text is encoded as UTF-8.
        mode: Permissions of the file, reduced by the umask: 0o600 for files with keys.
        durable: Whether the content must be on the disk before the file appears.
    """
    content = data.encode() if isinstance(data, str) else data
    with replacing(path) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` on success and is deleted on failure."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
