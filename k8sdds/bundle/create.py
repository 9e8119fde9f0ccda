"""Make a bundle: programs from Go modules, Debian layers, images, and the index with checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.bundle import cache, debian, golang, native, oci, packages, recipe
from k8sdds.bundle.bundle import FORMAT, INDEX, Bundle, Item
from k8sdds.bundle.recipe import ARCH_HERE
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder

Said = Callable[[str], None]


def default(arches: Sequence[str] = (ARCH_HERE,), said: Said = lambda _: None, own: bool = False) -> Bundle:
    """The bundle in the cache for these architectures; made when it is missing or its recipe has changed.

    `own`: k8sdds's own images only, which need no Kubernetes to be built.
    """
    _check(arches)
    parts = _parts(arches, said, own)
    images = [asdict(image) for image in recipe.IMAGES]
    hashes = [native.hashes(arch, said) for arch in arches]
    made_from = [images, [path.name for path in parts.values()], hashes]
    key = hashlib.sha256(oci.canonical(made_from)).hexdigest()
    name = "-".join([*(["own"] if own else []), *arches, key[:16]])
    folder = cache_folder() / "bundles" / name
    with cache.making(folder) as missing:
        if missing:
            _write(folder, arches, parts, said, own)
            _share(folder, arches, parts)
    if missing:
        cache.prune()
    return Bundle.open(folder)


def create(
    output: Path,
    arches: Sequence[str],
    said: Said = lambda _: None,
    suites: Sequence[str] = (),
    sources: Path | None = None,
) -> Bundle:
    """Make a bundle in a new folder, with the packages that nodes of these distributions (`suites`) need.

    `sources` is a file with apt's sources of them; none: this machine's. Raises InputError or PrerequisiteError; then
    the folder is not there.
    """
    _check(arches)
    _check_output(output)
    # Fetched first: it takes seconds to see that they are not to be had, where building takes minutes.
    with tempfile.TemporaryDirectory() as fetched:
        debs = {}
        for suite, arch in ((suite, arch) for suite in suites for arch in arches):
            if sources is None:
                debs[suite, arch] = packages.cached(suite, arch, said)
            else:
                debs[suite, arch] = Path(fetched, suite, arch)
                packages.fetch(debs[suite, arch], suite, arch, said, sources)
        _write(output, arches, _parts(arches, said), said, debs=debs)
    cache.prune()
    return Bundle.open(output)


def _check(arches: Sequence[str]) -> None:
    for arch in arches:
        if arch not in versions.BUNDLE_ARCHITECTURES:
            raise InputError(
                f"no bundle can be made for {arch!r}", f"one of: {', '.join(versions.BUNDLE_ARCHITECTURES)}"
            )
    if not arches or len(set(arches)) != len(arches):
        raise InputError(
            "name each architecture once", f"for example --arch {','.join(versions.BUNDLE_ARCHITECTURES)}"
        )
    for arch in arches:
        native.check(arch)


def _check_output(output: Path) -> None:
    if output.exists():
        raise InputError(f"{output} exists already", "name a new folder")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        # What is seen now does not fail after twenty minutes.
        tempfile.TemporaryDirectory(dir=output.parent).cleanup()
    except OSError as error:
        raise InputError(f"cannot make {output}: {error.strerror}", "name a folder of yours") from error


def _chosen(own: bool) -> list[recipe.Image]:
    return [image for image in recipe.IMAGES if not own or image.name.startswith(versions.LOCAL_REGISTRY)]


def _parts(arches: Sequence[str], said: Said, own: bool = False) -> dict[tuple[str, str], Path]:
    """All programs and base archives by (name, arch); `own`: those of k8sdds's own images."""
    needed = {install.program for image in _chosen(own) for install in image.programs}
    parts = {}
    for arch in arches:
        parts["base", arch] = debian.archive(arch, recipe.BASE_PACKAGES, said)
        for program in recipe.PROGRAMS.values():
            if own and program.name not in needed:
                continue
            parts[program.name, arch] = golang.program(program, arch, said)
    return parts


def _write(
    folder: Path,
    arches: Sequence[str],
    parts: dict[tuple[str, str], Path],
    said: Said,
    own: bool = False,
    debs: Mapping[tuple[str, str], Path] | None = None,
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".bundle-", dir=folder.parent))
    try:
        unfinished.chmod(0o755)
        layout = oci.Layout(unfinished / "oci")
        items: list[Item] = []
        for arch in arches:
            items += [] if own else _binaries(unfinished, arch, parts)
            items += _images(layout, arch, parts, said, own)
        layout.finish()
        items += _packages(debs or {}, unfinished)
        data = {
            "format": FORMAT, "name": f"kubernetes-{versions.KUBERNETES}", "kubernetes": versions.KUBERNETES,
            "toolchain": f"go{versions.GO}", "arches": list(arches), "items": [asdict(item) for item in items],
        }  # fmt: skip
        (unfinished / INDEX).write_bytes(oci.canonical(data) + b"\n")
        unfinished.rename(folder)
    except OSError as error:
        remedy = "free space: k8sdds bundle cache; or name a folder on another disk"
        raise PrerequisiteError(f"cannot write {folder}: {error.strerror}", remedy) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _share(folder: Path, arches: Sequence[str], parts: dict[tuple[str, str], Path]) -> None:
    """Have a bundle in the cache hold what is there already as links: a new one takes little more."""
    same = [(folder / f"bin/{arch}/{one.program}", parts[one.program, arch])
            for arch in arches for one in recipe.INSTALLS if (one.program, arch) in parts]  # fmt: skip
    for blob in (folder / "oci/blobs/sha256").iterdir():
        same += [(blob, other) for other in folder.parent.glob(f"[!.]*/oci/blobs/sha256/{blob.name}")]
    for mine, other in same:
        # Another command may remove a bundle at this moment.
        with contextlib.suppress(OSError):
            if mine.stat().st_size == other.stat().st_size and not mine.samefile(other):
                link = mine.with_suffix(".link")
                os.link(other, link)
                link.replace(mine)


def _packages(debs: Mapping[tuple[str, str], Path], folder: Path) -> list[Item]:
    """The files of folders by (suite, architecture) as items of the bundle."""
    items = []
    for (suite, arch), source in debs.items():
        for path in sorted(source.iterdir()):
            inside = f"packages/{suite}/{arch}/{path.name}"
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / inside)
            name, _, rest = path.name.partition("_")
            kind = "index" if path.name == packages.INDEX else "package"
            digest, size = oci.file_sha256(folder / inside), path.stat().st_size
            items.append(Item(kind, name, rest.rpartition("_")[0], arch, inside, digest, size))
    return items


def _binaries(folder: Path, arch: str, parts: dict[tuple[str, str], Path]) -> list[Item]:
    items = []
    for install in recipe.INSTALLS:
        source, path = parts[install.program, arch], f"bin/{arch}/{install.program}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / path)
        (folder / path).chmod(0o755)
        version = recipe.PROGRAMS[install.program].version
        digest, size = oci.file_sha256(folder / path), source.stat().st_size
        items.append(
            Item(
                "binary",
                install.program,
                version,
                arch,
                path,
                digest,
                size,
                install.target,
                links=install.links,
            )
        )
    return items


def _images(
    layout: oci.Layout, arch: str, parts: dict[tuple[str, str], Path], said: Said, own: bool = False
) -> list[Item]:
    shell: dict[str, oci.Entry] = {
        f"/usr/local/bin/{name}": oci.Link("/bin/busybox") for name in recipe.SHELL
    }
    shell["/bin/sh"] = oci.Link("busybox")
    # What Debian's alternatives would choose when packages are configured, which these never are.
    for family in ("iptables", "ip6tables"):
        for name in (family, f"{family}-save", f"{family}-restore"):
            shell[f"/usr/sbin/{name}"] = oci.Link("xtables-nft-multi")
    shell["/etc/nsswitch.conf"] = b"hosts: files dns\n"
    shell["/etc/passwd"] = b"root:x:0:0:root:/:/bin/sh\n"
    base = layout.base_layer(parts["base", arch], shell)
    made: dict[Any, dict[str, Any]] = {}
    items = []
    for image in _chosen(own):
        layers = [base] if image.base else []
        if image.programs and image.programs not in made:
            entries: dict[str, oci.Entry] = {}
            for install in image.programs:
                entries[install.target] = parts[install.program, arch]
                entries |= {link: oci.Link(install.target) for link in install.links}
            made[image.programs] = layout.layer(entries)
        layers += [made[image.programs]] if image.programs else []
        if image.native:
            layers.append(layout.layer(native.programs(image.native, arch, said)))
        digest = layout.image(image.name, arch, image.entrypoint, layers, image.user)
        size = sum(layer["size"] for layer in layers)
        items.append(
            Item("image", image.name, image.version, arch, f"oci/blobs/sha256/{digest}", digest, size)
        )
    return items
