"""`nodes`: machines made of namespaces on this machine, to deploy a cluster on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer

from k8sdds import versions
from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.system.errors import InputError

app = typer.Typer(
    help="Machines made of namespaces on this one, with systemd, sshd and containerd. Root only.",
    no_args_is_help=True,
)

Cluster = Annotated[str, typer.Option("--cluster", "-c", help="Name of the cluster, to have several.")]
Node = Annotated[str, typer.Argument(help="The node's name, as `nodes ls` shows it.")]


@app.command()
def up(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of the nodes; without, node1, node2, …")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="How many, without names.")] = 3,
    cluster: Cluster = "local",
    boot: Annotated[str, typer.Option("--boot", help="First process: systemd, or sshd alone.")] = "systemd",
    rate: Annotated[float | None, typer.Option("--rate-mbps", min=0.1, help="Rate of each link.")] = None,
    delay: Annotated[
        float | None, typer.Option("--delay-ms", min=0, help="One-way delay of each link.")
    ] = None,
    mtu: Annotated[int, typer.Option("--mtu", min=576, max=9000, help="MTU of each link.")] = 1500,
) -> None:
    """Make nodes, or boot those that were stopped; those that run are kept."""
    from k8sdds import nodes

    if boot not in ("systemd", "sshd"):
        raise InputError(f"--boot {boot!r} is neither systemd nor sshd")
    link = nodes.Link(mtu=mtu, rate_mbps=rate, delay_ms=delay)
    specs = [
        nodes.NodeSpec(name, boot=boot, link=link)  # type: ignore[arg-type]
        for name in names or [f"node{number}" for number in range(1, count + 1)]
    ]
    made = nodes.up(cluster, specs, lambda text: console(stderr=True).print(text, highlight=False))
    for node in made:
        console().print(f"{node.name}: {node.address}", highlight=False)
    console().print(f"\nTry: ssh -F {made[0].ssh_config} {made[0].name}", highlight=False, soft_wrap=True)


@app.command("ls")
def list_(
    cluster: Annotated[str | None, typer.Option("--cluster", "-c")] = None, as_json: Json = False
) -> None:
    """List the nodes on this machine."""
    from k8sdds import nodes

    found = nodes.ls(cluster)
    if as_json:
        say(json.dumps([asdict(node) for node in found], indent=1, default=str))
        return
    if not found:
        console().print("No local nodes stand here. Make some: k8sdds nodes up")
    for node in found:
        console().print(f"{node.cluster}: {node.name}  {node.address}  {node.state}", highlight=False)


@app.command("exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def exec_(
    node: Annotated[str, typer.Argument(help="The node's name, or `switch`.")],
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    cluster: Cluster = "local",
) -> None:
    """Run a command in a node as its root, without ssh."""
    from k8sdds import nodes

    words = nodes.exec_argv(cluster, node) + (command[1:] if command[0] == "--" else command)
    os.execvp(words[0], words)


@app.command()
def connect(
    node: Node,
    port: Annotated[int, typer.Argument(min=1, max=65535, help="The TCP port.")] = versions.SSH_PORT,
    cluster: Cluster = "local",
) -> None:
    """Connect stdin and stdout to a node's TCP port, as ssh's ProxyCommand wants it."""
    from k8sdds import nodes

    words = nodes.connect(cluster, node, port)
    os.execv(words[0], words)


@app.command()
def stop(node: Node, cluster: Cluster = "local") -> None:
    """Cut a node's power; its disk stays, and `up` boots it again."""
    from k8sdds import nodes

    nodes.stop(cluster, node)


@app.command()
def down(
    names: Annotated[list[str] | None, typer.Argument(help="Only these nodes.")] = None,
    cluster: Cluster = "local",
) -> None:
    """Remove nodes with all that they wrote."""
    from k8sdds import nodes

    for name in names or ():
        nodes.find(cluster, name)
    removed = nodes.down(cluster, names or None)
    console().print(f"removed {', '.join(removed)}" if removed else "Nothing to remove.", highlight=False)
