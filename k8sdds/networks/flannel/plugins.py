"""Describe what flannel's CNI plugin finds on a node of the lab: its configuration, and the file of flanneld."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.networks.common.bridge_cni import BRIDGE, HOST_LOCAL, PORTMAP, first_address
from k8sdds.networks.datapath import POD_CIDRS, CniPlugins, LabNode
from k8sdds.networks.flannel.cluster import cni_config

SUBNET_FILE = "/run/flannel/subnet.env"


def plugins(nodes: Sequence[LabNode], mtu: int) -> CniPlugins:
    """Return the plugins of a node. The plugin `flannel` calls `bridge` with the range of the file."""
    variables = {"FLANNEL_MTU": str(mtu), "FLANNEL_IPMASQ": "true"}
    for node in nodes:
        family = "IPV6_" if node.ipv6 else ""
        variables[f"FLANNEL_{family}NETWORK"] = POD_CIDRS[node.family]
        variables[f"FLANNEL_{family}SUBNET"] = str(first_address(node))
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    programs = ("flannel", BRIDGE, HOST_LOCAL, PORTMAP)
    return CniPlugins(programs, cni_config(None), {SUBNET_FILE: text})
