"""Create a bundle: its parts, its items and the index with checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.bundle import cache, contents, native, oci, packages, parts
from k8sdds.bundle.archives import NO_ARCHIVES, Archives
from k8sdds.bundle.bundle import FORMAT, INDEX, Bundle, Item
from k8sdds.bundle.contents import HOST_ARCH, Report
from k8sdds.bundle.download import Provided
from k8sdds.model.profile import Profile
from k8sdds.system import debian_release
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.files import creating_folder
from k8sdds.system.paths import cache_folder

_WRITING = "writing the bundle"


def cached_bundle(
    arches: Sequence[str] = (HOST_ARCH,),
    report: Report = lambda _: None,
    only_k8sdds: bool = False,
    required: Collection[str] = (),
    archives: Archives = NO_ARCHIVES,
) -> Bundle:
    """Return the bundle in the cache, and create it if it is missing or its contents have changed.

    With `only_k8sdds`, it has only the images of k8sdds, which need no build of Kubernetes. Images that are neither
    built nor required are left out. Archives of images replace their registries.
    """
    check_architectures(arches)
    if not cache.is_frozen():
        report = cache.planned(
            report, lambda report: cached_bundle(arches, report, only_k8sdds, required, archives)
        )
    needed = {*required, *archives}
    selected = [
        image
        for image in parts.selected_images(only_k8sdds, needed)
        if image.is_built or image.name in needed
    ]
    with contextlib.suppress(cache.NotCached):
        built = parts.build(arches, report, selected, only_k8sdds, required, archives)
    with contextlib.suppress(cache.NotCached):
        hashes = [native.hashes(arch, report) for arch in arches]
    cache.require_all(_WRITING)
    images = [asdict(image) for image in selected]
    sources = [images, [parts.path_of(part).name for part in built.values()], hashes]
    key = hashlib.sha256(oci.canonical(sources)).hexdigest()
    name = "-".join([*(["own"] if only_k8sdds else []), *arches, key[:16]])
    folder = cache_folder() / "bundles" / name
    with cache.creating(folder, _WRITING, report) as missing:
        if missing:
            _write(folder, arches, built, selected, report, only_k8sdds)
            _share_files(folder, arches, built)
    bundle = Bundle.open(folder)
    if missing:
        cache.prune()
        if not only_k8sdds:
            report(f"Kubernetes {bundle.kubernetes}: {bundle.origin}")
    return bundle


def create(
    output: Path,
    arches: Sequence[str],
    report: Report = lambda _: None,
    suites: Sequence[str] = (),
    apt_sources: Path | None = None,
    required: Collection[str] = (),
    archives: Archives = NO_ARCHIVES,
    verify: Callable[[Bundle], None] = lambda _: None,
) -> Bundle:
    """Create a bundle in a new folder. If this fails, no folder is left behind.

    `suites` are the distributions whose node packages it includes, from `apt_sources` instead of this machine's.
    Images that are not available are left out unless they are required. Archives of images replace their registries.
    `verify` receives the bundle before it becomes visible, and raises if it must not be created.
    """
    check(output, arches, suites)
    with explained(f"cannot create {output}", "give a folder that you can write"):
        output.parent.mkdir(parents=True, exist_ok=True)
        # Fail now rather than after the build.
        tempfile.TemporaryDirectory(dir=output.parent).cleanup()
    with tempfile.TemporaryDirectory() as fetched:
        # What fails within seconds comes first, because the build takes minutes.
        debs = {
            (suite, arch): packages.fetch(Path(fetched, suite, arch), suite, arch, apt_sources)
            if apt_sources is not None
            else packages.cached(suite, arch, report)
            for suite in suites
            for arch in arches
        }
        images = parts.selected_images(required={*required, *archives})

        def build(report: Report) -> parts.Parts:
            return parts.build(arches, report, images, required=required, archives=archives)

        report = cache.planned(report, build)
        built = build(report)
        _write(output, arches, built, images, report, debs=debs, verify=verify)
    cache.prune()
    bundle = Bundle.open(output)
    report(f"Kubernetes {bundle.kubernetes}: {bundle.origin}")
    return bundle


def check_architectures(arches: Sequence[str]) -> None:
    """Check that images and bundles can be created for these architectures. Makes no changes."""
    for arch in arches:
        if arch not in versions.BUNDLE_ARCHITECTURES:
            raise InputError(
                f"bundles cannot be created for {arch!r}",
                f"use one of: {', '.join(versions.BUNDLE_ARCHITECTURES)}",
            )
    if not arches or len(set(arches)) != len(arches):
        raise InputError(
            "give each architecture once", f"for example --arch {','.join(versions.BUNDLE_ARCHITECTURES)}"
        )
    debian_release.running("images")
    for arch in arches:
        native.check(arch)


def architectures_of(profile: Profile, requested: Sequence[str]) -> list[str]:
    """Return the architectures of a profile's machines, or the requested ones if they include those."""
    if profile.kubernetes.version != versions.KUBERNETES:
        raise InputError(
            f"{profile.name} requires Kubernetes {profile.kubernetes.version}, but bundles contain"
            f" {versions.KUBERNETES}",
            f"set kubernetes.version: {versions.KUBERNETES} or software: packages",
        )
    # Local nodes run on this machine.
    given = [
        node.architecture or (HOST_ARCH if profile.provider == "local" else None) for node in profile.nodes
    ]
    expected: list[str] = list(dict.fromkeys(filter(None, given)))
    missing = [arch for arch in expected if requested and arch not in requested]
    if missing:
        raise InputError(
            f"{profile.name} has {', '.join(missing)} machines, but --arch does not include them",
            f"use --arch {','.join([*requested, *missing])}",
        )
    if not requested and None in given:
        raise InputError(
            f"{profile.name} does not specify the architecture of every machine",
            "set `architecture:` in the profile, or use --arch",
        )
    return list(requested) or list(expected)


def check(output: Path, arches: Sequence[str], suites: Sequence[str] = ()) -> None:
    """Check that a bundle can be created. Makes no changes."""
    check_architectures(arches)
    for suite in suites:
        packages.check_suite(suite)
    if output.exists():
        raise InputError(f"{output} already exists", "give a new folder")


def _write(
    folder: Path,
    arches: Sequence[str],
    built: parts.Parts,
    images: Sequence[contents.Image],
    report: Report,
    only_k8sdds: bool = False,
    debs: Mapping[tuple[str, str], Path] | None = None,
    verify: Callable[[Bundle], None] = lambda _: None,
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    remedy = "free space (k8sdds bundle cache), or give a folder on another disk"
    with explained(f"cannot write {folder}", remedy), creating_folder(folder) as unfinished:
        layout = oci.Layout(unfinished / "oci")
        images = [
            image for image in images if image.is_built or all((image.name, arch) in built for arch in arches)
        ]
        written: list[Item] = []
        for arch in arches:
            written += [] if only_k8sdds else _add_binaries(unfinished, arch, built)
            written += _add_images(layout, arch, built, images, report)
        layout.finish()
        written += copy_packages(debs or {}, unfinished)
        data = {
            "format": FORMAT, "name": f"kubernetes-{versions.KUBERNETES}", "kubernetes": versions.KUBERNETES,
            "toolchain": f"go{versions.GO}", "arches": list(arches),
            "items": [asdict(item) for item in written],
        }  # fmt: skip
        (unfinished / INDEX).write_bytes(oci.canonical(data) + b"\n")
        verify(Bundle.open(unfinished))


# -- items -----------------------------------------------------------------------------------------------------


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


def _binaries_of(install: contents.Install, part: Path | Provided) -> Iterator[_Binary]:
    """Yield the programs that an install consists of: official builds have one for each link."""
    if not isinstance(part, Provided):
        yield _Binary(install.program, part, install.target, install.links)
        return
    for target in install.links or (install.target,):
        name = target.rpartition("/")[2]
        program = part.item(name)
        yield _Binary(name, part.program(name), target, (), program.source, program.verified)


def _add_binaries(folder: Path, arch: str, built: parts.Parts) -> Iterator[Item]:
    for install in contents.INSTALLS:
        version = contents.PROGRAMS[install.program].version
        for binary in _binaries_of(install, built[install.program, arch]):
            path = f"bin/{arch}/{binary.name}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(binary.file, folder / path)
            (folder / path).chmod(0o755)
            digest, size = oci.file_sha256(folder / path), binary.file.stat().st_size
            yield Item(
                "binary", binary.name, version, arch, path, digest, size, binary.target,
                links=binary.links, source=binary.source, verified=binary.verified,
            )  # fmt: skip


def _add_images(
    layout: oci.Layout,
    arch: str,
    built: parts.Parts,
    selected: Sequence[contents.Image],
    report: Report,
) -> Iterator[Item]:
    base = layout.base_layer(parts.path_of(built["base", arch]), _shell())
    layers_of: dict[Any, dict[str, Any]] = {}
    for image in selected:
        names = (image.name, *(install.program for install in image.programs[:1]))
        part = next((built[name, arch] for name in names if (name, arch) in built), None)
        if isinstance(part, Provided):
            yield _downloaded_image(layout, image, arch, part)
            continue
        layers = [base] if image.base else []
        if image.packages:
            own = parts.path_of(built[parts.packages_of(image), arch])
            below = parts.path_of(built["base", arch])
            layers.append(layout.base_layer(own, {}, below, image.package_files))
        if image.programs and image.programs not in layers_of:
            entries: dict[str, oci.Entry] = {}
            for install in image.programs:
                entries[install.target] = parts.path_of(built[install.program, arch])
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
    found = part.item(image.name)
    manifest = part.blob(found.digest)
    blobs = [part.blob(digest) for digest in oci.parts(oci.manifest(manifest))]
    content = layout.add_image(image.name, arch, manifest, blobs)
    return Item(
        "image", image.name, image.version, arch, f"oci/blobs/sha256/{found.digest}", found.digest,
        sum(layer["size"] for layer in content["layers"]),
        source=found.source, verified=found.verified,
    )  # fmt: skip


def _share_files(folder: Path, arches: Sequence[str], built: parts.Parts) -> None:
    """Replace files of a bundle in the cache by hard links to equal cached files, to save space."""
    pairs = [(folder / f"bin/{arch}/{binary.name}", binary.file)
             for arch in arches for install in contents.INSTALLS
             if (install.program, arch) in built
             for binary in _binaries_of(install, built[install.program, arch])]  # fmt: skip
    downloads = [part for part in built.values() if isinstance(part, Provided)]
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
