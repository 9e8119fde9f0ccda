"""Combine the inputs of a plan: the profile, the facts of its machines, software and network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from k8sdds import versions
from k8sdds.deploy.facts import ETCD_DATA, Facts
from k8sdds.deploy.facts.cluster_state import ClusterState, cluster_state
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.deploy.software import Software
from k8sdds.kubernetes.kubectl import KUBECONFIG
from k8sdds.model.profile import Node, Profile
from k8sdds.system.errors import InputError

KUBELET_CONFIG = "/etc/kubernetes/kubelet.conf"


@dataclass(frozen=True)
class DesiredState:
    """What a deploy must achieve (profile, software, network), and the current facts of the machines."""

    profile: Profile
    facts: Mapping[str, Facts]
    """By node."""
    software: Software
    network: RenderedNetwork
    login: str = field(default="", repr=False)
    """USER:PASSWORD of the registry mirrors; empty: they require no login."""
    left_out: Sequence[Node] = ()
    """Workers that are not in `profile`, because they are outside of `--limit` and were left out."""

    @property
    def control_plane(self) -> str:
        """Name of the control plane's node."""
        return self.profile.control_plane.name

    @cached_property
    def cluster(self) -> ClusterState:
        """State of the cluster; empty if the control plane will be created, even if the old one still answers."""
        facts = self.facts.get(self.control_plane)
        return cluster_state(facts if facts is not None and self.is_joined(self.control_plane) else None)

    @property
    def api_server(self) -> str:
        """ADDRESS:PORT at which the nodes reach the API server."""
        return f"{self.address(self.control_plane)}:{versions.API_SERVER_PORT}"

    def architecture(self, node: str) -> str:
        """Return a node's architecture."""
        return self.facts[node].architecture

    def address(self, node: str) -> str:
        """Return the IPv4 address at which the other nodes reach a node.

        Raises:
            InputError: The interface between the nodes has no address.
        """
        return _address(self.facts[node], self.profile.network.interface, node)

    def is_joined(self, node: str) -> bool:
        """Return whether a machine is a node of the cluster, as far as facts show."""
        flags, paths = self.facts[node].all("flag"), set(self.facts[node].all("leftover"))
        if self.profile.node(node).is_control_plane:
            return "initialised" in flags and {KUBECONFIG, ETCD_DATA} <= paths
        # A control plane that will be created again knows no nodes.
        return (
            self.is_joined(self.control_plane)
            and "joined" in flags
            and KUBELET_CONFIG in paths
            and (not self.cluster.up or node in self.cluster.ready)
        )

    def file_sha256(self, node: str, path: str) -> str:
        """Return the hash of a file on a node; empty if the file does not exist."""
        return self.facts[node].pairs("file").get(path, "")

    def symlink_target(self, node: str, path: str) -> str:
        """Return the target of a symbolic link on a node; empty if there is no such link."""
        return self.facts[node].pairs("symlink").get(path, "")

    def workers(self) -> list[Node]:
        """Return the nodes that join the control plane."""
        return [node for node in self.profile.nodes if not node.is_control_plane]

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return [node.name for node in self.profile.nodes]


def _address(facts: Facts, interface: str | None, node: str) -> str:
    default_route = re.search(r"\bdev (\S+)", facts.values.get("route", ""))
    name = interface or (default_route[1] if default_route else "")
    for line in facts.all("address"):
        link, address = line.split()[:2]
        if link == name:
            return address.split("/")[0]
    raise InputError(
        f"{node}: the interface {name or 'of the default route'} has no IPv4 address",
        "assign an address, or set network.interface in the profile",
    )
