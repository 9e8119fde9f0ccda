"""Draw lab networks with Graphviz: nodes, pods, links and MTUs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from k8sdds.networks import find
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically
from k8sdds.testbeds.lab.plan import Plan

FORMATS = ("svg", "png", "dot")


def dot(plans: Sequence[Plan]) -> str:
    """Return the lab networks in Graphviz's DOT language."""
    lines = [
        "graph lab {",
        '  graph [rankdir=TB, fontname="DejaVu Sans", fontsize=13, ranksep=0.6, nodesep=0.35];',
        '  node [fontname="DejaVu Sans", fontsize=11, style="filled,rounded", shape=box, penwidth=1.2];',
        '  edge [fontname="DejaVu Sans", fontsize=9, color="#555555"];',
    ]
    for number, plan in enumerate(plans):
        lines += _lab_network(plan, f"b{number}")
    return "\n".join([*lines, "}"]) + "\n"


def _lab_network(plan: Plan, prefix: str) -> list[str]:
    network = find(plan.cell.network)
    carrier = network.encapsulation or ("routes" if network.layer == "L3 routes" else "the node's network")
    rate = f", {plan.cell.link.rate_mbit:g} Mbit/s" if plan.cell.link.rate_mbit else ""
    members = f" × {plan.cell.link.lag}" if plan.cell.link.bond else ""
    lines = [
        f"  subgraph cluster_{prefix} {{",
        f'    label="{plan.cell.network_label} ({carrier}, pod MTU {plan.datapath.mtu})";',
        '    color="#999999"; style=rounded;',
        f'    {prefix}_switch [label="switch", shape=box, fillcolor="#dddddd"];',
    ]
    for node in plan.topology.nodes:
        lines.append(f'    {prefix}_{node.name} [label="{node.name}\\n{node.address}", fillcolor="#cfe3f5"];')
        lines.append(
            f'    {prefix}_switch -- {prefix}_{node.name} [label=" {plan.cell.link.mtu}{rate}{members}"];'
        )
        for pod in plan.topology.pods_on(node):
            attachment = plan.datapath.attachments[pod.name]
            color = "#fbe3c0" if pod.participant.publishes else "#d9eed3"
            address = attachment.address if attachment.namespace == pod.name else "on the node's network"
            lines.append(f'    {prefix}_{pod.name} [label="{pod.name}\\n{address}", fillcolor="{color}"];')
            style = "" if attachment.namespace == pod.name else ", style=dashed"
            lines.append(
                f'    {prefix}_{node.name} -- {prefix}_{pod.name} [label=" {plan.datapath.mtu}"{style}];'
            )
    return [*lines, "  }"]


def draw(plans: Sequence[Plan], target: Path) -> None:
    """Write the drawing; the suffix of the file selects the format: .svg, .png or .dot."""
    kind = target.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise InputError(f"{target}: unknown image format", f"use one of the suffixes .{', .'.join(FORMATS)}")
    text = dot(plans)
    with explained(f"cannot write {target}"):
        if kind == "dot":
            write_atomically(target, text)
            return
        if not shutil.which("dot"):
            raise PrerequisiteError(
                "Graphviz is not installed", "install the Debian package graphviz, or write a .dot file"
            )
        done = subprocess.run(["dot", f"-T{kind}"], input=text.encode(), capture_output=True)
        if done.returncode:
            raise PrerequisiteError(f"Graphviz failed: {done.stderr.decode(errors='replace').strip()}")
        write_atomically(target, done.stdout)
