"""For which machines the programs of a bundle are: read from the programs, not from what is written beside.

A program of another architecture ends with `exec format error` on the node, when the pod starts.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from pathlib import Path
from typing import Any

MACHINES = {3: "386", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64"}
"""ELF's numbers of machines, in Kubernetes' words."""
MOST_LINKS = 10


def of_program(head: bytes) -> str | None:
    """The architecture of a program by its first 20 bytes; None where it is a script, say."""
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return MACHINES.get(number, f"machine {number}")


def of_file(path: Path) -> str | None:
    """The architecture of a program in a file."""
    with path.open("rb") as file:
        return of_program(file.read(20))


def of_image(layout: Path, manifest: dict[str, Any]) -> tuple[str, str, str | None]:
    """What an image says it is for, its program, and what that program is for.

    None for the last where the program is not found, or is a script.
    """
    blobs = layout / "blobs/sha256"
    config = json.loads((blobs / manifest["config"]["digest"].removeprefix("sha256:")).read_text())
    words = [*(config["config"].get("Entrypoint") or ()), *(config["config"].get("Cmd") or ())]
    program = words[0] if words else ""
    layers = [blobs / layer["digest"].removeprefix("sha256:") for layer in manifest["layers"]]
    return config["architecture"], program, _program_in(layers, program) if program else None


def _program_in(layers: list[Path], program: str) -> str | None:
    name = program.lstrip("/")
    for _ in range(MOST_LINKS):
        found = _last(layers, name)
        if not isinstance(found, str):
            return None if found is None else of_program(found)
        name = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), found)).lstrip("/")
    return None


def _last(layers: list[Path], name: str) -> str | bytes | None:
    """Where a link of this name leads, or the first bytes of the file, in the uppermost layer that has it."""
    for layer in reversed(layers):
        with tarfile.open(layer) as archive:
            for member in archive:
                if member.name.removeprefix("./") != name:
                    continue
                if member.issym():
                    return member.linkname
                if member.islnk():
                    return "/" + member.linkname
                content = archive.extractfile(member)
                return content.read(20) if content else None
    return None
