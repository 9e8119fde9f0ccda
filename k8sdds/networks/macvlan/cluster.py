"""Install macvlan interfaces on a cluster, as the second interface of every pod.

The first interface is that of the network `host`: a bridge and routes, which Kubernetes and its Services use. The CNI
plugin k8sdds-attach follows the bridge plugin and calls the plugin macvlan, as Multus would. Each node assigns
addresses from its own part of one subnet, which is as large as the range of all pods and follows it.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

from k8sdds.model.ip_families import Subnet
from k8sdds.networks.cluster_install import (
    MACVLAN_FEATURE,
    ClusterInstall,
    InstallOptions,
    Manifest,
    PathEvidence,
)
from k8sdds.networks.host import cluster as host
from k8sdds.networks.macvlan import lab
from k8sdds.networks.network import SECOND_INTERFACE


def subnet(pods: Subnet, services: Subnet) -> IPv4Network:
    """Return the subnet of the second interfaces: the next one after that of all pods that overlaps with no Service."""
    assert isinstance(pods, IPv4Network)
    found, highest = pods, 2**32
    while found == pods or found.overlaps(services):
        start = (int(found.network_address) + found.num_addresses) % highest
        found = IPv4Network((start, found.prefixlen))
    return found


def _render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    # The agent adds the node's part of the subnet, and the link with the node's address unless the profile names one.
    delegate = lab.plugin(options.mtu_bytes)
    if options.interface:
        delegate["master"] = options.interface
    cni = host.cni_config(None)
    cni["plugins"].insert(1, {"type": "k8sdds-attach", "interface": SECOND_INTERFACE, "delegate": delegate})
    second = subnet(options.pod_cidr, options.service_cidrs[0])
    host.configure(manifests, options, cni, (f"--second={second}",))
    return manifests


_FOOTPRINT = host.CLUSTER_INSTALL.footprint

CLUSTER_INSTALL: ClusterInstall = replace(
    host.CLUSTER_INSTALL,
    render=_render,
    # The interfaces exist only in pods.
    footprint=replace(
        _FOOTPRINT,
        files=(
            *_FOOTPRINT.files, "/opt/cni/bin/k8sdds-attach", "/opt/cni/bin/.k8sdds-attach",
            f"/var/lib/cni/networks/{host.CNI_NAME}-{SECOND_INTERFACE}",
        ),
    ),
    path=PathEvidence(on_node_link=True, unused=(host.BRIDGE,)),
    node_features=(*host.CLUSTER_INSTALL.node_features, MACVLAN_FEATURE),
    ipv4_only="k8sdds assigns only IPv4 addresses to the pods' second interfaces",
)  # fmt: skip
