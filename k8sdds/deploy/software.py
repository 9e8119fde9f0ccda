"""Decide which programs, packages and images a profile needs, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from k8sdds import bundle, networks, versions
from k8sdds.bundle import Bundle, Item, oci, packages
from k8sdds.deploy import bundled_networks, local_nodes, network_install
from k8sdds.deploy.actions import Upload
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.system.errors import InputError, K8sddsError

PACKAGES = "/var/cache/k8sdds-packages"
"""Folder on a machine for the bundle's packages while they are installed."""
CONTROL_PLANE_IMAGES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")


@dataclass(frozen=True)
class Software:
    """The programs, packages and images of a profile, and where they come from."""

    profile: Profile
    bundle: Bundle
    fetched: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    """By architecture and distribution: folder of packages that this machine downloaded for the nodes."""
    is_mounted: bool = False
    """Whether the nodes have mounted the bundle; else its programs are sent to them."""

    @property
    def from_bundle(self) -> bool:
        """Whether Kubernetes comes from the bundle instead of packages and registries."""
        return self.profile.software.source == "bundle"

    @property
    def origin(self) -> str:
        """Where Kubernetes comes from, for messages and the record."""
        return self.bundle.origin if self.from_bundle else "packages and registries of the projects"

    @property
    def downloads(self) -> list[str]:
        """Addresses, references and archives, with digests, of what k8sdds did not build for the bundle."""
        return list(dict.fromkeys(item.source for item in self.bundle.items if item.source))

    def binaries(self, arch: str) -> tuple[Upload, ...]:
        """Return the programs to install on a node."""
        return tuple(
            Upload(
                self.bundle.file(item), item.target, item.sha256, item.size_bytes, item.mode,
                f"{local_nodes.BUNDLE}/{item.path}" if self.is_mounted else "",
            )
            for item in self.bundle.binaries(arch)
        )  # fmt: skip

    def packages(self, arch: str, suite: str) -> tuple[Upload, ...]:
        """Return the packages of a distribution and their index, to be installed in one folder.

        Empty if nodes use their own sources.
        """
        named = self.profile.software.bundle is not None
        if not self.from_bundle or not (named or (arch, suite) in self.fetched):
            return ()
        if (arch, suite) in self.fetched:
            paths = sorted(self.fetched[arch, suite].iterdir())
            files = [(path, oci.file_sha256(path), path.stat().st_size) for path in paths]
        else:
            items = self.bundle.packages(arch, suite)
            files = [(self.bundle.file(item), item.sha256, item.size_bytes) for item in items]
        return tuple(
            Upload(path, f"{PACKAGES}/{path.name}", sha256, size, "0644") for path, sha256, size in files
        )

    def links(self, arch: str) -> dict[str, str]:
        """Return the symbolic links to the programs: link to target."""
        return {link: item.target for item in self.bundle.binaries(arch) for link in item.links}

    def images(self, arch: str, control_plane: bool, network: Sequence[str]) -> list[Item]:
        """Return the images that a node needs before it joins the cluster."""
        required = []
        for item in self.bundle.images(arch) if self.from_bundle else ():
            program = item.name.rpartition("/")[2].partition(":")[0]
            optional = item.name.startswith(versions.LOCAL_REGISTRY) or networks.is_network_image(item.name)
            if optional and item.name not in network:
                continue
            if program in CONTROL_PLANE_IMAGES and not control_plane:
                continue
            required.append(item)
        return required

    def own_images(self, arch: str, others: Collection[str] = ()) -> list[Item]:
        """Return the images of k8sdds, and others with these references that the bundle contains."""
        images = self.bundle.images(arch)
        return [
            item for item in images if item.name.startswith(versions.LOCAL_REGISTRY) or item.name in others
        ]

    def archive(self, images: Sequence[Item]) -> tuple[Path, str]:
        """Return an archive of images from the cache, and its path on the nodes; "" if they do not share it."""
        path = self.bundle.archive(images)
        return path, f"{local_nodes.ARCHIVES}/{path.name}" if self.profile.provider == "local" else ""


def for_profile(profile: Profile, architectures: Sequence[str], note: Callable[[str], None]) -> Software:
    """Return the software for machines of these architectures. Builds the bundle if the profile names none."""
    required = sorted(set(architectures))
    if profile.software.bundle is not None:
        selected = Bundle.open(Path(profile.software.bundle).expanduser())
        # Only for a bundle that the user provides: its programs may be for another architecture than its index states.
        wrong = [problem for arch in required for problem in selected.wrong_architectures(arch)]
        if wrong:
            raise InputError("\n".join(problem.what for problem in wrong), wrong[0].remedy)
    else:
        selected = bundle.cached_bundle(
            tuple(required), note, profile.software.source != "bundle", network_install.render(profile).images,
            bundled_networks.archives(profile),
        )  # fmt: skip
    if profile.software.source == "bundle" and selected.kubernetes != profile.kubernetes.version:
        raise InputError(
            f"the bundle has Kubernetes {selected.kubernetes}, the profile requires {profile.kubernetes.version}",
            f"set kubernetes.version: {selected.kubernetes} in the profile, or use another bundle",
        )
    is_mounted = profile.provider == "local" and local_nodes.have_mounted(profile, selected)
    return Software(profile, selected, is_mounted=is_mounted)


def available_images(profile: Profile) -> set[str]:
    """Return the images that the profile's bundle contains, or that it can contain without a registry."""
    if profile.software.bundle is not None:
        items = Bundle.open(Path(profile.software.bundle).expanduser()).items
        return {item.name for item in items if item.kind == "image"}
    return bundle.cached_images() | bundled_networks.archives(profile).keys()


def with_packages(software: Software, machines: Iterable[Facts], note: Callable[[str], None]) -> Software:
    """Return the software with packages for machines without containerd, if the profile names no bundle.

    The packages are fetched on this machine. If that fails, the machines use their own sources.
    """
    if not software.from_bundle or software.profile.software.bundle is not None:
        return software
    fetched = {}
    releases = {
        (machine.architecture, machine.values.get("os.VERSION_CODENAME", ""))
        for machine in machines
        if not machine.values.get("containerd")
    }
    for arch, suite in sorted(releases):
        try:
            fetched[arch, suite] = packages.cached(suite, arch, note)
        except K8sddsError as error:
            release = suite or "their distribution"
            note(f"nodes install packages of {release} from their own sources: {error.message}")
    return replace(software, fetched=fetched)


def check_network(
    software: Software, network: RenderedNetwork, machines: Mapping[str, Collection[str]]
) -> None:
    """Check that the profile's bundle can install a network, before anything is changed.

    `machines` has the images that all machines of an architecture have already.
    """

    def reasons(install: RenderedNetwork) -> list[str]:
        return [
            reason
            for arch in (sorted(machines) if software.from_bundle else ())
            for reason in bundled_networks.missing(software.bundle, install, arch, machines[arch])
        ]

    lines = reasons(network)
    if not lines:
        return
    profile = software.profile
    possible = []
    for name, needs_password in networks.pod_networks().items():
        if not needs_password and name != profile.second_network:
            other = network_install.with_network(profile, PodNetwork.model_validate(name))
            if not reasons(network_install.render(other)):
                possible.append(name)
    remedy = f"with this bundle: {', '.join(possible)}"
    if profile.provider != "local":
        remedy += "; or software: packages, where the machines reach registries"
    raise InputError("\n".join(dict.fromkeys(lines)), remedy)
