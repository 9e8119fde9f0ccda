"""Create a bundle: downloaded and built programs and images, Debian layers, and the index with checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.bundle import (
    cache,
    contents,
    debian,
    download,
    golang,
    native,
    oci,
    official,
    packages,
    repositories,
)
from k8sdds.bundle.bundle import FORMAT, INDEX, Bundle, Item
from k8sdds.bundle.contents import HOST_ARCH, Install, Report
from k8sdds.bundle.download import Official
from k8sdds.model.profile import Profile
from k8sdds.system import debian_release
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.files import creating_folder
from k8sdds.system.paths import cache_folder

Parts = dict[tuple[str, str], Path | Official]
"""By name and architecture: a built program or base layer, or the download that replaces it."""


def cached_bundle(
    arches: Sequence[str] = (HOST_ARCH,),
    report: Report = lambda _: None,
    only_k8sdds: bool = False,
    required: Collection[str] = (),
) -> Bundle:
    """Return the bundle in the cache, and create it if it is missing or its contents have changed.

    Args:
        arches: Architectures.
        report: Called with each step that takes long.
        only_k8sdds: Include only the images of k8sdds, which can be created without building Kubernetes.
        required: Images that must be included even if their sources have to be cloned. Others of this kind are left
            out.

    Raises:
        NotCached: In a block of `cache.frozen`, a part of the bundle is not in the cache.
        PrerequisiteError: A part of the bundle cannot be built or fetched.
    """
    check_architectures(arches)
    selected = _without_clones(_selected_images(only_k8sdds), required)
    parts = _build_parts(arches, report, selected, only_k8sdds)
    images = [asdict(image) for image in selected]
    hashes = [native.hashes(arch, report) for arch in arches]
    sources = [images, [_path(part).name for part in parts.values()], hashes]
    key = hashlib.sha256(oci.canonical(sources)).hexdigest()
    name = "-".join([*(["own"] if only_k8sdds else []), *arches, key[:16]])
    folder = cache_folder() / "bundles" / name
    with cache.creating(folder) as missing:
        if missing:
            _write(folder, arches, parts, selected, report, only_k8sdds)
            _share_files(folder, arches, parts)
    bundle = Bundle.open(folder)
    if missing:
        cache.prune()
        if not only_k8sdds:
            report(f"Kubernetes {bundle.kubernetes}: {bundle.origin}")
    return bundle


def cached_images() -> set[str]:
    """Return the images of this machine's architecture that `cached_bundle` creates without cloning a repository."""
    return {
        image.name for image in contents.IMAGES
        if all(golang.is_cached(program, HOST_ARCH) for program in _cloned_programs(image))
    }  # fmt: skip


def create(
    output: Path,
    arches: Sequence[str],
    report: Report = lambda _: None,
    suites: Sequence[str] = (),
    apt_sources: Path | None = None,
    required: Collection[str] = (),
    sources: Mapping[str, Path] = repositories.NO_SOURCES,
) -> Bundle:
    """Create a bundle in a new folder. If this fails, no folder is left behind.

    Args:
        output: The folder.
        arches: Architectures.
        report: Called with each step that takes long.
        suites: Code names of the distributions whose node packages the bundle includes.
        apt_sources: File with the apt sources of these packages. None uses this machine's sources.
        required: Images without which the bundle is not created. Of the others, those are left out whose sources
            cannot be cloned and built.
        sources: Sources of programs that the user provides, as `repositories.parse` returns.

    Raises:
        InputError: An argument is invalid.
        PrerequisiteError: A part of the bundle cannot be built or fetched.
    """
    check(output, arches, suites)
    _check_writable(output)
    # Packages first, because a failure to fetch them shows within seconds, while the build takes minutes.
    with tempfile.TemporaryDirectory() as fetched:
        debs = {}
        for suite, arch in ((suite, arch) for suite in suites for arch in arches):
            if apt_sources is None:
                debs[suite, arch] = packages.cached(suite, arch, report)
            else:
                debs[suite, arch] = Path(fetched, suite, arch)
                packages.fetch(debs[suite, arch], suite, arch, report, apt_sources)
        selected = _with_available_clones(arches, report, required, sources)
        parts = _build_parts(arches, report, selected, sources=sources)
        _write(output, arches, parts, selected, report, debs=debs, sources=sources)
    cache.prune()
    bundle = Bundle.open(output)
    report(f"Kubernetes {bundle.kubernetes}: {bundle.origin}")
    return bundle


def check_architectures(arches: Sequence[str]) -> None:
    """Check that images and bundles can be created for these architectures. Makes no changes.

    Raises:
        InputError: An architecture is unknown or given twice.
        PrerequisiteError: A program that the build requires is missing.
    """
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


def check(output: Path, arches: Sequence[str], suites: Sequence[str] = ()) -> None:
    """Check that a bundle can be created. Makes no changes.

    Raises:
        InputError: An argument is invalid.
        PrerequisiteError: A program that the build requires is missing.
    """
    check_architectures(arches)
    for suite in suites:
        packages.check_suite(suite)
    if output.exists():
        raise InputError(f"{output} exists already", "give a new folder")


def _check_writable(output: Path) -> None:
    with explained(f"cannot create {output}", "give a folder that you can write"):
        output.parent.mkdir(parents=True, exist_ok=True)
        # Fail now rather than after the build.
        tempfile.TemporaryDirectory(dir=output.parent).cleanup()


def _selected_images(only_k8sdds: bool) -> list[contents.Image]:
    return [
        image
        for image in contents.IMAGES
        if not only_k8sdds or image.name.startswith(versions.LOCAL_REGISTRY)
    ]


def _without_clones(images: Sequence[contents.Image], required: Collection[str] = ()) -> list[contents.Image]:
    """Drop the images with programs whose repositories are cloned, except those that are required."""
    return [image for image in images if image.name in required or not _cloned_programs(image)]


def _with_available_clones(
    arches: Sequence[str], report: Report, required: Collection[str], sources: Mapping[str, Path]
) -> list[contents.Image]:
    """Build the programs whose repositories are cloned, and return the images for which this succeeds.

    Raises:
        InputError: A source that the user provides is not valid.
        PrerequisiteError: A program cannot be built that an image in `required` or in `sources` needs.
    """
    selected = []
    for image in _selected_images(only_k8sdds=False):
        programs = _cloned_programs(image)
        try:
            for program, arch in ((program, arch) for program in programs for arch in arches):
                golang.build(program, arch, report, sources=sources)
        except PrerequisiteError as error:
            if image.name in required or any(program.name in sources for program in programs):
                raise
            report(f"without {image.name}: {error.message}; {error.remedy}")
        else:
            selected.append(image)
    return selected


def _cloned_programs(image: contents.Image) -> list[contents.Program]:
    programs = [contents.PROGRAMS[install.program] for install in image.programs]
    return [program for program in programs if program.repository is not None]


def _build_parts(
    arches: Sequence[str],
    report: Report,
    images: Sequence[contents.Image],
    only_k8sdds: bool = False,
    sources: Mapping[str, Path] = repositories.NO_SOURCES,
) -> Parts:
    """Download or build the programs, and build the base layers."""
    installs = [install for image in images for install in image.programs]
    installs += [] if only_k8sdds else contents.INSTALLS
    needed = {install.program for install in installs}
    programs = [program for program in contents.PROGRAMS.values() if program.name in needed]
    release = debian_release.running("images")
    base = (*contents.BASE_PACKAGES, *release.dds_libraries)
    downloaded = {} if only_k8sdds else _downloaded(arches, report)
    parts: Parts = {}
    for arch in arches:
        parts["base", arch] = debian.archive(release, arch, base, report)
        for program in programs:
            part = downloaded.get((program.name, arch))
            parts[program.name, arch] = part or golang.build(program, arch, report, sources=sources)
    return parts


def _downloaded(arches: Sequence[str], report: Report) -> dict[tuple[str, str], Official]:
    """Return the official builds that replace programs, by the program's name and the architecture.

    What is in the cache is used without contacting a server: official builds, else built programs.

    Raises:
        NotCached: In a block of `cache.frozen`, a download is necessary.
        WrongChecksum: A download differs from what was pinned or published.
        PrerequisiteError: Official builds are required, but not available.
    """
    source = official.selected_source()
    if source == official.MODULES:
        return {}
    releases = [(release, arch) for arch in arches for release in official.RELEASES]
    downloader = download.Downloader(official.checksums(), report)
    found = {(release.name, arch): downloader.cached(release, arch) for release, arch in releases}
    wanted = [
        (release, arch) for release, arch in releases
        if found[release.name, arch] is None and (source == official.OFFICIAL or not _is_built(release, arch))
    ]  # fmt: skip
    for release, arch in wanted:
        cache.check_not_frozen(f"{release.name} {release.version} for {arch}")
    unavailable: dict[str, list[str]] = {}
    for (release, arch), result in zip(wanted, downloader.fetch(wanted), strict=True):
        if isinstance(result, Official):
            found[release.name, arch] = result
        else:
            unavailable.setdefault(str(result), []).append(release.name)
    for reason, names in unavailable.items():
        missing = f"no official builds of {', '.join(dict.fromkeys(names))}: {reason}"
        if source == official.OFFICIAL:
            raise PrerequisiteError(missing, f"{official.VARIABLE}={official.MODULES} builds from Go modules")
        report(f"{missing}; building from Go modules")
    return {
        (program, arch): part
        for release, arch in releases
        if (part := found[release.name, arch]) is not None
        for program in release.programs
    }


def _is_built(release: official.Release, arch: str) -> bool:
    return all(golang.is_cached(contents.PROGRAMS[name], arch) for name in release.programs)


def _path(part: Path | Official) -> Path:
    return part.folder if isinstance(part, Official) else part


def _write(
    folder: Path,
    arches: Sequence[str],
    parts: Parts,
    images: Sequence[contents.Image],
    report: Report,
    only_k8sdds: bool = False,
    debs: Mapping[tuple[str, str], Path] | None = None,
    sources: Mapping[str, Path] = repositories.NO_SOURCES,
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with creating_folder(folder) as unfinished:
            layout = oci.Layout(unfinished / "oci")
            items: list[Item] = []
            for arch in arches:
                items += [] if only_k8sdds else _binaries(unfinished, arch, parts)
                items += _images(layout, arch, parts, images, report, sources)
            layout.finish()
            items += copy_packages(debs or {}, unfinished)
            data = {
                "format": FORMAT, "name": f"kubernetes-{versions.KUBERNETES}", "kubernetes": versions.KUBERNETES,
                "toolchain": f"go{versions.GO}", "arches": list(arches),
                "items": [asdict(item) for item in items],
            }  # fmt: skip
            (unfinished / INDEX).write_bytes(oci.canonical(data) + b"\n")
    except OSError as error:
        remedy = "free space (k8sdds bundle cache), or give a folder on another disk"
        raise PrerequisiteError(f"cannot write {folder}: {error.strerror}", remedy) from error


def _share_files(folder: Path, arches: Sequence[str], parts: Parts) -> None:
    """Replace files of a bundle in the cache by hard links to equal cached files, to save space."""
    pairs = [(folder / f"bin/{arch}/{binary.name}", binary.file)
             for arch in arches for install in contents.INSTALLS
             if (install.program, arch) in parts
             for binary in _binaries_of(install, parts[install.program, arch])]  # fmt: skip
    downloads = [part for part in parts.values() if isinstance(part, Official)]
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


def copy_packages(debs: Mapping[tuple[str, str], Path], folder: Path) -> list[Item]:
    """Copy the package folders of each (suite, architecture) into the bundle and return their items."""
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


@dataclass(frozen=True)
class _Binary:
    """A program for nodes, and where it is installed."""

    name: str
    file: Path
    target: str
    links: tuple[str, ...] = ()
    source: str = ""
    verified: str = ""


def _binaries_of(install: Install, part: Path | Official) -> Iterator[_Binary]:
    """Yield the programs that an install consists of: official builds have one for each link."""
    if not isinstance(part, Official):
        yield _Binary(install.program, part, install.target, install.links)
        return
    for target in install.links or (install.target,):
        name = target.rpartition("/")[2]
        (program,) = (program for program in part.programs if program.name == name)
        yield _Binary(name, part.program(name), target, (), program.source, program.verified)


def _binaries(folder: Path, arch: str, parts: Parts) -> list[Item]:
    items = []
    for install in contents.INSTALLS:
        version = contents.PROGRAMS[install.program].version
        for binary in _binaries_of(install, parts[install.program, arch]):
            path = f"bin/{arch}/{binary.name}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(binary.file, folder / path)
            (folder / path).chmod(0o755)
            digest, size = oci.file_sha256(folder / path), binary.file.stat().st_size
            items.append(
                Item(
                    "binary", binary.name, version, arch, path, digest, size, binary.target,
                    links=binary.links, source=binary.source, verified=binary.verified,
                )
            )  # fmt: skip
    return items


def _images(
    layout: oci.Layout,
    arch: str,
    parts: Parts,
    images: Sequence[contents.Image],
    report: Report,
    sources: Mapping[str, Path],
) -> list[Item]:
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
    base = layout.base_layer(_path(parts["base", arch]), shell)
    layers_of: dict[Any, dict[str, Any]] = {}
    items = []
    for image in images:
        if image.programs and isinstance(part := parts[image.programs[0].program, arch], Official):
            items.append(_downloaded_image(layout, image, arch, part))
            continue
        layers = [base] if image.base else []
        if image.programs and image.programs not in layers_of:
            entries: dict[str, oci.Entry] = {}
            for install in image.programs:
                entries[install.target] = _path(parts[install.program, arch])
                entries |= {link: oci.Link(install.target) for link in install.links}
            layers_of[image.programs] = layout.layer(entries)
        layers += [layers_of[image.programs]] if image.programs else []
        if image.native:
            layers.append(layout.layer(native.programs(image.native, arch, report)))
        digest = layout.image(image.name, arch, image.entrypoint, layers, image.user)
        size = sum(layer["size"] for layer in layers)
        built_from = " ".join(repositories.origin(program, sources) for program in _cloned_programs(image))
        items.append(
            Item(
                "image", image.name, image.version, arch, f"oci/blobs/sha256/{digest}", digest, size,
                built_from=built_from,
            )
        )  # fmt: skip
    return items


def _downloaded_image(layout: oci.Layout, image: contents.Image, arch: str, part: Official) -> Item:
    """Add an official image to the layout and return its item."""
    (found,) = (found for found in part.images if found.name == image.name)
    manifest = part.blob(found.digest)
    blobs = [part.blob(digest) for digest in oci.parts(oci.manifest(manifest))]
    content = layout.add_image(image.name, arch, manifest, blobs)
    return Item(
        "image", image.name, image.version, arch, f"oci/blobs/sha256/{found.digest}", found.digest,
        sum(layer["size"] for layer in content["layers"]),
        source=found.source, verified=found.verified,
    )  # fmt: skip


def architectures_of(profile: Profile, requested: Sequence[str]) -> list[str]:
    """Return the architectures of a profile's machines, or the requested ones if they include those.

    Raises:
        InputError: A bundle cannot match the profile, or the requested architectures do not.
    """
    if profile.kubernetes.version != versions.KUBERNETES:
        raise InputError(
            f"{profile.name} requires Kubernetes {profile.kubernetes.version}, but bundles contain"
            f" {versions.KUBERNETES}",
            f"set kubernetes.version: {versions.KUBERNETES} or software: packages",
        )
    expected: list[str] = list(
        dict.fromkeys(node.architecture for node in profile.nodes if node.architecture)
    )
    missing = [arch for arch in expected if requested and arch not in requested]
    if missing:
        raise InputError(
            f"{profile.name} has {', '.join(missing)} machines, but --arch does not include them",
            f"use --arch {','.join([*requested, *missing])}",
        )
    if not requested and any(node.architecture is None for node in profile.nodes):
        raise InputError(
            f"{profile.name} does not specify the architecture of every machine",
            "set `architecture:` in the profile, or use --arch",
        )
    return list(requested) or list(expected)
