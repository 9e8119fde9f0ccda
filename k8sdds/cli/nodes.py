"""`k8sdds nodes`: create and manage local nodes, which are made of namespaces on this machine."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from k8sdds import versions
from k8sdds.cli.commands import REST_IS_A_COMMAND, Commands, option
from k8sdds.cli.options import DryRun
from k8sdds.cli.output import RowsOutput
from k8sdds.cli.progress import Steps
from k8sdds.cli.terminal import console, print_line, print_step, print_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection

if TYPE_CHECKING:
    from k8sdds import nodes

app = Commands(help="Create local nodes from namespaces, with systemd, sshd and containerd. Root only.")

SWITCH = "switch"
"""Name of the switch of a cluster, next to which `exec` runs commands."""
LOCAL = "local"
"""Name of the cluster of nodes that `up` creates without a name."""
Cluster = Annotated[
    str | None,
    "--cluster -c NAME: Cluster of the node, the same as CLUSTER/NODE. Default: that of an existing node;"
    " otherwise local.",
]
Node = Annotated[str, "NODE: NODE, or CLUSTER/NODE if several clusters have it; see `nodes ls`."]


@app.add("k8sdds nodes up --count 2", "k8sdds nodes up alpha beta --cluster mine --delay-ms 5")
def up(
    names: Annotated[list[str] | None, "NODE: Names of the nodes. Default: node1, node2, …"] = None,
    count: Annotated[int, option("--count N: Number of nodes without names.", min=1, max=100)] = 3,
    cluster: Cluster = None,
    boot: Annotated[
        Literal["systemd", "sshd"], "--boot PROGRAM: First process of each node: systemd, or sshd alone."
    ] = "systemd",
    rate: Annotated[
        float | None, option("--rate-mbps MBPS: Rate of each link in Mbit/s. Default: unlimited.", min=0.1)
    ] = None,
    delay: Annotated[
        float | None, option("--delay-ms MS: One-way delay of each link in ms. Default: none.", min=0)
    ] = None,
    mtu: Annotated[int, option("--mtu BYTES: MTU of each link in bytes.", min=576, max=9000)] = 1500,
    dry_run: DryRun = False,
) -> None:
    """Create nodes and boot stopped ones. Running nodes are kept."""
    from k8sdds import nodes

    placed = [name.rpartition("/") for name in names or [f"node{number}" for number in range(1, count + 1)]]
    clusters = {owner or cluster or LOCAL for owner, _, _ in placed}
    if len(clusters) > 1:
        raise InputError(
            f"the nodes belong to several clusters: {', '.join(sorted(clusters))}",
            "create those of one at a time",
        )
    cluster = clusters.pop()
    link = nodes.NodeLink(mtu=mtu, rate_mbps=rate, delay_ms=delay)
    specs = [nodes.NodeSpec(name, boot=boot, link=link) for _, _, name in placed]
    if dry_run:
        states = {node.name: node.state for node in nodes.ls(cluster)}
        todo = {"stopped": "would boot", "running": "would keep", "boots": "would keep"}
        for spec in specs:
            what = todo[states[spec.name]] if spec.name in states else "would create and boot"
            print_text(f"{what} {spec.name} of {cluster}")
        return
    with Steps() as steps:
        running = nodes.up(cluster, specs, steps)
    for node in running:
        print_line(f"{node.name}: {node.address}")
    print_step(f"\nTry: ssh -F {running[0].ssh_config} {running[0].name}")


@app.add("k8sdds nodes ls", "k8sdds nodes ls --cluster mine --json")
def ls(
    cluster: Annotated[
        str | None, "--cluster -c NAME: Only this cluster's nodes. Default: all clusters."
    ] = None,
    *,
    out: RowsOutput,
) -> None:
    """List the local nodes on this machine."""
    from k8sdds import nodes

    listed = nodes.ls(cluster)
    out.print([asdict(node) for node in listed], lambda: _show(listed))


def _show(listed: list[nodes.LocalNode]) -> None:
    if not listed:
        print_line("There are no local nodes. To create some: k8sdds nodes up")
    for node in listed:
        print_line(f"{node.cluster}/{node.name}  {node.address}  {node.state}")


@app.add(
    "k8sdds nodes exec node1 -- systemctl status",
    "k8sdds nodes exec one-machine/worker1 -- ip addr",
    context_settings=REST_IS_A_COMMAND,
)
def exec_(
    node: Node,
    command: Annotated[list[str], "COMMAND: The command, after --."],
    cluster: Cluster = None,
) -> None:
    """Run a command in a node as root, without SSH; in the node `switch`, next to the switch."""
    from k8sdds import nodes

    argv = nodes.exec_argv(*_located(node, cluster, switch=True)) + (
        command[1:] if command[0] == "--" else command
    )
    os.execvp(argv[0], argv)


@app.add("k8sdds nodes connect node1 22")
def connect(
    node: Node,
    port: Annotated[int, option("PORT: TCP port of the node.", min=1, max=65535)] = versions.SSH_PORT,
    cluster: Cluster = None,
) -> None:
    """Connect stdin and stdout to a TCP port of a node, for the ProxyCommand of ssh."""
    from k8sdds import nodes

    argv = nodes.connect(*_located(node, cluster), port)
    os.execv(argv[0], argv)


@app.add("k8sdds nodes stop node2")
def stop(node: Node, cluster: Cluster = None, dry_run: DryRun = False) -> None:
    """Power off a node without a shutdown. Its disk is kept; `up` boots it again."""
    from k8sdds import nodes

    cluster, node = _located(node, cluster)
    if dry_run:
        print_text(f"would power off {node} of {cluster}")
        return
    nodes.stop(cluster, node)


@app.add("k8sdds nodes down", "k8sdds nodes down mine/node2", "k8sdds nodes down -c mine")
def down(
    names: Annotated[list[str] | None, "NODE: Only these nodes. Default: all nodes of the cluster."] = None,
    cluster: Cluster = None,
    dry_run: DryRun = False,
) -> None:
    """Delete nodes and all their data."""
    from k8sdds import nodes

    named = [_located(name, cluster) for name in names or ()]
    clusters = dict.fromkeys(owner for owner, _ in named) or [cluster or LOCAL]
    if dry_run:
        for node in nodes.ls():
            if (node.cluster, node.name) in named or (not named and node.cluster in clusters):
                print_text(f"would delete {node.name} of {node.cluster} and all its data")
        return
    removed = [
        name
        for each in clusters
        for name in nodes.down(each, [node for owner, node in named if owner == each] or None)
    ]
    console().print(f"removed {', '.join(removed)}" if removed else "Nothing to remove.")


def _located(node: str, cluster: str | None, switch: bool = False) -> tuple[str, str]:
    """Return cluster and name of an existing node: CLUSTER/NODE, or NODE if one cluster or the current one has it.

    With `switch`, each cluster also has the node `switch`.
    """
    from k8sdds import nodes

    owner, _, name = node.rpartition("/")
    owner = owner or cluster or ""
    listed = nodes.ls()
    is_switch = switch and name == SWITCH
    having = {n.cluster for n in listed if (is_switch or name == n.name) and owner in ("", n.cluster)}
    having = having & {selection.read().name} or having
    if len(having) > 1:
        raise InputError(
            f"the clusters {', '.join(sorted(having))} have a node {name}", f"name it CLUSTER/{name}"
        )
    if not having:
        known = f" (known: {', '.join(f'{n.cluster}/{n.name}' for n in listed)})" if listed else ""
        raise InputError(f"there is no local node {node!r}{known}", "create it: k8sdds nodes up NODE")
    return having.pop(), name
