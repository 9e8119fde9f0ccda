"""Test that every changed, missing and added file is reported."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds import artifact
from k8sdds.artifact import checksums, zip_format
from k8sdds.results.run_folder import RunFolder
from tests.unit.fuzzing import damage

RECORDED = Path(__file__).parents[1] / "recorded" / "artifact-format-1.zip"
"""An artifact that k8sdds packed before archives had a seal."""


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
    assert artifact.verify(unpacked) == dataclasses.replace(checked, format=None)
    assert artifact.verify(packed, f"sha256:{checked.content_id}").findings == []
    (other,) = artifact.verify(packed, "0" * 64).findings
    assert other.path == "SHA256SUMS" and "content ID" in other.detail
    # If only the seal is wrong, the content is known nevertheless.
    seal = packed.read_bytes()[-1:]
    packed.write_bytes(packed.read_bytes()[:-1] + (b"0" if seal != b"0" else b"1"))
    (damaged,) = artifact.verify(packed, checked.content_id).findings
    assert damaged.kind == "damaged" and "bytes" in damaged.detail


def test_each_kind_of_change_in_a_folder_is_reported(unpacked: Path) -> None:
    (unpacked / "README.md").write_text("changed")
    (unpacked / "artifact.json").unlink()
    (unpacked / "runs" / "measured" / "more\nlines").write_text("added")
    (unpacked / "link").symlink_to("/")
    assert found(unpacked) == {
        ("changed", "README.md"),
        ("missing", "artifact.json"),
        ("added", "runs/measured/more\nlines"),
        ("added", "link"),
    }


def written(path: Path, files: Iterable[tuple[str, Iterable[bytes]]], folder: str = "") -> Path:
    """Write an archive with these files in parts, in this order, and with the entry of a folder, as `pack` does."""
    with path.open("w+b") as output:
        writer = zip_format.Writer(output)
        if folder:
            writer.folder(folder)
        for name, parts in files:
            writer.add(name, parts)
        writer.finish()
    return path


def whole(files: dict[str, bytes]) -> list[tuple[str, list[bytes]]]:
    return [(name, [content]) for name, content in files.items()]


def listed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with their SHA256SUMS."""
    sums = {name: checksums.digest(content) for name, content in files.items()}
    return {**files, checksums.NAME: checksums.write(sums).encode()}


def rewritten(packed: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write an archive of the same format with other content."""
    all_ = contents(packed)
    change(all_)
    return written(packed, whole(all_))


def test_changes_of_each_file_in_an_archive_are_reported(packed: Path) -> None:
    """Test a flipped bit, a missing and an added file."""
    whole = contents(packed)
    chance = random.Random(1)
    for name in chance.sample(sorted(whole.keys() - {checksums.NAME}), 3):
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


@pytest.fixture
def tiny(packed: Path, tmp_path: Path) -> Path:
    """An archive of three of the files, with a folder entry, so that all of its bits can be tested."""
    known = contents(packed)
    raw = min((name for name in known if name.endswith("/timeline.csv") or "/raw/" in name), key=len)
    files = listed({"Größe.txt": b"", **{name: known[name] for name in ("runs/measured/events.jsonl", raw)}})
    path = written(tmp_path / "tiny.zip", whole(files), "runs/measured/raw/")
    assert found(path) == set()
    return path


def header_bytes(path: Path) -> list[int]:
    """Return the positions of all bytes that are not compressed content."""
    data: set[int] = set()
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            start = entry.header_offset + 30 + len(entry.filename.encode())
            data.update(range(start, start + entry.compress_size))
    return [position for position in range(path.stat().st_size) if position not in data]


def resealed(data: bytes) -> bytes:
    """Return an archive with the seal that is correct for its other bytes."""
    length = len(data) - zip_format.SEAL_BYTES
    return data[:length] + zip_format.seal(io.BytesIO(data), length)


def unnoticed(
    path: Path, bits: Iterable[tuple[int, int]], change: Callable[[bytes], bytes] = bytes
) -> list[tuple[int, int]]:
    """Flip each of these bits alone; return those after which the archive is called intact."""
    whole = path.read_bytes()
    passed = []
    for position, bit in bits:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << bit
        path.write_bytes(change(damaged))
        if not artifact.verify(path).findings:
            passed.append((position, bit))
    path.write_bytes(whole)
    return passed


@pytest.mark.parametrize("most", [200, pytest.param(10**6, marks=pytest.mark.long)])
def test_every_flipped_bit_is_reported(tiny: Path, most: int) -> None:
    chance = random.Random(2)

    def some(positions: Sequence[int]) -> list[tuple[int, int]]:
        bits = list(itertools.product(positions, range(8)))
        return chance.sample(bits, min(len(bits), most))

    headers = header_bytes(tiny)
    assert len(headers) > 600
    assert unnoticed(tiny, some(headers)) == []
    # Nor can a forger change a header: the headers are compared with the content, not only with the seal.
    assert unnoticed(tiny, some(headers[: -zip_format.SEAL_BYTES]), resealed) == []
    # The compressed data has bits that change no content, such as those after its end.
    data = sorted(set(range(tiny.stat().st_size)) - set(headers))
    sample = [(position, chance.randrange(8)) for position in chance.sample(data, min(len(data), most, 1500))]
    assert unnoticed(tiny, sample) == []


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("version", [1, 2])
def test_damaged_archives_are_reported(packed: Path, tmp_path: Path, count: int, version: int) -> None:
    """A damaged archive has findings, and no damage causes an error. Format 1 may change in unused bits."""
    whole = (RECORDED if version == zip_format.UNSEALED_FORMAT else packed).read_bytes()
    content_id = artifact.verify(written_bytes(tmp_path / "a.zip", whole)).content_id
    intact = contents(tmp_path / "a.zip")
    chance = random.Random(4)
    changed = 0
    for _ in range(count):
        data = damage.bytes_of(whole, chance)
        verified = artifact.verify(written_bytes(tmp_path / "a.zip", data))
        changed += data != whole
        if not verified.findings:
            assert data == whole or (version, verified.content_id) == (1, content_id)
            assert contents(tmp_path / "a.zip") == intact
        for finding in verified.findings:
            assert str(finding).isprintable()
    assert changed > 0.9 * count


def written_bytes(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_archives_of_earlier_versions_are_intact(tmp_path: Path) -> None:
    verified = artifact.verify(RECORDED)
    assert (verified.findings, verified.format, verified.files) == ([], 1, 44)
    assert verified.content_id == "12de2a068b589f040a31b607b1bbf7df20d99bfea0304a35b8d6c31563769073"
    old = Path(shutil.copy(RECORDED, tmp_path / "old.zip"))
    bits = list(itertools.product(header_bytes(old), range(8)))
    assert unnoticed(old, random.Random(5).sample(bits, 300)) == []


@pytest.mark.long
def test_entries_after_4_gib(tmp_path: Path) -> None:
    """Their offsets and the end of the archive have another format."""
    path = tmp_path / "sparse.zip"
    with path.open("w+b") as output:
        writer = zip_format.Writer(output)
        writer._zip.start_dir = 5 << 30
        writer.folder("a/")
        writer.finish()
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        assert zip_format._directory(archive) == zip_format._tail(file, archive.start_dir)


HOSTILE_NAMES = {
    "absolute": "/etc/passwd", "parent": "../x", "inner parent": "a/../../x", "empty part": "a//b", "dot": "./a",
    "backslash": "a\\..\\b", "newline": "a\nb", "escape": "a\x1b[2Jb", "long": "a" * 1025,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)
def test_names_that_leave_the_folder_are_rejected(tmp_path: Path, name: str) -> None:
    (finding,) = artifact.verify(written(tmp_path / "a.zip", whole(listed({name: b"x"})))).findings
    assert finding.kind == "damaged" and str(finding).isprintable()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_ambiguous_archives_are_rejected(tmp_path: Path) -> None:
    """Programs that unpack these would not agree on the content, although the seal is correct."""
    path = tmp_path / "a.zip"
    intact = written(path, whole(listed({"a": b"1", "b": b"2"}))).read_bytes()
    both = written(tmp_path / "both.zip", whole(listed({"a": b"1", "a/b": b"2"})))
    assert "both a file and a folder" in str(artifact.verify(both).findings)
    written(path, [("a", [b"1"]), *whole(listed({"a": b"1"}))])
    assert "occurs twice" in str(artifact.verify(path).findings)
    # A name in the local header that differs from the one in the directory.
    path.write_bytes(resealed(intact.replace(b"a", b"z", 1)))
    assert "header of entry 1, 'a', was changed" in str(artifact.verify(path).findings)
    # A second archive in front, of which other programs may read the entries.
    path.write_bytes(resealed(intact + intact))
    assert found(path) == {("damaged", str(path))}
    path.write_bytes(resealed(intact))
    assert found(path) == set()
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"smuggled"
    assert found(path) == {("damaged", str(path))}
    for foreign in (b"", b"no archive", b"#!/bin/sh\n" + intact):
        path.write_bytes(foreign)
        assert found(path) == {("damaged", str(path))}


def limited(code: str, *arguments: Path | str) -> str:
    """Run Python code with 224 MiB of address space; return its output."""
    script = f"""
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (224 << 20, 224 << 20))
{code}
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


VERIFY = """
from k8sdds.artifact.verification import verify
for path in sys.argv[1:]:
    print(path, [str(finding) for finding in verify(Path(path)).findings])
"""


@pytest.mark.long
def test_memory_is_bounded(tmp_path: Path) -> None:
    """The limit is below the size of every content here. The last line proves that it is effective."""
    zeros = bytes(1 << 20)
    sums = checksums.write({"zeros": hashlib.sha256(zeros * 224).hexdigest()}).encode()
    written(tmp_path / "large.zip", [("zeros", [zeros] * 224), (checksums.NAME, [sums])])
    bomb = (tmp_path / "large.zip").read_bytes()
    assert len(bomb) < 600_000
    # The same content under the name of the checksums, which verify needs in memory.
    written(tmp_path / "listing.zip", [(checksums.NAME, [zeros] * 224)])
    sparse = tmp_path / "sparse.zip"
    with sparse.open("wb") as output:
        output.truncate(1 << 40)
    tail = tmp_path / "tail.zip"
    with tail.open("wb") as output:
        output.seek(1 << 40)
        # A directory of 512 GiB, in the format for archives above 4 GiB.
        output.write(struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 9, 9, 1 << 39, 1 << 39))
        output.write(struct.pack("<4sLQL", b"PK\6\7", 0, 1 << 40, 1))
        output.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    (unpacked / checksums.NAME).write_text(f"{'0' * 64}  a\n")
    with (unpacked / "a").open("wb") as output:
        output.truncate(1 << 40)
    paths = [tmp_path / "large.zip", tmp_path / "listing.zip", sparse, tail, unpacked]
    large, *others = limited(VERIFY, *paths).splitlines()
    assert large.endswith(" []")
    assert len(others) == 4 and not any(line.endswith(" []") for line in others), others
    assert "MemoryError" in limited("try: bytes(224 << 20)\nexcept MemoryError: print('MemoryError')")


def test_a_bomb_is_not_expanded(tmp_path: Path) -> None:
    """More than 200 times the size of the archive is refused before anything is unpacked."""
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(100):
            archive.writestr(zip_format._info(f"{number:03}"), b"")
            archive.infolist()[-1].file_size = zip_format.MAX_FILE_BYTES
    (finding,) = artifact.verify(path).findings
    assert "64 GiB" in finding.detail or "200 times" in finding.detail


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), st.binary()
    )
)
def test_checksums_round_trip(files: dict[str, bytes]) -> None:
    created = {path: checksums.digest(content) for path, content in files.items()}
    assert checksums.read(checksums.write(created).encode()) == created


@pytest.mark.parametrize("text", ["x", "0" * 64 + "  a", "0" * 63 + "  a\n", "\n", ("0" * 64 + "  a\n") * 2])
def test_damaged_checksums_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        checksums.read(text.encode())
