"""The plan of a bench: all commands that build it, as data. `lab plan` prints it, the executor runs it."""

from __future__ import annotations

from dataclasses import dataclass

from k8sdds.model.network import Batch, Capabilities, Datapath, Topology
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.testbeds.lab.topology import SWITCH, BenchKey, links, topology_of


@dataclass(frozen=True)
class Plan:
    """One bench: a network over its own nodes and switch."""

    key: BenchKey
    topology: Topology
    namespaces: tuple[str, ...]
    sysctls: tuple[tuple[str, str, str], ...]
    batches: tuple[Batch, ...]
    datapath: Datapath


def plan(cell: Cell, capabilities: Capabilities) -> Plan:
    """The bench that a cell needs. Pure: nothing is asked of the machine."""
    network = find(cell.network)
    topology = topology_of(cell)
    mtu = network.mtu(cell.network_options)
    datapath = network.lab(topology, mtu, capabilities)
    namespaces = (SWITCH, *(node.name for node in topology.nodes), *datapath.namespaces)
    return Plan(
        key=BenchKey.of(cell),
        topology=topology,
        namespaces=namespaces,
        # Without IPv6 no router solicitation and no duplicate address detection disturbs a trial.
        sysctls=(*((name, "net.ipv6.conf.all.disable_ipv6", "1") for name in namespaces), *datapath.sysctls),
        batches=tuple(_joined([*links(topology, cell.link), *datapath.batches])),
        datapath=datapath,
    )


def _joined(batches: list[Batch]) -> list[Batch]:
    """Batches with all `ip` lines of a namespace joined into its first, which halves the commands to start.

    A network's `ip` lines may therefore build on earlier lines of their own namespace and on devices that
    an earlier namespace moved in, not on a `bridge` or `nft` batch between them.
    """
    lines: dict[str, list[str]] = {}
    for batch in batches:
        if batch.tool == "ip":
            lines.setdefault(batch.namespace, []).extend(batch.lines)
    first = [Batch(namespace, "ip", tuple(joined)) for namespace, joined in lines.items()]
    return first + [batch for batch in batches if batch.tool != "ip" and batch.lines]


def script(plan: Plan) -> str:
    """The plan as a shell script that an engineer could run as root."""
    lines = ["#!/bin/sh -e", f"# {plan.key.label}: {plan.key.nodes} nodes, {len(plan.topology.pods)} pods"]
    lines += [f"ip netns add {name}" for name in plan.namespaces]
    lines += [f"ip netns exec {name} sysctl -qw {key}={value}" for name, key, value in plan.sysctls]
    for batch in plan.batches:
        lines.append("")
        if batch.tool == "nft":
            body = "\n".join(batch.lines).strip()
            lines += [f"ip netns exec {batch.namespace} nft -f - <<'EOF'", body, "EOF"]
        else:
            lines += [f"{batch.tool} -n {batch.namespace} {line}" for line in batch.lines]
    return "\n".join(lines) + "\n"
