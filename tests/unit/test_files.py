from pathlib import Path

import pytest

from k8sdds.system.files import replacing, write_atomically


def test_a_file_is_replaced_and_nothing_else_is_left_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, "old")
    write_atomically(path, "neü", durable=True)
    assert path.read_text(encoding="utf-8") == "neü"
    assert list(tmp_path.iterdir()) == [path]


def test_a_leftover_of_a_killed_writer_keeps_neither_its_content_nor_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "key"
    leftover = tmp_path / "key.new"
    leftover.write_text("half")
    leftover.chmod(0o644)
    write_atomically(path, b"secret", mode=0o600)
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert not leftover.exists()


def test_a_failure_keeps_the_old_file_and_deletes_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), replacing(path) as unfinished:
        unfinished.write_text("half")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
