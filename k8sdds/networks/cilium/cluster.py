"""Install Cilium on a cluster, with native routing or VXLAN between the nodes.

Facts from Cilium's documentation (v1.18): the agent reads its options from a ConfigMap, gives pods addresses from their
node's range (`ipam: kubernetes`), and waits for the definitions of its custom resources, which its operator would
create. Without `kube-proxy-replacement`, it uses legacy host routing and masquerades with iptables; it still translates
the cluster IPs of pods, unless `k8s-service-proxy-name` restricts it to Services with this label. With TCX (Linux 6.6),
it pins what attaches its programs below /sys/fs/bpf/cilium: their removal detaches them. The kernel accounts BPF memory
to cgroups since Linux 5.11, so the agent needs no CAP_SYS_RESOURCE.
"""

from __future__ import annotations

from collections.abc import Callable

from k8sdds import versions
from k8sdds.networks.cluster_install import (
    IP_SET_FEATURES,
    VXLAN_FEATURE,
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    NodeFeature,
    PathEvidence,
    ReadyCondition,
    custom_resources,
    find,
)
from k8sdds.networks.common import encapsulation

KUBE_PROXY, REPLACEMENT = "kube-proxy", "kube-proxy-replacement"
"""Engines, by what handles the Services. kube-proxy needs the nodes' packet filters, which then see all packets."""
GROUP = "cilium.io"
VXLAN_PORT = 8472

_BPF_FEATURE = NodeFeature(
    "bpf",
    "use Linux 5.11 or later with BPF at tc and a BPF file system on /sys/fs/bpf, or use another network",
)

_FOOTPRINT = Footprint(
    links=("cilium_host", "cilium_net", "cilium_vxlan", "lxc_health", "lxc" + "[0-9a-f]" * 12),
    files=(
        "/etc/cni/net.d/05-cilium.conflist", "/opt/cni/bin/cilium-cni", "/run/cilium",
        "/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals/cilium_*", "/var/lib/cni/results/cilium-*",
    ),
    iptables_chains=("CILIUM_*", "OLD_CILIUM_*"),
    ip_sets=("cilium_*",),
    # For packets to and from proxies.
    route_tables=(2004, 2005),
    local_rule_priority=100,
    bpf_programs=("cil_*",),
    node_annotations=("network.cilium.io/", "io.cilium.network."),
)  # fmt: skip

_WITHOUT_SERVICES = {
    "kube-proxy-replacement": "false",
    "enable-bpf-masquerade": "false",
    "k8s-service-proxy-name": "cilium",
}
"""Options of the agent with which kube-proxy handles all Services, because none has this label."""

_DEFINITIONS = (
    *custom_resources(
        GROUP, "v2",
        (
            "CiliumClusterwideNetworkPolicy", "CiliumIdentity", "CiliumNode", "CiliumCIDRGroup",
            "CiliumLoadBalancerIPPool",
        ),
        ("CiliumNetworkPolicy", "CiliumEndpoint", "CiliumNodeConfig"),
    ),
    *custom_resources(GROUP, "v2alpha1", ("CiliumPodIPPool", "CiliumL2AnnouncementPolicy")),
)  # fmt: skip


def _cluster_install(
    routing: Callable[[InstallOptions], dict[str, str]],
    tunnels: tuple[str, ...] = (),
    node_features: tuple[NodeFeature, ...] = (),
    engine: str = REPLACEMENT,
) -> ClusterInstall:
    """Return the cluster install of one mode; `routing` returns the agent's options about packets to other nodes."""

    def render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        config = find(manifests, "ConfigMap", "cilium-config")["data"]
        config |= routing(options)
        if engine == KUBE_PROXY:
            config |= _WITHOUT_SERVICES
            agent = find(manifests, "DaemonSet", "cilium")
            agent["metadata"]["annotations"] = {versions.ENGINE_ANNOTATION: engine}
        if options.mtu_bytes is not None:
            # The agent's option is the MTU of the network between the nodes, without the headers of the tunnel.
            config["mtu"] = str(options.mtu_bytes + (encapsulation.VXLAN if tunnels else 0))
        if options.interface:
            config |= {"devices": options.interface, "direct-routing-device": options.interface}
        return [*manifests, *_DEFINITIONS]

    return ClusterInstall(
        manifest_folder="cilium",
        render=render,
        footprint=_FOOTPRINT,
        # The agent's startup probe shows that it is healthy.
        ready=ReadyCondition(links=("cilium_host", *tunnels)),
        daemonset="cilium",
        path=PathEvidence(bridge="cilium_host", tunnels=tunnels, varies=True),
        node_features=(_BPF_FEATURE, *node_features),
        replaces_kube_proxy=engine == REPLACEMENT,
        ipv4_only="k8sdds configures Cilium for IPv4 alone",
    )


def native(engine: str = REPLACEMENT) -> ClusterInstall:
    """Return the cluster install with routes to the other nodes."""
    return _cluster_install(
        lambda options: {
            "routing-mode": "native",
            "auto-direct-node-routes": "true",
            "ipv4-native-routing-cidr": str(options.pod_cidr),
        },
        # The rules for masquerading leave out the addresses of the nodes.
        node_features=IP_SET_FEATURES if engine == KUBE_PROXY else (),
        engine=engine,
    )


def vxlan(engine: str = REPLACEMENT) -> ClusterInstall:
    """Return the cluster install with VXLAN between the nodes."""
    return _cluster_install(
        lambda options: {
            "routing-mode": "tunnel",
            "tunnel-protocol": "vxlan",
            "tunnel-port": str(VXLAN_PORT),
        },
        tunnels=("cilium_vxlan",),
        node_features=(VXLAN_FEATURE,),
        engine=engine,
    )
