"""Networks of a cluster that `deploy` built: which it could have, and another one for the next block."""

from __future__ import annotations

from k8sdds.bundle import recipe
from k8sdds.deploy import deployed_clusters, network_install, profiles
from k8sdds.model.profile import Profile
from k8sdds.networks import NETWORKS, find
from k8sdds.networks.network import Network
from k8sdds.system.errors import InputError
from k8sdds.system.kernel_features import available, probe


class Switch:
    """The pod network of one deployed cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.current = deployed_clusters.current_of(cluster)
        """The network that is installed now."""
        self._profile = profiles.deployed(cluster)
        self._first = self.current
        self._options: dict[str, object] = {}
        """Other than the profile's, of the one that is installed now."""

    def able(self) -> list[str]:
        """Networks that can be installed with what is here; the installed one is among them."""
        found = [name for name, one in NETWORKS.items() if one.cluster and not self.lack(name)]
        return list(dict.fromkeys([self.current, *found]))

    @property
    def interface(self) -> str:
        """The nodes' link that its profile wants networks to use; empty: that of the default route."""
        return self._profile.network.interface or ""

    def lack(self, network: str) -> str:
        """Why a network cannot be installed here; empty where it can."""
        return _lack(self._profile, find(network))

    def is_there(self, network: str, options: dict[str, object]) -> bool:
        """Whether this very network is installed."""
        return self.current == network and self._options == _given(options)

    def to(self, network: str, options: dict[str, object]) -> None:
        """Install a network in place of the one that is there; returns when it carries datagrams."""
        deployed_clusters.switch_cluster(self._cluster, network, _given(options))
        self.current, self._options = network, _given(options)

    def back(self) -> None:
        """Install the network that was there first, if another one is there now."""
        if not self.is_there(self._first, {}):
            self.to(self._first, {})


def _given(options: dict[str, object]) -> dict[str, object]:
    """What an experiment may ask of a network on a cluster; the engine is always the plugin's own."""
    return {key: value for key, value in options.items() if key == "mtu"}


def _lack(profile: Profile, network: Network) -> str:
    if profile.provider == "local":
        # The nodes have this machine's kernel; those of others are looked at by their own preflight.
        own = {"engine": network.engines[0].name} if network.engines else {}
        lacking = [need for need in network.requirements(own) if not available(need)]
        if lacking:
            feature = lacking[-1]
            reason = probe([feature]).missing[feature.name]
            return f"this machine does not provide {feature.name}: {reason}"
    try:
        chosen = network_install.choose_network(profile, network.name)
        wanted = network_install.install(network_install.with_network(profile, chosen))
    except InputError as error:
        return error.message  # it needs what only its user can give, such as a password
    missing = set(wanted.images) - {image.name for image in recipe.IMAGES}
    if profile.software.source == "bundle" and missing:
        return f"the bundle lacks its image {', '.join(sorted(missing))}"
    return ""
