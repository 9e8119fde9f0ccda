"""What phases plan from: the profile, the facts, and the software, together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from k8sdds import versions
from k8sdds.deploy.facts import DATA, Facts
from k8sdds.deploy.facts.cluster_state import ClusterState, cluster_state
from k8sdds.deploy.network_install import Install
from k8sdds.deploy.software import Software
from k8sdds.model.profile import Node, Profile
from k8sdds.system.errors import InputError


@dataclass(frozen=True)
class DesiredState:
    """A profile beside its machines as they are."""

    profile: Profile
    facts: Mapping[str, Facts]
    software: Software
    network: Install

    @property
    def head(self) -> str:
        """Name of the control plane."""
        return self.profile.control_plane.name

    @cached_property
    def cluster(self) -> ClusterState:
        """What the API server knows; nothing where it is to be made anew, though it may still answer."""
        head = self.facts.get(self.head)
        return cluster_state(head if head is not None and self.joined(self.head) else None)

    @property
    def server(self) -> str:
        """Address and port of the API server, for the nodes."""
        return f"{self.address(self.head)}:{versions.API_SERVER_PORT}"

    def arch(self, node: str) -> str:
        """A node's architecture."""
        return self.facts[node].architecture

    def address(self, node: str) -> str:
        """The IPv4 address by which the nodes know this one."""
        return address(self.facts[node], self.profile.network.interface, node)

    def joined(self, node: str) -> bool:
        """Whether a machine is a node of this cluster, as far as there is a cluster."""
        flags, files = self.facts[node].all("flag"), self.facts[node].all("leftover")
        if self.profile.node(node).is_control_plane:
            return "initialised" in flags and {"/etc/kubernetes/admin.conf", DATA} <= set(files)
        there = not self.cluster.up or node in self.cluster.ready
        # A control plane that is made anew knows nobody.
        return (
            self.joined(self.head) and "joined" in flags and "/etc/kubernetes/kubelet.conf" in files and there
        )

    def sha256(self, node: str, path: str) -> str:
        """Hash of a file on a node; empty: it is not there."""
        return self.facts[node].pairs("file").get(path, "")

    def workers(self) -> list[Node]:
        """The nodes that join."""
        return [node for node in self.profile.nodes if not node.is_control_plane]


def address(facts: Facts, interface: str | None, node: str) -> str:
    """The IPv4 address of an interface, or of that of the default route. Raises InputError."""
    found = re.search(r"\bdev (\S+)", facts.one.get("route", ""))
    name = interface or (found[1] if found else "")
    for link, text in ((line.split()[0], line.split()[1]) for line in facts.all("address")):
        if link == name:
            return text.split("/")[0]
    raise InputError(
        f"{node}: the interface {name or 'of the default route'} has no IPv4 address",
        "give it one, or set network.interface in the profile",
    )
