"""Create images of one architecture that run on nodes of another, with QEMU user emulation inside.

The emulator is the image's entry point and is built for the node's architecture. Nothing is registered with
the kernel, so a program that starts other programs must start them through the emulator, too.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache, debian, oci
from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.bundle.contents import Report
from k8sdds.system import debian_release
from k8sdds.system.errors import InputError
from k8sdds.system.paths import cache_folder

PROGRAMS = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}


def inside(arch: str) -> str:
    """Return the path of an architecture's emulator inside images."""
    return f"/opt/k8sdds/{PROGRAMS[arch]}-static"


def check(arch: str, on: str) -> None:
    """Check whether an architecture can be emulated on nodes of another."""
    if arch not in versions.BUNDLE_ARCHITECTURES or on not in versions.BUNDLE_ARCHITECTURES:
        raise InputError(
            f"{arch} cannot be emulated on {on}",
            f"use --emulate {' or '.join(versions.BUNDLE_ARCHITECTURES)}",
        )
    if arch == on:
        raise InputError(f"nothing to emulate: the nodes are {on}", "remove --emulate")


def emulated(bundle: Bundle, items: Sequence[Item], on: str, report: Report) -> tuple[Path, list[Item]]:
    """Return an archive in the cache of images that run with emulation, and these images.

    Their names end in -ARCHITECTURE. The images of a bundle have one architecture; `on` is that of the nodes.
    """
    arch = items[0].arch
    emulator = fetch_emulator(arch, on, report)
    sources = [oci.file_sha256(emulator), [item.sha256 for item in items]]
    key = hashlib.sha256(oci.canonical(sources)).hexdigest()
    output = cache_folder() / "archives" / f"{arch}-on-{on}-{key[:16]}.tar"
    with cache.creating(output) as missing, tempfile.TemporaryDirectory() as folder:
        images = _layout(bundle, items, emulator, Path(folder))
        if missing:
            oci.archive(Path(folder), [(i.name, i.arch, i.sha256) for i in images], output)
    return output, images


def fetch_emulator(arch: str, on: str, report: Report) -> Path:
    """Return the program in the cache that emulates an architecture on another; fetch it if it is missing."""
    release = debian_release.running("images with an emulator")
    name = f"{PROGRAMS[arch]}{release.emulator_suffix}"
    return debian.program(release, on, release.emulators, name, report)


def _layout(bundle: Bundle, items: Sequence[Item], emulator: Path, folder: Path) -> list[Item]:
    """Create images with the emulator, linked to the bundle's blobs."""
    layout = oci.Layout(folder)
    program = inside(items[0].arch)
    with_emulator = layout.layer({program: emulator})
    images = []
    for item in items:
        manifest = oci.manifest(bundle.file(item))
        described, *digests = oci.parts(manifest)
        config = oci.config(bundle.folder / "oci/blobs/sha256" / described)["config"]
        layout.link(bundle.folder / "oci", digests)
        name = f"{item.name}-{item.arch}"
        entrypoint = [program, *config["Entrypoint"]]
        layers = [*manifest["layers"], with_emulator]
        digest = layout.image(name, item.arch, entrypoint, layers, config.get("User", ""))
        images.append(replace(item, name=name, sha256=digest))
    return images
