"""Describe the networks that k8sdds measures on clusters of others, but neither installs nor has in the lab."""

from __future__ import annotations

import re

from k8sdds.networks.datapath import LINK_MTU, Datapath, Topology
from k8sdds.networks.flannel import backend
from k8sdds.networks.network import SECOND_INTERFACE, Engine, Network
from k8sdds.networks.plugin import Plugin, Signs
from k8sdds.system.errors import InputError

UNKNOWN = "unknown"
"""Name of a network without known signs."""
OBSERVED = "as observed"
"""Value of facts that k8sdds does not assume, because it observes them."""
MAX_PACKET = 65535


def _antrea_mode(signs: Signs) -> str:
    text = signs.config_maps.get("kube-system/antrea-config", {}).get("antrea-agent.conf", "")
    settings: dict[str, str] = dict(re.findall(r"^(\w+):\s*\"?(\w+)", text, re.MULTILINE))
    encapsulation = settings.get("trafficEncapMode", "encap" if text else "")
    if encapsulation.lower() != "encap":
        return encapsulation.lower()
    return settings.get("tunnelType", "geneve").lower()


PLUGINS = (
    # Plugins that contain others: Canal leaves the signs of Flannel and Calico, and the clouds' Cilium its own. Next to
    # the agents of EKS and AKS, Calico and Cilium only enforce policies: to replace the network, its agent must be
    # stopped. Antrea comes before these agents, because its mode shows that it only enforces policies. GKE's netd does
    # not show which plugin connects the pods, so it comes after them.
    Plugin(
        "canal", "Canal: Flannel with Calico's policies", daemonsets=("canal", "rke2-canal"),
        modes=("vxlan", "hostgw", "wireguard"), mode=backend, precedence=3, published=True,
    ),
    Plugin(
        "gke-dataplane-v2", "GKE Dataplane V2 (Cilium)", daemonsets=("anetd",),
        labels=("cloud.google.com/gke-dataplane-v2*",), precedence=3,
    ),
    Plugin(
        "azure-cilium", "Azure CNI powered by Cilium", labels=("kubernetes.azure.com/ebpf-dataplane=cilium",),
        agents=("cilium",), precedence=3,
    ),
    Plugin(
        "antrea", "Antrea", annotations=("node.antrea.io/*",), daemonsets=("antrea-agent",),
        images=("antrea/antrea-*",), config_maps=("kube-system/antrea-config",),
        modes=("geneve", "vxlan", "gre", "stt", "noencap", "hybrid", "networkpolicyonly"), mode=_antrea_mode,
        precedence=3, published=True,
    ),
    Plugin(
        "ovn-kubernetes", "OVN-Kubernetes", annotations=("k8s.ovn.org/*",), daemonsets=("ovnkube-node*",),
        namespaces=("ovn-kubernetes", "openshift-ovn-kubernetes"), images=("*ovn-kubernetes*",), precedence=1,
        published=True,
    ),
    Plugin(
        "kube-ovn", "Kube-OVN", annotations=("ovn.kubernetes.io/*",), daemonsets=("kube-ovn-cni",),
        images=("kubeovn/kube-ovn",), precedence=1,
    ),
    Plugin(
        "aws-vpc", "Amazon VPC CNI", labels=("vpc.amazonaws.com/*", "k8s.amazonaws.com/eniConfig"),
        daemonsets=("aws-node",), images=("*amazon-k8s-cni",), precedence=3,
    ),
    Plugin(
        "azure", "Azure CNI",
        labels=("kubernetes.azure.com/azure-cni-overlay*", "kubernetes.azure.com/podnetwork-type*"),
        daemonsets=("azure-cns*", "azure-cni*"), images=("*azure-cni", "*azure-cns"), precedence=3,
    ),
    Plugin("gke", "GKE's CNI", labels=("cloud.google.com/gke-netd-ready*",), daemonsets=("netd",)),
    Plugin("kindnet", "kindnet", daemonsets=("kindnet*",), images=("*kindnetd",)),
)  # fmt: skip

SECONDARY = (
    Plugin(
        "multus", "Multus", annotations=("k8s.v1.cni.cncf.io/*",), daemonsets=("kube-multus-ds*", "multus*"),
        images=("*multus-cni",),
    ),
)  # fmt: skip
"""Plugins that add interfaces to pods, next to the network of the cluster."""


def network(name: str, plugin: Plugin | None) -> Network:
    """Return a network that others installed: of a plugin, or of an unknown one."""
    mode = name.removeprefix(plugin.name).strip("-") if plugin else ""
    title = plugin.title if plugin else "the installed network, which is unknown"
    is_secondary = plugin in SECONDARY
    return Network(
        name=name, title=f"{title}, {mode}" if mode else title, layer=OBSERVED, encapsulation=OBSERVED,
        multicast=OBSERVED, encryption=None, versions=OBSERVED, fidelity="real", differences="",
        default_mtu=LINK_MTU, max_mtu=MAX_PACKET, requires=(), lab=_no_lab, plugin=plugin,
        pod_interface=SECOND_INTERFACE if is_secondary else "", by_attachment=is_secondary,
    )  # fmt: skip


def _no_lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    raise InputError("the lab does not have this network", "measure it on a cluster: --testbed cluster")
