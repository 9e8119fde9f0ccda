"""Our images for another architecture with the emulator in them, for nodes of this one.

No format is registered with the kernel: the image's program is the emulator, which is for the node, and runs
the rest. A program that starts others names the emulator for them as well.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache, oci, packages
from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.bundle.debian import Said
from k8sdds.system.errors import InputError
from k8sdds.system.files import replacing
from k8sdds.system.paths import cache_folder

PROGRAMS = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
PACKAGE = "qemu-user-static"


def inside(arch: str) -> str:
    """Where in the images the emulator of an architecture is."""
    return f"/opt/k8sdds/{PROGRAMS[arch]}"


def check(arch: str, on: str) -> None:
    """Raise InputError where there is nothing to emulate, or nothing to emulate it with."""
    if arch not in versions.BUNDLE_ARCHITECTURES or on not in versions.BUNDLE_ARCHITECTURES:
        raise InputError(
            f"{arch} cannot be emulated on {on}", f"--emulate {' or '.join(versions.BUNDLE_ARCHITECTURES)}"
        )
    if arch == on:
        raise InputError(f"the nodes are {on} themselves: nothing to emulate", "leave --emulate out")


def emulated(
    bundle: Bundle, items: Sequence[Item], on: str, said: Said
) -> tuple[Path, list[tuple[str, str]]]:
    """An archive of these images of one architecture that runs on nodes of another (`on`): in the cache, with
    (reference, SHA-256 of the manifest) of each. Their names end in -ARCHITECTURE. Raises PrerequisiteError.
    """
    arch = items[0].arch
    emulator = _emulator(arch, on, said)
    made_from = [oci.file_sha256(emulator), [item.sha256 for item in items]]
    key = hashlib.sha256(oci.canonical(made_from)).hexdigest()
    output = cache_folder() / "archives" / f"{arch}-on-{on}-{key[:16]}.tar"
    with cache.making(output) as missing, tempfile.TemporaryDirectory() as folder:
        made = _layout(bundle, items, emulator, Path(folder))
        if missing:
            oci.archive(Path(folder), [(name, arch, digest) for name, digest in made], output)
    return output, made


def _emulator(arch: str, on: str, said: Said) -> Path:
    path = cache_folder() / "emulators" / f"{PROGRAMS[arch]}-{on}-{packages.suite_here()}"
    with cache.making(path) as missing:
        if missing:
            said(f"fetching {PROGRAMS[arch]}")
            with replacing(path) as unfinished:
                packages.program(PACKAGE, f"/usr/bin/{PROGRAMS[arch]}", on, unfinished)
    return path


def _layout(bundle: Bundle, items: Sequence[Item], emulator: Path, folder: Path) -> list[tuple[str, str]]:
    """The images upon those of the bundle, whose blobs are linked."""
    layout = oci.Layout(folder)
    source = (bundle.folder / "oci/blobs/sha256").resolve()
    program = inside(items[0].arch)
    with_emulator = layout.layer({program: emulator})
    made = []
    for item in items:
        manifest = json.loads(bundle.file(item).read_text())
        described = source / manifest["config"]["digest"].removeprefix("sha256:")
        config = json.loads(described.read_text())["config"]
        for layer in manifest["layers"]:
            digest = layer["digest"].removeprefix("sha256:")
            if not (layout.blobs / digest).exists():
                (layout.blobs / digest).symlink_to(source / digest)
        name = f"{item.name}-{item.arch}"
        entrypoint = [program, *config["Entrypoint"]]
        layers = [*manifest["layers"], with_emulator]
        made.append((name, layout.image(name, item.arch, entrypoint, layers, config.get("User", ""))))
    return made
