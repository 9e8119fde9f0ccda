"""Decide which networks a bundle must contain for a profile, and which networks a bundle can install."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds import networks
from k8sdds.bundle import Bundle, oci
from k8sdds.deploy import network_install
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.model.experiment import Experiment
from k8sdds.model.profile import Node, PodNetwork, Profile, Software
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.yaml_text import nearest

ANY_CLUSTER = Profile(
    name="any", nodes=[Node(name="any", roles=["control-plane"])], software=Software(source="bundle")
)


@dataclass(frozen=True)
class BundledNetwork:
    """What a bundle contains of a network for one architecture."""

    network: str
    arch: str
    size_bytes: int
    """Size of the layers of its images. Networks share layers with each other and with other images."""
    missing: tuple[str, ...]
    """Why the bundle cannot install it; empty if it can."""


def required(profile: Profile | None, experiments: Iterable[Experiment] = ()) -> list[RenderedNetwork]:
    """Return the networks that a profile and experiments name, as far as k8sdds can install them on a cluster."""
    base = (profile or ANY_CLUSTER).model_copy(update={"software": ANY_CLUSTER.software})
    named = [base.network.name, *(network.name for network in base.networks)] if profile else []
    for experiment in experiments:
        named += [choice.name for sweep in experiment.sweeps for choice in sweep.networks]
    installable = networks.pod_networks()
    return [
        _rendered(base, name)
        for name in dict.fromkeys(named)
        if name in installable and name != base.second_network
    ]


def contents(bundle: Bundle, selected: Sequence[RenderedNetwork] = ()) -> list[BundledNetwork]:
    """Return the content of a bundle for these networks, or for all networks, by architecture."""
    selected = selected or [_rendered(ANY_CLUSTER, name) for name in networks.pod_networks()]
    return [
        BundledNetwork(network.name, arch, _size_bytes(bundle, network, arch), tuple(missing(bundle, network, arch)))
        for network in selected
        for arch in bundle.arches
    ]  # fmt: skip


def archives(profile: Profile | None, options: Iterable[str] = ()) -> dict[str, list[Path]]:
    """Return the archives of images that a profile and the option `--image` name, by reference of the image.

    An option is NETWORK=FILE, or IMAGE=FILE for one of several images of a network.
    """
    given = [
        (name, file) for name, files in (profile.software.images if profile else {}).items() for file in files
    ]
    for option in options:
        name, _, file = option.rpartition("=")
        if not name or not file:
            raise InputError(f"--image {option!r} is not valid", "use --image NETWORK=FILE.tar")
        given.append((name, file))
    found: dict[str, list[Path]] = {}
    for name, file in given:
        path = Path(file).expanduser()
        if not path.is_file():
            raise InputError(
                f"the archive of {name}, {file}, is not a file", "give an archive of images: FILE.tar"
            )
        for image in _images_of(name):
            found.setdefault(image, []).append(path)
    return found


def _images_of(name: str) -> tuple[str, ...]:
    """Return the references of a network's images; a reference remains as it is."""
    if "/" in name:
        return (name,)
    if name not in networks.pod_networks():
        hint = nearest(name, list(networks.pod_networks()))
        raise InputError(
            f"there is no network {name!r} with images{hint}", "name a network, or an image: IMAGE=FILE.tar"
        )
    return _rendered(ANY_CLUSTER, name).images


def missing(bundle: Bundle, network: RenderedNetwork, arch: str, present: Collection[str] = ()) -> list[str]:
    """Return why a bundle cannot install a network on machines that have the images `present`; empty if it can."""
    images = {item.name: item for item in bundle.images(arch)}
    reasons = [
        f"{network.name} needs the image {name}, which the bundle does not have for {arch}"
        for name in network.images
        if name not in images and name not in present
    ]
    for name, program in network.programs:
        item = images.get(name)
        if item and not oci.has_program(bundle.folder / "oci", item.sha256, program):
            reasons.append(f"{network.name} needs {program}, which the bundle's image {name} does not have")
    return reasons


def check(bundle: Bundle, selected: Sequence[RenderedNetwork]) -> None:
    """Check that a bundle can install all of these networks."""
    reasons = [
        reason for network in selected for arch in bundle.arches for reason in missing(bundle, network, arch)
    ]
    if reasons:
        raise PrerequisiteError(
            "\n".join(dict.fromkeys(reasons)),
            "give archives of the images (bundle create --image), or leave the network out of the profile",
        )


def _rendered(profile: Profile, name: str) -> RenderedNetwork:
    network = profile.options_of(name) or PodNetwork(name=name)
    return network_install.render(network_install.with_network(profile, network))


def _size_bytes(bundle: Bundle, network: RenderedNetwork, arch: str) -> int:
    """Return the size of the layers of a network's images, each counted once."""
    manifests = [bundle.file(item) for item in bundle.images(arch) if item.name in network.images]
    layers = {layer["digest"]: layer["size"] for path in manifests for layer in oci.manifest(path)["layers"]}
    return sum(layers.values())
