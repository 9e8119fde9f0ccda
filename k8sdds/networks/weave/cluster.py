"""WeaveNet on a cluster: the parameters of its manifest, with and without encryption, and what it makes.

Facts from Weave's documentation and sources (2.8, and the fork 2.9): pods' addresses from one range for all
nodes, kept in /var/lib/weave; the datapath is an Open vSwitch device, which `ip` cannot remove; a connection
that cannot use the fast datapath falls back to one in userspace (`sleeve`) without failing.
"""

from __future__ import annotations

from k8sdds.networks.cluster_install import (
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    PathEvidence,
    ReadyCondition,
    container,
    find,
    set_variables,
)
from k8sdds.networks.common import strongswan

IMAGE = "docker.io/rajchaudhuri/weave-kube:2.9.0"
SIGNS = Footprint(
    links=("weave", "datapath", "vethwe*", "vxlan-6784", "vxlan_sys_6784"),
    files=(
        "/etc/cni/net.d/10-weave.conf*", "/var/lib/weave", "/run/weave", "/opt/cni/bin/weave-*",
        "/var/lib/cni/results/weave-*",
    ),
    chains=("WEAVE", "WEAVE-*"),
    rules=(r"-[io] weave\b", r"Weave Net"),
    sets=("weave-*",),
    # A policy for the VXLAN packets between every two nodes.
    xfrm=True,
    xfrm_port=6784,
    release=(("datapath", IMAGE, "/usr/bin/weaveutil delete-datapath datapath"),),
)  # fmt: skip


def half(default_mtu: int, encrypted: bool) -> ClusterInstall:
    """WeaveNet; `default_mtu` where the profile does not say, as in the lab: Weave's own is 1376."""

    def render(asked: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        agent = container(find(manifests, "DaemonSet", "weave"), "weave")
        mtu = asked.mtu_bytes or default_mtu
        set_variables(agent, {"IPALLOC_RANGE": str(asked.pod_cidr), "WEAVE_MTU": str(mtu)})
        secret = find(manifests, "Secret", "weave-password")
        if encrypted:
            secret["stringData"]["password"] = asked.password
            return manifests
        agent["env"] = [one for one in agent["env"] if one["name"] != "WEAVE_PASSWORD"]
        return [one for one in manifests if one is not secret]

    # Every connection to a peer, in both directions, must be of the fast datapath.
    wanted = "established.*encrypted.*fastdp" if encrypted else "established.*fastdp"
    status = "/home/weave/weave --local status connections"
    connected = f"! {status} | grep -v -e '{wanted}' -e 'cannot connect to ourself'"
    present = ReadyCondition(links=("weave", "datapath"), connected=("weave", "sh", "-c", connected))
    # Weave's datapath in userspace (`sleeve`) leaves the VXLAN device alone.
    tunnels = ("vxlan-6784", "vxlan_sys_6784")
    carrier = PathEvidence(bridge="weave", tunnels=tunnels, unseen=strongswan.UNSEEN if encrypted else "")
    return ClusterInstall("weave", render, SIGNS, present, "weave", carrier)
