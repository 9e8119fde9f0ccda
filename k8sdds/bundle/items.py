"""Write the items of a bundle into its folder: binaries, images and packages."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds.bundle import contents, native, oci, packages
from k8sdds.bundle.bundle import Item
from k8sdds.bundle.contents import Install, Report
from k8sdds.bundle.download import Provided
from k8sdds.bundle.parts import Parts, packages_of, path_of


def copy_packages(debs: Mapping[tuple[str, str], Path], folder: Path) -> Iterator[Item]:
    """Copy the package folders of each (suite, architecture) into the bundle and yield their items."""
    for (suite, arch), source in debs.items():
        for path in sorted(source.iterdir()):
            inside = f"packages/{suite}/{arch}/{path.name}"
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / inside)
            name, _, rest = path.name.partition("_")
            kind = "index" if path.name == packages.INDEX else "package"
            digest, size = oci.file_sha256(folder / inside), path.stat().st_size
            yield Item(kind, name, rest.rpartition("_")[0], arch, inside, digest, size)


@dataclass(frozen=True)
class _Binary:
    """A program for nodes, and where it is installed."""

    name: str
    file: Path
    target: str
    links: tuple[str, ...] = ()
    source: str = ""
    verified: str = ""


def _binaries_of(install: Install, part: Path | Provided) -> Iterator[_Binary]:
    """Yield the programs that an install consists of: official builds have one for each link."""
    if not isinstance(part, Provided):
        yield _Binary(install.program, part, install.target, install.links)
        return
    for target in install.links or (install.target,):
        name = target.rpartition("/")[2]
        program = part.item(name)
        yield _Binary(name, part.program(name), target, (), program.source, program.verified)


def binaries(folder: Path, arch: str, parts: Parts) -> Iterator[Item]:
    """Copy the programs of nodes into the bundle and yield their items."""
    for install in contents.INSTALLS:
        version = contents.PROGRAMS[install.program].version
        for binary in _binaries_of(install, parts[install.program, arch]):
            path = f"bin/{arch}/{binary.name}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(binary.file, folder / path)
            (folder / path).chmod(0o755)
            digest, size = oci.file_sha256(folder / path), binary.file.stat().st_size
            yield Item(
                "binary", binary.name, version, arch, path, digest, size, binary.target,
                links=binary.links, source=binary.source, verified=binary.verified,
            )  # fmt: skip


def images(
    layout: oci.Layout,
    arch: str,
    parts: Parts,
    selected: Sequence[contents.Image],
    report: Report,
) -> Iterator[Item]:
    """Add images to the layout and yield their items."""
    base = layout.base_layer(path_of(parts["base", arch]), _shell())
    layers_of: dict[Any, dict[str, Any]] = {}
    for image in selected:
        names = (image.name, *(install.program for install in image.programs[:1]))
        part = next((parts[name, arch] for name in names if (name, arch) in parts), None)
        if isinstance(part, Provided):
            yield _downloaded_image(layout, image, arch, part)
            continue
        layers = [base] if image.base else []
        if image.packages:
            own = path_of(parts[packages_of(image), arch])
            below = path_of(parts["base", arch])
            layers.append(layout.base_layer(own, {}, below, image.package_files))
        if image.programs and image.programs not in layers_of:
            entries: dict[str, oci.Entry] = {}
            for install in image.programs:
                entries[install.target] = path_of(parts[install.program, arch])
                entries |= {link: oci.Link(install.target) for link in install.links}
            layers_of[image.programs] = layout.layer(entries)
        layers += [layers_of[image.programs]] if image.programs else []
        if image.native:
            layers.append(layout.layer(native.programs(image.native, arch, report)))
        digest = layout.image(image.name, arch, image.entrypoint, layers, image.user)
        size = sum(layer["size"] for layer in layers)
        yield Item("image", image.name, image.version, arch, f"oci/blobs/sha256/{digest}", digest, size)


def _shell() -> dict[str, oci.Entry]:
    """Return the files of the base layer that are not in a Debian package: a shell, and settings."""
    shell: dict[str, oci.Entry] = {
        f"/usr/local/bin/{name}": oci.Link("/bin/busybox") for name in contents.SHELL
    }
    shell["/bin/sh"] = oci.Link("busybox")
    # The links that Debian's alternatives would create, because the packages are never configured.
    for family in ("iptables", "ip6tables"):
        for name in (family, f"{family}-save", f"{family}-restore"):
            shell[f"/usr/sbin/{name}"] = oci.Link("xtables-nft-multi")
    shell["/etc/nsswitch.conf"] = b"hosts: files dns\n"
    shell["/etc/passwd"] = b"root:x:0:0:root:/:/bin/sh\n"
    return shell


def _downloaded_image(layout: oci.Layout, image: contents.Image, arch: str, part: Provided) -> Item:
    """Add an official image to the layout and return its item."""
    found = part.item(image.name)
    manifest = part.blob(found.digest)
    blobs = [part.blob(digest) for digest in oci.parts(oci.manifest(manifest))]
    content = layout.add_image(image.name, arch, manifest, blobs)
    return Item(
        "image", image.name, image.version, arch, f"oci/blobs/sha256/{found.digest}", found.digest,
        sum(layer["size"] for layer in content["layers"]),
        source=found.source, verified=found.verified,
    )  # fmt: skip


def share_files(folder: Path, arches: Sequence[str], parts: Parts) -> None:
    """Replace files of a bundle in the cache by hard links to equal cached files, to save space."""
    pairs = [(folder / f"bin/{arch}/{binary.name}", binary.file)
             for arch in arches for install in contents.INSTALLS
             if (install.program, arch) in parts
             for binary in _binaries_of(install, parts[install.program, arch])]  # fmt: skip
    downloads = [part for part in parts.values() if isinstance(part, Provided)]
    for blob in (folder / "oci/blobs/sha256").iterdir():
        pairs += [(blob, part.blob(blob.name)) for part in downloads]
        pairs += [(blob, other) for other in folder.parent.glob(f"[!.]*/oci/blobs/sha256/{blob.name}")]
    for path, other in pairs:
        # Another command may remove its bundle at the same time.
        with contextlib.suppress(OSError):
            if path.stat().st_size == other.stat().st_size and not path.samefile(other):
                link = path.with_suffix(".link")
                os.link(other, link)
                link.replace(path)
