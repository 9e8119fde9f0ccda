"""Describe how a network plugin is recognized on a cluster: by its agent, and by the signs that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from k8sdds.networks.cluster_install import Manifest, images

K3S = "k3s"
_DISTRIBUTIONS = (("k3s.io/", K3S), ("rke2.io/", "RKE2"), ("microk8s.io/", "MicroK8s"))
"""Starts of annotations and labels of nodes, with the distribution that sets them and brings its own network."""


@dataclass(frozen=True)
class Signs:
    """What a cluster shows of its network. What this user has no right to read is empty."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of all nodes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of all nodes."""
    reasons: frozenset[str] = frozenset()
    """Reasons of the nodes' condition NetworkUnavailable, which plugins set, such as CiliumIsUp."""
    images: frozenset[str] = frozenset()
    """Images on the nodes."""
    daemonsets: Mapping[str, Manifest] | None = None
    """By name; None if this user has no right to list them."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Content of ConfigMaps by NAMESPACE/NAME."""

    @property
    def distribution(self) -> str:
        """The distribution of Kubernetes that brings its own network; empty if none is known."""
        keys = (*self.annotations, *self.labels)
        found = (name for start, name in _DISTRIBUTIONS if any(key.startswith(start) for key in keys))
        return next(found, "")


Mode = Callable[[Signs], str]
"""Returns the mode of a plugin as the end of its name, such as `vxlan`; empty if unknown, or there is only one."""


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
    namespaces: tuple[str, ...] = ("kube-system",)
    """Namespaces of its agent, if its own manifests installed it."""
    embedded: tuple[str, ...] = ()
    """Distributions whose own process on every node is its agent."""
    images: tuple[str, ...] = ()
    """Without registry and tag."""
    config_maps: tuple[str, ...] = ()
    """NAMESPACE/NAME of ConfigMaps that show the mode."""
    modes: tuple[str, ...] = ()
    mode: Mode = lambda signs: ""
    precedence: int = 0
    """Of several plugins whose agents run and whose signs a cluster shows, the one with the highest is its network."""
    published: bool = False
    """Whether published results name the plugin without its mode."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its networks: with each mode, and without one."""
        return (self.name, *(f"{self.name}-{mode}" for mode in self.modes))

    @property
    def agent_pods(self) -> tuple[str, ...]:
        """`namespace/name` patterns of its agent's pods, if its own manifests installed it."""
        return tuple(f"{namespace}/{name}-*" for namespace in self.namespaces for name in self.daemonsets)

    def signs_in(self, signs: Signs) -> list[str]:
        """Return the signs of this plugin, except images."""
        labels = [*signs.labels, *(f"{key}={value}" for key, value in signs.labels.items())]
        return [
            *(f"annotation {name}" for name in matching(signs.annotations, self.annotations)),
            *(f"label {name}" for name in matching(labels, self.labels)),
            *(f"condition {name}" for name in matching(signs.reasons, self.reasons)),
            *(f"DaemonSet {name}" for name in matching(signs.daemonsets or (), self.daemonsets)),
        ]

    def runs_in(self, signs: Signs) -> bool:
        """Return whether an agent of this plugin runs on the cluster."""
        running = [name for name, manifest in (signs.daemonsets or {}).items() if is_running(manifest)]
        if matching(running, (*self.daemonsets, *self.agents)):
            return True
        # Nothing shows that a distribution's process is the agent, but the path of a known mode is verified later.
        return signs.distribution in self.embedded and self.mode(signs) in self.modes

    def images_in(self, signs: Signs) -> list[str]:
        """Return the images of this plugin on the nodes."""
        return sorted(image for image in signs.images if matching([_repository(image)], self.images))

    def version_in(self, signs: Signs) -> str:
        """Return the version by the tag of the agent's image, or an empty string if it is unknown."""
        listed = signs.daemonsets or {}
        agents = matching(listed, (*self.daemonsets, *self.agents))
        found = [image for name in agents for image in images([listed[name]])]
        return common_tag(image for image in found if matching([_repository(image)], self.images))


def is_running(daemonset: Manifest) -> bool:
    """Return whether pods of a DaemonSet are ready."""
    return int(daemonset.get("status", {}).get("numberReady") or 0) > 0


def matching(values: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the values that match one of the shell patterns."""
    return [value for value in values if any(fnmatchcase(value, pattern) for pattern in patterns)]


def common_tag(images: Iterable[str]) -> str:
    """Return the tag that all of the images with a tag have, or an empty string."""
    tags = {image.partition("@")[0].rpartition("/")[2].partition(":")[2] for image in images} - {""}
    return tags.pop() if len(tags) == 1 else ""


def _repository(image: str) -> str:
    """Return `cilium/cilium` for quay.io/cilium/cilium:v1.15.1@sha256:…."""
    folder, slash, name = image.partition("@")[0].rpartition("/")
    path = f"{folder}{slash}{name.partition(':')[0]}"
    first, slash, rest = path.partition("/")
    return rest if slash and ("." in first or ":" in first or first == "localhost") else path
