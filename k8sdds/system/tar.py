"""Read tar files from outside, plain or compressed with gzip, with limits and one exception for all damage.

Headers of a tar file state sizes that tarfile reads at once, and each may be followed by more headers. The limits
below apply to what is read as headers, and to the position in the expanded file.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

MAX_HEADER_BYTES = 64 << 20
"""Largest size of all headers: about 100,000 entries."""
MAX_BYTES = 64 << 30
"""Largest size of the expanded file."""
_DAMAGE_ERRORS = (
    tarfile.TarError, zlib.error, EOFError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError,
)  # fmt: skip
"""Exceptions of tarfile and gzip for damaged files."""


class DamagedTar(Exception):
    """The file is not a tar file, or is damaged, or exceeds a limit. The message contains the reason."""


class Tar:
    """An open tar file."""

    def __init__(self, archive: tarfile.TarFile, file: _LimitedFile) -> None:
        self._archive = archive
        self._file = file

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Yield the entries in their order, and expand no more of the file than this requires."""
        while True:
            self._file.in_headers = True
            member = self._archive.next()
            self._file.in_headers = False
            if member is None:
                return
            yield member

    def content(self, member: tarfile.TarInfo) -> IO[bytes]:
        """Return the content of a file."""
        content = self._archive.extractfile(member)
        if content is None:
            raise DamagedTar(f"{member.name!a} is not a file")
        return content


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Tar]:
    """Open a tar file. Raises OSError or DamagedTar, the latter also in the `with` block while it is read."""
    with contextlib.ExitStack() as stack:
        file: BinaryIO = stack.enter_context(path.open("rb"))
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            if compressed:
                file = stack.enter_context(gzip.GzipFile(fileobj=file))  # type: ignore[assignment]
            limited = _LimitedFile(file)
            archive = stack.enter_context(tarfile.open(fileobj=limited, mode="r:"))  # type: ignore[call-overload]
            yield Tar(archive, limited)
        except OSError as error:
            # gzip raises OSError for damage, without the number of an error of the system.
            if error.errno is not None:
                raise
            raise DamagedTar(str(error)) from error
        except _DAMAGE_ERRORS as error:
            raise DamagedTar(str(error) or type(error).__name__) from error


def unpack(path: Path, folder: Path, skip_links: bool = False) -> None:
    """Unpack a tar file that contains only files and folders into a new folder. Raises OSError or DamagedTar.

    Owners, times and modes other than `executable` are not restored. With `skip_links`, links are left out instead
    of rejected. Entries of other kinds, outside of the folder or twice are damage.
    """
    folder.mkdir()
    with opened(path) as archive:
        for member in archive.members():
            if skip_links and (member.issym() or member.islnk()):
                continue
            inside = PurePosixPath(member.name)
            if inside.is_absolute() or ".." in inside.parts or not (member.isdir() or member.isfile()):
                raise DamagedTar(f"unexpected entry {member.name!a}")
            try:
                if member.isdir():
                    (folder / inside).mkdir(parents=True, exist_ok=True)
                else:
                    _write(archive, member, folder / inside)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise DamagedTar(f"the entry {member.name!a} occurs twice") from error


def _write(archive: Tar, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.size > shutil.disk_usage(target.parent).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
    mode = 0o777 if member.mode & 0o100 else 0o666
    with (
        archive.content(member) as source,
        open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as output,
    ):
        shutil.copyfileobj(source, output)


class _LimitedFile:
    """A file that limits the position, and while `in_headers`, what is read in total."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._headers = 0
        self.in_headers = True

    def read(self, size: int = -1) -> bytes:
        if self.in_headers:
            self._headers += size if size >= 0 else MAX_HEADER_BYTES
            if self._headers > MAX_HEADER_BYTES:
                raise tarfile.ReadError(f"its headers are larger than {MAX_HEADER_BYTES >> 20} MiB")
        return self._file.read(size)

    def seek(self, position: int) -> int:
        if position > MAX_BYTES:
            raise tarfile.ReadError(f"its content is larger than {MAX_BYTES >> 30} GiB")
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()
