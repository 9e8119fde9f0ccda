"""Describe a network: the facts of a CNI plugin in one mode, its lab datapath and its cluster install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from k8sdds.model.trial import IP_FAMILIES, MTU_OF_LINKS
from k8sdds.networks.cluster_install import ClusterInstall
from k8sdds.networks.datapath import LINK_MTU, Datapath, NodePlugins, Topology
from k8sdds.networks.plugin import Plugin
from k8sdds.system.kernel_features import Feature

Fidelity = Literal["real", "equivalent", "modelled"]
Options = Mapping[str, object]
"""A network's options in an experiment: `mtu`, `engine`, `attachment`, the IP families of nodes and pods, and the MTU
of the nodes' links."""
SECOND_INTERFACE = "net1"
"""Name that Multus gives a pod's first additional interface."""


@dataclass(frozen=True)
class Engine:
    """An implementation of a network's datapath, where the lab has several."""

    name: str
    """The value of `engine:` in experiments: `kernel` or `userspace`."""
    title: str
    """Name in labels and results, such as `userspace ESP`."""
    mode: str
    """Mode of the tunnels: `tunnel` or `transport`."""
    default_mtu: int
    max_mtu: int
    requires: tuple[Feature, ...]
    """What the engine needs in addition to the network's own requirements."""
    fixed_mtu: bool = False
    """Whether the program limits the MTU, whatever that of the links is."""
    loss_exemption: str = ""
    """Why the lab's rule for simulated loss misses its packets."""


@dataclass(frozen=True)
class ClusterEngine:
    """An implementation of a network's datapath that only clusters have, and only if the user requests it."""

    name: str
    """The value of `engine:` in profiles and experiments."""
    title: str
    """Name in labels and results."""
    install: ClusterInstall


@dataclass(frozen=True)
class NetworkColor:
    """How figures and reports draw a network."""

    light: str
    """Color on light background, #rrggbb."""
    dark: str
    """Color on dark background, #rrggbb."""
    marker: str
    """matplotlib marker."""


@dataclass(frozen=True)
class Difference:
    """One difference between the kernel objects of a lab network and those on the nodes of a real cluster.

    Tests on clusters, and one in a virtual machine, compare all objects of a node and of a pod with those of the lab
    (`tests/kernel_objects.py`). They fail for a difference that is not declared, and for a declared one that does not
    exist. Lines are regular expressions.
    """

    in_lab: str
    on_cluster: str
    cost: str
    """What it costs the packets between two pods, and why."""
    lab: tuple[str, ...] = ()
    """All lines that only the lab has."""
    daemon: tuple[str, ...] = ()
    """All lines that only the cluster has."""


@dataclass(frozen=True)
class Network:
    """A CNI plugin in one mode: its facts, its datapath in the lab and its installation on clusters."""

    name: str
    title: str
    layer: str
    """How packets reach other nodes: `none`, `L2 link`, `L2 overlay` or `L3 routes`."""
    versions: str
    """Upstream versions that the facts and the datapath follow."""
    fidelity: Fidelity
    """How close the lab's datapath is to the real plugin."""
    differences: str
    """What the lab's datapath omits or replaces."""
    default_mtu: int
    """MTU of pods unless the user sets one."""
    requires: tuple[Feature, ...]
    """What the lab needs to build the network with any engine."""
    lab: Callable[[Topology, int, Engine | None], Datapath]
    """(topology, mtu, engine) → datapath; `engine` is None if `engines` is empty."""
    max_mtu: int | None = None
    """Largest MTU of pods on links of LINK_MTU, if it is not the default and no engine has its own."""
    encapsulation: str = ""
    multicast: str = ""
    """How multicast reaches other nodes; empty if it does not."""
    encryption: str | None = ""
    """How packets between nodes are encrypted; empty if they are not; None if unknown."""
    policy: bool = False
    """Whether the plugin enforces Kubernetes NetworkPolicy."""
    plugin: Plugin | None = None
    """How the plugin is recognized on clusters of others; None if it leaves no signs."""
    suggested: bool = False
    """Whether k8sdds suggests it where the user names no network: in new profiles, and to applications that encrypt
    samples if it encrypts, otherwise to all applications."""
    color: NetworkColor | None = None
    """None for networks that k8sdds does not have itself."""
    kernel_differences: tuple[Difference, ...] = ()
    """How its kernel objects differ from those of its real daemons; empty if they are not compared."""
    cluster: ClusterInstall | None = None
    """How k8sdds installs the network on a cluster; None if there is nothing to install."""
    cluster_engines: tuple[ClusterEngine, ...] = ()
    """Other engines of the plugin on a cluster. Without a request, a cluster has the plugin's own."""
    own_engine: str = ""
    """Name by which a user selects the plugin's own engine on a cluster whose profile names another one."""
    hides_engine: bool = False
    """Whether its path through a cluster does not show which engine others have configured."""
    cluster_title: str | None = None
    """What implements the datapath on a cluster, if `replacement` names something else in the lab."""
    pod_interface: str = ""
    """Name of the pods' interface on this network, if it is not their first one; empty if it is the first."""
    by_attachment: bool = False
    """Whether the option `attachment` selects the network that `pod_interface` is connected to."""
    unencrypted: str | None = None
    """For an encrypted network: name of the same network without encryption."""
    replacement: str | None = None
    """What replaces the plugin's own datapath in the lab, for a network without a choice of engines."""
    engines: tuple[Engine, ...] = ()
    """The plugin's own engine first; last the one that needs the fewest kernel features."""
    loss_exemption: str = ""
    """Why the lab's rule for simulated loss, which drops UDP packets that a node receives, misses the packets."""
    ipv4_only: str = ""
    """Why it carries only IPv4; empty if the lab has it with IPv6, too."""
    ipv6_overhead: int = 0
    """How much smaller the MTU of pods must be if nodes exchange packets by IPv6."""
    lab_policies: tuple[Feature, ...] = ()
    """What the lab needs for the rules that the plugin creates for policies; empty if the lab does not have them."""
    cni_plugins: NodePlugins | None = None
    """The real CNI plugins with which the lab can add pods to its nodes; None if it cannot."""
    no_cni_plugins: str = ""
    """Why the lab cannot run its CNI plugins."""
    aliases: tuple[str, ...] = ()
    """Other names in folder and file names of published results."""

    @property
    def choices(self) -> tuple[Engine | ClusterEngine, ...]:
        """All engines that an experiment can name, those that only clusters have last."""
        return *self.engines, *self.cluster_engines

    @property
    def agent_pods(self) -> tuple[str, ...]:
        """`namespace/name` patterns of the plugin's pods when its own manifests installed it."""
        return self.plugin.agent_pods if self.plugin else ()

    def engine_for(self, options: Options) -> Engine | None:
        """Return the engine that the options name, by default the last; None if there is no choice."""
        if not self.engines:
            return None
        name = options.get("engine")
        return next((engine for engine in self.engines if engine.name == name), self.engines[-1])

    def cluster_engine(self, name: object) -> ClusterEngine | None:
        """Return the engine of this name that only clusters have, or None."""
        return next((engine for engine in self.cluster_engines if engine.name == name), None)

    def install_for(self, engine: object) -> ClusterInstall | None:
        """Return how the network is installed on a cluster with an engine, or with the plugin's own if it is None."""
        own = self.cluster_engine(engine)
        return own.install if own else self.cluster

    def replaces_kube_proxy(self, options: Options) -> bool:
        """Return whether the network handles the Services of pods on a cluster, instead of kube-proxy."""
        install = self.install_for(options.get("engine"))
        return install is not None and install.replaces_kube_proxy

    def mode_name(self, options: Options) -> str:
        """Return the network's name, followed by an engine that only clusters have."""
        engine = self.cluster_engine(options.get("engine"))
        return f"{self.name} ({engine.name})" if engine else self.name

    def engine_title(self, options: Options, on_cluster: bool = False, by_others: bool = False) -> str | None:
        """Return the title of the implementation of the datapath; None if the plugin has only one.

        `by_others`: others installed the network. The title is also None if they may have configured it in another way.
        """
        if engine := self.cluster_engine(options.get("engine")) or self.engine_for(options):
            return engine.title
        if not on_cluster:
            return self.replacement
        return None if by_others and self.hides_engine else self.cluster_title

    def requirements(self, options: Options) -> tuple[Feature, ...]:
        """Return everything that the lab needs to build the network with these options."""
        return (*self.requires, *self._usual(options).requires)

    def loss_exemption_with(self, options: Options) -> str:
        """Return why the lab's rule for simulated loss misses the packets with these options; empty if it does not."""
        return self._usual(options).loss_exemption

    def mtu(self, options: Options) -> int:
        """Return the MTU of the pods' interfaces with these options."""
        mtu = options.get("mtu")
        if isinstance(mtu, int):
            return mtu
        return min(self._usual(options).default_mtu + self._added_mtu(options), self._max_mtu(options))

    def _usual(self, options: Options) -> Engine:
        """Return the engine with these options, or what is known of the network if there is no choice."""
        return self.engine_for(options) or Engine(
            name="", title=self.encapsulation or "the network", mode="", default_mtu=self.default_mtu,
            max_mtu=self.max_mtu or self.default_mtu, requires=(), loss_exemption=self.loss_exemption,
        )  # fmt: skip

    def _max_mtu(self, options: Options) -> int:
        families = options.get(IP_FAMILIES)
        overhead = self.ipv6_overhead if isinstance(families, tuple) and "ipv6" in families else 0
        return self._usual(options).max_mtu - overhead + self._added_mtu(options)

    def _added_mtu(self, options: Options) -> int:
        """Return by how much the MTU of pods differs, because that of the links does."""
        return 0 if self._usual(options).fixed_mtu else _link_mtu(options) - LINK_MTU

    def options_error(self, options: Options) -> tuple[str, str] | None:
        """Return why the options are invalid, and the remedy; None if they are valid."""
        if self.by_attachment and "attachment" not in options:
            return (
                f"{self.name}: no NetworkAttachmentDefinition is given",
                "set `attachment` to the one that is measured, as NAMESPACE/NAME",
            )
        if "attachment" in options and "mtu" in options:
            return f"{self.name}: the NetworkAttachmentDefinition determines the mtu", "leave out mtu"
        if "attachment" in options and not self.pod_interface:
            return f"{self.name}: `attachment` is an option of multus and macvlan", "leave out attachment"
        names = [engine.name for engine in self.choices]
        if "engine" in options and options["engine"] not in names:
            remedy = (
                f"use one of {', '.join(names)}" if names else "leave out engine: it has no choice of engines"
            )
            return f"{self.name}: unknown engine {options['engine']!r}", remedy
        max_mtu = self._max_mtu(options)
        if self.mtu(options) > max_mtu:
            return (
                f"{self.name}: mtu {self.mtu(options)} is too large: links carry {_link_mtu(options)}"
                f" bytes and {self._usual(options).title} leaves at most {max_mtu}",
                "give a smaller mtu",
            )
        return None


def _link_mtu(options: Options) -> int:
    mtu = options.get(MTU_OF_LINKS, LINK_MTU)
    assert isinstance(mtu, int)
    return mtu
