"""Render the Kubernetes objects of a profile's network. Reads only the network's manifest."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from pydantic import ValidationError

from k8sdds import networks, versions
from k8sdds.kubernetes import apply
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.networks.cluster_install import ClusterInstall, InstallOptions, Manifest, find, images
from k8sdds.networks.macvlan import multus
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError

CARRY_IPV6 = f"use {', '.join(networks.carrying_ipv6())}; or ip_families: [ipv4]"
"""Remedy for a network that cannot be installed with IPv6."""


@dataclass(frozen=True)
class RenderedNetwork:
    """A network with the values of a profile: its Kubernetes objects, and the images and programs that they run."""

    name: str
    mtu_bytes: int
    """MTU of the pods' interfaces: the profile's, otherwise the network's default on links of 1500 bytes."""
    manifests: tuple[Manifest, ...] = field(repr=False)
    """Kubernetes objects, in the order in which they are applied."""
    daemonsets: tuple[str, ...]
    """The DaemonSets to wait for, as `DaemonSet/NAMESPACE/NAME`."""
    images: tuple[str, ...]
    programs: tuple[tuple[str, str], ...] = ()
    """(image, program) that the network starts; an image that others built may not contain the program."""


def cluster_install(name: str, engine: str | None = None) -> ClusterInstall:
    """Return the cluster install of a network, with the plugin's own engine or another one."""
    network = networks.find(name)
    install = network.install_for(engine)
    if install is None:
        valid = ", ".join(networks.pod_networks())
        raise InputError(f"network {name} cannot be installed on a cluster", f"use one of: {valid}")
    if engine is not None and network.cluster_engine(engine) is None:
        engines = ", ".join(
            filter(None, (network.own_engine, *(own.name for own in network.cluster_engines)))
        )
        raise InputError(
            f"{name} has no engine {engine} on a cluster",
            f"leave it out, or use: {engines}"
            if engines
            else "leave it out: the plugin's own engine is used",
        )
    return install


def render(profile: Profile, password: str | None = None) -> RenderedNetwork:
    """Return the profile's network, rendered. `password` is the content of its password file."""
    network = profile.network
    spec = cluster_install(network.name, network.engine)
    if obstacle := families_obstacle(profile):
        raise InputError(obstacle, CARRY_IPV6)
    if network.name == profile.second_network:
        raise InputError(
            f"{network.name} is already the second network of {profile.name}",
            "measure it next to the installed network, or remove second_network from the profile and deploy it",
        )
    options = InstallOptions(
        pod_cidrs=profile.kubernetes.pod_cidrs,
        service_cidrs=profile.kubernetes.service_cidrs,
        mtu_bytes=network.mtu,
        interface=network.interface,
        password=password or "",
        cni_plugins_installed=profile.software.source == "bundle",
    )
    known = networks.find(network.name)
    overhead = known.ipv6_overhead if "ipv6" in profile.kubernetes.ip_families else 0
    manifests = spec.render(options, read_manifests(spec.manifest_folder))
    (agent, *_) = find(manifests, "DaemonSet", spec.daemonset)["spec"]["template"]["spec"]["containers"]
    agents = [spec.daemonset]
    if profile.second_network:
        manifests = [*manifests, *multus.render(options, spec, read_manifests(multus.MANIFEST_FOLDER))]
        agents.append(multus.AGENT)
    return RenderedNetwork(
        name=network.name,
        mtu_bytes=network.mtu or known.default_mtu - overhead,
        manifests=tuple(map(_encode_secret, manifests)),
        daemonsets=tuple(f"DaemonSet/{versions.NETWORK_NAMESPACE}/{name}" for name in agents),
        images=images(manifests),
        programs=tuple((agent["image"], program) for program in spec.programs),
    )


def families_obstacle(profile: Profile) -> str:
    """Return why a profile's networks cannot be installed with its IP families, or an empty string if they can."""
    network, families = profile.network, profile.kubernetes.ip_families
    wanted = f"{profile.name} has ip_families [{', '.join(families)}]"
    for name, engine in ((network.name, network.engine), (profile.second_network, None)):
        install = networks.find(name).install_for(engine) if name else None
        if "ipv6" in families and install is not None and install.ipv4_only:
            return f"{name} cannot be installed: {wanted}, and {install.ipv4_only}"
    return ""


def read_manifests(folder: str) -> list[Manifest]:
    """Return the objects of a folder below deploy/networks, before rendering."""
    return apply.read_manifest(f"networks/{folder}/manifest.yaml")


def choose_network(
    profile: Profile,
    name: str,
    mtu: int | None = None,
    interface: str | None = None,
    password_file: str | None = None,
    engine: str | None = None,
) -> PodNetwork:
    """Return a network for the profile's cluster.

    Options that are None come from the profile if it names the network. The interface between the nodes always comes
    from the profile's installed network, because it does not depend on the network.
    """
    own = engine is not None and engine == networks.find(name).own_engine
    cluster_install(name, None if own else engine)
    named = profile.options_of(name)
    defaults = {**(named.model_dump() if named else {}), "interface": profile.network.interface}
    given = {"mtu": mtu, "interface": interface, "password_file": password_file, "engine": engine}
    options = {**defaults, "name": name, **{key: value for key, value in given.items() if value is not None}}
    if own:
        options["engine"] = None
    try:
        return PodNetwork.model_validate(options, context={"pod_networks": networks.pod_networks()})
    except ValidationError as error:
        mistake = yaml_text.mistakes(error, options, PodNetwork)[0]
        option = f"--{mistake.keys[0]} {options[str(mistake.keys[0])]}: " if mistake.keys else ""
        message = option + mistake.message.replace("password_file", "--password-file")
        raise InputError(message, "see: k8sdds network switch --help") from error


def with_network(profile: Profile, network: PodNetwork) -> Profile:
    """Return the profile with another network."""
    return profile.model_copy(update={"network": network})


def _encode_secret(manifest: Manifest) -> Manifest:
    """Convert `stringData` of a Secret to `data`, which is what the API server stores and what is compared."""
    if manifest["kind"] != "Secret":
        return manifest
    text = manifest.pop("stringData", {})
    data = {key: base64.b64encode(value.encode()).decode() for key, value in text.items()}
    return {**manifest, "data": {**manifest.get("data", {}), **data}}
