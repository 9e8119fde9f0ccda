"""Create a bundle: its parts, its items and the index with checksums."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache, contents, items, native, oci, packages, parts
from k8sdds.bundle.archives import NO_ARCHIVES, Archives
from k8sdds.bundle.bundle import FORMAT, INDEX, Bundle, Item
from k8sdds.bundle.contents import HOST_ARCH, Report
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
            items.share_files(folder, arches, built)
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
    _check_writable(output)
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


def _check_writable(output: Path) -> None:
    with explained(f"cannot create {output}", "give a folder that you can write"):
        output.parent.mkdir(parents=True, exist_ok=True)
        # Fail now rather than after the build.
        tempfile.TemporaryDirectory(dir=output.parent).cleanup()


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
            written += [] if only_k8sdds else items.binaries(unfinished, arch, built)
            written += items.images(layout, arch, built, images, report)
        layout.finish()
        written += items.copy_packages(debs or {}, unfinished)
        data = {
            "format": FORMAT, "name": f"kubernetes-{versions.KUBERNETES}", "kubernetes": versions.KUBERNETES,
            "toolchain": f"go{versions.GO}", "arches": list(arches),
            "items": [asdict(item) for item in written],
        }  # fmt: skip
        (unfinished / INDEX).write_bytes(oci.canonical(data) + b"\n")
        verify(Bundle.open(unfinished))
