"""Read images from archives that the user provides: OCI (ctr, nerdctl, skopeo) or docker (docker save, podman save).

All content is found by its SHA-256, so content that was changed is missing.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from k8sdds.bundle import architecture, cache, oci
from k8sdds.bundle.contents import Image, Report
from k8sdds.bundle.download import INDEX, Provided, ProvidedItem, write_index
from k8sdds.system import reading, tar
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.paths import cache_folder

OPTION = "--image"
Archives = Mapping[str, Sequence[Path]]
"""By reference of an image: archives that may contain it, at least one for each architecture."""
NO_ARCHIVES: Archives = MappingProxyType({})


def provided(image: Image, arch: str, archives: Sequence[Path], report: Report) -> Provided:
    """Return an image for an architecture from the first archive that contains it, copied into the cache.

    Raises NotCached if it is not there, in a block of `cache.frozen`.
    """
    with explained(f"cannot read an archive of {image.name}", f"give a file that exists: {OPTION}"):
        digests = {path: oci.file_sha256(path) for path in archives}
    key = hashlib.sha256(oci.canonical([INDEX, image.name, *digests.values()])).hexdigest()[:16]
    folder = cache_folder() / "official" / f"{image.short_name}-{arch}-archive{key}"
    step = f"reading {image.name} for {arch} from {', '.join(map(str, archives))}"
    cache.folder(folder, step, report, lambda unfinished: _extract(image.name, arch, digests, unfinished))
    return Provided.read(folder)


def _extract(name: str, arch: str, archives: Mapping[Path, str], folder: Path) -> None:
    """Write an image, and where it comes from, into a new folder."""
    (folder / "blobs").mkdir(parents=True)
    others = []
    for path, digest in archives.items():
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            try:
                archive = _Archive(path, Path(temporary, "content"))
                for called, manifest in archive.images():
                    built_for = archive.architecture(manifest)
                    if _normal(called) != _normal(name) or built_for != arch:
                        others.append(
                            f"{path} contains {called or 'an image without a name'} for {built_for}"
                        )
                        continue
                    image = archive.move(manifest, folder / "blobs")
                    source = f"{path.name}#sha256={digest}"
                    write_index(folder, [ProvidedItem(name, source, "archive", image)])
                    _check_program(folder / "blobs", image, arch)
                    return
            except (
                tar.DamagedTar,
                LookupError,
                TypeError,
                ValueError,
                AttributeError,
                RecursionError,
            ) as error:
                raise InputError(
                    f"{path} is not an archive of images, or is damaged: {error}",
                    f"export it again: docker save --output {path.name} {name}",
                ) from error
    raise InputError(
        "\n".join([f"no archive contains {name} for {arch}", *dict.fromkeys(others)]),
        f"export it with this name, on a machine that has it for {arch}: k8sdds docs bundle",
    )


class _Archive:
    def __init__(self, path: Path, folder: Path) -> None:
        # docker replaces a layer that another image in the archive has, too, by a link.
        tar.unpack(path, folder, skip_links=True)
        self._folder = folder
        self._files = {oci.file_sha256(file): file for file in folder.rglob("*") if file.is_file()}

    def images(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the manifest of each image that the archive contains completely or in part."""
        if (self._folder / "index.json").exists():
            yield from self._of_index(_json((self._folder / "index.json").read_bytes()), "")
            return
        if not (self._folder / "manifest.json").exists():
            raise ValueError("it has neither an index.json nor a manifest.json")
        for entry in _json((self._folder / "manifest.json").read_bytes()):
            digest = Path(entry["Config"]).stem
            config = {"mediaType": oci.CONFIG, **self._described(digest)}
            diff_ids = _json(self._content(digest))["rootfs"]["diff_ids"]
            layers = [
                {"mediaType": oci.LAYER, **self._described(each.removeprefix("sha256:"))} for each in diff_ids
            ]
            manifest = {"schemaVersion": 2, "mediaType": oci.MANIFEST, "config": config, "layers": layers}
            for name in entry["RepoTags"] or [""]:
                yield name, oci.canonical(manifest)

    def _of_index(self, index: Any, name: str) -> Iterator[tuple[str, bytes]]:
        for entry in index["manifests"]:
            notes = entry.get("annotations") or {}
            # The second annotation may be only a tag.
            called = (
                notes.get("io.containerd.image.name")
                or notes.get("org.opencontainers.image.ref.name")
                or name
            )
            digest = entry["digest"].removeprefix("sha256:")
            # An image for several architectures is often exported for one of them.
            if name and digest not in self._files:
                continue
            content = self._content(digest)
            if "manifests" in _json(content):
                yield from self._of_index(_json(content), called or "-")
            else:
                yield called, content

    def architecture(self, manifest: bytes) -> str:
        """Return the architecture that an image declares."""
        declared: str = _json(self._content(oci.parts(_json(manifest))[0]))["architecture"]
        return declared

    def move(self, manifest: bytes, folder: Path) -> str:
        """Move an image into a folder, with files named by their SHA-256; return the SHA-256 of its manifest."""
        for part in dict.fromkeys(oci.parts(_json(manifest))):
            self._file(part).rename(folder / part)
        digest = hashlib.sha256(manifest).hexdigest()
        (folder / digest).write_bytes(manifest)
        return digest

    def _described(self, digest: str) -> dict[str, Any]:
        return {"digest": f"sha256:{digest}", "size": self._file(digest).stat().st_size}

    def _content(self, digest: str) -> bytes:
        return reading.data(self._file(digest), oci.MAX_DESCRIPTION_BYTES)

    def _file(self, digest: str) -> Path:
        if digest not in self._files:
            raise ValueError(f"it has no content with the SHA-256 {digest}")
        return self._files[digest]


def _check_program(blobs: Path, digest: str, arch: str) -> None:
    _, program, actual = architecture.of_image(blobs, oci.manifest(blobs / digest))
    if actual not in (arch, None):
        raise ValueError(f"its program {program} is built for {actual}, not for {arch}")


def _json(data: bytes) -> Any:
    return reading.json_value(data, "its description")


def _normal(name: str) -> str:
    """Return the name of an image as docker shortens it."""
    return name.removeprefix("docker.io/").removeprefix("library/")
