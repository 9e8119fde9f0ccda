"""Plan Cilium's datapath: BPF programs on the pods' veth pairs and on the node's interface, without packet filters.

`datapath.c` has the programs. It derives devices and addresses from the plan's rules: pod `s` of node `n` has the
address 10.244.n.(2 + s), and its device on the node has the index 100 + s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from k8sdds.networks.common.bridge_cni import FORWARDING, NodePlan, pod_datapath, routes_to_peers
from k8sdds.networks.datapath import Batch, BpfObject, Datapath, LabNode, LabPod, Topology
from k8sdds.networks.network import Engine

OBJECT = "/run/k8sdds-cilium.o"
SOURCE = Path(__file__).with_name("datapath.c")
VXLAN_PORT = 8472
TUNNEL = "cilium_vxlan"
_FIRST_POD, _FIRST_DEVICE, _TUNNEL_DEVICE = 2, 100, 99


def native(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath with routes between the nodes."""
    return _datapath(topology, mtu, "from-pod-native", "eth0")


def vxlan(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath with VXLAN between the nodes."""
    return _datapath(topology, mtu, "from-pod-vxlan", TUNNEL)


def _datapath(topology: Topology, mtu: int, from_pod: str, uplink: str) -> Datapath:
    """`uplink` is the device through which packets of other nodes arrive."""

    def plan_node(node: LabNode, plan: NodePlan) -> None:
        if uplink == TUNNEL:
            plan.ip += [
                f"link add {TUNNEL} index {_TUNNEL_DEVICE} mtu {mtu} type vxlan external dstport {VXLAN_PORT}",
                f"link set {TUNNEL} up",
            ]
        else:
            plan.ip += routes_to_peers(topology, node)
        programs = [*_attached(uplink, "to-pod")]
        router = node.pod_subnet.network_address + 1
        for pod in topology.pods_on(node):
            address, device = node.pod_subnet.network_address + _FIRST_POD + pod.slot, f"lxc-{pod.name}"
            plan.ip += [
                f"link add {device} index {_FIRST_DEVICE + pod.slot} mtu {mtu} address {_mac(pod, inside=False)}"
                f" type veth peer name eth0 mtu {mtu} address {_mac(pod, inside=True)} netns {pod.name}",
                f"link set {device} up",
            ]
            programs += _attached(device, from_pod)
            in_pod = (
                f"addr add {address}/32 dev eth0",
                "link set eth0 up",
                f"neigh add {router} lladdr {_mac(pod, inside=False)} dev eth0 nud permanent",
                f"route add {router} dev eth0 scope link",
                f"route add default via {router} dev eth0",
            )
            plan.attach(pod, address, in_pod)
        plan.after.append(Batch(node.name, "tc", tuple(programs)))

    plain = pod_datapath(topology, mtu, plan_node, FORWARDING)
    return replace(plain, bpf_objects=(BpfObject(SOURCE.read_text(), OBJECT),))


def _attached(device: str, program: str) -> tuple[str, str]:
    return (
        f"qdisc add dev {device} clsact",
        f"filter add dev {device} ingress bpf direct-action object-file {OBJECT} section {program}",
    )


def _mac(pod: LabPod, inside: bool) -> str:
    return f"02:c1:00:00:{int(inside):02x}:{pod.slot:02x}"
