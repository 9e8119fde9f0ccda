"""Official builds replace programs and images of a bundle, and pins refer to downloads that exist."""

from __future__ import annotations

import io
import random
import re
import tarfile
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.bundle import contents, download, official
from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.system.errors import InputError


def test_releases_replace_whole_programs() -> None:
    replaced = [name for release in official.RELEASES for name in release.programs]
    assert len(replaced) == len(set(replaced))
    own = {"flannel", "probe", "routes", "attach", "meter", "multus"}
    assert set(replaced) == set(contents.PROGRAMS) - own


def test_releases_have_the_programs_of_what_they_replace() -> None:
    for release in official.RELEASES:
        assert {contents.PROGRAMS[name].version for name in release.programs} == {release.version}
        installed = {
            path.rpartition("/")[2]
            for install in contents.INSTALLS if install.program in release.programs
            for path in (install.links or (install.target,))
        }  # fmt: skip
        downloaded = {
            name for file in release.downloads for name in (file.members or (file.url.rpartition("/")[2],))
        }
        assert installed == downloaded


def test_pins_refer_to_downloads() -> None:
    known = {name for release in official.RELEASES for name in release.images} | {
        file.url.format(arch=arch)
        for release in official.RELEASES for file in release.downloads for arch in versions.BUNDLE_ARCHITECTURES
    }  # fmt: skip
    assert set(official.checksums()) <= known
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in official.checksums().values())
    assert {name for name in known if name.startswith("https:")} <= set(official.checksums())


@pytest.mark.parametrize("damaged", [b"", b"text", b"cut"])
def test_a_damaged_archive_is_not_available(damaged: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "plugins.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        member = tarfile.TarInfo("./bridge")
        member.size = 10_000
        packed.addfile(member, io.BytesIO(random.randbytes(member.size)))
    archive.write_bytes(archive.read_bytes()[:5000] if damaged == b"cut" else damaged)
    with pytest.raises(download.Unavailable, match="URL is not an archive"):
        download._unpack(archive, ["bridge"], tmp_path, "URL")


def test_an_unknown_source_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(official.VARIABLE)
    assert official.selected_source() == official.AUTO
    monkeypatch.setenv(official.VARIABLE, "modul")
    with pytest.raises(InputError, match="modul"):
        official.selected_source()


@pytest.mark.parametrize(
    ("sources", "origin"),
    [
        (("", ""), "built from Go modules"),
        (("https://a", "b@sha256:c"), "official builds"),
        (("https://a", ""), "official builds; built from Go modules: registry.k8s.io/pause:1"),
    ],
)
def test_the_origin_of_a_bundle(tmp_path, sources: tuple[str, str], origin: str) -> None:
    names = (("binary", "kubeadm"), ("image", "registry.k8s.io/pause:1"))
    items = [
        Item(kind, name, "1", "amd64", "p", "0" * 64, 1, source=source)
        for (kind, name), source in zip(names, sources, strict=True)
    ]
    own = Item("image", versions.TOOLS_IMAGE, "1", "amd64", "p", "0" * 64, 1)
    assert Bundle(tmp_path, "n", "1", "go", ("amd64",), (*items, own)).origin == origin
