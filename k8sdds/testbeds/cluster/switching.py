"""Networks of a cluster that `deploy` built: which it could have, and another one for the next block."""

from __future__ import annotations

from k8sdds.bundle import recipe
from k8sdds.deploy import named, networks, record
from k8sdds.errors import InputError
from k8sdds.model.network import Network
from k8sdds.model.profile import Profile
from k8sdds.networks import NETWORKS
from k8sdds.testbeds.lab.capabilities import can


class Switch:
    """The pod network of one deployed cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.current = named.current_of(cluster)
        """The network that is installed now."""
        self._first = self.current
        self._options: dict[str, object] = {}
        """Other than the profile's, of the one that is installed now."""

    def able(self) -> list[str]:
        """Networks that can be installed with what is here; the installed one is among them."""
        known = record.read(self._cluster) or {}
        profile = Profile.model_validate(known["profile"])
        found = [name for name, one in NETWORKS.items() if one.cluster and _can_be(profile, one)]
        return list(dict.fromkeys([self.current, *found]))

    def is_there(self, network: str, options: dict[str, object]) -> bool:
        """Whether this very network is installed."""
        return self.current == network and self._options == _given(options)

    def to(self, network: str, options: dict[str, object]) -> None:
        """Install a network in place of the one that is there; returns when it carries datagrams."""
        named.switch_cluster(self._cluster, network, _given(options))
        self.current, self._options = network, _given(options)

    def back(self) -> None:
        """Install the network that was there first, if another one is there now."""
        if not self.is_there(self._first, {}):
            self.to(self._first, {})


def _given(options: dict[str, object]) -> dict[str, object]:
    """What an experiment may ask of a network on a cluster; the engine is always the plugin's own."""
    return {key: value for key, value in options.items() if key == "mtu"}


def _can_be(profile: Profile, network: Network) -> bool:
    try:
        chosen = networks.asked(profile, network.name)
        wanted = networks.install(networks.with_network(profile, chosen))
    except InputError:
        return False  # it needs what only its user can give, such as a password
    if profile.software.source == "bundle":
        here = {image.name for image in recipe.IMAGES}
        if not set(wanted.images) <= here:
            return False
    if profile.provider != "local":
        return True  # its own preflight looks at the machines
    own = {"engine": network.engines[0].option} if network.engines else {}
    return all(can(need) for need in network.needs_of(own))
