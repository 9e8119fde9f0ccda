"""Detect which network plugin a cluster uses, by the signs that each plugin leaves. Pure functions.

The table `PLUGINS` contains the signs. A name identifies the plugin and, if its signs show it, its mode. Signs such as
annotations, conditions and images remain when a plugin is removed, so only a plugin whose agent runs is named. The
fingerprint shows what the network really does with packets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from k8sdds import versions
from k8sdds.networks.cluster_install import Manifest
from k8sdds.networks.datapath import LINK_MTU, Datapath, Topology
from k8sdds.networks.network import SECOND_INTERFACE, Engine, Network, NetworkColor
from k8sdds.system.errors import InputError

UNKNOWN = "unknown"
"""Name of a network without known signs."""
OBSERVED = "as observed"
"""Value of facts that k8sdds does not assume, because it observes them."""
MAX_PACKET = 65535


@dataclass(frozen=True)
class Signs:
    """What a cluster shows of its network. What this user may not read is empty."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of all nodes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of all nodes."""
    reasons: frozenset[str] = frozenset()
    """Reasons of the nodes' condition NetworkUnavailable, which plugins set, such as CiliumIsUp."""
    images: frozenset[str] = frozenset()
    """Images on the nodes."""
    daemonsets: Mapping[str, Manifest] | None = None
    """By name; None: this user may not list them."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Content of ConfigMaps by NAMESPACE/NAME."""


Mode = Callable[[Signs], str]
"""Returns the mode of a plugin as the end of its name, such as `vxlan`; empty: unknown, or there is only one."""


@dataclass(frozen=True)
class Plugin:
    """The signs of a plugin. One of them is enough, if an agent of the plugin runs. Names are shell patterns."""

    name: str
    title: str
    annotations: tuple[str, ...] = ()
    """Keys of annotations of nodes."""
    labels: tuple[str, ...] = ()
    """KEY or KEY=VALUE."""
    reasons: tuple[str, ...] = ()
    daemonsets: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """DaemonSets of its agent that do not identify it, because other plugins have them, too."""
    embedded: tuple[str, ...] = ()
    """Distributions (`_DISTRIBUTIONS`) whose own process on every node is its agent."""
    images: tuple[str, ...] = ()
    """Without registry and tag."""
    config_maps: tuple[str, ...] = ()
    """NAMESPACE/NAME of ConfigMaps that show the mode."""
    modes: tuple[str, ...] = ()
    mode: Mode = lambda signs: ""

    def signs_in(self, signs: Signs) -> list[str]:
        """Return the signs of this plugin, except images."""
        labels = [*signs.labels, *(f"{key}={value}" for key, value in signs.labels.items())]
        return [
            *(f"annotation {name}" for name in _matching(signs.annotations, self.annotations)),
            *(f"label {name}" for name in _matching(labels, self.labels)),
            *(f"condition {name}" for name in _matching(signs.reasons, self.reasons)),
            *(f"DaemonSet {name}" for name in _matching(signs.daemonsets or (), self.daemonsets)),
        ]

    def runs_in(self, signs: Signs) -> bool:
        """Return whether an agent of this plugin runs on the cluster."""
        running = [name for name, manifest in (signs.daemonsets or {}).items() if is_running(manifest)]
        if _matching(running, (*self.daemonsets, *self.agents)):
            return True
        # Nothing shows that a distribution's process is the agent, but the path of a known mode is verified later.
        return _distribution(signs) in self.embedded and self.mode(signs) in self.modes

    def images_in(self, signs: Signs) -> list[str]:
        """Return the images of this plugin on the nodes."""
        return sorted(image for image in signs.images if _matching([_repository(image)], self.images))

    def version_in(self, signs: Signs) -> str:
        """Return the version by the tag of the agent's image; empty: unknown."""
        listed = signs.daemonsets or {}
        agents = (listed[name] for name in _matching(listed, (*self.daemonsets, *self.agents)))
        images = [image for agent in agents for image in _images(agent)]
        tags = {_tag(image) for image in images if _matching([_repository(image)], self.images)} - {""}
        return tags.pop() if len(tags) == 1 else ""


@dataclass(frozen=True)
class DetectedNetwork:
    """The network of a cluster."""

    name: str
    title: str
    version: str = ""
    """Empty: unknown."""
    signs: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    """Plugins that add further interfaces to pods."""
    remains: tuple[str, ...] = ()
    """Signs of plugins of which no agent is known to run."""

    def describe(self) -> str:
        """Return the network in one line."""
        parts = [self.name, *([self.version] if self.version else [])]
        also = f", also {', '.join(self.secondary)}" if self.secondary else ""
        return " ".join(parts) + (f" ({'; '.join(self.signs[:3])})" if self.signs else "") + also


def _calico_mode(signs: Signs) -> str:
    if any(key.endswith("IPv4VXLANTunnelAddr") for key in signs.annotations):
        return "vxlan"
    if any(key.endswith("IPv4IPIPTunnelAddr") for key in signs.annotations):
        return "ipip"
    return "bgp" if any(key.endswith("IPv4Address") for key in signs.annotations) else ""


def _cilium_mode(signs: Signs) -> str:
    config = signs.config_maps.get("kube-system/cilium-config", {})
    if config.get("routing-mode") == "native" or config.get("tunnel") == "disabled":
        return "native"
    tunnel = config.get("tunnel-protocol") or config.get("tunnel") or ("vxlan" if config else "")
    return tunnel if tunnel in ("vxlan", "geneve") else ""


def _antrea_mode(signs: Signs) -> str:
    text = signs.config_maps.get("kube-system/antrea-config", {}).get("antrea-agent.conf", "")
    settings: dict[str, str] = dict(re.findall(r"^(\w+):\s*\"?(\w+)", text, re.MULTILINE))
    encapsulation = settings.get("trafficEncapMode", "encap" if text else "")
    if encapsulation.lower() != "encap":
        return encapsulation.lower()
    return settings.get("tunnelType", "geneve").lower()


def _backend(signs: Signs) -> str:
    """Return Flannel's backend by the annotation that flanneld writes on its node."""
    return signs.annotations.get("flannel.alpha.coreos.com/backend-type", "").replace("-", "")


def _weave_mode(signs: Signs) -> str:
    variables = [
        variable["name"]
        for container in containers((signs.daemonsets or {}).get("weave-net", {}))
        for variable in container.get("env", ())
    ]
    return "encrypt" if "WEAVE_PASSWORD" in variables else ""


def _flannel_mode(signs: Signs) -> str:
    if backend := _backend(signs):
        return backend
    config = next((signs.config_maps[name] for name in _FLANNEL_CONFIG if name in signs.config_maps), {})
    try:
        backend = str(json.loads(config.get("net-conf.json", "{}"))["Backend"]["Type"])
    except (ValueError, KeyError, TypeError):
        return ""
    return backend.replace("-", "")


_K3S = "k3s"
_FLANNEL_CONFIG = ("kube-flannel/kube-flannel-cfg", "kube-system/kube-flannel-cfg")

# Plugins that contain others come first: Canal leaves the signs of Flannel and Calico, and the clouds' Cilium its own.
PLUGINS = (
    Plugin(
        "canal", "Canal: Flannel with Calico's policies", daemonsets=("canal", "rke2-canal"),
        modes=("vxlan", "hostgw", "wireguard"), mode=_backend,
    ),
    Plugin(
        "gke-dataplane-v2", "GKE Dataplane V2 (Cilium)", daemonsets=("anetd",),
        labels=("cloud.google.com/gke-dataplane-v2*",),
    ),
    Plugin(
        "azure-cilium", "Azure CNI powered by Cilium", labels=("kubernetes.azure.com/ebpf-dataplane=cilium",),
        agents=("cilium",),
    ),
    Plugin(
        "cilium", "Cilium", annotations=("network.cilium.io/*", "io.cilium.network.*"), reasons=("CiliumIsUp",),
        daemonsets=("cilium",), images=("*cilium/cilium", "*rancher/mirrored-cilium-cilium"),
        config_maps=("kube-system/cilium-config",), modes=("vxlan", "geneve", "native"), mode=_cilium_mode,
    ),
    Plugin(
        "antrea", "Antrea", annotations=("node.antrea.io/*",), daemonsets=("antrea-agent",),
        images=("antrea/antrea-*",), config_maps=("kube-system/antrea-config",),
        modes=("geneve", "vxlan", "gre", "stt", "noencap", "hybrid", "networkpolicyonly"), mode=_antrea_mode,
    ),
    Plugin(
        "ovn-kubernetes", "OVN-Kubernetes", annotations=("k8s.ovn.org/*",), daemonsets=("ovnkube-node*",),
        images=("*ovn-kubernetes*",),
    ),
    Plugin(
        "kube-ovn", "Kube-OVN", annotations=("ovn.kubernetes.io/*",), daemonsets=("kube-ovn-cni",),
        images=("kubeovn/kube-ovn",),
    ),
    Plugin(
        "calico", "Calico", annotations=("projectcalico.org/IPv*",), reasons=("CalicoIsUp",),
        daemonsets=("calico-node",), images=("*calico/node", "*mirrored-calico-node"),
        modes=("vxlan", "ipip", "bgp"), mode=_calico_mode,
    ),
    Plugin(
        "aws-vpc", "Amazon VPC CNI", labels=("vpc.amazonaws.com/*", "k8s.amazonaws.com/eniConfig"),
        daemonsets=("aws-node",), images=("*amazon-k8s-cni",),
    ),
    Plugin(
        "azure", "Azure CNI",
        labels=("kubernetes.azure.com/azure-cni-overlay*", "kubernetes.azure.com/podnetwork-type*"),
        daemonsets=("azure-cns*", "azure-cni*"), images=("*azure-cni", "*azure-cns"),
    ),
    Plugin("gke", "GKE's CNI", labels=("cloud.google.com/gke-netd-ready*",), daemonsets=("netd",)),
    Plugin(
        "weavenet", "WeaveNet", reasons=("WeaveIsUp",), daemonsets=("weave-net",), images=("*weave-kube",),
        modes=("encrypt",), mode=_weave_mode,
    ),
    Plugin(
        "kube-router", "Kube-router", annotations=("kube-router.io/*",), daemonsets=("kube-router*",),
        images=("*kube-router",),
    ),
    Plugin("kindnet", "kindnet", daemonsets=("kindnet*",), images=("*kindnetd",)),
    Plugin(
        "flannel", "Flannel", annotations=("flannel.alpha.coreos.com/*",), reasons=("FlannelIsUp",),
        daemonsets=("kube-flannel-ds*",), embedded=(_K3S,), images=("*flannel", "*flanneld"),
        config_maps=_FLANNEL_CONFIG, mode=_flannel_mode,
        modes=("vxlan", "hostgw", "ipsec", "wireguard", "udp", "ipip", "extension"),
    ),
)  # fmt: skip

SECONDARY = (
    Plugin(
        "multus", "Multus", annotations=("k8s.v1.cni.cncf.io/*",), daemonsets=("kube-multus-ds*", "multus*"),
        images=("*multus-cni",),
    ),
)  # fmt: skip
"""Plugins that add interfaces to pods, next to the network of the cluster."""

_DISTRIBUTIONS = (("k3s.io/", _K3S), ("rke2.io/", "RKE2"), ("microk8s.io/", "MicroK8s"))
"""Starts of annotations and labels of nodes, with the distribution that sets them and brings its own network."""


def is_running(daemonset: Manifest) -> bool:
    """Return whether pods of a DaemonSet are ready."""
    return int(daemonset.get("status", {}).get("numberReady") or 0) > 0


def is_agent(daemonset: Manifest) -> bool:
    """Return whether the pods of a DaemonSet are agents of a network."""
    names = [pattern for plugin in (*PLUGINS, *SECONDARY) for pattern in (*plugin.daemonsets, *plugin.agents)]
    return bool(own_name(daemonset) or _matching([daemonset["metadata"]["name"]], names))


def own_name(daemonset: Manifest) -> str:
    """Return the name of the network of which k8sdds installed this agent; empty: others installed the DaemonSet."""
    metadata = daemonset.get("metadata", {})
    return str(metadata.get("labels", {}).get(versions.NETWORK_LABEL, ""))


def config_maps(signs: Signs) -> list[str]:
    """Return NAMESPACE/NAME of the ConfigMaps that show the modes of the plugins whose agents run."""
    return [name for plugin in PLUGINS if plugin.runs_in(signs) for name in plugin.config_maps]


def detect(signs: Signs, titles: Mapping[str, str]) -> DetectedNetwork:
    """Return the network whose agent runs and that the signs show; its name is `UNKNOWN` if there is none.

    Args:
        signs: What the cluster shows.
        titles: The titles of the networks that k8sdds can install, by name.
    """
    secondary = tuple(plugin.name for plugin in SECONDARY if plugin.signs_in(signs) and plugin.runs_in(signs))
    remains = tuple(
        sign
        for plugin in PLUGINS
        if not plugin.runs_in(signs)
        for sign in (*plugin.signs_in(signs), *(f"image {image}" for image in plugin.images_in(signs)))
    )
    if own := _own(signs, titles):
        return replace(own, secondary=secondary, remains=remains)
    shown = ((plugin, plugin.signs_in(signs)) for plugin in PLUGINS if plugin.runs_in(signs))
    found = next((entry for entry in shown if entry[1]), None)
    if found is None:
        title = _title("a network that k8sdds does not know", signs)
        return DetectedNetwork(UNKNOWN, title, secondary=secondary, remains=remains)
    plugin, found_signs = found
    mode = plugin.mode(signs)
    name = f"{plugin.name}-{mode}" if mode in plugin.modes else plugin.name
    return DetectedNetwork(
        name, _title(plugin.title, signs), plugin.version_in(signs), tuple(found_signs), secondary, remains
    )


def _own(signs: Signs, titles: Mapping[str, str]) -> DetectedNetwork | None:
    """Return the network that k8sdds installed and whose agent runs; None: there is none, or several."""
    running = {
        name: manifest
        for name, manifest in (signs.daemonsets or {}).items()
        if own_name(manifest) in titles and is_running(manifest)
    }
    names = {own_name(manifest) for manifest in running.values()}
    if len(names) != 1:
        return None
    tags = sorted({_tag(image) for manifest in running.values() for image in _images(manifest)} - {""})
    version = tags[0] if len(tags) == 1 else ""
    name = names.pop()
    return DetectedNetwork(name, titles[name], version, tuple(f"DaemonSet {name}" for name in running))


def _title(title: str, signs: Signs) -> str:
    distribution = _distribution(signs)
    return f"{title}, of {distribution}" if distribution else title


def _distribution(signs: Signs) -> str:
    """Return the distribution of Kubernetes that brings its own network; empty: none is known."""
    keys = (*signs.annotations, *signs.labels)
    found = (name for start, name in _DISTRIBUTIONS if any(key.startswith(start) for key in keys))
    return next(found, "")


# -- as a network that can be measured --------------------------------------------------------------------


def names() -> list[str]:
    """Return the names of all networks that are measured if a cluster has them, but that k8sdds does not install."""
    return [*(name for plugin in (*PLUGINS, *SECONDARY) for name in _names(plugin)), UNKNOWN]


def foreign(name: str) -> Network | None:
    """Return a network that others installed on a cluster; None: there is no such name."""
    if name not in names():
        return None
    plugin = next((plugin for plugin in (*PLUGINS, *SECONDARY) if name in _names(plugin)), None)
    secondary = plugin in SECONDARY
    mode = name.removeprefix(plugin.name).strip("-") if plugin else ""
    title = (
        f"{plugin.title}{f', {mode}' if mode else ''}"
        if plugin
        else "the installed network, which is unknown"
    )
    return Network(
        name=name, title=title, layer=OBSERVED, encapsulation=OBSERVED, multicast=OBSERVED, encryption=None,
        policy=False, architectures=versions.ARCHITECTURES, versions=OBSERVED, fidelity="real", differences="",
        default_mtu=LINK_MTU, max_mtu=MAX_PACKET, requires=(), lab=_no_lab,
        color=NetworkColor("#117733", "#6fd08c", "h"),
        agent_pods=tuple(f"kube-system/{name}-*" for name in plugin.daemonsets) if plugin else (),
        pod_interface=SECOND_INTERFACE if secondary else "", by_attachment=secondary,
    )  # fmt: skip


def _names(plugin: Plugin) -> list[str]:
    return [plugin.name, *(f"{plugin.name}-{mode}" for mode in plugin.modes)]


def _no_lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    raise InputError("the lab does not have this network", "measure it on a cluster: --testbed cluster")


# -- reading objects --------------------------------------------------------------------------------------


def _matching(values: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return [value for value in values if any(fnmatchcase(value, pattern) for pattern in patterns)]


def _repository(image: str) -> str:
    """Return `cilium/cilium` for quay.io/cilium/cilium:v1.15.1@sha256:…."""
    path = image.partition("@")[0]
    last = path.rpartition("/")
    path = f"{last[0]}{last[1]}{last[2].partition(':')[0]}"
    first, slash, rest = path.partition("/")
    return rest if slash and ("." in first or ":" in first or first == "localhost") else path


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def containers(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the init containers and containers of a DaemonSet's pods."""
    pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
    return [*pod.get("initContainers", ()), *pod.get("containers", ())]


def _images(manifest: Manifest) -> list[str]:
    return [container.get("image", "") for container in containers(manifest)]
