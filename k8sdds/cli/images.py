"""`images`: our container images, for registries and for nodes without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.deploy import AcceptKeys, Concurrency, Limit, ProfileName
from k8sdds.cli.options import listed
from k8sdds.cli.terminal import console
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from k8sdds.bundle import Bundle

app = typer.Typer(
    help="Our container images: made without a daemon, to a file, a registry or nodes.", no_args_is_help=True
)
Names = Annotated[list[str] | None, typer.Argument(metavar="[IMAGE]…", help="Only these; none: all of ours.")]
Arch = Annotated[str, typer.Option("--arch", help="Architectures, comma-separated: amd64, arm64.")]


def _bundle(arch: str, names: Sequence[str]) -> Bundle:
    from k8sdds import bundle
    from k8sdds.bundle import images
    from k8sdds.bundle.recipe import ARCH_HERE

    images.check(names)
    return bundle.default(listed(arch) or [ARCH_HERE], _said, own=True)


def _said(text: str) -> None:
    console(stderr=True).print(text, highlight=False)


@app.command()
def build(
    names: Names = None,
    arch: Arch = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write one OCI archive (one architecture).")
    ] = None,
) -> None:
    """Make the images. An archive is for `ctr images import`, `skopeo copy oci-archive:` or `docker load`."""
    import shutil

    from k8sdds.bundle import images

    if output is not None and len(listed(arch)) > 1:
        raise InputError(f"--output {output}: an archive holds one architecture", "give one --arch")
    if output is not None and output.exists():
        raise InputError(f"{output} exists already", "name a new file")
    made = _bundle(arch, names or ())
    for one in made.arches:
        items = images.own(made, one, names or ())
        for item in items:
            size = f"{item.size_bytes / 1e6:.0f} MB"
            line = f"{item.name}  {one}  {size}  sha256:{item.sha256}"
            console().print(line, highlight=False, soft_wrap=True)
        if output is not None:
            try:
                shutil.copyfile(made.archive(one, [item.name for item in items]), output)
            except OSError as error:
                raise InputError(f"cannot write {output}: {error.strerror}") from error


@app.command()
def push(
    target: Annotated[str, typer.Argument(help="REGISTRY or REGISTRY/PATH that the names are put below.")],
    names: Names = None,
    arch: Arch = "",
    plain_http: Annotated[bool, typer.Option("--plain-http", help="The registry has no TLS.")] = False,
) -> None:
    """Copy the images to a registry, all architectures of a name as one image (with skopeo)."""
    from k8sdds.bundle import images

    made = _bundle(arch, names or ())
    items = [item for one in made.arches for item in images.own(made, one, names or ())]
    for reference in images.push(made, items, target, plain_http):
        console().print(reference, highlight=False, soft_wrap=True)


@app.command()
def load(
    profile: ProfileName,
    names: Names = None,
    limit: Limit = None,
    emulate: Annotated[
        str,
        typer.Option(
            "--emulate",
            metavar="ARCH",
            help="Those of another architecture, with the emulator in them, as IMAGE-ARCH: to try them.",
        ),
    ] = "",
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
) -> None:
    """Import the images into the containerd of a profile's nodes, through ssh: no registry is needed."""
    from k8sdds.bundle import emulation, images
    from k8sdds.deploy import facts, profiles
    from k8sdds.deploy import images as importing
    from k8sdds.system.ssh import Connections, Host, HostError
    from k8sdds.versions import BUNDLE_ARCHITECTURES

    if emulate and emulate not in BUNDLE_ARCHITECTURES:
        what = f"--emulate {emulate}: not an architecture of images"
        raise InputError(what, f"one of: {', '.join(BUNDLE_ARCHITECTURES)}")
    wanted = profiles.load(profile)
    unknown = [name for name in limit or () if name not in {node.name for node in wanted.nodes}]
    if unknown:
        raise InputError(f"--limit {unknown[0]}: not in this profile", f"see: k8sdds status {profile}")
    targets = [target for target in profiles.targets(wanted) if not limit or target.name in limit]
    with Connections(targets, accept_new_host_keys, concurrency) as connections:
        seen, failures = facts.gather(connections)
        if failures:
            raise next(iter(failures.values()))
        arches = {name: found.architecture for name, found in seen.items()}
        for name, arch in arches.items():
            if arch not in BUNDLE_ARCHITECTURES:
                there = " and ".join(BUNDLE_ARCHITECTURES)
                raise InputError(f"{name} is {arch}: images are for {there}", "leave it out: --limit")
            if emulate:
                emulation.check(emulate, arch)
        made = _bundle(emulate or ",".join(sorted(set(arches.values()))), names or ())
        # Of each architecture of nodes: the archive, and what must be there afterwards.
        chosen: dict[str, tuple[Path, list[tuple[str, str]]]] = {}
        for arch in sorted(set(arches.values())):
            items = images.own(made, emulate or arch, names or ())
            if emulate:
                chosen[arch] = emulation.emulated(made, items, arch, _said)
            else:
                archive = made.archive(arch, [item.name for item in items])
                chosen[arch] = archive, [(item.name, item.sha256) for item in items]

        def imported(host: Host) -> None:
            archive, digests = chosen[arches[host.name]]
            done = importing.load(host, archive, digests=digests, foreign=bool(emulate))
            if done.code:
                raise HostError(host.name, f"cannot import: {done.err.strip()[-300:]}", "is containerd up?")

        _, failures = connections.each(imported, list(arches))
    for name, arch in arches.items():
        if name not in failures:
            loaded = ", ".join(image for image, _ in chosen[arch][1])
            console().print(f"{name}: {loaded}", highlight=False, soft_wrap=True)
    if failures:
        raise next(iter(failures.values()))
