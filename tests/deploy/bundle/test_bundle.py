"""Check that bundles are reproducible, and that archives, checksums and damage detection work."""

from __future__ import annotations

import json
import subprocess
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes
from k8sdds.bundle import Bundle, Item, contents, golang, oci, packages
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.bundle.create import copy_packages
from k8sdds.deploy import images as importing
from k8sdds.deploy import profiles, software
from k8sdds.deploy.scripts import shell
from k8sdds.model.profile import Software
from k8sdds.system import debian_release
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.ssh import Connections
from k8sdds.versions import BUNDLE_ARCHITECTURES
from tests import bundles
from tests.deploy.conftest import Up

SUITE = debian_release.running("bundles").codename


def small(folder: Path) -> Bundle:
    """Create a bundle with two images that share a layer, and one binary."""
    return bundles.small(folder, golang.build(contents.PROGRAMS["probe"], HOST_ARCH, lambda _: None))


def checksums(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): oci.file_sha256(path) for path in files}


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    small(tmp_path / "one")
    small(tmp_path / "two")
    assert checksums(tmp_path / "one") == checksums(tmp_path / "two")


def test_an_archive_contains_a_shared_layer_once(tmp_path: Path) -> None:
    bundle = small(tmp_path / "bundle")
    with tarfile.open(bundle.archive(bundle.images(HOST_ARCH))) as archive:
        names = archive.getnames()
        index = json.load(archive.extractfile("index.json"))
    assert len(names) == len(set(names)) == 2 + 2 + 2 + 1
    result = [obj["annotations"]["io.containerd.image.name"] for obj in index["manifests"]]
    assert result == ["k8sdds.local/one:1", "k8sdds.local/two:1"]
    with pytest.raises(PrerequisiteError, match="nothing for arm"):
        bundle.images("arm")


def test_containerd_runs_an_image(tmp_path: Path, up: Up) -> None:
    bundle = small(tmp_path / "bundle")
    images = bundle.images(HOST_ARCH)
    archive = bundle.archive(images)
    (one,) = up("images", nodes.NodeSpec("one", shares=(nodes.SharedFolder(archive.parent, "/archives"),)))
    with Connections([one.target]) as connections:
        host = connections.hosts["one"]
        done = importing.load(host, archive, images, f"/archives/{archive.name}")
        assert done.code == 0, done.err
        # Through ssh as well, and another image of the same name is not taken for it.
        assert importing.load(host, archive, images).code == 0
        other = importing.load(host, archive, [images[0], replace(images[1], sha256="0" * 64)])
        assert other.code == 1
        assert f"{images[1].name} sha256:{'0' * 64} is missing after the import" in other.err
    listed = nodes.run("images", "one", ["ctr", "-n", "k8s.io", "images", "ls", "-q"]).split()
    # Beside the names containerd lists digests.
    assert {"k8sdds.local/one:1", "k8sdds.local/two:1"} <= set(listed)
    nodes.run("images", "one", ["ctr", "-n", "k8s.io", "images", "check"])


def test_damage_is_found(tmp_path: Path) -> None:
    bundle = small(tmp_path / "bundle")
    assert bundle.verify() == []
    layer = max((bundle.folder / "oci/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    with layer.open("r+b") as file:
        file.seek(1000)
        file.write(b"!")
    (bundle.folder / "bin/probe").unlink()
    assert {problem.what.split(":")[0].split(" ")[0] for problem in bundle.verify()} == {
        str(layer), str(bundle.folder / "bin/probe"),
    }  # fmt: skip


def test_programs_for_a_wrong_architecture_are_reported(tmp_path: Path) -> None:
    other = "arm64" if HOST_ARCH == "amd64" else "amd64"
    program = golang.build(contents.PROGRAMS["probe"], other, lambda _: None)
    folder = tmp_path / "bundle"
    layout = oci.Layout(folder / "oci")
    layer = layout.layer(
        {"/opt/probe": program, "/bin/probe": oci.Link("../opt/probe"), "/bin/run": b"#!/bin/sh"}
    )
    (folder / "bin").mkdir()
    (folder / "bin/probe").write_bytes(program.read_bytes())
    items = [Item("binary", "probe", "1", HOST_ARCH, "bin/probe", oci.file_sha256(program), 1)]
    for name, arch, entry in (("claims:1", HOST_ARCH, "/bin/probe"), ("says:1", other, "/bin/probe"),
                              ("script:1", HOST_ARCH, "/bin/run")):  # fmt: skip
        items.append(bundles.image(name, layout.image(name, arch, [entry], [layer])))
    layout.finish()
    problems = [problem.what for problem in bundles.write(folder, items).verify()]
    assert [line.partition(f" is built for {other}")[0] for line in problems] == [
        "probe (bin/probe)", "/bin/probe in the image claims:1", "the image says:1",
    ]  # fmt: skip
    assert all("exec format error" in line for line in problems)
    # A deploy with it is refused before anything is touched.
    profile = profiles.load("one-machine")
    from_there = profile.model_copy(update={"software": Software(source="bundle", bundle=str(folder))})
    with pytest.raises(InputError, match=f"claims:1 is built for {other}, not for {HOST_ARCH}"):
        software.for_profile(from_there, [HOST_ARCH], lambda _: None)
    with pytest.raises(PrerequisiteError, match=f"nothing for {other}"):
        software.for_profile(from_there, [HOST_ARCH, other], lambda _: None)


def test_a_bundle_can_be_a_tar_file(tmp_path: Path) -> None:
    folder = small(tmp_path / "bundle").folder
    with tarfile.open(tmp_path / "bundle.tar", "w") as archive:
        archive.add(folder, ".")
    assert Bundle.open(tmp_path / "bundle.tar").verify() == []


@pytest.mark.parametrize("arch", BUNDLE_ARCHITECTURES)
def test_probe_is_built_for_both_architectures(arch: str) -> None:
    header = golang.build(contents.PROGRAMS["probe"], arch, lambda _: None).read_bytes()[:20]
    assert header[18] == {"amd64": 62, "arm64": 183}[arch]


def test_probes_exchange_datagrams() -> None:
    probe = golang.build(contents.PROGRAMS["probe"], HOST_ARCH, lambda _: None)
    with subprocess.Popen([probe, "listen", "--udp", "7117"]) as listening:
        try:
            argv = [probe, "ask", "127.0.0.1:7117", "--count", "3", "--timeout", "60"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=90)
            assert done.returncode == 0
            assert json.loads(done.stdout)["received"] == 3
        finally:
            listening.kill()
    argv = [probe, "ask", "127.0.0.1:7117", "--count", "1", "--timeout", "1"]
    assert subprocess.run(argv, capture_output=True, timeout=30).returncode == 1


def test_packages_install_only_from_the_bundle(tmp_path: Path, up: Up) -> None:
    folder = small(tmp_path / "bundle").folder
    fetched = {(SUITE, HOST_ARCH): packages.cached(SUITE, HOST_ARCH, lambda _: None)}
    items = [asdict(item) for item in copy_packages(fetched, folder)]
    index = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps(index | {"items": index["items"] + items}))
    bundle = Bundle.open(folder)
    assert bundle.verify() == [] and bundle.suites == (SUITE,)
    with pytest.raises(PrerequisiteError, match=f"noble.*{SUITE}"):
        bundle.packages(HOST_ARCH, "noble")
    folders = {bundle.file(item).parent for item in bundle.packages(HOST_ARCH, SUITE)}
    assert len(folders) == 1
    up("offline", nodes.NodeSpec("one", boot="sshd", shares=(nodes.SharedFolder(folders.pop(), "/debs"),)))

    def run(*argv: str, **options: Any) -> str:
        return nodes.run("offline", "one", argv, **options)

    run("dpkg", "--purge", "socat", "containerd", "runc")
    names = " ".join(packages.NODE_PACKAGES)
    run("sh", stdin=shell("install_packages", FOLDER="/debs", PACKAGES=names), timeout_s=600)
    run("runc", "--version")
    states = run("dpkg-query", "-W", "-f", "${db:Status-Status} ", "socat", "containerd")
    assert states == "installed installed "
    # Its own sources of packages are as they were, and it has no other list.
    assert "debs" not in run("sh", "-c", "cat /etc/apt/sources.list* || :; ls /var/lib/apt/lists")


def test_unavailable_packages_are_reported(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="update failed"):
        packages.fetch(tmp_path / "new", "no-such-suite", HOST_ARCH)
    with pytest.raises(InputError, match="not the name of a suite"):
        packages.fetch(tmp_path / "new", "../x", HOST_ARCH)
    assert not (tmp_path / "new").exists()
