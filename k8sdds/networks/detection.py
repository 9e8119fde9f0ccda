"""Detect which network plugin a cluster uses, by the signs that each plugin leaves. Pure functions.

A name identifies the plugin and, if its signs show it, its mode. Signs such as annotations, conditions and images
remain when a plugin is removed, so only a plugin whose agent runs is named. The fingerprint shows what the network
really does with packets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from k8sdds import versions
from k8sdds.networks import NETWORKS, PLUGINS, SECONDARY, UNKNOWN
from k8sdds.networks.cluster_install import Manifest, images
from k8sdds.networks.macvlan import multus
from k8sdds.networks.plugin import Signs, common_tag, is_running, matching


@dataclass(frozen=True)
class DetectedNetwork:
    """The network of a cluster."""

    name: str
    title: str
    version: str = ""
    """Empty if unknown."""
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


def detect(signs: Signs) -> DetectedNetwork:
    """Return the network whose agent runs and that the signs show; its name is `UNKNOWN` if there is none."""
    running = [plugin for plugin in PLUGINS if plugin.runs_in(signs)]
    found = _own(signs) or next(
        (
            DetectedNetwork(
                f"{plugin.name}-{mode}" if (mode := plugin.mode(signs)) in plugin.modes else plugin.name,
                _title(plugin.title, signs),
                plugin.version_in(signs),
                tuple(shown),
            )
            for plugin in running
            if (shown := plugin.signs_in(signs))
        ),
        DetectedNetwork(UNKNOWN, _title("a network that k8sdds does not know", signs)),
    )
    return replace(
        found,
        secondary=tuple(
            plugin.name for plugin in SECONDARY if plugin.signs_in(signs) and plugin.runs_in(signs)
        ),
        remains=tuple(
            sign
            for plugin in PLUGINS
            if plugin not in running
            for sign in (*plugin.signs_in(signs), *(f"image {image}" for image in plugin.images_in(signs)))
        ),
    )


def config_maps(signs: Signs) -> list[str]:
    """Return NAMESPACE/NAME of the ConfigMaps that show the modes of the plugins whose agents run."""
    return [name for plugin in PLUGINS if plugin.runs_in(signs) for name in plugin.config_maps]


def is_agent(daemonset: Manifest) -> bool:
    """Return whether the pods of a DaemonSet are agents of a network."""
    names = [pattern for plugin in (*PLUGINS, *SECONDARY) for pattern in (*plugin.daemonsets, *plugin.agents)]
    return bool(own_name(daemonset) or matching([daemonset["metadata"]["name"]], names))


def own_name(daemonset: Manifest) -> str:
    """Return the name of the network of which k8sdds installed this agent; empty if others installed the DaemonSet."""
    metadata = daemonset.get("metadata", {})
    return str(metadata.get("labels", {}).get(versions.NETWORK_LABEL, ""))


def _own(signs: Signs) -> DetectedNetwork | None:
    """Return the network that k8sdds installed and whose agent runs; None if there is none, or several."""
    running = {
        name: manifest
        for name, manifest in (signs.daemonsets or {}).items()
        if own_name(manifest) in NETWORKS and is_running(manifest) and name != multus.AGENT
    }
    names = {own_name(manifest) for manifest in running.values()}
    if len(names) != 1:
        return None
    name = names.pop()
    version = common_tag(image for manifest in running.values() for image in images([manifest]))
    return DetectedNetwork(
        name, NETWORKS[name].title, version, tuple(f"DaemonSet {agent}" for agent in running)
    )


def _title(title: str, signs: Signs) -> str:
    return f"{title}, of {signs.distribution}" if signs.distribution else title
