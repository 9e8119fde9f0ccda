"""Read the architecture of programs and images from their ELF headers.

Metadata may be wrong, and a program of the wrong architecture fails only when a pod starts, with
`exec format error`.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from k8sdds.bundle import oci
from k8sdds.system import tar

MACHINES = {3: "386", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64"}
"""Kubernetes' names of ELF machine numbers."""
MAX_LINKS = 10
"""Maximum number of symbolic links that are followed to find a program."""


def of_program(head: bytes) -> str | None:
    """Return the architecture of a program from its first 20 bytes, or None if it is not an ELF file."""
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return MACHINES.get(number, f"machine {number}")


def of_file(path: Path) -> str | None:
    """Return the architecture of a program file, or None if it is not an ELF file."""
    with path.open("rb") as file:
        return of_program(file.read(20))


def of_image(blobs: Path, manifest: dict[str, Any]) -> tuple[str, str, str | None]:
    """Return an image's declared architecture, its program, and the program's architecture.

    `blobs` contains its parts, named by their SHA-256. The program's architecture is None if the program is not found
    or is a script.
    """
    described, *layers = oci.parts(manifest)
    config = oci.config(blobs / described)
    argv = [*(config["config"].get("Entrypoint") or ()), *(config["config"].get("Cmd") or ())]
    program = argv[0] if argv else ""
    paths = [blobs / layer for layer in layers]
    return config["architecture"], program, _program_in(paths, program) if program else None


def _program_in(layers: list[Path], program: str) -> str | None:
    name = program.lstrip("/")
    for _ in range(MAX_LINKS):
        entry = _topmost(layers, name)
        if not isinstance(entry, str):
            return None if entry is None else of_program(entry)
        name = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), entry)).lstrip("/")
    return None


def _topmost(layers: list[Path], name: str) -> str | bytes | None:
    """Return the target of a link, or a file's first 20 bytes, from the topmost layer that has it."""
    for layer in reversed(layers):
        with tar.opened(layer) as archive:
            for member in archive.members():
                if member.name.removeprefix("./") != name:
                    continue
                if member.issym():
                    return member.linkname
                if member.islnk():
                    return "/" + member.linkname
                return archive.content(member).read(20) if member.isfile() else None
    return None
