"""Write files and folders atomically: readers see the old or the new content, never a part of it."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path

from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained, naming

LEFTOVER_S = 24 * 3600
"""Age of a temporary file after which its writer counts as killed."""


def write_atomically(
    path: Path, data: str | bytes, mode: int = 0o666, durable: bool = False, exclusive: bool = False
) -> None:
    """Write a file, text as UTF-8, through a temporary file in the same folder that is then renamed.

    The umask reduces `mode`, which is 0o600 for files with keys. A `durable` file is on the disk before it appears, and
    an `exclusive` one raises FileExistsError instead of replacing a file.
    """
    content = data.encode() if isinstance(data, str) else data
    with replacing(path, exclusive) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path, exclusive: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` on success and is deleted on failure.

    Errors name `path`. With `exclusive`, an existing file is not replaced, and FileExistsError is raised.

    Every call has a temporary file of its own, so that concurrent writers of `path` all succeed; the last one
    to finish determines the content.
    """
    _remove_leftovers(path)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    with naming(path, unfinished):
        try:
            yield unfinished
            if exclusive:
                os.link(unfinished, path)
            else:
                unfinished.replace(path)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()


def append(path: Path, data: bytes) -> None:
    """Append to a file and sync it to disk; on failure the file has its previous content."""
    with naming(path), open(path, "ab", buffering=0) as file:
        before = file.tell()
        try:
            _write_all(file, data)
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def require_room(folder: Path, size: int) -> None:
    """Check that a file of this size can be written to a folder. The file has no name and is not synced."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            _write_all(file, bytes(size))
    except OSError as error:
        error.filename = str(folder)  # the user does not know the temporary file
        raise


def _write_all(file: RawIOBase, data: bytes) -> None:
    """Write everything: an unbuffered write may write a part, for example up to a limit."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _remove_leftovers(path: Path) -> None:
    """Delete the temporary files of killed writers of `path`."""
    for leftover in path.parent.glob(f"{glob.escape(path.name)}.*.new"):
        # Another writer may delete it at this moment.
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_S:
                leftover.unlink()


def require_new(folder: Path, remedy: str = "use --output with a folder that does not exist") -> None:
    """Raise InputError with this remedy if a folder to create exists and is not empty."""
    with explained(f"cannot write {folder}", remedy):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} already exists", remedy)


@contextlib.contextmanager
def creating_folder(path: Path) -> Iterator[Path]:
    """Yield the path of a folder to create, which becomes `path` on success and is deleted on failure.

    `path` must not exist, or must be an empty folder.
    """
    with tempfile.TemporaryDirectory(
        prefix=f".{path.name}-", dir=path.parent, ignore_cleanup_errors=True
    ) as temporary:
        unfinished = Path(temporary, "unfinished")
        yield unfinished
        unfinished.rename(path)


def natural(path: Path) -> list[list[int | str]]:
    """Return a sort key that puts test-2 before test-10."""
    # Text and numbers alternate, so that only equal types are compared.
    return [
        [int(piece) if index % 2 else piece for index, piece in enumerate(re.split(r"([0-9]{1,9})", part))]
        for part in path.parts
    ]
