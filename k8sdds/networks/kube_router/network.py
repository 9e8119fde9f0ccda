"""Kube-router: pods on the bridge kube-bridge, routes between nodes learned by BGP.

Facts from kube-router's documentation and sources (v2.11): nodes of one subnet get plain routes with
routing protocol 17 and no tunnel; the pods' MTU is 1480 all the same, since --auto-mtu leaves room for
IP-in-IP; masquerade by sets of pod and node addresses; network policy chains before every forward.
"""

from __future__ import annotations

import json
from ipaddress import IPv4Interface

from k8sdds import versions
from k8sdds.networks.cluster_install import (
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    PathEvidence,
    ReadyCondition,
    container,
    find,
)
from k8sdds.networks.common.bridge_cni import (
    NODE_SYSCTLS,
    Bridge,
    NodePart,
    bridge_pods,
    kube_forward,
    pod_datapath,
)
from k8sdds.networks.network import LINK_MTU, Batch, Datapath, Engine, Network, Node, Topology

IPIP_HEADER = 20
BGP_ROUTES = 17
"""Routing protocol number with which kube-router marks its routes."""


def _rules(topology: Topology, node: Node) -> str:
    pod_subnets = ", ".join(str(other.pod_subnet) for other in topology.nodes)
    node_addresses = ", ".join(other.address for other in topology.nodes)
    return f"""
table ip nat {{
  set kube-router-pod-subnets {{ type ipv4_addr; flags interval; elements = {{ {pod_subnets} }}; }}
  set kube-router-node-ips {{ type ipv4_addr; elements = {{ {node_addresses} }}; }}
  chain POSTROUTING {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr @kube-router-pod-subnets ip daddr != @kube-router-pod-subnets \
ip daddr != @kube-router-node-ips counter masquerade fully-random
  }}
}}
table ip filter {{{kube_forward()}
  chain KUBE-ROUTER-FORWARD {{
    ip saddr {node.pod_subnet} counter jump KUBE-POD-FW
    ip daddr {node.pod_subnet} counter jump KUBE-POD-FW
    oifname "kube-bridge" counter accept
    iifname "kube-bridge" counter accept
  }}
  chain KUBE-POD-FW {{
    ct state related,established counter accept
    counter meta mark set meta mark | 0x00020000
  }}
  chain FORWARD {{
    type filter hook forward priority filter; policy accept;
    counter jump KUBE-ROUTER-FORWARD
    counter jump KUBE-FORWARD
    ct state new counter jump KUBE-SERVICES
  }}
}}
"""


def _lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    def on_node(node: Node) -> NodePart:
        bridge = Bridge("kube-bridge", mtu, IPv4Interface(f"{node.pod_subnet.network_address + 1}/24"))
        in_node, in_pods, attached = bridge_pods(topology, node, bridge)
        routes = [
            f"route add {peer.pod_subnet} via {peer.address} dev eth0 proto {BGP_ROUTES}"
            for peer in topology.peers(node)
        ]
        batches = [Batch(node.name, "ip", (*in_node, *routes)), *in_pods]
        return [*batches, Batch(node.name, "nft", (_rules(topology, node),))], attached

    return pod_datapath(topology, mtu, on_node, NODE_SYSCTLS)


CNI_NAME = "kube-router"
SIGNS = Footprint(
    links=("kube-bridge", "kube-dummy-if", "tun-*"),
    files=(
        "/etc/cni/net.d/10-kuberouter.conf*", "/var/lib/kube-router", f"/var/lib/cni/networks/{CNI_NAME}",
        f"/var/lib/cni/results/{CNI_NAME}-*",
    ),
    chains=("KUBE-ROUTER-*", "KUBE-POD-FW-*", "KUBE-NWPLCY-*"),
    rules=(r"-[io] kube-bridge\b", r"--match-set (inet6:)?kube-router-"),
    sets=("kube-router-*", "KUBE-SRC-*", "KUBE-DST-*", "inet6:kube-router-*", "inet6:KUBE-*"),
    route_protocols=(BGP_ROUTES,),
    # Its own: pods behind tunnels, services by direct return, external addresses.
    route_tables=(77, 78, 79),
    ports=(179,),
)  # fmt: skip


def _on_cluster(asked: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    bridge = {
        "type": "bridge", "bridge": "kube-bridge", "isDefaultGateway": True, "hairpinMode": True,
        "ipam": {"type": "host-local"},
    }  # fmt: skip
    agent = container(find(manifests, "DaemonSet", "kube-router"), "kube-router")
    agent["args"].append(f"--service-cluster-ip-range={asked.service_cidr}")
    if asked.mtu_bytes is not None:
        agent["args"].append("--auto-mtu=false")
        bridge["mtu"] = asked.mtu_bytes
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    cni = {"cniVersion": "0.3.1", "name": CNI_NAME, "plugins": plugins}
    configuration = find(manifests, "ConfigMap", "kube-router-cni")["data"]
    configuration["10-kuberouter.conflist"] = json.dumps(cni, indent=1)
    return manifests


KUBE_ROUTER = Network(
    name="kube-router",
    title="Kube-router, nodes of one subnet",
    layer="L3 routes",
    encapsulation="",
    multicast="",
    encryption="",
    policy=True,
    architectures=versions.ARCHITECTURES,
    versions="kube-router 0.3 to 2.11",
    fidelity="equivalent",
    differences="routes are set once instead of learned by BGP; one policy chain stands for all pods' chains;"
    " kube-proxy's rules for Services are empty",
    default_mtu=LINK_MTU - IPIP_HEADER,
    max_mtu=LINK_MTU,
    needs=("bridge", "nftables", "br_netfilter"),
    lab=_lab,
    # The routes come by BGP: they are there when every node has talked to every other.
    cluster=ClusterInstall(
        "kube-router",
        _on_cluster,
        SIGNS,
        ReadyCondition(links=("kube-bridge",), routes_to_peers=True),
        "kube-router",
        # Between nodes of different subnets it makes tunnels.
        PathEvidence(bridge="kube-bridge", may=("tun-*",)),
    ),
)
