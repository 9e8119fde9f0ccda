"""Test that every changed, missing and added file is reported."""

from __future__ import annotations

import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds import artifact
from k8sdds.artifact import checksums
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError


@pytest.fixture(scope="module")
def small(measured: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with the raw files of three attempts only, because the tests rewrite it many times."""
    place = tmp_path_factory.mktemp("small")
    shutil.copytree(measured.path, place / "measured")
    for folder in sorted((place / "measured" / "raw").iterdir())[3:]:
        shutil.rmtree(folder)
    return artifact.pack([place / "measured"], place / "a.zip").path


@pytest.fixture
def packed(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(small, tmp_path / "a.zip"))


@pytest.fixture
def unpacked(packed: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked"


def found(path: Path) -> set[tuple[str, str]]:
    return {(finding.kind, finding.path) for finding in artifact.verify(path).findings}


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}


def test_an_intact_artifact(packed: Path, unpacked: Path) -> None:
    checked = artifact.verify(packed)
    assert checked.findings == [] and checked.files == len(contents(packed))
    assert artifact.verify(unpacked) == checked
    assert artifact.verify(packed, f"sha256:{checked.content_id}").findings == []
    (other,) = artifact.verify(packed, "0" * 64).findings
    assert other.path == "SHA256SUMS" and "content ID" in other.detail


def test_each_kind_of_change_in_a_folder_is_reported(unpacked: Path) -> None:
    (unpacked / "README.md").write_text("changed")
    (unpacked / "artifact.json").unlink()
    (unpacked / "runs" / "measured" / "more\nlines").write_text("added")
    (unpacked / "link").symlink_to("/")
    assert found(unpacked) == {
        ("changed", "README.md"),
        ("missing", "artifact.json"),
        ("added", "runs/measured/more\nlines"),
        ("changed", "link"),
        ("added", "link"),
    }


def rewritten(packed: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write an archive of the same format with other content."""
    from k8sdds.artifact import archive as artifact_archive

    all_ = contents(packed)
    change(all_)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in all_.items():
            info = zipfile.ZipInfo(name, artifact_archive.MADE_AT)
            info.create_system, info.external_attr = 3, artifact_archive.MODE
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return packed


def test_changes_of_each_file_in_an_archive_are_reported(packed: Path) -> None:
    """Test a flipped bit, a missing and an added file, for every file."""
    whole = contents(packed)
    chance = random.Random(1)
    for name in chance.sample(sorted(whole.keys() - {checksums.NAME}), 20):
        flipped = bytearray(whole[name])
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        rewritten(packed, lambda all_, name=name, flipped=flipped: all_.update({name: bytes(flipped)}))
        assert found(packed) == {("changed", name)}
        rewritten(packed, lambda all_, name=name: all_.pop(name))
        assert found(packed) == {("missing", name)}
        rewritten(packed, lambda all_, name=name: all_.update({name: whole[name], name + "~": b""}))
        assert found(packed) == {("added", name + "~")}
        rewritten(packed, lambda all_, name=name: all_.pop(name + "~"))
    assert found(packed) == set()


@pytest.mark.parametrize("flips", [600, pytest.param(30_000, marks=pytest.mark.long)])
def test_no_flipped_bit_of_the_archive_changes_a_file_unnoticed(
    packed: Path, tmp_path: Path, flips: int
) -> None:
    """A changed byte is reported, or it changes no file's content (unused bits of the format)."""
    bytes_, whole = packed.read_bytes(), contents(packed)
    # A small archive, so that headers and data are hit alike.
    small = tmp_path / "small.zip"
    kept = {name: whole[name] for name in sorted(whole) if "raw/" not in name and name != checksums.NAME}
    kept[checksums.NAME] = checksums.write(
        {name: checksums.digest(content) for name, content in kept.items()}
    ).encode()
    shutil.copy(packed, small)
    rewritten(small, lambda all_: (all_.clear(), all_.update(kept)))
    bytes_ = small.read_bytes()
    assert found(small) == set()
    chance = random.Random(2)
    unseen = 0
    for _ in range(flips):
        damaged = bytearray(bytes_)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        small.write_bytes(damaged)
        if not artifact.verify(small).findings:
            unseen += 1
            assert contents(small) == kept
    assert unseen < flips / 10


def test_truncated_appended_prepended_and_foreign_files(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", b"no archive", b"#!/bin/sh\n" + whole):
        packed.write_bytes(damaged)
        assert artifact.verify(packed).findings
    packed.write_bytes(whole)
    with zipfile.ZipFile(packed, "a") as archive:
        archive.comment = b"smuggled"
    assert found(packed) == {("added", "the archive")}
    with pytest.raises(InputError, match="does not exist"):
        artifact.verify(tmp_path / "nothing.zip")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), st.binary()
    )
)
def test_checksums_round_trip(files: dict[str, bytes]) -> None:
    created = {path: checksums.digest(content) for path, content in files.items()}
    assert checksums.read(checksums.write(created)) == created


@pytest.mark.parametrize("text", ["x", "0" * 64 + "  a", "0" * 63 + "  a\n", "\n", ("0" * 64 + "  a\n") * 2])
def test_damaged_checksums_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        checksums.read(text)
