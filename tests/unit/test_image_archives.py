"""Images of networks from archives that the user provides, and layers that are made of Debian packages."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.bundle import archives, cache, oci, parts
from k8sdds.bundle.contents import IMAGES
from k8sdds.deploy import bundled_networks, profiles
from k8sdds.kubernetes import apply
from k8sdds.system.errors import InputError, PrerequisiteError
from tests.unit.fuzzing import damage

NAME = versions.KUBE_ROUTER_IMAGE
(KUBE_ROUTER,) = (image for image in IMAGES if image.name == NAME)
SHORT = NAME.removeprefix("docker.io/")
ELF = {"amd64": 62, "arm64": 183}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def program(arch: str) -> bytes:
    return b"\x7fELF\x02\x01" + bytes(12) + bytes([ELF[arch], 0]) + bytes(2000)


def oci_archive(path: Path, *images: tuple[str, str], built_for: str = "") -> Path:
    """Write an OCI archive of images (name, architecture), whose programs may be built for another architecture."""
    folder = path.with_suffix(".oci")
    layout = oci.Layout(folder)
    (folder / "program").parent.mkdir(exist_ok=True)
    written = []
    for name, arch in images:
        (folder / "program").write_bytes(program(built_for or arch))
        layer = layout.layer({"/bin/kube-router": folder / "program"})
        written.append((name, arch, layout.image(name, arch, ["/bin/kube-router"], [layer])))
    oci.archive(folder, written, path)
    return path


def docker_archive(path: Path, name: str | None, arch: str) -> Path:
    """Write an archive as `docker save` does, where a layer of another image is a link."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as packed:
        member = tarfile.TarInfo("bin/kube-router")
        member.size = len(program(arch))
        packed.addfile(member, io.BytesIO(program(arch)))
    diff_id = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({
        "architecture": arch, "os": "linux", "config": {"Entrypoint": ["/bin/kube-router"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]},
    }).encode()  # fmt: skip
    entry = {
        "Config": f"{hashlib.sha256(config).hexdigest()}.json",
        "RepoTags": [name] if name else None,
        "Layers": ["2/layer.tar"],
    }
    contents = {
        entry["Config"]: config,
        "1/layer.tar": layer.getvalue(),
        "manifest.json": json.dumps([entry]).encode(),
    }
    with tarfile.open(path, "w") as archive:
        for inside, content in contents.items():
            member = tarfile.TarInfo(str(inside))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("2/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../1/layer.tar"
        archive.addfile(link)
    return path


def read(arch: str, *paths: Path) -> parts.Provided:
    return archives.provided(KUBE_ROUTER, arch, paths, lambda _: None)


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_an_image_is_read_from_both_kinds_of_archives(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image.tar"
    if kind == "docker":
        docker_archive(path, SHORT, "arm64")
    else:
        oci_archive(path, ("docker.io/other/image:1", "arm64"), (NAME, "amd64"), (NAME, "arm64"))
    found = read("arm64", path)
    (image,) = found.items
    assert image.source == f"image.tar#sha256={oci.file_sha256(path)}" and image.verified == "archive"
    manifest = oci.manifest(found.blob(image.digest))
    for digest in (image.digest, *oci.parts(manifest)):
        assert oci.file_sha256(found.blob(digest)) == digest
    assert oci.config(found.blob(oci.parts(manifest)[0]))["architecture"] == "arm64"
    # A bundle contains the image like one from a registry.
    folder = tmp_path / "bundle"
    layout = oci.Layout(folder)
    layout.add_image(NAME, "arm64", found.blob(image.digest), map(found.blob, oci.parts(manifest)))
    assert {path.name for path in layout.blobs.iterdir()} == {image.digest, *oci.parts(manifest)}


def test_each_architecture_has_an_archive_of_its_own(tmp_path: Path) -> None:
    amd64 = oci_archive(tmp_path / "amd64.tar", (NAME, "amd64"))
    arm64 = docker_archive(tmp_path / "arm64.tar", SHORT, "arm64")
    assert read("arm64", amd64, arm64).items[0].source.startswith("arm64.tar#")
    with pytest.raises(
        InputError, match=rf"no archive contains {NAME} for arm64\n.*contains {NAME} for amd64"
    ):
        read("arm64", amd64)
    # The plan of a command does not read the archive.
    with cache.frozen() as steps:
        read("amd64", amd64, arm64)
    assert list(steps) == [f"reading {NAME} for amd64 from {amd64}, {arm64}"]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda path: path.write_bytes(b"text" * 1000), "is not an archive of images"),
        (lambda path: oci_archive(path, ("docker.io/cloudnativelabs/kube-router:v1", "amd64")), "kube-router:v1 for"),
        (lambda path: docker_archive(path, None, "amd64"), "an image without a name for amd64"),
        (lambda path: oci_archive(path, (NAME, "amd64"), built_for="arm64"), "is built for arm64, not for amd64"),
        (lambda path: None, "cannot read an archive"),
    ],
    ids=["no archive", "another version", "no name", "another architecture", "no file"],
)  # fmt: skip
def test_other_archives_are_rejected(
    tmp_path: Path, cache_folder: Path, create: Callable[[Path], object], message: str
) -> None:
    create(tmp_path / "image.tar")
    with pytest.raises(InputError, match=message):
        read("amd64", tmp_path / "image.tar")
    assert not list(cache_folder.glob("official/[!.]*"))


@pytest.mark.parametrize("kind", ["oci", "docker"])
@pytest.mark.parametrize("count", [30, pytest.param(5000, marks=pytest.mark.long)])
def test_changed_content_is_never_used(tmp_path: Path, kind: str, count: int) -> None:
    path = tmp_path / "image.tar"
    docker_archive(path, SHORT, "amd64") if kind == "docker" else oci_archive(path, (NAME, "amd64"))
    original, chance = path.read_bytes(), random.Random(1)
    (image,) = read("amd64", path).items
    rejected = 0
    for _ in range(count):
        path.write_bytes(damage.bytes_of(original, chance))
        try:
            # What remains was changed where it is not content, such as in the date of a file.
            assert read("amd64", path).items[0].digest == image.digest
        except InputError:
            rejected += 1
    assert rejected > count / 4


@pytest.mark.parametrize("name", ["index.json", "manifest.json"])
@pytest.mark.parametrize("description", [
    "text", "3", "[]", "[3]", "{}", '{"manifests": 3}', '{"manifests": [3]}', '{"manifests": [{"digest": 3}]}',
    '{"manifests": [{"digest": "sha256:0", "annotations": []}]}', '[{"Config": 3}]', '[{"Config": "x", "RepoTags": 3}]',
])  # fmt: skip
def test_damaged_descriptions_are_rejected(tmp_path: Path, name: str, description: str) -> None:
    (tmp_path / "description").write_text(description)
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(tmp_path / "description", name)
    with pytest.raises(InputError):
        read("amd64", tmp_path / "image.tar")


def test_a_network_or_an_image_names_its_archives(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    (tmp_path / "b.tar").touch()
    text = f"""name: lab
nodes: [{{name: one, roles: [control-plane]}}]
software: {{source: bundle, images: {{weavenet: {tmp_path}/a.tar, {NAME}: [{tmp_path}/a.tar]}}}}
"""
    profile = profiles.parse(text, "lab.yaml")
    found = bundled_networks.archives(profile, [f"kube-router={tmp_path}/b.tar"])
    assert found == {
        versions.WEAVE_IMAGE: [tmp_path / "a.tar"],
        versions.WEAVE_NPC_IMAGE: [tmp_path / "a.tar"],
        NAME: [tmp_path / "a.tar", tmp_path / "b.tar"],
    }
    for option, message in (
        ("kube-router", "not valid"),
        ("=/tmp", "not valid"),
        ("kube-router=/none/a.tar", "kube-router, /none/a.tar, is not a file"),
        (f"kube-ruoter={tmp_path}/a.tar", "did you mean 'kube-router'"),
    ):
        with pytest.raises(InputError, match=message):
            bundled_networks.archives(None, [option])
    with pytest.raises(InputError, match="images is set, but no bundle is created"):
        profiles.parse(text.replace("source: bundle", "source: packages"), "lab.yaml")


def test_an_image_that_is_not_available_is_left_out_unless_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("K8SDDS_SOFTWARE_FROM", "modules")
    notes: list[str] = []
    assert parts._images(["amd64"], notes.append, [KUBE_ROUTER], ()) == {}
    assert notes == [
        f"without {NAME}: K8SDDS_SOFTWARE_FROM=modules prevents downloads; --image NETWORK=FILE.tar adds it from an"
        " archive"
    ]
    with pytest.raises(PrerequisiteError, match=f"cannot get {NAME}") as caught:
        parts._images(["amd64"], notes.append, [KUBE_ROUTER], [NAME])
    assert "--image NETWORK=FILE.tar" in caught.value.remedy
    # Any image that a network needs can be required or given.
    names = {image.name for image in parts.selected_images(required=["quay.io/calico/node:v3"])}
    assert names == {image.name for image in IMAGES if not image.on_request} | {"quay.io/calico/node:v3"}
    assert {image.name for image in parts.selected_images(required=[versions.MULTUS_IMAGE])} == {
        image.name for image in IMAGES
    }


def packed(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w") as archive:
        for name in names:
            member = tarfile.TarInfo(f"./{name}")
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
    return path


def content(layout: oci.Layout, layer: dict[str, str]) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(layout.blobs / layer["digest"].removeprefix("sha256:")) as archive:
        return {member.name: member for member in archive.getmembers()}


def test_packages_of_one_image_are_in_a_layer_without_the_files_below(tmp_path: Path) -> None:
    layout = oci.Layout(tmp_path / "oci")
    below = packed(tmp_path / "base.tar", "usr/lib/libc.so", "bin/ip")
    own = packed(
        tmp_path / "own.tar", "usr/lib/libc.so", "bin/ip", "usr/bin/curl", "usr/bin/perl", "var/lib/x"
    )
    assert set(content(layout, layout.base_layer(own, {}, below))) == {"usr/bin/curl", "usr/bin/perl"}
    assert set(content(layout, layout.base_layer(own, {}, below, ("usr/bin/c*",)))) == {"usr/bin/curl"}


def test_an_object_of_the_server_can_be_applied_again() -> None:
    stamped = apply.stamped(
        [{"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "b"}}], "x"
    )
    (made,) = stamped
    server = {
        **made,
        "metadata": {**made["metadata"], "uid": "u", "resourceVersion": "7", "managedFields": []},
        "status": {"ready": 1},
    }
    server["metadata"]["annotations"] = {
        **made["metadata"]["annotations"],
        "kube-peers.weave.works/peers": "{}",
    }
    assert apply.restorable(server) == made
