"""Files are whole or absent, whatever happens while they are written."""

import errno
import os
import resource
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import append, creating_folder, replacing, require_room, write_atomically


def test_leftovers_of_killed_writers_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "key"
    old, current = tmp_path / "key.00000000.new", tmp_path / "key.11111111.new"
    for leftover in (old, current):
        leftover.write_text("half")
    os.utime(old, (0, 0))
    write_atomically(path, b"secret", mode=0o600)
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.iterdir()) == [path, current]


def test_concurrent_writers_of_one_file_all_succeed(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    texts = [str(number) * 10_000 for number in range(10)]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda number: write_atomically(path, texts[number % 10]), range(200)):
            pass
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    with creating_folder(path) as unfinished:
        unfinished.mkdir()
        (unfinished / "file").write_text("content")
        assert not any(path.iterdir())
    assert (path / "file").read_text() == "content"
    assert list(tmp_path.iterdir()) == [path]


LIMIT = 5000


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit the size of files, so that writes fail in the middle of a file as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_be_written_keeps_its_content_and_the_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, "neü", durable=True)
    with pytest.raises(OSError, match=r"record\.json'"):
        write_atomically(path, "x" * (LIMIT + 1))
    with (
        pytest.raises(OSError, match=r"record\.json'"),
        replacing(path) as unfinished,
        zipfile.ZipFile(unfinished, "w") as archive,
    ):
        archive.writestr("a", os.urandom(LIMIT + 1))
    with pytest.raises(OSError, match=tmp_path.name):
        require_room(tmp_path, LIMIT + 1)
    with pytest.raises(FileExistsError):
        write_atomically(path, "second", exclusive=True)
    assert list(tmp_path.iterdir()) == [path] and path.read_text(encoding="utf-8") == "neü"


@pytest.mark.usefixtures("small_files")
def test_an_append_that_fails_leaves_the_previous_content_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    append(path, b"a" * 4000)
    with pytest.raises(OSError, match="trials") as raised:
        append(path, b"b" * 4000)
    assert raised.value.errno == errno.EFBIG
    assert path.read_bytes() == b"a" * 4000
    append(path, b"c" * 1000)
    assert path.stat().st_size == 5000


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("exists", [False, True])
def test_a_run_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "run"
    if exists:
        path.mkdir()
    with pytest.raises(PrerequisiteError, match=r"cannot write .*run"):
        RunFolder.create(path, {"schema": 2}, "name: e\n", {"qos/a.xml": b"x" * (LIMIT + 1)})
    assert path.exists() == exists and (not exists or not any(path.iterdir()))
