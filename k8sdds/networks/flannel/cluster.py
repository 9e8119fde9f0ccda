"""Flannel on a cluster: the parameters of its manifest, for all its backends, and what it makes on a node.

Facts from flannel's documentation and sources (v0.28): the agent annotates its Node and writes
/run/flannel/subnet.env; the CNI plugin `flannel` reads that and calls `bridge`; a backend's own MTU is the
link's less its overhead, and an `mtu` in the CNI configuration overrides it for the pods.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from k8sdds.networks.cluster_install import (
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    PathEvidence,
    ReadyCondition,
    container,
    find,
    without_container,
)

CONFIGURATION = "10-flannel.conflist"
CNI_NAME = "flannel"

SIGNS = Footprint(
    links=("cni0",),
    files=(
        f"/etc/cni/net.d/{CONFIGURATION}", "/run/flannel", "/var/lib/cni/flannel",
        f"/var/lib/cni/networks/{CNI_NAME}", f"/var/lib/cni/results/{CNI_NAME}-*",
    ),
    chains=("FLANNEL-*",),
    nft_tables=("ip flannel-*", "ip6 flannel-*"),
    annotations=("flannel.alpha.coreos.com/",),
)  # fmt: skip


def _cni(asked: InstallOptions) -> str:
    delegate: dict[str, Any] = {"hairpinMode": True, "isDefaultGateway": True}
    if asked.mtu_bytes is not None:
        delegate["mtu"] = asked.mtu_bytes
    plugins = [
        {"type": "flannel", "delegate": delegate},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.3.1", "name": CNI_NAME, "plugins": plugins}, indent=1)


def half(
    backend: Callable[[InstallOptions], dict[str, Any]],
    present: ReadyCondition,
    links: tuple[str, ...] = (),
    capabilities: tuple[str, ...] = (),
    xfrm: bool = False,
    programs: tuple[str, ...] = (),
    unseen: str = "",
) -> ClusterInstall:
    """Flannel with a backend, given as flannel's own configuration of it, with the programs that it starts
    and its links, by which it then carries all packets."""

    def render(asked: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        net = {"Network": str(asked.pod_cidr), "EnableNFTables": False, "Backend": backend(asked)}
        find(manifests, "ConfigMap", "flannel-cni")["data"][CONFIGURATION] = _cni(asked)
        find(manifests, "Secret", "flannel-net")["stringData"]["net-conf.json"] = json.dumps(net, indent=1)
        daemonset = find(manifests, "DaemonSet", "flannel")
        agent = container(daemonset, "flanneld")
        if asked.interface:
            agent["args"].append(f"--iface={asked.interface}")
        agent["securityContext"]["capabilities"]["add"] += capabilities
        if asked.plugins_on_nodes:
            without_container(daemonset, "install-plugin")
        return manifests

    signs = replace(SIGNS, links=(*SIGNS.links, *links), xfrm=xfrm)
    carrier = PathEvidence(bridge="cni0", tunnels=links, unseen=unseen)
    return ClusterInstall("flannel", render, signs, present, "flannel", carrier, programs)
