"""Combine the inputs of a plan: the profile, the facts of its machines, software and network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from k8sdds import versions
from k8sdds.deploy.actions import KUBECONFIG
from k8sdds.deploy.facts import ETCD_DATA, ClusterState, Facts, cluster_state
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.deploy.software import Software
from k8sdds.model.ip_families import TITLES, IpFamily
from k8sdds.model.profile import Node, Profile
from k8sdds.model.trial import host_and_port
from k8sdds.system.errors import InputError, Problem

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
    """USER:PASSWORD of the registry mirrors. Empty if they require no login."""
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
        return host_and_port(self.address(self.control_plane), versions.API_SERVER_PORT)

    def address(self, node: str) -> str:
        """Return the address at which the other nodes reach a node: of the first family."""
        return self.addresses(node)[0]

    def addresses(self, node: str) -> list[str]:
        """Return the addresses of a node on the interface between the nodes: one of each family."""
        found = []
        for family in self.profile.kubernetes.ip_families:
            address = self.facts[node].address(family, self.profile.network.interface)
            if not address:
                problem = missing_address(self.facts[node], family, self.profile.network.interface)
                raise InputError(f"{node}: {problem.what}", problem.remedy)
            found.append(address)
        return found

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

    def workers(self) -> list[Node]:
        """Return the nodes that join the control plane."""
        return [node for node in self.profile.nodes if not node.is_control_plane]


def missing_address(facts: Facts, family: IpFamily, interface: str | None) -> Problem:
    """Return the problem that a machine has no address of a family on the interface between the nodes."""
    name = interface or facts.default_interface(family) or "of the default route"
    return Problem(
        f"the interface {name} has no {TITLES[family]} address",
        "assign an address, set network.interface, or change kubernetes.ip_families in the profile",
    )
