"""`k8sdds bundle`: manage bundles, which hold all software of a cluster for labs without internet access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from k8sdds import versions
from k8sdds.cli.commands import Commands
from k8sdds.cli.options import Architectures, DryRun, split_list
from k8sdds.cli.output import RowsOutput
from k8sdds.cli.progress import Steps
from k8sdds.cli.terminal import print_line, print_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import cache_folder

if TYPE_CHECKING:
    from k8sdds.bundle import Bundle
    from k8sdds.bundle.cache import Usage
    from k8sdds.deploy.network_install import RenderedNetwork
    from k8sdds.model.profile import Profile

app = Commands(help="Build and verify bundles: all software of a cluster in one folder, with checksums.")
Folder = Annotated[Path, "BUNDLE: The folder of the bundle, or a .tar file of it."]
ImageArchives = Annotated[
    list[str] | None,
    "--image NETWORK=FILE: OCI or docker archive with the images of a network, instead of their registry."
    " Repeat the option for several networks or architectures.",
]
Suites = Annotated[
    str,
    "--suite SUITE,…: Distributions of the nodes, comma-separated: bookworm, trixie, …; or none. Default:"
    " this machine's.",
]


@dataclass
class Purpose:
    """The options that name what a bundle is for."""

    profile: Annotated[
        str | None,
        "--profile PROFILE: For the machines and networks of this profile (name, or path of a file).",
    ] = None
    experiment: Annotated[
        list[str] | None,
        "--experiment EXPERIMENT: Also for the networks of this experiment. Repeat the option for several.",
    ] = None

    def load(self) -> tuple[Profile | None, list[RenderedNetwork]]:
        """Return the profile, and the networks that it and the experiments name."""
        from k8sdds.campaign import applications
        from k8sdds.deploy import bundled_networks, profiles

        loaded = profiles.load(self.profile) if self.profile is not None else None
        experiments = map(applications.load_experiment, self.experiment or ())
        return loaded, bundled_networks.required(loaded, experiments)


@app.add(
    "k8sdds bundle create usb/bundle",
    "k8sdds bundle create bundle --arch amd64,arm64 --suite bookworm",
    "k8sdds bundle create bundle --profile paper --image kube-router=image.tar",
)
def create(
    output: Annotated[Path, "FOLDER: Folder to create."],
    arch: Architectures = "",
    *,
    purpose: Purpose,
    suite: Suites = "",
    image: ImageArchives = None,
    apt_sources: Annotated[
        Path | None, "--apt-sources FILE: File with apt sources. Default: this machine's."
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Create a bundle from official builds and Debian packages.

    With --profile or --experiment, it contains all networks that these name, or is not created.
    The first bundle takes some minutes. Without internet access, it is built from Go modules, which takes 20 minutes.
    Later bundles take seconds because they use the cache; see `k8sdds bundle cache`.
    """
    from k8sdds import bundle
    from k8sdds.bundle.contents import HOST_ARCH
    from k8sdds.bundle.create import architectures_of, check
    from k8sdds.deploy import bundled_networks
    from k8sdds.system import debian_release

    loaded, required = purpose.load()
    archives = bundled_networks.archives(loaded, image or ())
    arches = split_list(arch)
    arches = (architectures_of(loaded, arches) if loaded is not None else arches) or [HOST_ARCH]
    suites = [] if suite == "none" else split_list(suite or debian_release.codename())
    if dry_run:
        check(output, arches, suites)
        packages = f"packages of {', '.join(suites) or 'no distribution'}{_naming(required)}"
        print_text(
            f"would write Kubernetes {versions.KUBERNETES} for {', '.join(arches)} with {packages} to {output}"
        )
        return
    names = [name for network in required for name in network.images]
    with Steps() as steps:
        created = bundle.create(
            output, arches, steps, suites, apt_sources, names, archives,
            lambda unfinished: bundled_networks.check(unfinished, required),
        )  # fmt: skip
    print_line(f"wrote {created.folder}: {len(created.items)} items")
    _show_networks(created, required)


def _naming(required: Sequence[RenderedNetwork]) -> str:
    return f" and the networks {', '.join(network.name for network in required)}" if required else ""


def _show_networks(opened: Bundle, required: Sequence[RenderedNetwork] = ()) -> None:
    """Print which networks a bundle can install: these, by default all."""
    from k8sdds.deploy import bundled_networks

    for entry in bundled_networks.contents(opened, required):
        missing = f": {'; '.join(entry.missing)}" if entry.missing else ""
        print_line(f"{entry.arch}  network {entry.size_bytes / 1e6:6.1f} MB  {entry.network}{missing}")


@app.add("k8sdds bundle verify usb/bundle", "k8sdds bundle verify usb/bundle --profile paper")
def verify(folder: Folder, purpose: Purpose) -> None:
    """Compare all files of a bundle with their checksums.

    With --profile or --experiment, also check that it contains all networks that these name.
    """
    from k8sdds import bundle
    from k8sdds.deploy import bundled_networks

    opened = bundle.Bundle.open(folder)
    problems = opened.verify()
    if problems:
        raise InputError("\n".join(problem.what for problem in problems), problems[0].remedy)
    loaded, required = purpose.load()
    for node in loaded.nodes if loaded is not None else ():
        opened.images(node.architecture or opened.arches[0])
    bundled_networks.check(opened, required)
    print_line(f"{folder}: all {len(opened.items)} items{_naming(required)} are intact")


@app.add("k8sdds bundle list usb/bundle")
def list_(folder: Folder, out: RowsOutput) -> None:
    """List the content of a bundle."""
    from k8sdds import bundle

    opened = bundle.Bundle.open(folder)
    out.print([asdict(item) for item in opened.items], lambda: _show(opened))


def _show(opened: Bundle) -> None:
    print_line(f"Kubernetes {opened.kubernetes}, {opened.toolchain}: {opened.origin}")
    for suite in opened.suites:
        print_line(f"packages of {suite}")
    for item in opened.items:
        print_line(f"{item.arch}  {item.kind:7} {item.size_bytes / 1e6:6.1f} MB  {item.name}")
    _show_networks(opened)


@app.add("k8sdds bundle cache", "k8sdds bundle cache --prune")
def cache_(
    prune: Annotated[bool, "--prune: Remove entries that were not used recently, as `create` does."] = False,
    empty: Annotated[
        bool, "--empty: Remove all entries. The next bundle takes as long as the first."
    ] = False,
    dry_run: DryRun = False,
    *,
    out: RowsOutput,
) -> None:
    """Show the size of the cache, or remove entries. Entries that local nodes use are kept."""
    from k8sdds.bundle import cache

    if prune and empty:
        raise InputError("--prune and --empty exclude each other", "use --empty to remove everything")
    kept: list[str] = []
    if prune or empty:
        freed, kept = cache.empty(dry_run) if empty else (cache.prune(dry_run), [])
        if out.is_text:
            print_line(f"{'would free' if dry_run else 'freed'} {freed / 1e6:.1f} MB")
    usage = cache.usage()
    out.print([asdict(kind) for kind in usage], lambda: _show_usage(usage))
    if kept and out.is_text:
        print_line(f"kept because they are in use: {', '.join(kept)}")


def _show_usage(usage: Sequence[Usage]) -> None:

    for kind in usage:
        used = datetime.fromtimestamp(kind.used_s, UTC).strftime("%Y-%m-%d %H:%M") if kind.things else ""
        print_line(f"{kind.kind:10} {kind.things:5} {kind.size_bytes / 1e6:10.1f} MB  {used}".rstrip())
    total = sum(kind.size_bytes for kind in usage)
    print_line(f"{cache_folder()}: {total / 1e6:.1f} MB")
