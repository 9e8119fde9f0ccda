"""Read and verify a bundle: a folder with bundle.json, binaries, packages and an OCI image layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from k8sdds import versions
from k8sdds.bundle import architecture, cache, oci
from k8sdds.system import faults, reading, tar
from k8sdds.system.errors import InputError, PrerequisiteError, Problem
from k8sdds.system.paths import cache_folder
from k8sdds.system.strict import explain

FORMAT = 1
INDEX = "bundle.json"
CREATE = "create a bundle: k8sdds bundle create"


def _inside(path: str) -> str:
    inside = PurePosixPath(path)
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError("the path leaves the bundle")
    return path


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Item:
    """A file or image in a bundle."""

    kind: str
    """`binary`, `image`, `package` or `index` (of the packages in its folder)."""
    name: str
    """Name of a program or package, or reference of an image."""
    version: str
    arch: str
    path: Annotated[str, AfterValidator(_inside)]
    """Path below the folder of the bundle. For an image, this is the path of its manifest."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(strict=True, ge=0, lt=1 << 50)]
    """Size of the file. For an image, this is the size of all its layers."""
    target: str = ""
    """Path of a binary on a node."""
    mode: str = "0755"
    links: tuple[str, ...] = ()
    """Symbolic links to the target."""
    source: str = ""
    """Address or reference of a downloaded program or image, with a digest. Empty if k8sdds built it."""
    verified: str = ""
    """What a downloaded program or image was verified against: `pinned`, `published`, `registry` or `archive`."""

    @model_validator(mode="after")
    def _packages_are_sorted(self) -> Item:
        if self.kind in ("package", "index") and len(PurePosixPath(self.path).parts) != 4:
            raise ValueError("packages must be in packages/SUITE/ARCH")
        return self


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Bundle:
    """A bundle's folder and contents."""

    folder: Path
    name: str
    kubernetes: str
    toolchain: str
    arches: tuple[str, ...]
    items: tuple[Item, ...]

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Read a bundle from its folder, or from a .tar file, which is unpacked into the cache."""
        folder = _unpacked(path) if path.is_file() else path
        try:
            data = reading.json_file(folder / INDEX, CREATE)
        except OSError as error:
            what = f"{path} is not a bundle: {INDEX}: {error.strerror}"
            raise InputError(what, CREATE) from error
        if data.pop("format", None) != FORMAT:
            raise InputError(
                f"{folder / INDEX}: unknown format; another version of k8sdds created it", CREATE
            )
        for item in data["items"] if isinstance(data.get("items"), list) else ():
            if isinstance(item, dict):
                item.pop("built_from", None)  # earlier versions built images from repositories
        try:
            return _BUNDLE.validate_python({**data, "folder": folder})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise InputError(f"{folder / INDEX}: {where}: {explain(problem)}", CREATE) from error

    def binaries(self, arch: str) -> list[Item]:
        """Return the binaries that every node of an architecture installs."""
        return self._of("binary", arch)

    def images(self, arch: str) -> list[Item]:
        """Return the images for an architecture."""
        return self._of("image", arch)

    @property
    def built_and_downloaded(self) -> tuple[list[str], list[str]]:
        """Names of the programs and images of other projects that k8sdds built, and of those it downloaded."""
        items = [
            item for item in self.items
            if item.kind in ("binary", "image")
            and not (item.name.startswith(versions.LOCAL_REGISTRY) or item.name in versions.OWN_PROGRAMS)
        ]  # fmt: skip
        built = dict.fromkeys(item.name for item in items if not item.source)
        return list(built), list(dict.fromkeys(item.name for item in items if item.source))

    @property
    def origin(self) -> str:
        """Where the programs and images of other projects come from, for messages."""
        built, downloaded = self.built_and_downloaded
        if built and downloaded:
            return f"official builds; built from Go modules: {', '.join(built)}"
        return "official builds" if downloaded else "built from Go modules"

    @property
    def suites(self) -> tuple[str, ...]:
        """Code names of the distributions for which the bundle contains packages."""
        return tuple(dict.fromkeys(_suite(item) for item in self.items if item.kind == "package"))

    def packages(self, arch: str, suite: str) -> list[Item]:
        """Return the packages for a distribution and their index, all in one folder."""
        all_suites = [item for kind in ("package", "index") for item in self._of(kind, arch)]
        items = [item for item in all_suites if _suite(item) == suite]
        if not items:
            existing = f", only of {', '.join(self.suites)}" if self.suites else ""
            raise PrerequisiteError(
                f"the bundle {self.name} has no packages of {suite} for {arch}{existing}",
                f"k8sdds bundle create --suite {','.join([*self.suites, suite])}, or install them yourself",
            )
        return items

    def file(self, item: Item) -> Path:
        """Return the path of an item's file."""
        return self.folder / item.path

    def archive(self, images: Sequence[Item]) -> Path:
        """Return an OCI archive of images of one architecture for `ctr images import`, from the cache."""
        key = hashlib.sha256(oci.canonical([[image.name, image.sha256] for image in images])).hexdigest()
        output = cache_folder() / "archives" / f"{images[0].arch}-{key[:16]}.tar"
        # Deploy requests archives for several machines in parallel.
        with cache.creating(output) as missing:
            if missing:
                oci.archive(self.folder / "oci", [(i.name, i.arch, i.sha256) for i in images], output)
        if missing:
            cache.prune()
        return output

    def wrong_architectures(self, arch: str) -> Iterator[Problem]:
        """Yield programs and images that are labeled with an architecture but built for another one."""
        for item in self.binaries(arch):
            actual = architecture.of_file(self.file(item))
            if actual not in (arch, None):
                yield _wrong(f"{item.name} ({item.path})", arch, actual)
        for item in self.images(arch):
            try:
                declared, program, actual = architecture.of_image(
                    self.folder / "oci/blobs/sha256", oci.manifest(self.file(item))
                )
            except tar.DamagedTar as error:
                yield Problem(f"a layer of the image {item.name} is damaged: {error}", oci.CREATE_AGAIN)
                continue
            if declared != arch:
                yield _wrong(f"the image {item.name}", arch, declared)
            elif actual not in (arch, None):
                yield _wrong(f"{program} in the image {item.name}", arch, actual)

    def verify(self) -> list[Problem]:
        """Find missing files, files with a wrong checksum, and programs built for the wrong architecture."""
        problems: dict[str, Problem] = {}
        layers: set[str] = set()
        for item in self.items:
            path = self.file(item)
            problem = _check(path, item.sha256)
            if problem:
                problems[item.path] = problem
            elif item.kind == "image":
                layers.update(oci.parts(oci.manifest(path)))
        for digest in sorted(layers):
            problem = _check(self.folder / "oci/blobs/sha256" / digest, digest)
            if problem:
                problems[digest] = problem
        if problems:
            return list(problems.values())
        return [problem for arch in self.arches for problem in self.wrong_architectures(arch)]

    def _of(self, kind: str, arch: str) -> list[Item]:
        if arch not in self.arches:
            raise PrerequisiteError(
                f"the bundle {self.name} has nothing for {arch}, only for {', '.join(self.arches)}",
                f"k8sdds bundle create --arch {','.join([*self.arches, arch])}"
                if arch in versions.BUNDLE_ARCHITECTURES
                else f"bundles can be created only for {' and '.join(versions.BUNDLE_ARCHITECTURES)}",
            )
        return [item for item in self.items if item.kind == kind and item.arch == arch]


def _wrong(what: str, arch: str, actual: str | None) -> Problem:
    return Problem(
        f"{what} is built for {actual}, not for {arch}: it would fail with `exec format error`",
        f"create the bundle again; build images of your own for {arch}",
    )


def _suite(item: Item) -> str:
    # The path is packages/SUITE/ARCH/FILE.
    return PurePosixPath(item.path).parts[1]


_BUNDLE = TypeAdapter(Bundle)


def _check(path: Path, sha256: str) -> Problem | None:
    try:
        actual = oci.file_sha256(path)
    except OSError as error:
        if faults.is_resource(error):
            raise
        return Problem(f"{path}: {error.strerror}", "copy the bundle again")
    if actual == sha256:
        return None
    return Problem(f"{path} has changed: SHA-256 {actual}", "copy the bundle again")


def _unpacked(path: Path) -> Path:
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = cache_folder() / "unpacked" / key
    try:
        with faults.explained(f"cannot unpack {path}", "free space in the cache: k8sdds bundle cache"):
            return cache.folder(folder, "", lambda _: None, lambda unfinished: tar.unpack(path, unfinished))
    except tar.DamagedTar as error:
        raise InputError(f"{path} is not a bundle: {error}", CREATE) from error
