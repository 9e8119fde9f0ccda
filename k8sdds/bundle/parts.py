"""Provide the parts of a bundle: select the images, build or download their programs, and build the base layers."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache, contents, debian, download, golang, official
from k8sdds.bundle.archives import NO_ARCHIVES, Archives, provided
from k8sdds.bundle.contents import Report
from k8sdds.bundle.download import Provided, Unavailable
from k8sdds.system import debian_release
from k8sdds.system.errors import PrerequisiteError

Parts = dict[tuple[str, str], Path | Provided]
"""By name and architecture: a built program or base layer, or the download that replaces it."""


def selected_images(only_k8sdds: bool = False, required: Collection[str] = ()) -> list[contents.Image]:
    """Return the images of a bundle: those of k8sdds only, or all, together with others that are required."""
    known = [image for image in contents.IMAGES if not image.on_request or image.name in required]
    if only_k8sdds:
        return [image for image in known if image.name.startswith(versions.LOCAL_REGISTRY)]
    others = dict.fromkeys(sorted(set(required) - {image.name for image in contents.IMAGES}))
    return [*known, *(contents.Image(name, name.rpartition(":")[2]) for name in others)]


def build(
    arches: Sequence[str],
    report: Report,
    images: Sequence[contents.Image],
    only_k8sdds: bool = False,
    required: Collection[str] = (),
    archives: Archives = NO_ARCHIVES,
) -> Parts:
    """Download or build the programs, build the base layers, and get the images that are not built.

    An image that is neither built nor required nor in an archive may be missing in the result. Raises NotCached if a
    part is not in the cache, in a block of `cache.frozen`.
    """
    parts: Parts = {}
    for image in images:
        for arch in arches if image.name in archives else ():
            with contextlib.suppress(cache.NotCached):
                parts[image.name, arch] = provided(image, arch, archives[image.name], report)
    images = [image for image in images if image.name not in archives]
    fetched = [image for image in images if not image.is_built]
    if not only_k8sdds:
        parts |= _downloaded(arches, report) | _images(arches, report, fetched, required)
    installs = [install for image in images for install in image.programs]
    installs += [] if only_k8sdds else contents.INSTALLS
    needed = {install.program for install in installs}
    release = debian_release.running("images")
    base = (*contents.BASE_PACKAGES, *release.dds_libraries)
    for arch in arches:
        with contextlib.suppress(cache.NotCached):
            parts["base", arch] = debian.archive(release, arch, base, report, "the base layer")
        for image in images:
            if image.packages:
                with contextlib.suppress(cache.NotCached):
                    own = debian.archive(
                        release, arch, (*base, *image.packages), report, image.name.rpartition("/")[2]
                    )
                    parts[packages_of(image), arch] = own
        for program in contents.PROGRAMS.values():
            if program.name in needed and (program.name, arch) not in parts:
                with contextlib.suppress(cache.NotCached):
                    parts[program.name, arch] = golang.build(program, arch, report)
    cache.require_all()
    return parts


def packages_of(image: contents.Image) -> str:
    """Return the name of the part with an image's own Debian packages, together with those of the base layer."""
    return f"packages of {image.name}"


def _downloaded(arches: Sequence[str], report: Report) -> Parts:
    """Return the official builds that replace programs, by the program's name and the architecture.

    What is in the cache is used without contacting a server: official builds, else built programs.
    """
    source = official.selected_source()
    if source == official.MODULES:
        return {}
    fetched = _fetched([
        (release, arch) for arch in arches for release in official.RELEASES
        if source == official.OFFICIAL or _cached(release, arch)
        or not all(golang.cached(contents.PROGRAMS[name], arch) for name in release.programs)
    ], report)  # fmt: skip
    unavailable: dict[str, list[str]] = {}
    for (release, _), result in fetched.items():
        if isinstance(result, Unavailable):
            unavailable.setdefault(str(result), []).append(release.name)
    for reason, names in unavailable.items():
        problem = f"no official builds of {', '.join(dict.fromkeys(names))}: {reason}"
        if source == official.OFFICIAL:
            raise PrerequisiteError(problem, f"{official.VARIABLE}={official.MODULES} builds from Go modules")
        report(f"{problem}; building from Go modules")
    return {
        (program, arch): part
        for (release, arch), part in fetched.items()
        if not isinstance(part, Unavailable)
        for program in release.programs
    }


def _images(
    arches: Sequence[str], report: Report, images: Sequence[contents.Image], required: Collection[str]
) -> Parts:
    """Return images from their registries, by name and architecture.

    One that is not available is left out, unless it is required.
    """
    releases = [(_release(image), arch) for image in images for arch in arches]
    parts: Parts = {}
    for (release, arch), result in _fetched(releases, report).items():
        (name,) = release.images
        if not isinstance(result, Unavailable):
            parts[name, arch] = result
        elif name in required:
            raise PrerequisiteError(
                f"cannot get {name}: {result}",
                "export it on a machine that has it, and give the archive: --image NETWORK=FILE.tar, or software.images"
                " in the profile (k8sdds docs bundle)",
            )
        else:
            report(f"without {name}: {result}; --image NETWORK=FILE.tar adds it from an archive")
    return parts


def _release(image: contents.Image) -> official.Release:
    return official.Release(image.short_name, image.version, images=(image.name,))


def _fetched(
    releases: Sequence[tuple[official.Release, str]], report: Report
) -> dict[tuple[official.Release, str], Provided | Unavailable]:
    """Return releases for architectures from the cache, or download them.

    In a block of `cache.frozen`, nothing is downloaded, and the releases returned do not exist.
    """
    found = {pair: _cached(*pair) for pair in releases}
    missing = [pair for pair in releases if found[pair] is None]
    if official.selected_source() == official.MODULES:
        reason = Unavailable(f"{official.VARIABLE}={official.MODULES} prevents downloads")
        downloaded: Iterable[Provided | Unavailable] = [reason] * len(missing)
    else:
        downloaded = download.Downloader(official.checksums(), report).fetch(missing)
    return {pair: part for pair, part in found.items() if part} | dict(zip(missing, downloaded, strict=True))


def _cached(release: official.Release, arch: str) -> Provided | None:
    return download.Downloader(official.checksums(), lambda _: None).cached(release, arch)


def cached_program(name: str) -> Path | None:
    """Return a program for this machine that was built or downloaded, or None if it is not in the cache."""
    arch = contents.HOST_ARCH
    if official.selected_source() != official.MODULES:
        for release in official.RELEASES:
            if name in release.programs and (found := _cached(release, arch)):
                return found.program(name)
    return golang.cached(contents.PROGRAMS[name], arch)


def cached_images() -> set[str]:
    """Return the images for this machine that a bundle can contain without a registry."""
    return {
        image.name for image in contents.IMAGES
        if image.is_built or _cached(_release(image), contents.HOST_ARCH)
    }  # fmt: skip


def path_of(part: Path | Provided) -> Path:
    """Return the file of a built program, or the folder of a download."""
    return part.folder if isinstance(part, Provided) else part
