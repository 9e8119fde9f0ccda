"""What a profile's software is: which programs and images belong on a machine, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from k8sdds import bundle, networks, versions
from k8sdds.bundle import Bundle, oci, packages
from k8sdds.deploy import local_nodes, network_install
from k8sdds.deploy.actions import Upload
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.network_install import Install
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.system.errors import InputError, K8sddsError

PACKAGES = "/var/cache/k8sdds-packages"
"""Where a machine has the bundle's packages while they are installed."""
ON_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")


@dataclass(frozen=True)
class Images:
    """Images of one architecture with their digests, to be imported from one archive."""

    arch: str
    digests: tuple[tuple[str, str], ...]
    """(reference, SHA-256 of its manifest)"""


@dataclass(frozen=True)
class Software:
    """The bundle of a profile, as far as the profile uses it."""

    profile: Profile
    bundle: Bundle
    fetched: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    """Packages for nodes of (architecture, suite), which a bundle that is built here does not hold."""

    @property
    def from_bundle(self) -> bool:
        """Whether Kubernetes comes from the bundle, and not from packages and registries."""
        return self.profile.software.source == "bundle"

    def binaries(self, arch: str) -> tuple[Upload, ...]:
        """The programs of a node."""
        return tuple(
            Upload(
                self.bundle.file(item), item.target, item.sha256, item.size_bytes, item.mode,
                f"{local_nodes.BUNDLE}/{item.path}" if self.profile.provider == "local" else "",
            )
            for item in self.bundle.binaries(arch)
        )  # fmt: skip

    def has_packages(self, arch: str, suite: str) -> bool:
        """Whether the distribution's packages come with it; else nodes use their own sources of packages."""
        named = self.profile.software.bundle is not None
        return self.from_bundle and (named or (arch, suite) in self.fetched)

    def packages(self, arch: str, suite: str) -> tuple[Upload, ...]:
        """The distribution's packages, with their index, for one folder. Raises PrerequisiteError."""
        if (arch, suite) in self.fetched:
            files = sorted(self.fetched[arch, suite].iterdir())
            found = [(path, oci.file_sha256(path), path.stat().st_size) for path in files]
        else:
            items = self.bundle.packages(arch, suite)
            found = [(self.bundle.file(item), item.sha256, item.size_bytes) for item in items]
        return tuple(
            Upload(path, f"{PACKAGES}/{path.name}", sha256, size, "0644") for path, sha256, size in found
        )

    def links(self, arch: str) -> dict[str, str]:
        """Symbolic links to them: link to target."""
        return {link: item.target for item in self.bundle.binaries(arch) for link in item.links}

    def images(self, arch: str, control_plane: bool, network: Sequence[str]) -> Images:
        """The images that a node needs before it becomes part of the cluster."""
        if not self.from_bundle:
            return Images(arch, ())
        chosen = []
        for item in self.bundle.images(arch):
            program = item.name.rpartition("/")[2].partition(":")[0]
            if item.name.startswith(versions.LOCAL_REGISTRY) and item.name not in network:
                continue
            if program in ON_CONTROL_PLANE and not control_plane:
                continue
            if "/flannel" in item.name and item.name not in network:
                continue
            chosen.append((item.name, item.sha256))
        return Images(arch, tuple(chosen))

    def lacks(self, network: Install, arch: str, there: Collection[str] = ()) -> list[str]:
        """Why a network cannot be had on machines of an architecture, which have the images in `there`."""
        if not self.from_bundle:
            return []
        images = {item.name: item for item in self.bundle.images(arch)}
        found = [
            f"{network.name} needs the image {name}, which the bundle does not have for {arch}"
            for name in network.images
            if name not in images and name not in there
        ]
        for name, program in network.programs:
            item = images.get(name)
            if item and not oci.has_program(self.bundle.folder / "oci", item.sha256, program):
                found.append(f"{network.name} needs {program}, which the bundle's image {name} does not have")
        return found

    def own_images(self, arch: str) -> Images:
        """The images made here, that pods of k8sdds run."""
        found = [
            (item.name, item.sha256)
            for item in self.bundle.images(arch)
            if item.name.startswith(versions.LOCAL_REGISTRY)
        ]
        return Images(arch, tuple(found))

    def archive(self, images: Images) -> Upload:
        """One archive of these images, made in the cache if need be."""
        names = [name for name, _ in images.digests]
        path = self.bundle.archive(images.arch, names)
        shared = f"{local_nodes.ARCHIVES}/{path.name}" if self.profile.provider == "local" else ""
        return Upload(path, "", "", path.stat().st_size, "0600", shared)


def with_packages(found: Software, nodes: Iterable[Facts], said: Callable[[str], None]) -> Software:
    """The software with the packages of nodes that lack containerd, where the profile names no bundle.

    They are fetched here. Where this machine cannot, such nodes use their own sources.
    """
    if not found.from_bundle or found.profile.software.bundle is not None:
        return found
    fetched = {}
    bare = {
        (one.architecture, one.values.get("os.VERSION_CODENAME", ""))
        for one in nodes
        if not one.values.get("containerd")
    }
    for arch, suite in sorted(bare):
        try:
            fetched[arch, suite] = packages.cached(suite, arch, said)
        except K8sddsError as error:
            what = suite or "their distribution"
            said(f"nodes get packages of {what} from their own sources: {error.message}")
    return replace(found, fetched=fetched)


def of(profile: Profile, arches: Sequence[str], said: Callable[[str], None]) -> Software:
    """The software for machines of these architectures; what of it is made here is made now.

    Raises InputError where the profile's bundle does not fit the profile, or PrerequisiteError.
    """
    if profile.software.bundle is not None:
        found = Bundle.open(Path(profile.software.bundle).expanduser())
        # One made here is what it claims.
        wrong = [one for arch in sorted(set(arches)) for one in found.wrong_architectures(arch)]
        if wrong:
            raise InputError("\n".join(problem.what for problem in wrong), wrong[0].remedy)
    else:
        own = profile.software.source != "bundle"
        found = bundle.default(tuple(sorted(set(arches))), said, own=own)
    if profile.software.source == "bundle" and found.kubernetes != profile.kubernetes.version:
        raise InputError(
            f"the bundle has Kubernetes {found.kubernetes}, the profile wants {profile.kubernetes.version}",
            f"kubernetes.version: {found.kubernetes} in the profile; or another bundle",
        )
    return Software(profile, found)


def refuse(found: Software, network: Install, machines: Mapping[str, Collection[str]]) -> None:
    """Raise InputError where a network cannot be had from the profile's bundle: before anything is changed.

    `machines` has their architectures, each with the images that all of its machines have already.
    """

    def lacks(one: Install) -> list[str]:
        return [line for arch in sorted(machines) for line in found.lacks(one, arch, machines[arch])]

    lines = lacks(network)
    if not lines:
        return
    profile = found.profile
    plain = [name for name, needs_password in networks.pod_networks().items() if not needs_password]
    wished = [PodNetwork.model_validate(name) for name in plain]
    others = [
        one.name
        for one in wished
        if not lacks(network_install.install(network_install.with_network(profile, one)))
    ]
    remedy = f"with this bundle: {', '.join(others)}"
    if profile.provider != "local":
        remedy += "; or software: packages, where the machines reach registries"
    raise InputError("\n".join(dict.fromkeys(lines)), remedy)
