import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from k8sdds.system.files import creating_folder, replacing, write_atomically


def test_a_file_is_replaced_and_nothing_else_is_left_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, "old")
    write_atomically(path, "neü", durable=True)
    assert path.read_text(encoding="utf-8") == "neü"
    assert list(tmp_path.iterdir()) == [path]


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


def test_a_failure_keeps_the_old_file_and_deletes_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), replacing(path) as unfinished:
        unfinished.write_text("half")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(OSError, match="disk full"), creating_folder(path) as unfinished:
        unfinished.mkdir()
        raise OSError("disk full")
    assert not list(tmp_path.iterdir())
    path.mkdir()
    with creating_folder(path) as unfinished:
        unfinished.mkdir()
        (unfinished / "file").write_text("content")
        assert not any(path.iterdir())
    assert (path / "file").read_text() == "content"
    assert list(tmp_path.iterdir()) == [path]
