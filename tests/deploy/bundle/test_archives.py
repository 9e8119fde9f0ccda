"""Read archives of images as real tools write them: skopeo, and ctr of a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from k8sdds.bundle import archives, contents, golang, oci
from k8sdds.bundle.bundle import Bundle
from k8sdds.bundle.contents import HOST_ARCH, Image
from tests import bundles

IMAGE = Image("k8sdds.local/one:1", "1")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return bundles.small(
        tmp_path / "bundle", golang.build(contents.PROGRAMS["probe"], HOST_ARCH, lambda _: None)
    )


@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive"])
def test_an_archive_of_skopeo_is_read(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    original = bundle.archive([item for item in bundle.images(HOST_ARCH) if item.name == IMAGE.name])
    written = tmp_path / "image.tar"
    copy = ["skopeo", "copy", f"oci-archive:{original}", f"{kind}:{written}:{IMAGE.name}"]
    subprocess.run(copy, check=True, capture_output=True, timeout=60)
    for path in (original, written):
        found = archives.provided(IMAGE, HOST_ARCH, [path], lambda _: None)
        layers = oci.parts(oci.manifest(found.blob(found.items[0].digest)))[1:]
        assert len(layers) == 1 and oci.file_sha256(found.blob(layers[0])) == layers[0]
