"""Create OCI images without a container runtime: layers, manifests and archives, byte-reproducible."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds.system import reading, tar
from k8sdds.system.errors import InputError
from k8sdds.system.files import replacing

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYOUT_VERSION = b'{"imageLayoutVersion":"1.0.0"}'
MAX_DESCRIPTION_BYTES = 4 << 20
"""Largest size of a manifest or a configuration, as in registries."""
CREATE_AGAIN = "create the bundle again: k8sdds bundle create"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin"
EXCLUDED = (
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian",
    "usr/share/bug", "var", "dev", "etc/apt", "run", "tmp", "proc", "sys", "boot", "home",
)  # fmt: skip
"""Folders of Debian packages that containers do not need, or that the runtime provides."""


@dataclass(frozen=True)
class Link:
    """A symbolic link in a layer."""

    to: str


Entry = Path | bytes | Link


class Layout:
    """Writes an OCI image layout into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)
        (folder / "oci-layout").write_bytes(LAYOUT_VERSION)
        self._manifests: list[dict[str, Any]] = []

    def add(self, data: bytes) -> dict[str, Any]:
        """Add a blob and return its digest and size."""
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def layer(self, entries: Mapping[str, Entry]) -> dict[str, Any]:
        """Add a layer and return its digest and size.

        The entries map absolute paths to an executable file, to the content of a plain file, or to a link.
        """
        return self._tar(_files(entries))

    def base_layer(
        self, archive: Path, more: Mapping[str, Entry], below: Path | None = None, only: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Add a layer from the archive of a root file system, without `EXCLUDED`, plus more entries.

        Files of the archive `below`, of the layer below, are left out; so is what matches no shell pattern of `only`.
        """
        existing = _names(below) if below else set()
        with tarfile.open(archive) as source:
            members = []
            for member in source.getmembers():
                name = member.name.removeprefix("./").rstrip("/")
                if name in existing or not name or any(f"{name}/".startswith(f"{top}/") for top in EXCLUDED):
                    continue
                if only and not any(fnmatch.fnmatchcase(name, pattern) for pattern in only):
                    continue
                if member.isdir() or member.isfile() or member.issym() or member.islnk():
                    clean = tarfile.TarInfo(name)
                    clean.type, clean.mode, clean.size = member.type, member.mode, member.size
                    clean.linkname = member.linkname.removeprefix("./") if member.islnk() else member.linkname
                    members.append((clean, source.extractfile(member) if member.isfile() else None))
            # The order is kept, because a hard link must follow its file.
            return self._tar([*members, *_files(more, {member.name for member, _ in members})])

    def _tar(self, members: Iterable[tuple[tarfile.TarInfo, Any]]) -> dict[str, Any]:
        unfinished = self.blobs / "layer.new"
        with tarfile.open(unfinished, "w", format=tarfile.GNU_FORMAT) as archive:
            for member, content in members:
                archive.addfile(member, content)
        digest = file_sha256(unfinished)
        unfinished.rename(self.blobs / digest)
        return {"digest": f"sha256:{digest}", "size": (self.blobs / digest).stat().st_size}

    def image(
        self,
        name: str,
        arch: str,
        entrypoint: Sequence[str],
        layers: Sequence[dict[str, Any]],
        user: str = "",
    ) -> str:
        """Add an image and return the hexadecimal digest of its manifest; an empty user means root."""
        config = self.add(canonical({
            "architecture": arch, "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": [PATH], **({"User": user} if user else {})},
            # Layers are not compressed, so the digest of a layer is its diff ID.
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }))  # fmt: skip
        manifest = self.add(canonical({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": CONFIG, **config},
            "layers": [{"mediaType": LAYER, **layer} for layer in layers],
        }))  # fmt: skip
        self._manifests.append(descriptor(name, arch, manifest["digest"], manifest["size"]))
        return str(manifest["digest"]).removeprefix("sha256:")

    def add_image(self, name: str, arch: str, manifest: Path, parts: Iterable[Path]) -> dict[str, Any]:
        """Add an existing image, whose parts are named after their SHA-256; return the manifest's content."""
        for path in (manifest, *parts):
            if not (self.blobs / path.name).exists():
                shutil.copyfile(path, self.blobs / path.name)
        raw = manifest.read_bytes()
        content: dict[str, Any] = json.loads(raw)
        media_type = content.get("mediaType", MANIFEST)
        self._manifests.append(descriptor(name, arch, f"sha256:{manifest.name}", len(raw), media_type))
        return content

    def link(self, other: Path, digests: Iterable[str]) -> None:
        """Link blobs of another layout into this one."""
        for digest in digests:
            if not (self.blobs / digest).exists():
                (self.blobs / digest).symlink_to((other / "blobs/sha256" / digest).resolve())

    def finish(self) -> None:
        """Write the index of all images."""
        (self.folder / "index.json").write_bytes(
            canonical({"schemaVersion": 2, "manifests": self._manifests})
        )


def descriptor(name: str, arch: str, digest: str, size: int, media_type: str = MANIFEST) -> dict[str, Any]:
    """Return an image's entry in an index, with the annotations that containerd and other tools read."""
    return {
        "mediaType": media_type, "digest": digest, "size": size,
        "platform": {"os": "linux", "architecture": arch},
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        },
    }  # fmt: skip


def archive(layout: Path, images: Sequence[tuple[str, str, str]], output: Path) -> None:
    """Write an archive of images (name, arch, digest) of a layout; shared layers are stored once."""
    blobs: dict[str, None] = {}
    index = []
    for name, arch, digest in images:
        path = layout / "blobs/sha256" / digest
        content = manifest(path)
        blobs.update(dict.fromkeys([*parts(content), digest]))
        media_type = content.get("mediaType", MANIFEST)
        index.append(descriptor(name, arch, f"sha256:{digest}", path.stat().st_size, media_type))
    entries: dict[str, Entry] = {
        f"blobs/sha256/{digest}": layout / "blobs/sha256" / digest for digest in blobs
    }
    entries["oci-layout"] = LAYOUT_VERSION
    entries["index.json"] = canonical({"schemaVersion": 2, "manifests": index})
    with replacing(output) as unfinished, tarfile.open(unfinished, "w") as target:
        for member, content in _files(entries, {"blobs", "blobs/sha256"}):
            target.addfile(member, content)


def has_program(layout: Path, digest: str, name: str) -> bool:
    """Return whether an image, given by its manifest's digest, has a program of this name in any folder."""
    blobs = layout / "blobs/sha256"
    for layer in parts(manifest(blobs / digest))[1:]:
        try:
            with tar.opened(blobs / layer) as archive:
                if any(
                    entry.name.rpartition("/")[2] == name and not entry.isdir() for entry in archive.members()
                ):
                    return True
        except tar.DamagedTar as error:
            raise InputError(f"{blobs / layer} is damaged: {error}", CREATE_AGAIN) from error
    return False


def manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of an image."""
    return _described(path, parts)


def config(path: Path) -> dict[str, Any]:
    """Read the configuration of an image."""

    def check(content: Any) -> None:
        options = content["config"]
        words = [content["architecture"], options.get("User") or ""]
        words += [*(options.get("Entrypoint") or ()), *(options.get("Cmd") or ())]
        if not all(isinstance(word, str) for word in words):
            raise TypeError("it contains something else than text")

    return _described(path, check)


def _described(path: Path, check: Callable[[Any], object]) -> dict[str, Any]:
    content = reading.json_file(path, CREATE_AGAIN, MAX_DESCRIPTION_BYTES)
    try:
        check(content)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not describe an image: {error}", CREATE_AGAIN) from error
    return content


def parts(manifest: Mapping[str, Any]) -> list[str]:
    """Return the SHA-256 of the configuration and of each layer of an image. Raises what a wrong manifest causes."""
    digests = [part["digest"] for part in (manifest["config"], *manifest["layers"])]
    for digest in digests:
        if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
            raise ValueError(f"{digest!a} is not a SHA-256")
    return [digest.removeprefix("sha256:") for digest in digests]


def _names(archive: Path) -> set[str]:
    """Return the paths in the archive of a root file system."""
    with tarfile.open(archive) as source:
        return {name.removeprefix("./").rstrip("/") for name in source.getnames()}


def _files(
    entries: Mapping[str, Entry], existing: set[str] | None = None
) -> Iterable[tuple[tarfile.TarInfo, Any]]:
    """Yield tar members with their content for entries and for the parent folders that do not exist yet."""
    folders = existing if existing is not None else set()
    for name, entry in sorted(entries.items()):
        parts = name.strip("/").split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in folders:
                folders.add(folder)
                member = tarfile.TarInfo(folder)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                yield member, None
        member = tarfile.TarInfo("/".join(parts))
        member.mode = 0o755
        if isinstance(entry, Link):
            member.type, member.linkname = tarfile.SYMTYPE, entry.to
            yield member, None
        elif isinstance(entry, bytes):
            member.size, member.mode = len(entry), 0o644
            yield member, io.BytesIO(entry)
        else:
            member.size = entry.stat().st_size
            with entry.open("rb") as content:
                yield member, content


def canonical(data: Any) -> bytes:
    """Encode data as JSON, identically for equal data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def file_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
