"""`network`: the pods' network of a cluster, and what is known of networks."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from k8sdds.cli.deploy import AcceptKeys, ProfileName
from k8sdds.cli.options import Json, complete_networks
from k8sdds.cli.terminal import console, say

app = typer.Typer(
    help="The pods' network of a cluster: replace it, or see what would be installed.", no_args_is_help=True
)

Name = Annotated[
    str,
    typer.Argument(metavar="NETWORK", help="As `network list` has it.", autocompletion=complete_networks),
]
Mtu = Annotated[
    int | None, typer.Option("--mtu", min=576, max=65535, help="Of the pods; else the network's own.")
]
Interface = Annotated[
    str | None, typer.Option("--interface", help="Between the nodes; else that of the default route.")
]
Password = Annotated[
    str | None,
    typer.Option("--password-file", help="Secret of flannel-ipsec or weavenet-encrypt, of mode 0600."),
]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the networks and what is known of each; the same as `k8sdds list --networks`."""
    from k8sdds.cli import experiments

    experiments.list_(networks=True, as_json=as_json)


@app.command()
def show(
    profile: ProfileName,
    network: Annotated[
        str | None,
        typer.Argument(
            metavar="[NETWORK]", help="Instead of the profile's.", autocompletion=complete_networks
        ),
    ] = None,
    mtu: Mtu = None,
    interface: Interface = None,
) -> None:
    """Print the Kubernetes objects that a network of this profile is made of, without secrets."""
    from k8sdds.deploy import network_install, profiles
    from k8sdds.model.profile import ENCRYPTED_BY_PASSWORD
    from k8sdds.system import yaml_text

    wanted = profiles.load(profile)
    name = network or wanted.network.name
    # It is not shown, so it need not be there.
    password_file = "any" if name in ENCRYPTED_BY_PASSWORD else None
    chosen = network_install.asked(wanted, name, mtu, interface, password_file)
    install = network_install.install(network_install.with_network(wanted, chosen))
    documents = []
    for one in install.manifests:
        if one["kind"] == "Secret":
            one = {**one, "data": dict.fromkeys(one["data"], "(not shown)")}
        documents.append(yaml_text.dump(one))
    say("---\n".join(documents).rstrip("\n"))


@app.command()
def switch(
    profile: ProfileName,
    network: Name,
    mtu: Mtu = None,
    interface: Interface = None,
    password_file: Password = None,
    accept_new_host_keys: AcceptKeys = False,
    as_json: Json = False,
) -> None:
    """Replace the network of a profile's cluster, without building the cluster again.

    The old one is removed from all nodes without a trace, which is proven; then the new one is installed, and
    every pod that is not on the nodes' own network is made again. The profile's file stays as it is: the next
    `deploy` of it would bring its own network back. Again after an interruption: goes on.
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import network_install, profiles, record
    from k8sdds.deploy.network_switch import switch as switching
    from k8sdds.system.ssh import Connections

    known = profiles.load(profile)
    chosen = network_install.asked(known, network, mtu, interface, password_file)
    wanted = network_install.with_network(known, chosen)
    profiles.password(wanted)
    note = console(stderr=True)

    def told(line: str) -> None:
        note.print(line, highlight=False, markup=False)

    targets = profiles.targets(wanted)
    with record.locked(known.name), Connections(targets, accept_new_host_keys) as connections:
        # Before anything is removed: can these machines carry the new one?
        flow.look(wanted, connections).refuse(wanted)
        done = switching.switch(known, chosen, connections, told)
        if done.changed:
            told("exchanging datagrams between the nodes")
            switching.prove(wanted, connections)
    if as_json:
        say(json.dumps(asdict(done), indent=1))
        return
    if not done.changed:
        say(f"no changes: {known.name} has {network} already, and nothing of another network is left")
        return
    gone = sum(map(len, done.removed.values()))
    say(
        f"{known.name} has {network} now ({done.took_s:.0f} s): {gone} traces of what was there before are"
        f" gone from {len(done.removed)} nodes, {len(done.recreated)} pods were made again"
    )
    if network != known.network.name:
        say(f"The profile says {known.network.name}: its next `k8sdds deploy` would bring that back.")
