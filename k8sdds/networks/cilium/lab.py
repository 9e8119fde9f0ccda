"""Plan Cilium's datapath: BPF programs on the pods' veth pairs and on the node's interface, without packet filters.

`datapath.c` has the programs. It derives devices and addresses from the plan's rules: pod `s` of node `n` has the
address 10.244.n.(2 + s), and its device on the node has the index 100 + s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from k8sdds.networks.common import encapsulation, iptables
from k8sdds.networks.common.bridge_cni import FORWARDING, NodePlan, pod_datapath, routes_to_peers
from k8sdds.networks.datapath import Batch, BpfObject, Datapath, LabNode, LabPod, Topology
from k8sdds.networks.network import Engine

OBJECT = "/run/k8sdds-cilium.o"
SOURCE = Path(__file__).with_name("datapath.c")
VXLAN_PORT = 8472
TUNNEL = "cilium_vxlan"
_FIRST_POD, _FIRST_DEVICE, _TUNNEL_DEVICE = 2, 100, 99

_OF_PROXY, _TO_PROXY, _FROM_PROXY = "0x200/0xf00", "0xa00/0xe00", "0x800/0xe00"
_FROM_NODE = "".join(
    f"-m mark ! --mark {mark} "
    for mark in ("0xe00/0xf00", "0xd00/0xf00", "0x400/0xf00", _TO_PROXY, _FROM_PROXY, "0xf00/0xf00")
)


def _chain(name: str) -> str:
    return f"{iptables.comment(f'cilium-feeder: {name}')} -j {name}"


RULES: iptables.Tables = {
    "raw": {
        "PREROUTING": (_chain("CILIUM_PRE_raw"),),
        "OUTPUT": (_chain("CILIUM_OUTPUT_raw"),),
        "CILIUM_PRE_raw": (f"-m mark --mark {_OF_PROXY} {iptables.comment('NOTRACK')} -j CT --notrack",),
        "CILIUM_OUTPUT_raw": tuple(
            f"-o {device} -m mark --mark {mark} {iptables.comment('NOTRACK')} -j CT --notrack"
            for mark in ("0xa00/0xfffffeff", _FROM_PROXY)
            for device in ("lxc+", "cilium_host")
        ),
    },
    "mangle": {
        "PREROUTING": (_chain("CILIUM_PRE_mangle"),),
        "POSTROUTING": (_chain("CILIUM_POST_mangle"),),
        "CILIUM_PRE_mangle": (),
        "CILIUM_POST_mangle": (),
    },
    "filter": {
        "INPUT": (_chain("CILIUM_INPUT"),),
        "OUTPUT": (_chain("CILIUM_OUTPUT"),),
        "CILIUM_INPUT": (f"-m mark --mark {_OF_PROXY} {iptables.comment('proxy')} -j ACCEPT",),
        "CILIUM_OUTPUT": (
            f"-m mark --mark {_TO_PROXY} {iptables.comment('proxy')} -j ACCEPT",
            f"-m mark --mark {_FROM_PROXY} {iptables.comment('proxy')} -j ACCEPT",
            f"{_FROM_NODE}{iptables.comment('from host')} -j MARK --set-xmark 0xc00/0xf00",
        ),
    },
}
"""The agent's rules that packets of the tunnel pass, except one for its proxy, which needs the module xt_socket."""


def native(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath with routes between the nodes."""
    return _datapath(topology, mtu, "from-pod-native", "eth0")


def vxlan(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath with VXLAN between the nodes."""
    return _datapath(topology, mtu, "from-pod-vxlan", TUNNEL)


def _datapath(topology: Topology, mtu: int, from_pod: str, uplink: str) -> Datapath:
    """`uplink` is the device through which packets of other nodes arrive.

    All links have the MTU of packets with encapsulation; only the routes of pods leave space for it.
    """
    link_mtu = mtu + (encapsulation.VXLAN if uplink == TUNNEL else 0)

    def plan_node(node: LabNode, plan: NodePlan) -> None:
        if uplink == TUNNEL:
            plan.ip += [
                f"link add {TUNNEL} index {_TUNNEL_DEVICE} mtu {link_mtu} type vxlan external dstport {VXLAN_PORT}",
                f"link set {TUNNEL} up",
            ]
        else:
            plan.ip += routes_to_peers(topology, node)
        programs = [*_attached(uplink, ingress="from-nodes", egress="to-nodes")]
        router = node.pod_subnet.network_address + 1
        for pod in topology.pods_on(node):
            address, device = node.pod_subnet.network_address + _FIRST_POD + pod.slot, f"lxc-{pod.name}"
            plan.ip += [
                f"link add {device} index {_FIRST_DEVICE + pod.slot} mtu {link_mtu} address {_mac(pod, inside=False)}"
                f" type veth peer name eth0 mtu {link_mtu} address {_mac(pod, inside=True)} netns {pod.name}",
                f"link set {device} up",
            ]
            programs += _attached(device, ingress=from_pod)
            in_pod = (
                f"addr add {address}/32 dev eth0",
                "link set eth0 up",
                f"neigh add {router} lladdr {_mac(pod, inside=False)} dev eth0 nud permanent",
                f"route add {router} dev eth0 scope link",
                f"route add default via {router} dev eth0 mtu {mtu}",
            )
            plan.attach(pod, address, in_pod)
        if uplink == TUNNEL:
            programs += _attached("eth0", ingress="from-nodes")
            plan.after.append(iptables.kubernetes_batch(node, before=RULES))
        plan.after.append(Batch(node.name, "tc", tuple(programs)))

    plain = pod_datapath(topology, mtu, plan_node, FORWARDING)
    return replace(plain, bpf_objects=(BpfObject(SOURCE.read_text(), OBJECT),))


def _attached(device: str, **programs: str) -> tuple[str, ...]:
    """Return the lines for `tc` that attach programs by the direction of their packets."""
    return (
        f"qdisc add dev {device} clsact",
        *(
            f"filter add dev {device} {direction} bpf direct-action object-file {OBJECT} section {program}"
            for direction, program in programs.items()
        ),
    )


def _mac(pod: LabPod, inside: bool) -> str:
    return f"02:c1:00:00:{int(inside):02x}:{pod.slot:02x}"
