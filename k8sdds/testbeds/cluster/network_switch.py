"""Replace the pod network of a cluster that k8sdds deployed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from k8sdds.deploy import cni_plugins, deployed_clusters, network_install, preflight, profiles, software
from k8sdds.deploy.facts import Facts
from k8sdds.model.profile import Profile
from k8sdds.model.trial import MTU_OF_LINKS
from k8sdds.networks import cluster_modes, find
from k8sdds.networks.network import Network
from k8sdds.system.errors import InputError


class NetworkSwitch:
    """The pod network of a deployed cluster, which can be replaced."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.current, engine = deployed_clusters.current_network(cluster)
        """The installed network."""
        self._profile = profiles.deployed(cluster)
        self._options: dict[str, object] = {"engine": engine} if engine else {}
        """Options of the installed network that differ from the profile."""
        self._machines: Mapping[str, Facts] | None = None
        """Facts of the cluster's machines, once they are needed."""
        self._original: tuple[str, dict[str, object]] | None = (self.current, self._options)
        """What `restore` installs; None means nothing."""

    def installable(self) -> list[str]:
        """Return the installed network and all networks that can replace it."""
        current = find(self.current).mode_name(self._options)
        return list(dict.fromkeys([current, *(name for name in cluster_modes() if not self.obstacle(name))]))

    @property
    def interface(self) -> str:
        """The nodes' link that networks must use, from the profile; empty means that of the default route."""
        return self._profile.network.interface or ""

    @property
    def second(self) -> str | None:
        """The network that Multus adds to pods next to the installed one."""
        return self._profile.second_network

    def obstacle(self, network: str) -> str:
        """Return why a network cannot be installed on this cluster; empty if it can."""
        mode = cluster_modes().get(network) or (find(network), None)
        return _obstacle(self._profile, *mode, self._facts())

    def images(self, node: str) -> Collection[str]:
        """Return the images that the runtime of a node has; empty if the node cannot be reached."""
        facts = self._facts().get(node)
        return facts.pairs("image").keys() if facts else ()

    def is_installed(self, network: str, options: dict[str, object]) -> bool:
        """Return whether a network is installed with these options."""
        return self.current == network and self._options == _cluster_options(network, options)

    def install(self, network: str, options: dict[str, object]) -> None:
        """Replace the installed network and wait until the new one carries packets."""
        installed = _cluster_options(network, options)
        deployed_clusters.switch_cluster(self._cluster, network, installed)
        self.current, self._options = network, installed

    def restore(self) -> None:
        """Install the original network, if another one is installed now."""
        if self._original is not None and not self.is_installed(*self._original):
            self.install(*self._original)

    def abandon(self) -> None:
        """Keep the network that somebody else has installed meanwhile: `restore` changes nothing."""
        self._original = None

    def cni_plugins(self) -> dict[str, str]:
        """Return the versions and checksums of the CNI plugins that the runtimes of the nodes use."""
        return cni_plugins.read(self._cluster)

    def _facts(self) -> Mapping[str, Facts]:
        if self._machines is None:
            self._machines = deployed_clusters.machines(self._cluster)
        return self._machines


def _cluster_options(network: str, options: dict[str, object]) -> dict[str, object]:
    """Return the options that apply on a cluster. Of the engines, these are the ones that only clusters have."""
    engine = find(network).cluster_engine(options.get("engine"))
    own: dict[str, object] = {"engine": engine.name} if engine else {}
    # Without a requested MTU, the network's daemons derive it from the links.
    mtu: dict[str, object] = (
        {"mtu": find(network).mtu(options)} if {"mtu", MTU_OF_LINKS} & set(options) else {}
    )
    return mtu | own


def _obstacle(profile: Profile, network: Network, engine: str | None, machines: Mapping[str, Facts]) -> str:
    # What the network's daemons need, which is less or other than what the lab needs to build the same network.
    for name, facts in machines.items():
        for problem in preflight.missing_features(network.name, facts, engine):
            return f"{name}: {problem.what}"
    try:
        network_profile = network_install.choose_network(profile, network.name, engine=engine)
        network_profile = network_profile.model_copy(update={"engine": engine})
        installation = network_install.render(network_install.with_network(profile, network_profile))
    except InputError as error:
        # It needs input that only the user has, such as a password.
        return error.message.replace("--password-file", "password_file, in `networks` of the profile")
    if profile.software.source == "bundle":
        missing = set(installation.images) - software.available_images(profile)
        if missing:
            return f"the bundle does not contain its image {', '.join(sorted(missing))}"
    return ""
