"""Register all networks. A new network is one package here and one line in the registry."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from k8sdds import versions
from k8sdds.model.experiment import Experiment
from k8sdds.model.settings import NetworkChoice
from k8sdds.networks import calico, cilium, flannel, foreign, host, kube_router, macvlan, weave
from k8sdds.networks.foreign import SECONDARY, UNKNOWN
from k8sdds.networks.network import Network
from k8sdds.networks.plugin import Plugin
from k8sdds.system.errors import InputError
from k8sdds.system.kernel_features import FEATURES, Feature
from k8sdds.system.yaml_text import nearest

__all__ = ["NETWORKS", "PLUGINS", "SECONDARY", "UNKNOWN", "Network", "Plugin", "find", "known_names"]

NETWORKS: dict[str, Network] = {
    network.name: network
    for package in (host, flannel, kube_router, weave, macvlan, calico, cilium)
    for network in package.NETWORKS
}

PLUGINS: tuple[Plugin, ...] = tuple(
    sorted(
        dict.fromkeys([*(each.plugin for each in NETWORKS.values() if each.plugin), *foreign.PLUGINS]),
        key=lambda plugin: -plugin.precedence,
    )
)
"""The plugins that clusters of others are searched for, in this order."""


def find(name: str) -> Network:
    """Return the network with this name, which k8sdds has itself or finds on clusters."""
    if name in NETWORKS:
        return NETWORKS[name]
    if name not in known_names():
        hint = nearest(name, known_names())
        raise InputError(f"unknown network {name!r}{hint}", "see: k8sdds list networks")
    plugin = next((plugin for plugin in (*PLUGINS, *SECONDARY) if name in plugin.names), None)
    return foreign.network(name, plugin)


def known_names() -> list[str]:
    """Return the names of all networks that an experiment can name."""
    foreign_names = (name for plugin in (*PLUGINS, *SECONDARY) for name in plugin.names)
    return list(dict.fromkeys([*NETWORKS, *foreign_names, UNKNOWN]))


def suggested(encrypted: bool = False) -> tuple[str, ...]:
    """Return the networks to choose from where the user names none: those that encrypt, or those that do not."""
    return tuple(
        name
        for name, network in NETWORKS.items()
        if network.suggested and bool(network.encryption) == encrypted
    )


def published_names() -> dict[str, str]:
    """Return the names and aliases of networks in published results, with the name here."""
    published = {plugin.name: plugin.name for plugin in PLUGINS if plugin.published}
    aliases = {alias: name for name, network in NETWORKS.items() for alias in network.aliases}
    return published | {name: name for name in NETWORKS} | aliases


def agent_pods() -> tuple[str, ...]:
    """Return the `namespace/name` patterns of the pods of all networks' agents, by whatever they were installed."""
    known = (pattern for plugin in PLUGINS for pattern in plugin.agent_pods)
    return (f"{versions.NETWORK_NAMESPACE}/*", *dict.fromkeys(known))


def names_of(having: Callable[[Network], object]) -> str:
    """Return the names of the networks with a property, for messages."""
    return ", ".join(name for name, network in NETWORKS.items() if having(network))


def carrying_ipv6() -> tuple[str, ...]:
    """Return the networks that k8sdds can install with IPv6."""
    return tuple(
        name for name, network in NETWORKS.items() if network.cluster and not network.cluster.ipv4_only
    )


def pod_networks() -> dict[str, bool]:
    """Return for each network that a profile can install whether it needs a password file."""
    return {
        name: network.cluster.min_password_characters is not None
        for name, network in NETWORKS.items()
        if network.cluster
    }


def cluster_modes() -> dict[str, tuple[Network, str | None]]:
    """Return the networks that clusters can install, by name, each with its engine (None for the plugin's own)."""
    modes: dict[str, tuple[Network, str | None]] = {}
    for name, network in NETWORKS.items():
        if network.cluster:
            modes[name] = network, None
        for engine in network.cluster_engines:
            modes[network.mode_name({"engine": engine.name})] = network, engine.name
    return modes


def is_network_image(image: str) -> bool:
    """Return whether an image of a bundle is needed only on clusters with one plugin."""
    installs = [network.cluster for network in NETWORKS.values() if network.cluster]
    return any(fnmatchcase(image, pattern) for install in installs for pattern in install.bundle_images)


def features() -> tuple[Feature, ...]:
    """Return all kernel features and programs that the lab or one of its networks can use."""
    required = dict.fromkeys(FEATURES)
    for network in NETWORKS.values():
        required |= dict.fromkeys(network.requires)
        for engine in network.engines:
            required |= dict.fromkeys(engine.requires)
    return tuple(required)


def with_engines(experiment: Experiment, available: Callable[[Feature], bool]) -> Experiment:
    """Return the experiment with an engine for every network that has a choice, and the engine in its label.

    Where the user sets no engine, this selects the first engine whose requirements are all available. If there is
    none, it selects the last, so that the preflight check reports what is missing.
    """
    labels: dict[str, str] = {}

    def with_engine(choice: NetworkChoice) -> NetworkChoice:
        network = find(choice.name)
        if not network.engines and network.cluster_engine(choice.engine) is None:
            return choice
        usable = (engine for engine in network.engines if all(map(available, engine.requires)))
        name = choice.engine or next(usable, network.engines[-1]).name
        title = network.engine_title({"engine": name})
        shown = choice.display_name
        label = shown if shown.endswith(f" ({title})") else f"{shown} ({title})"
        labels[shown] = label
        return choice.model_copy(update={"engine": name, "label": label})

    changed = _with_choices(experiment, with_engine)
    baseline = labels.get(experiment.baseline, experiment.baseline)
    return changed.model_copy(update={"baseline": baseline})


def with_attachment(experiment: Experiment, name: str, attachment: str) -> Experiment:
    """Return the experiment in which a network is that of an attachment, unless it names another one."""

    def attached(choice: NetworkChoice) -> NetworkChoice:
        if choice.name != name or choice.attachment:
            return choice
        return choice.model_copy(update={"attachment": attachment})

    return _with_choices(experiment, attached)


def _with_choices(experiment: Experiment, change: Callable[[NetworkChoice], NetworkChoice]) -> Experiment:
    sweeps = [
        sweep.model_copy(update={"networks": [change(choice) for choice in sweep.networks]})
        for sweep in experiment.sweeps
    ]
    return experiment.model_copy(update={"sweeps": sweeps})


def label_without_engine(label: str) -> str:
    """Return a label without the engine that `with_engines` added."""
    titles = {engine.title for network in NETWORKS.values() for engine in network.choices}
    head, _, tail = label.rpartition(" (")
    return head if tail.rstrip(")") in titles else label
