"""Layers of images that are made of Debian packages."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from k8sdds.bundle import oci
from k8sdds.kubernetes import apply


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
