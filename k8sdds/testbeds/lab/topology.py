"""Plan the nodes, pods and links of a lab network, before a network is added to them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from k8sdds import workloads
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.link import KERNEL, USERSPACE, Link
from k8sdds.model.offloads import SEGMENTATION
from k8sdds.model.placement import numbered
from k8sdds.model.services import IPTABLES, ServiceSet
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER, Cell, Participant
from k8sdds.networks.datapath import Batch, LabNode, LabPod, Topology
from k8sdds.system.errors import InputError
from k8sdds.testbeds.lab import netem
from k8sdds.testbeds.link_emulation import Port
from k8sdds.workloads import outage

SWITCH = "switch"
"""Name of the namespace with the bridge that connects all nodes."""

TBF_BURST = "16kb"
TBF_LATENCY = "50ms"
"""Token bucket of rate-limited links: a burst of about ten full frames, at most 50 ms of queue."""


Key = tuple[Hashable, ...]


def key_of(cell: Cell) -> Key:
    """Return what distinguishes lab networks: trials with equal keys share one."""
    return (
        cell.network_label,
        cell.network_mode,
        cell.link,
        cell.uses_network,
        cell.cpu_resources,
        cell.dev_shm,
        cell.users,
        services_of(cell),
        topology_of(cell),
    )


def services_of(cell: Cell) -> ServiceSet | None:
    """Return the Services of a cell with the mode of kube-proxy in the lab; None if it has none."""
    services = workloads.find(cell.test).services(cell)
    return replace(services, proxy=services.proxy or IPTABLES) if services else None


def pods_of(cell: Cell) -> list[Participant]:
    """Return the pods of a cell, the one for a participant that is killed last."""
    return [*cell.pods, *outage.standby(cell)]


def topology_of(cell: Cell) -> Topology:
    """Place a cell's participants on nodes. Raises InputError for an invalid placement."""
    count = cell.node_count
    node_of = _explicit(cell, count) if isinstance(cell.placement, dict) else numbered(cell, count)
    first, receiver = node_of[FIRST_PUBLISHER], node_of[FIRST_SUBSCRIBER]
    node_of |= dict(zip(cell.loads, (first, receiver), strict=False))
    usual = count - 1 if cell.crosses_links else first
    node_of |= {participant: usual for participant in cell.services if participant not in node_of}
    node_of |= {new: node_of[old] for new, old in outage.standby(cell).items()}
    pods = []
    slots = [0] * count
    for index, participant in enumerate(pods_of(cell)):
        node = node_of[participant]
        pods.append(LabPod(participant, node=node, slot=slots[node], index=index))
        slots[node] += 1
    services = services_of(cell)
    proxy = services.proxy if services and services.proxy else IPTABLES
    nodes = tuple(LabNode(i, cell.ip_family, proxy) for i in range(count))
    return Topology(nodes=nodes, pods=tuple(pods), policies=cell.policies)


def _explicit(cell: Cell, nodes: int) -> dict[Participant, int]:
    """Return the node number of each participant in an explicit placement. Raises InputError."""
    assert isinstance(cell.placement, dict)
    pods = {participant.name: participant for participant in cell.pods}
    missing = [
        participant.name for participant in cell.participants if participant.name not in cell.placement
    ]
    if missing:
        raise InputError(f"placement has no node for {', '.join(missing)}", "add a node for each participant")
    foreign = [name for name in cell.placement if name not in pods]
    if foreign:
        raise InputError(
            f"placement contains {', '.join(foreign)}, which the trial does not have",
            f"participants of the trial: {', '.join(pods)}",
        )
    node_of = {}
    for name, node in cell.placement.items():
        if not isinstance(node, int) or not 0 <= node < nodes:
            raise InputError(
                f"placement of {name}: there is no node {node}, only 0 to {nodes - 1}",
                "use a number; node names and labels work only on a cluster (--testbed)",
            )
        node_of[pods[name]] = node
    return node_of


def ports(link: Link) -> tuple[str, ...]:
    """Return the devices of a node whose packets cross its link: `eth0`, or the members of the bond `eth0`."""
    return tuple(f"port{index}" for index in range(link.lag)) if link.bond else ("eth0",)


def _switch_ports(node: LabNode, link: Link) -> tuple[str, ...]:
    """Return the devices of the switch at the other ends of `ports`."""
    name = f"to-{node.name}"
    return tuple(f"{name}-{index}" for index in range(link.lag)) if link.bond else (name,)


def impaired(topology: Topology, link: Link) -> list[LabNode]:
    """Return the nodes whose links lose, delay or shape packets."""
    if not link.is_shaped and link.engine != USERSPACE:
        return []
    return [
        node
        for node in topology.nodes
        if link.impairs({pod.participant.role for pod in topology.pods if pod.node == node.index})
    ]


def queued(topology: Topology, link: Link) -> dict[tuple[str, str], tuple[str, str]]:
    """Return where the kernel impairs links: node and direction to namespace and device."""
    if link.engine != KERNEL:
        return {}
    nodes = [node.name for node in impaired(topology, link)]
    return {(node, "up"): (node, "eth0") for node in nodes} | {
        (node, "down"): (SWITCH, f"to-{node}") for node in nodes
    }


def emulated(topology: Topology, link: Link) -> list[Port]:
    """Return between which interfaces of the switch `k8sdds-link` forwards; empty if the kernel impairs the links."""
    if link.engine != USERSPACE:
        return []
    return [Port(node.name, f"link-{node.name}", f"far-{node.name}") for node in impaired(topology, link)]


def links(topology: Topology, families: Sequence[IpFamily], link: Link) -> list[Batch]:
    """Return the commands that create the switch, the nodes' links with their addresses, and their impairments."""
    forwarded = {port.node: port for port in emulated(topology, link)}
    switch = [
        "link set lo up",
        "link add br0 type bridge mcast_snooping 0",
        "link set br0 up",
    ]
    batches: list[Batch] = []
    for node in topology.nodes:
        mac = f"address 02:77:00:00:00:{node.index:02x}"
        # The members of a bond get its MAC address.
        of_veth, of_bond = ("", mac) if link.bond else (mac, "")
        switch += _bond(f"to-{node.name}", link)
        far_ends = _switch_ports(node, link)
        if forwarder := forwarded.get(node.name):
            switch += [
                f"link add {forwarder.far} mtu {link.mtu} type veth peer name {far_ends[0]} mtu {link.mtu}",
                f"link set {forwarder.far} up",
            ]
            far_ends = (forwarder.near,)
        for own, port in zip(far_ends, ports(link), strict=True):
            switch.append(
                f"link add {own} mtu {link.mtu} type veth peer name {port} mtu {link.mtu} {of_veth} netns {node.name}"
            )
        if forwarder:
            switch.append(f"link set {forwarder.near} up")
        switch += [
            *_enslaved(_switch_ports(node, link), f"to-{node.name}", link),
            f"link set to-{node.name} master br0 up",
        ]
        by_family = [replace(node, family=family) for family in families]
        own_lines = (
            "link set lo up",
            *_bond("eth0", link, of_bond),
            *_enslaved(ports(link), "eth0", link),
            *(f"addr add {own.address}/{own.prefix} dev eth0" for own in by_family),
            "link set eth0 up",
        )
        batches.append(Batch(node.name, "ip", own_lines))
    batches.insert(0, Batch(SWITCH, "ip", tuple(switch)))
    return batches + _impairments(topology, link) + _offloads(topology, link)


def _bond(name: str, link: Link, mac: str = "") -> list[str]:
    if link.bond is None:
        return []
    return [
        f"link add {name} mtu {link.mtu} {mac} type bond mode {link.bond.mode} xmit_hash_policy {link.bond.hash}"
    ]


def _enslaved(members: Sequence[str], bond: str, link: Link) -> list[str]:
    return [f"link set {member} master {bond}" for member in members] if link.bond else []


def _impairments(topology: Topology, link: Link) -> list[Batch]:
    if link.engine == USERSPACE:
        return _segmentation_off(topology, link)
    if link.engine == KERNEL:
        return _netem(topology, link)
    batches: list[Batch] = []
    if link.rate_mbit or link.delay_us:
        batches += [Batch(node.name, "tc", _queues(ports(link), link)) for node in topology.nodes]
    if link.rate_mbit:
        # The delay applies once per direction, at the sender; the rate applies at both ends of a link.
        shape = Link(rate_mbit=link.rate_mbit)
        of_switch = [port for node in topology.nodes for port in _switch_ports(node, link)]
        batches.append(Batch(SWITCH, "tc", _queues(of_switch, shape)))
    if link.loss_percent:
        batches += [Batch(node.name, "nft", (_loss(link.loss_percent),)) for node in topology.nodes]
    return batches


def _segmentation_off(topology: Topology, link: Link) -> list[Batch]:
    """Return the commands that make the kernel split large packets before the forwarder gets them."""
    features = " ".join(f"{name} off" for name in SEGMENTATION.features())
    batches = []
    for node in impaired(topology, link):
        batches.append(Batch(node.name, "ethtool", (f"-K eth0 {features}",)))
        batches.append(Batch(SWITCH, "ethtool", (f"-K to-{node.name} {features}",)))
    return batches


def _netem(topology: Topology, link: Link) -> list[Batch]:
    """Return the queues of the kernel, if it impairs the links."""
    return [
        Batch(namespace, "tc", netem.queues(device, link.directions[direction], link.mtu))
        for (_, direction), (namespace, device) in queued(topology, link).items()
    ]


def _offloads(topology: Topology, link: Link) -> list[Batch]:
    features = [f"{name} {'on' if on else 'off'}" for name, on in link.offloads.features().items()]
    if not features:
        return []
    # A bond segments what its members could segment, and its members join packets before it.
    devices = dict.fromkeys((*ports(link), "eth0"))
    lines = tuple(f"-K {device} {' '.join(features)}" for device in devices)
    return [Batch(node.name, "ethtool", lines) for node in topology.nodes]


def _queues(devices: Sequence[str], link: Link) -> tuple[str, ...]:
    return tuple(line for device in devices for line in _queue(device, link))


def _queue(device: str, link: Link) -> tuple[str, ...]:
    lines = []
    parent = "root handle 1:"
    if link.rate_mbit:
        rate = f"{round(link.rate_mbit * 1000)}kbit"
        lines.append(
            f"qdisc replace dev {device} {parent} tbf rate {rate} burst {TBF_BURST} latency {TBF_LATENCY}"
        )
        parent = "parent 1:"
    if link.delay_us:
        lines.append(f"qdisc add dev {device} {parent} netem delay {round(link.delay_us)}us limit 100000")
    return tuple(lines)


def _loss(percent: float) -> str:
    return f"""
table netdev impairments {{
  chain in {{
    type filter hook ingress device eth0 priority 0; policy accept;
    meta l4proto udp numgen random mod 100000 < {round(percent * 1000)} counter drop
  }}
}}
"""
