"""A profile's network as what is installed for it: pure data from the profile and the network's manifest."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from pydantic import ValidationError

from k8sdds import networks, versions
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.networks.cluster_install import ClusterInstall, InstallOptions, Manifest, find, images
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared


@dataclass(frozen=True)
class Install:
    """Everything that makes a network on a cluster."""

    name: str
    mtu_bytes: int
    """Of the pods' interfaces, on links of 1500 bytes where the profile does not say."""
    manifests: tuple[Manifest, ...] = field(repr=False)
    """Kubernetes objects, in the order in which they are applied."""
    secrets: tuple[str, ...]
    """Objects among them whose content no plan and no log may show: `secret/NAMESPACE/NAME`."""
    files: dict[str, dict[str, str]]
    """Node to path to content; empty, since every network's agent writes its own."""
    kube_proxy: bool
    """Whether kube-proxy carries Services: on every network, so that they differ in nothing else."""
    ready: tuple[str, ...]
    """What to wait for: `daemonset/NAMESPACE/NAME`."""
    images: tuple[str, ...]
    programs: tuple[tuple[str, str], ...] = ()
    """(image, program) that the network starts in it: an image made by others may lack it."""


def half(name: str) -> ClusterInstall:
    """How a network is installed; InputError for one that cannot be (`baremetal`)."""
    found = networks.find(name).cluster
    if found is None:
        choice = ", ".join(one.name for one in networks.NETWORKS.values() if one.cluster)
        raise InputError(f"{name} is nothing to install on a cluster", f"one of: {choice}")
    return found


def install(profile: Profile, password: str | None = None) -> Install:
    """What to install for the profile's network; `password` is the content of its password file."""
    wanted = profile.network
    chosen = half(wanted.name)
    asked = InstallOptions(
        pod_cidr=profile.kubernetes.pod_cidr,
        service_cidr=profile.kubernetes.service_cidr,
        mtu_bytes=wanted.mtu,
        interface=wanted.interface,
        password=password or "",
        plugins_on_nodes=profile.software.source == "bundle",
    )
    manifests = chosen.render(asked, read(chosen.folder))
    secrets = [one["metadata"]["name"] for one in manifests if one["kind"] == "Secret"]
    (agent, *_) = find(manifests, "DaemonSet", chosen.daemonset)["spec"]["template"]["spec"]["containers"]
    return Install(
        name=wanted.name,
        mtu_bytes=wanted.mtu or networks.find(wanted.name).default_mtu,
        manifests=tuple(_encoded(one) for one in manifests),
        secrets=tuple(f"secret/{versions.NETWORK_NAMESPACE}/{name}" for name in secrets),
        files={},
        kube_proxy=True,
        ready=(f"daemonset/{versions.NETWORK_NAMESPACE}/{chosen.daemonset}",),
        images=images(manifests),
        programs=tuple((agent["image"], name) for name in chosen.programs),
    )


def read(folder: str) -> list[Manifest]:
    """The objects of a network's folder below deploy/networks, as they are written there."""
    path = shared("deploy") / "networks" / folder / "manifest.yaml"
    return yaml_text.load_all(path.read_text(encoding="utf-8"))


def asked(
    profile: Profile,
    name: str,
    mtu: int | None = None,
    interface: str | None = None,
    password_file: str | None = None,
) -> PodNetwork:
    """A network with options: those given here, and where it is the profile's own network, the profile's.

    Raises InputError where they do not fit it.
    """
    half(name)
    same = name == profile.network.name
    given = {"mtu": mtu, "interface": interface, "password_file": password_file}
    # The interface between the nodes is theirs, whatever the network.
    own = profile.network.model_dump() if same else {"interface": profile.network.interface}
    options = {**own, "name": name, **{key: value for key, value in given.items() if value is not None}}
    try:
        return PodNetwork.model_validate(options)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(
            said.replace("password_file", "--password-file"), "see: k8sdds network switch --help"
        ) from error


def with_network(profile: Profile, network: PodNetwork) -> Profile:
    """The profile with another network."""
    return profile.model_copy(update={"network": network})


def _encoded(one: Manifest) -> Manifest:
    # The API server keeps a Secret's `data` alone: so what is applied can be compared with what is there.
    if one["kind"] != "Secret":
        return one
    given = one.pop("stringData", {})
    data = {key: base64.b64encode(text.encode()).decode() for key, text in given.items()}
    return {**one, "data": {**one.get("data", {}), **data}}
