"""Install WeaveNet on a cluster, with or without encryption.

Facts from Weave's documentation and sources (2.8, and the fork 2.9): all nodes share one range of pod addresses, kept
in /var/lib/weave; the datapath is an Open vSwitch device, which `ip` cannot remove; a connection that cannot use the
fast datapath silently falls back to a userspace datapath (`sleeve`).
"""

from __future__ import annotations

from k8sdds import versions
from k8sdds.networks.cluster_install import (
    ESP_FEATURE,
    VXLAN_FEATURE,
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
    "apt install linux-modules-extra-$(uname -r); modprobe openvswitch; or use another network",
)

_FOOTPRINT = Footprint(
    links=("weave", "datapath", "vethwe*", "vxlan-6784", "vxlan_sys_6784"),
    files=(
        "/etc/cni/net.d/10-weave.conf*", "/var/lib/weave", "/run/weave", "/opt/cni/bin/weave-*",
        "/var/lib/cni/results/weave-*",
    ),
    iptables_chains=("WEAVE", "WEAVE-*"),
    iptables_rules=(r"-[io] weave\b", r"Weave Net"),
    ip_sets=("weave-*",),
    # An IPsec policy for the VXLAN packets between every two nodes.
    xfrm=True,
    xfrm_port=6784,
    device_removal=(("datapath", versions.WEAVE_IMAGE, "/usr/bin/weaveutil delete-datapath datapath"),),
)  # fmt: skip


def cluster_install(default_mtu: int, encrypted: bool) -> ClusterInstall:
    """Return the cluster install of WeaveNet.

    `default_mtu` is the pods' MTU unless the profile sets one: the same as in the lab, not Weave's 1376.
    """

    def render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        agent = container(find(manifests, "DaemonSet", "weave"), "weave")
        mtu = options.mtu_bytes or default_mtu
        set_variables(agent, {"IPALLOC_RANGE": str(options.pod_cidr), "WEAVE_MTU": str(mtu)})
        secret = find(manifests, "Secret", "weave-password")
        if encrypted:
            secret["stringData"]["password"] = options.password
            return manifests
        agent["env"] = [variable for variable in agent["env"] if variable["name"] != "WEAVE_PASSWORD"]
        return [manifest for manifest in manifests if manifest is not secret]

    # Connections to all peers, in both directions, must use the fast datapath.
    connection = "established.*encrypted.*fastdp" if encrypted else "established.*fastdp"
    status = "/home/weave/weave --local status connections"
    check = f"! {status} | grep -v -e '{connection}' -e 'cannot connect to ourself'"
    return ClusterInstall(
        manifest_folder="weave",
        render=render,
        footprint=_FOOTPRINT,
        ready=ReadyCondition(links=("weave", "datapath"), connection_check=("weave", "sh", "-c", check)),
        daemonset="weave",
        # The userspace datapath (`sleeve`) does not use the VXLAN device.
        path=PathEvidence(
            bridge="weave",
            tunnels=("vxlan-6784", "vxlan_sys_6784"),
            unverified=strongswan.UNVERIFIED if encrypted else "",
        ),
        node_features=(_OPENVSWITCH_FEATURE, VXLAN_FEATURE, *((ESP_FEATURE,) if encrypted else ())),
        min_password_characters=1 if encrypted else None,
    )
