"""Test that hostile and damaged tar files are rejected with bounded memory, and that bundles are unpacked safely."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from k8sdds.bundle import oci
from k8sdds.bundle.bundle import Bundle
from k8sdds.system import tar
from k8sdds.system.errors import InputError, K8sddsError


def member(name: str, **properties: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in properties.items():
        setattr(info, key, value)
    return info


def packed(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=form) as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return output.getvalue()


SAMPLE = packed(
    (member("./folder", type=tarfile.DIRTYPE), b""),
    (member("./folder/program", mode=0o4755, uid=1000, gid=1000, mtime=1.5), b"#!/bin/sh\n"),
    (member("folder/" + "long" * 60, mode=0o600), bytes(20_000)),
    (member("Größe"), b"x"),
)
"""Files with pax headers for a long name, a name with other letters and a time with fractions."""


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_files_and_folders_are_unpacked_without_owners(tmp_path: Path, compress: type[bytes]) -> None:
    (tmp_path / "a.tar").write_bytes(compress(SAMPLE))
    tar.unpack(tmp_path / "a.tar", tmp_path / "out")
    program = tmp_path / "out" / "folder" / "program"
    assert program.read_bytes() == b"#!/bin/sh\n"
    assert (program.stat().st_uid, program.stat().st_mode & 0o7777) == (os.geteuid(), 0o777 & ~umask())
    assert (tmp_path / "out" / "Größe").read_bytes() == b"x"


def umask() -> int:
    current = os.umask(0o22)
    os.umask(current)
    return current


HOSTILE = {
    "absolute": packed((member("/tmp/k8sdds-escaped"), b"x")),
    "parent": packed((member("a/../../k8sdds-escaped"), b"x")),
    "link": packed((member("a", type=tarfile.SYMTYPE, linkname="/"), b"")),
    "hard link": packed((member("a"), b""), (member("b", type=tarfile.LNKTYPE, linkname="a"), b"")),
    "device": packed((member("a", type=tarfile.CHRTYPE), b"")),
    "pipe": packed((member("a", type=tarfile.FIFOTYPE), b"")),
    "twice": packed((member("a"), b"1"), (member("a"), b"2")),
    "file as a folder": packed((member("a"), b"1"), (member("a/b"), b"2")),
    "folder as a file": packed((member("a/b"), b"1"), (member("a"), b"2")),
    "no tar": b"text" * 1000,
    "empty": b"",
    "cut": SAMPLE[:-22_000],
    "damaged gzip": gzip.compress(SAMPLE)[:-20],
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_entries_are_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(tar.DamagedTar):
        tar.unpack(tmp_path / "a.tar", tmp_path / "out")
    assert not list(tmp_path.rglob("k8sdds-escaped")) and not Path("/tmp/k8sdds-escaped").exists()


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_tar_files_cause_no_other_error(tmp_path: Path, count: int) -> None:
    chance = random.Random(1)
    rejected = 0
    for number in range(count):
        data = bytearray(SAMPLE)
        for _ in range(chance.randint(1, 4)):
            # Most of the damage hits the headers.
            start = chance.choice((0, 512, 1024, 1536, 2048, 2560, 3072)) + chance.randrange(512)
            data[start : start + chance.choice((1, 8, 12))] = chance.choice(
                (chance.randbytes(12), b"\xff" * 12, b"7" * 12, b"\x80" + b"\0" * 7 + b"\xff" * 4)
            )
        content = gzip.compress(data, 1) if number % 4 == 0 else bytes(data)
        (tmp_path / "a.tar").write_bytes(content)
        out = tmp_path / str(number)
        try:
            tar.unpack(tmp_path / "a.tar", out)
        except (tar.DamagedTar, OSError) as error:
            rejected += 1
            assert not isinstance(error, OSError) or error.errno is not None
    assert rejected > count / 2


MEMORY = """
import resource, sys
from pathlib import Path
from k8sdds.system import tar
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
for path in map(Path, sys.argv[1:]):
    try:
        with tar.opened(path) as archive:
            print(sum(1 for _ in archive.members()))
    except tar.DamagedTar as error:
        print(error)
"""


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A sparse file, a header that states a size of 8 GiB, and a bomb of headers; each would need more memory."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    header = member("a", type=tarfile.XHDTYPE, size=8 << 30).tobuf(tarfile.GNU_FORMAT)
    with (tmp_path / "header").open("wb") as file:
        file.write(header)
        file.truncate(1 << 40)
    extended = member("a", type=tarfile.XHDTYPE, size=1 << 20).tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)
    (tmp_path / "bomb").write_bytes(gzip.compress((extended + member("a").tobuf()) * 80, 1))
    paths = [tmp_path / name for name in ("sparse", "header", "bomb")]
    done = subprocess.run([sys.executable, "-c", MEMORY, *paths], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    sparse, *others = done.stdout.splitlines()
    assert sparse == "0" or "header" in sparse
    assert len(others) == 2 and all("headers are larger than 64 MiB" in line for line in others), done.stdout


# -- bundles -------------------------------------------------------------------------------

INDEX = {"format": 1, "name": "b", "kubernetes": "1", "toolchain": "go", "arches": ["amd64"], "items": []}
ITEM = {
    "kind": "image", "name": "i", "version": "1", "arch": "amd64", "path": "m", "sha256": "0" * 64, "size_bytes": 1,
}  # fmt: skip
INDEXES = {
    "nested more than": "[" * 100_000, "a JSON object": [], "valid JSON": "{", "items: expected a list": INDEX | {"items": 1},
    "items.0: expected": INDEX | {"items": [1]}, "items.0.name: this key is missing": INDEX | {"items": [{"kind": "image"}]},
    "items.0.path: expected text": INDEX | {"items": [ITEM | {"path": 1}]},
    "leaves the bundle": INDEX | {"items": [ITEM | {"path": "../x"}]},
    "size_bytes: expected a whole": INDEX | {"items": [ITEM | {"size_bytes": "1"}]},
    "sha256: expected text": INDEX | {"items": [ITEM | {"sha256": None}]},
    "links.0: expected text": INDEX | {"items": [ITEM | {"links": [1]}]},
    "arches.0: expected text": INDEX | {"arches": [["amd64"]]}, "more: Unexpected": INDEX | {"more": 1},
    "unknown format": INDEX | {"format": 2}, "unknown format; another": INDEX | {"format": 10**400},
}  # fmt: skip


@pytest.mark.parametrize(("message", "index"), INDEXES.items(), ids=INDEXES)
def test_hostile_indexes_are_rejected(tmp_path: Path, message: str, index: object) -> None:
    (tmp_path / "bundle.json").write_text(index if isinstance(index, str) else json.dumps(index))
    with pytest.raises(InputError, match=message):
        Bundle.open(tmp_path)


MANIFESTS = {
    "list": [], "empty": {}, "parts": {"config": 1, "layers": []}, "outside": {
        "config": {"digest": "sha256:../../../../../etc/passwd"}, "layers": []
    }, "number": {"config": {"digest": 1}, "layers": []}, "layers": {"config": {"digest": "sha256:" + "0" * 64}, "layers": 1},
}  # fmt: skip


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_hostile_manifests_are_rejected(tmp_path: Path, manifest: object) -> None:
    path = tmp_path / "m"
    path.write_text(json.dumps(manifest))
    item = ITEM | {"sha256": oci.file_sha256(path)}
    (tmp_path / "bundle.json").write_text(json.dumps(INDEX | {"items": [item]}))
    with pytest.raises(K8sddsError, match=r"expected a JSON object|does not describe an image"):
        Bundle.open(tmp_path).verify()


def test_damaged_layers_are_reported(tmp_path: Path) -> None:
    layout = oci.Layout(tmp_path / "oci")
    layer = layout.add(b"no layer" * 500)
    digest = layout.image("i", "amd64", ["/bin/x"], [layer])
    item = ITEM | {"path": f"oci/blobs/sha256/{digest}", "sha256": digest}
    (tmp_path / "bundle.json").write_text(json.dumps(INDEX | {"items": [item]}))
    (problem,) = Bundle.open(tmp_path).verify()
    assert "a layer of the image i is damaged" in problem.what
    with pytest.raises(InputError, match="is damaged"):
        oci.has_program(tmp_path / "oci", digest, "x")
