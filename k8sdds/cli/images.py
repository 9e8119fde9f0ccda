"""`k8sdds images`: build the container images of k8sdds and copy them to registries and nodes."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import Architectures, DryRun, Limit, ProfileName, SshOptions, load_profile, split_list
from k8sdds.cli.progress import Steps
from k8sdds.cli.terminal import print_line, print_note, print_text
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.files import replacing
from k8sdds.versions import BUNDLE_ARCHITECTURES

if TYPE_CHECKING:
    from k8sdds.bundle import Bundle, Item
    from k8sdds.system.ssh import Connections

app = Commands(help="Build the container images without a daemon; copy them to a file, a registry or nodes.")
Names = Annotated[list[str] | None, "IMAGE: Only these images. Default: all."]


def _build_bundle(arch: str, names: Sequence[str]) -> Bundle:
    from k8sdds import bundle
    from k8sdds.bundle import images
    from k8sdds.bundle.contents import HOST_ARCH

    images.references(names)
    with Steps() as steps:
        return bundle.cached_bundle(split_list(arch) or [HOST_ARCH], steps, only_k8sdds=True)


def _show_planned(what: str, names: Sequence[str], arch: str, where: str) -> None:
    from k8sdds.bundle import images
    from k8sdds.bundle.contents import HOST_ARCH
    from k8sdds.bundle.create import check_architectures

    arches = split_list(arch) or [HOST_ARCH]
    check_architectures(arches)
    for reference in images.references(names):
        print_text(f"would {what} {reference} for {', '.join(arches)}{where}")


@app.add("k8sdds images build", "k8sdds images build --arch arm64 --output images.tar")
def build(
    names: Names = None,
    arch: Architectures = "",
    output: Annotated[
        Path | None, "--output -o FILE: Also write an OCI archive (one architecture only)."
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Build the images.

    Import the archive with `ctr images import`, `skopeo copy oci-archive:` or `docker load`.
    """
    from k8sdds.bundle import images

    if output is not None and len(split_list(arch)) > 1:
        raise InputError(f"--output {output}: an archive holds one architecture", "choose one: --arch")
    if output is not None and output.exists():
        raise InputError(f"{output} already exists", "choose a new file")
    if dry_run:
        _show_planned("build", names or (), arch, f" and write {output}" if output else "")
        return
    built = _build_bundle(arch, names or ())
    for built_arch in built.arches:
        items = images.select(built, built_arch, names or ())
        for item in items:
            print_line(f"{item.name}  {built_arch}  {item.size_bytes / 1e6:.0f} MB  sha256:{item.sha256}")
        if output is not None:
            with (
                explained(f"cannot write {output}", "choose another file: --output"),
                replacing(output) as copy,
            ):
                shutil.copyfile(built.archive(items), copy)


@app.add("k8sdds images push registry.example.org/robots --arch amd64,arm64")
def push(
    target: Annotated[str, "TARGET: REGISTRY or REGISTRY/PATH to push the images to."],
    names: Names = None,
    arch: Architectures = "",
    plain_http: Annotated[bool, "--plain-http: Use HTTP: the registry has no TLS."] = False,
    dry_run: DryRun = False,
) -> None:
    """Push the images to a registry with skopeo, as multi-architecture images."""
    from k8sdds.bundle import images

    images.check_target(target)
    if dry_run:
        _show_planned("build and push", names or (), arch, f" to {target}")
        return
    built = _build_bundle(arch, names or ())
    items = [item for built_arch in built.arches for item in images.select(built, built_arch, names or ())]
    for reference in images.push(built, items, target, plain_http):
        print_line(reference)


@app.add("k8sdds images load ./my-lab.yaml", "k8sdds images load one-machine --emulate arm64")
def load(
    profile: ProfileName,
    names: Names = None,
    limit: Limit = None,
    emulate: Annotated[
        str,
        "--emulate ARCH: Load the images of another architecture together with the emulator, as IMAGE-ARCH.",
    ] = "",
    *,
    ssh: SshOptions,
    dry_run: DryRun = False,
) -> None:
    """Import the images into containerd on the nodes of a profile over SSH, without a registry."""
    from k8sdds.deploy import images as importing
    from k8sdds.deploy import profiles
    from k8sdds.system.ssh import Host, HostError

    if emulate:
        _check_architecture(emulate, "--emulate", "choose one of them")
    targets = profiles.targets(load_profile(profile, limit), limit)
    with ssh.connect(targets) as connections:
        arches = _architectures_of(connections, emulate)
        if dry_run:
            for name, arch in arches.items():
                _show_planned("load", names or (), emulate or arch, f" on {name}")
            return
        archives = _archives(set(arches.values()), emulate, names or ())

        def import_archive(host: Host) -> None:
            result = importing.load(host, *archives[arches[host.name]], foreign=bool(emulate))
            if result.code:
                raise HostError(
                    host.name,
                    f"cannot import images: {result.err.strip()[-300:]}",
                    "check that containerd is running",
                )

        _, failures = connections.each(import_archive, list(arches))
    for name, arch in arches.items():
        if name not in failures:
            imported = ", ".join(image.name for image in archives[arch][1])
            print_line(f"{name}: {imported}")
    if failures:
        raise next(iter(failures.values()))


def _check_architecture(arch: str, what: str, remedy: str) -> None:
    if arch not in BUNDLE_ARCHITECTURES:
        supported = " and ".join(BUNDLE_ARCHITECTURES)
        raise InputError(f"{what}: there are no images for {arch}, only for {supported}", remedy)


def _architectures_of(connections: Connections, emulate: str) -> dict[str, str]:
    """Return the architecture of each machine, for which there must be images or an emulator."""
    from k8sdds.bundle import emulation
    from k8sdds.deploy import facts

    machines, failures = facts.gather(connections)
    if failures:
        raise next(iter(failures.values()))
    arches = {name: machine.architecture for name, machine in machines.items()}
    for name, arch in arches.items():
        _check_architecture(arch, name, "select other nodes: --limit")
        if emulate:
            emulation.check(emulate, arch)
    return arches


def _archives(
    arches: Collection[str], emulate: str, names: Sequence[str]
) -> dict[str, tuple[Path, list[Item]]]:
    """Return an archive and its images, by the nodes' architecture."""
    from k8sdds.bundle import emulation, images

    built = _build_bundle(emulate or ",".join(sorted(arches)), names)
    archives = {}
    for arch in sorted(arches):
        items = images.select(built, emulate or arch, names)
        if emulate:
            archives[arch] = emulation.emulated(built, items, arch, print_note)
        else:
            archives[arch] = built.archive(items), items
    return archives
