"""`images`: our container images, for registries and for nodes without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.deploy import AcceptKeys, Concurrency, Limit, ProfileName
from k8sdds.cli.terminal import console
from k8sdds.errors import InputError

if TYPE_CHECKING:
    from k8sdds.bundle import Bundle

app = typer.Typer(
    help="Our container images: made without a daemon, to a file, a registry or nodes.", no_args_is_help=True
)
Names = Annotated[list[str] | None, typer.Argument(metavar="[IMAGE]…", help="Only these; none: all of ours.")]
Arch = Annotated[str, typer.Option("--arch", help="Architectures, comma-separated: amd64, arm64.")]


def _bundle(arch: str) -> Bundle:
    from k8sdds import bundle
    from k8sdds.bundle.create import ARCH_HERE

    arches = (arch or ARCH_HERE).split(",")
    return bundle.default(arches, lambda text: console(stderr=True).print(text, highlight=False), own=True)


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

    made = _bundle(arch)
    if output is not None and len(made.arches) > 1:
        raise InputError(f"--output {output}: an archive holds one architecture", "give one --arch")
    if output is not None and output.exists():
        raise InputError(f"{output} exists already", "name a new file")
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

    made = _bundle(arch)
    items = [item for one in made.arches for item in images.own(made, one, names or ())]
    for reference in images.push(made, items, target, plain_http):
        console().print(reference, highlight=False, soft_wrap=True)


@app.command()
def load(
    profile: ProfileName,
    names: Names = None,
    limit: Limit = None,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
) -> None:
    """Import the images into the containerd of a profile's nodes, through ssh: no registry is needed."""
    from k8sdds.bundle import images
    from k8sdds.deploy import facts, profiles
    from k8sdds.deploy import images as importing
    from k8sdds.hosts import Connections, Host, HostError

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
        made = _bundle(",".join(sorted(set(arches.values()))))
        archives = {
            arch: made.archive(arch, [item.name for item in images.own(made, arch, names or ())])
            for arch in made.arches
        }

        def imported(host: Host) -> None:
            done = importing.load(host, archives[arches[host.name]])
            if done.code:
                raise HostError(host.name, f"cannot import: {done.err.strip()[-300:]}", "is containerd up?")

        _, failures = connections.each(imported, list(arches))
    for name, arch in arches.items():
        if name not in failures:
            loaded = ", ".join(item.name for item in images.own(made, arch, names or ()))
            console().print(f"{name}: {loaded}", highlight=False, soft_wrap=True)
    if failures:
        raise next(iter(failures.values()))
