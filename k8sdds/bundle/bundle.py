"""A bundle as it lies in a folder: bundle.json, binaries, and an OCI layout."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from k8sdds import versions
from k8sdds.bundle import architecture, cache, oci
from k8sdds.system.errors import InputError, PrerequisiteError, Problem
from k8sdds.system.paths import cache_folder

FORMAT = 1
INDEX = "bundle.json"


@dataclass(frozen=True)
class Item:
    """One thing in a bundle."""

    kind: str
    """binary, image, package, or index (of the packages beside it)."""
    name: str
    """A program's or package's name, or an image's reference."""
    version: str
    arch: str
    path: str
    """Below the bundle's folder: of an image, its manifest."""
    sha256: str
    size_bytes: int
    """Of an image: with all its layers."""
    target: str = ""
    """Where a binary is installed on a node."""
    mode: str = "0755"
    links: tuple[str, ...] = ()
    """Symbolic links to the target."""


@dataclass(frozen=True)
class Bundle:
    """A bundle's folder and what is in it."""

    folder: Path
    name: str
    kubernetes: str
    toolchain: str
    arches: tuple[str, ...]
    items: tuple[Item, ...]

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Read a bundle: a folder, or a .tar of one, which is unpacked into the cache. Raises InputError."""
        folder = _unpacked(path) if path.is_file() else path
        try:
            data = json.loads((folder / INDEX).read_text())
        except OSError as error:
            what = f"{path} is no bundle: {INDEX}: {error.strerror}"
            raise InputError(what, "k8sdds bundle create") from error
        except ValueError as error:
            raise InputError(f"{folder / INDEX}: {error}", "k8sdds bundle create") from error
        try:
            if data.pop("format") != FORMAT:
                raise ValueError("it has another format: made by another version of k8sdds")
            items = tuple(_item(item) for item in data.pop("items"))
            return cls(folder, arches=tuple(data.pop("arches")), items=items, **data)
        except KeyError as error:
            raise InputError(f"{folder / INDEX}: {error} is missing", "k8sdds bundle create") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{folder / INDEX}: {error}", "k8sdds bundle create") from error

    def binaries(self, arch: str) -> list[Item]:
        """What is installed on every node of an architecture."""
        return self._of("binary", arch)

    def images(self, arch: str) -> list[Item]:
        """The images for an architecture."""
        return self._of("image", arch)

    @property
    def suites(self) -> tuple[str, ...]:
        """Code names of the distributions that it has packages for."""
        return tuple(dict.fromkeys(_suite(item) for item in self.items if item.kind == "package"))

    def packages(self, arch: str, suite: str) -> list[Item]:
        """The packages for a distribution, and their index, all in one folder. Raises PrerequisiteError."""
        found = [item for kind in ("package", "index") for item in self._of(kind, arch)]
        chosen = [item for item in found if _suite(item) == suite]
        if not chosen:
            there = f", only for {', '.join(self.suites)}" if self.suites else ""
            raise PrerequisiteError(
                f"the bundle {self.name} has no packages of {suite} for {arch}{there}",
                f"k8sdds bundle create --suite {','.join([*self.suites, suite])}; or install by hand",
            )
        return chosen

    def file(self, item: Item) -> Path:
        """Where an item lies."""
        return self.folder / item.path

    def archive(self, arch: str, names: Sequence[str] | None = None) -> Path:
        """One OCI archive of an architecture's images, or those named, for `ctr images import`; in the cache.

        Raises PrerequisiteError for an image that is not here.
        """
        images = self.images(arch)
        for name in names or ():
            if name not in {image.name for image in images}:
                raise PrerequisiteError(f"the bundle has no image {name} for {arch}", "k8sdds bundle list")
        chosen = [image for image in images if names is None or image.name in names]
        key = hashlib.sha256(oci.canonical([[image.name, image.sha256] for image in chosen])).hexdigest()[:16]
        output = cache_folder() / "archives" / f"{arch}-{key}.tar"
        # Several machines may want it at the same moment.
        with cache.making(output) as missing:
            if missing:
                oci.archive(self.folder / "oci", [(one.name, one.arch, one.sha256) for one in chosen], output)
        if missing:
            cache.prune()
        return output

    def wrong_architectures(self, arch: str) -> list[Problem]:
        """Programs and images for an architecture that are for another: `exec format error` on the nodes."""
        problems = []
        for item in self.binaries(arch):
            found = architecture.of_file(self.file(item))
            if found not in (arch, None):
                problems.append(_wrong(f"{item.name} ({item.path})", arch, found))
        for item in self.images(arch):
            says, program, found = architecture.of_image(
                self.folder / "oci", json.loads(self.file(item).read_text())
            )
            if says != arch:
                problems.append(_wrong(f"the image {item.name}", arch, says))
            elif found not in (arch, None):
                problems.append(_wrong(f"{program} in the image {item.name}", arch, found))
        return problems

    def verify(self) -> list[Problem]:
        """What is missing or changed, against the checksums; every layer is read. And what is for other
        machines than it claims.
        """
        problems: dict[str, Problem] = {}
        layers: set[str] = set()
        for item in self.items:
            path = self.file(item)
            problem = _check(path, item.sha256)
            if problem:
                problems[item.path] = problem
            elif item.kind == "image":
                manifest = json.loads(path.read_text())
                for one in (manifest["config"], *manifest["layers"]):
                    layers.add(one["digest"].removeprefix("sha256:"))
        for digest in sorted(layers):
            problem = _check(self.folder / "oci/blobs/sha256" / digest, digest)
            if problem:
                problems[digest] = problem
        if problems:
            return list(problems.values())
        return [problem for arch in self.arches for problem in self.wrong_architectures(arch)]

    def _of(self, kind: str, arch: str) -> list[Item]:
        if arch not in self.arches:
            can = f"k8sdds bundle create --arch {','.join([*self.arches, arch])}"
            raise PrerequisiteError(
                f"the bundle {self.name} has nothing for {arch}, only for {', '.join(self.arches)}",
                can
                if arch in versions.BUNDLE_ARCHITECTURES
                else f"bundles can be made for {' and '.join(versions.BUNDLE_ARCHITECTURES)} machines",
            )
        return [item for item in self.items if item.kind == kind and item.arch == arch]


def _wrong(what: str, arch: str, found: str | None) -> Problem:
    return Problem(
        f"{what} is for {found}, where {arch} is wanted: it would end in `exec format error`",
        "make the bundle again; an image of your own: build it for that architecture",
    )


def _suite(item: Item) -> str:
    """packages/SUITE/ARCH/FILE"""
    return PurePosixPath(item.path).parts[1]


def _item(data: dict[str, Any]) -> Item:
    unknown = set(data) - {field.name for field in fields(Item)}
    if unknown:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    item = Item(**{**data, "links": tuple(data.get("links", ()))})
    path = PurePosixPath(item.path)
    if item.kind in ("package", "index") and len(path.parts) != 4:
        raise ValueError(f"{item.name}: packages lie in packages/SUITE/ARCH")
    if path.is_absolute() or ".." in path.parts or not re.fullmatch("[0-9a-f]{64}", item.sha256):
        raise ValueError(f"{item.name}: a path outside of the bundle, or no SHA-256")
    return item


def _check(path: Path, sha256: str) -> Problem | None:
    try:
        found = oci.file_sha256(path)
    except OSError as error:
        return Problem(f"{path}: {error.strerror}", "copy the bundle again")
    return (
        None if found == sha256 else Problem(f"{path} has changed: SHA-256 {found}", "copy the bundle again")
    )


def _unpacked(path: Path) -> Path:
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = cache_folder() / "unpacked" / key
    try:
        with cache.making(folder) as missing:
            if missing:
                with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as unfinished:
                    _unpack(path, Path(unfinished, "bundle"))
                    Path(unfinished, "bundle").rename(folder)
    except tarfile.TarError as error:
        what = f"{path} is no bundle: {str(error).splitlines()[0].rstrip(':')}"
        raise InputError(what, "k8sdds bundle create") from error
    except OSError as error:
        what = f"cannot unpack {path}: {error.strerror}"
        raise PrerequisiteError(what, "the cache needs its space: k8sdds bundle cache") from error
    if missing:
        cache.prune()
    return folder


def _unpack(path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        for member in members:
            inside = PurePosixPath(member.name)
            if not (member.isfile() or member.isdir()) or inside.is_absolute() or ".." in inside.parts:
                raise InputError(f"{path}: {member.name} does not belong there", "k8sdds bundle create")
        folder.mkdir()
        archive.extractall(folder, members)
