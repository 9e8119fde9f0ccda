"""Install WeaveNet on a cluster, with or without encryption.

Facts from Weave's documentation and sources (2.8, and the fork 2.9): all nodes share one range of pod addresses, kept
in /var/lib/weave; the datapath is an Open vSwitch device, which `ip` cannot remove; a connection that cannot use the
fast datapath silently falls back to a userspace datapath (`sleeve`).
"""

from __future__ import annotations

from k8sdds import versions
from k8sdds.networks.cluster_install import (
    ESP_FEATURE,
    IP_SET_FEATURES,
    VXLAN_FEATURE,
    AgentConnections,
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    NodeFeature,
    PathEvidence,
    ReadyCondition,
    container,
    find,
    set_variables,
)
from k8sdds.networks.common import strongswan

_OPENVSWITCH_FEATURE = NodeFeature(
    "openvswitch",
    "apt install linux-modules-extra-$(uname -r); modprobe openvswitch; or use the datapath in userspace"
    " (engine: sleeve); or another network",
)

_BRIDGE_AND_POLICY_FEATURES = (
    NodeFeature("dummy", "install a kernel with the module dummy, or use another network"),
    *IP_SET_FEATURES,
)
"""weaver sets the MTU of its bridge with a dummy link; weave-npc matches addresses of pods in ipsets."""
FASTDP, SLEEVE = "fastdp", "sleeve"
SLEEVE_LINK = "vethwe-pcap"

_FOOTPRINT = Footprint(
    links=("weave", "datapath", "vethwe*", "vxlan-6784", "vxlan_sys_6784"),
    files=(
        "/etc/cni/net.d/10-weave.conf*", "/var/lib/weave", "/run/weave", "/opt/cni/bin/weave-*",
        "/var/lib/cni/results/weave-*",
    ),
    iptables_chains=("WEAVE", "WEAVE-*"),
    iptables_rules=(r"-[io] weave\b", r"Weave Net"),
    ip_sets=("weave-*", "weaver-*"),
    # An IPsec policy for the VXLAN packets between every two nodes.
    xfrm=True,
    xfrm_port=6784,
    device_removal=(("datapath", versions.WEAVE_IMAGE, "/usr/bin/weaveutil delete-datapath datapath"),),
)  # fmt: skip


def cluster_install(default_mtu: int, encrypted: bool = False, engine: str = FASTDP) -> ClusterInstall:
    """Return the cluster install of WeaveNet. Its default MTU is the same as in the lab, not Weave's 1376."""
    sleeve = engine == SLEEVE

    def render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        daemonset = find(manifests, "DaemonSet", "weave")
        agent = container(daemonset, "weave")
        mtu = options.mtu_bytes or default_mtu
        set_variables(agent, {"IPALLOC_RANGE": str(options.pod_cidr), "WEAVE_MTU": str(mtu)})
        if sleeve:
            # Without this variable, weaver refuses the bridge that it finds after a restart.
            agent["env"].append({"name": "WEAVE_NO_FASTDP", "value": "1"})
            daemonset["metadata"]["annotations"] = {versions.ENGINE_ANNOTATION: engine}
        secret = find(manifests, "Secret", "weave-password")
        if encrypted:
            secret["stringData"]["password"] = options.password
            return manifests
        agent["env"] = [variable for variable in agent["env"] if variable["name"] != "WEAVE_PASSWORD"]
        return [manifest for manifest in manifests if manifest is not secret]

    return ClusterInstall(
        manifest_folder="weave",
        render=render,
        footprint=_FOOTPRINT,
        ready=ReadyCondition(
            links=("weave", SLEEVE_LINK if sleeve else "datapath"),
            # Connections to all peers, which must use this engine in both directions.
            connections=AgentConnections(
                "weave",
                ("/home/weave/weave", "--local", "status", "connections"),
                expected=f"established.*{'encrypted.*' if encrypted else ''}{engine}",
                ignored="cannot connect to ourself",
            ),
        ),
        daemonset="weave",
        # In userspace, weaver captures and injects all packets for other nodes at this link.
        path=PathEvidence(
            bridge="weave",
            tunnels=(SLEEVE_LINK,) if sleeve else ("vxlan-6784", "vxlan_sys_6784"),
            unverified=strongswan.UNVERIFIED if encrypted else "",
        ),
        node_features=(
            *(() if sleeve else (_OPENVSWITCH_FEATURE, VXLAN_FEATURE)),
            *_BRIDGE_AND_POLICY_FEATURES,
            *((ESP_FEATURE,) if encrypted else ()),
        ),
        min_password_characters=1 if encrypted else None,
        bundle_images=("*/weave-kube:*", "*/weave-npc:*"),
        ipv4_only="WeaveNet has no IPv6",
    )
