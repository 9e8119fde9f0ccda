"""Provide the parts of a bundle: select the images, build or download their programs, and build the base layers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache, contents, debian, download, golang, official, repositories
from k8sdds.bundle.contents import Report
from k8sdds.bundle.download import Official
from k8sdds.system import debian_release
from k8sdds.system.errors import PrerequisiteError

Parts = dict[tuple[str, str], Path | Official]
"""By name and architecture: a built program or base layer, or the download that replaces it."""


def selected_images(only_k8sdds: bool) -> list[contents.Image]:
    """Return the images of a bundle, or only those of k8sdds."""
    return [
        image
        for image in contents.IMAGES
        if not only_k8sdds or image.name.startswith(versions.LOCAL_REGISTRY)
    ]


def without_clones(images: Sequence[contents.Image], required: Collection[str] = ()) -> list[contents.Image]:
    """Drop the images with programs whose repositories are cloned, except those that are required."""
    return [image for image in images if image.name in required or not cloned_programs(image)]


def with_available_clones(
    images: Sequence[contents.Image],
    provide: Callable[[contents.Program], object],
    report: Report,
    required: Collection[str],
    sources: Mapping[str, Path],
) -> list[contents.Image]:
    """Provide the programs whose repositories are cloned, and return the images for which this succeeds.

    Args:
        images: The images to select from.
        provide: Clones or builds a program; raises PrerequisiteError if this is not possible.
        report: Receives which images are left out.
        required: Images that must not be left out.
        sources: Sources that the user provides. The images that need them must not be left out.

    Raises:
        InputError: A source that the user provides is not valid.
        PrerequisiteError: `provide` fails for an image that must not be left out, or k8sdds can provide no image of a
            name in `required`.
    """
    unknown = sorted(set(required) - {image.name for image in contents.IMAGES})
    if unknown:
        raise PrerequisiteError(
            f"bundles cannot contain {', '.join(unknown)}: k8sdds does not build it",
            "leave its network out of the profile, or use software: packages with machines that reach its registry",
        )
    selected = []
    failed: dict[str, PrerequisiteError] = {}
    for image in images:
        programs = cloned_programs(image)
        names = {program.source_name for program in programs}
        try:
            # Two images may share sources, which are not cloned twice if this fails.
            for name in names & set(failed):
                raise failed[name]
            for program in programs:
                provide(program)
        except PrerequisiteError as error:
            if image.name in required or names & set(sources):
                raise
            report(f"without {image.name}: {error.message}; {error.remedy}")
            failed |= dict.fromkeys(names, error)
        else:
            selected.append(image)
    return selected


def cloned_programs(image: contents.Image) -> list[contents.Program]:
    """Return the programs of an image whose repositories are cloned."""
    programs = [contents.PROGRAMS[install.program] for install in image.programs]
    return [program for program in programs if program.repository is not None]


def build(
    arches: Sequence[str],
    report: Report,
    images: Sequence[contents.Image],
    only_k8sdds: bool = False,
    sources: Mapping[str, Path] = repositories.NO_SOURCES,
) -> Parts:
    """Download or build the programs, and build the base layers.

    Raises:
        NotCached: A part is not in the cache, in a block of `cache.frozen`.
        PrerequisiteError: A part cannot be built or fetched.
    """
    installs = [install for image in images for install in image.programs]
    installs += [] if only_k8sdds else contents.INSTALLS
    needed = {install.program for install in installs}
    programs = [program for program in contents.PROGRAMS.values() if program.name in needed]
    release = debian_release.running("images")
    base = (*contents.BASE_PACKAGES, *release.dds_libraries)
    downloaded = {} if only_k8sdds else _downloaded(arches, report)
    parts: Parts = {}
    for arch in arches:
        with contextlib.suppress(cache.NotCached):
            parts["base", arch] = debian.archive(release, arch, base, report, "the base layer")
        for image in images:
            if image.packages:
                of = image.name.rpartition("/")[2]
                with contextlib.suppress(cache.NotCached):
                    own = debian.archive(release, arch, (*base, *image.packages), report, of)
                    parts[packages_of(image), arch] = own
        for program in programs:
            part = downloaded.get((program.name, arch))
            with contextlib.suppress(cache.NotCached):
                parts[program.name, arch] = part or golang.build(program, arch, report, sources=sources)
    cache.require_all()
    return parts


def packages_of(image: contents.Image) -> str:
    """Return the name of the part with an image's own Debian packages, together with those of the base layer."""
    return f"packages of {image.name}"


def _downloaded(arches: Sequence[str], report: Report) -> dict[tuple[str, str], Official]:
    """Return the official builds that replace programs, by the program's name and the architecture.

    What is in the cache is used without contacting a server: official builds, else built programs. In a block of
    `cache.frozen`, nothing is downloaded, and the builds returned do not exist.

    Raises:
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
    unavailable: dict[str, list[str]] = {}
    for (release, arch), result in zip(wanted, downloader.fetch(wanted), strict=True):
        if isinstance(result, Official):
            found[release.name, arch] = result
        else:
            unavailable.setdefault(str(result), []).append(release.name)
    for reason, names in unavailable.items():
        problem = f"no official builds of {', '.join(dict.fromkeys(names))}: {reason}"
        if source == official.OFFICIAL:
            raise PrerequisiteError(problem, f"{official.VARIABLE}={official.MODULES} builds from Go modules")
        report(f"{problem}; building from Go modules")
    return {
        (program, arch): part
        for release, arch in releases
        if (part := found[release.name, arch]) is not None
        for program in release.programs
    }


def _is_built(release: official.Release, arch: str) -> bool:
    return all(golang.cached(contents.PROGRAMS[name], arch) for name in release.programs)


def cached_program(name: str) -> Path | None:
    """Return a program for this machine that was built or downloaded, or None if it is not in the cache."""
    arch = contents.HOST_ARCH
    if official.selected_source() != official.MODULES:
        downloader = download.Downloader(official.checksums(), lambda _: None)
        for release in official.RELEASES:
            if name in release.programs and (found := downloader.cached(release, arch)):
                return found.program(name)
    return golang.cached(contents.PROGRAMS[name], arch)


def path_of(part: Path | Official) -> Path:
    """Return the file of a built program, or the folder of a download."""
    return part.folder if isinstance(part, Official) else part
