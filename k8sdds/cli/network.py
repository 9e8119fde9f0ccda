"""`k8sdds network`: list networks, show their Kubernetes objects, and switch the network of a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from k8sdds.cli import list as list_command
from k8sdds.cli.options import AcceptKeys, Json, ProfileName, complete_networks
from k8sdds.cli.terminal import print_note, print_text

app = typer.Typer(
    help="Switch the pod network of a cluster, or show what would be installed.", no_args_is_help=True
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK", help="Name of a network; see `network list`.", autocompletion=complete_networks
    ),
]
Mtu = Annotated[
    int | None,
    typer.Option("--mtu", min=576, max=65535, help="MTU of the pods. Default: the network's default."),
]
Interface = Annotated[
    str | None,
    typer.Option(
        "--interface", help="Interface between the nodes. Default: the interface of the default route."
    ),
]
Password = Annotated[
    str | None,
    typer.Option("--password-file", help="File (mode 0600) with the secret of an encrypted network."),
]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the networks and their properties, like `k8sdds list --networks`."""
    list_command.list_(networks=True, as_json=as_json)


@app.command()
def show(
    profile: ProfileName,
    network: Annotated[
        str | None,
        typer.Argument(
            metavar="[NETWORK]",
            help="Network to show. Default: the network of the profile.",
            autocompletion=complete_networks,
        ),
    ] = None,
    mtu: Mtu = None,
    interface: Interface = None,
) -> None:
    """Print the Kubernetes objects of a network for this profile, without secrets."""
    from k8sdds.deploy import network_install, profiles
    from k8sdds.networks import pod_networks
    from k8sdds.system import yaml_text

    loaded = profiles.load(profile)
    name = network or loaded.network.name
    # The secret is not printed, so its file does not have to exist.
    password_file = "any" if pod_networks().get(name) else None
    chosen = network_install.choose_network(loaded, name, mtu, interface, password_file)
    install = network_install.render(network_install.with_network(loaded, chosen))
    documents = []
    for manifest in install.manifests:
        if manifest["kind"] == "Secret":
            manifest = {**manifest, "data": dict.fromkeys(manifest["data"], "(not shown)")}
        documents.append(yaml_text.dump(manifest))
    print_text("---\n".join(documents).rstrip("\n"))


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
    """Replace the network of a cluster without rebuilding the cluster.

    Removes the old network from all nodes and verifies that nothing is left, installs the new one, and
    recreates every pod that is not on the host network. Does not change the profile's file: the next
    `deploy` installs the profile's network again. Run it again to finish an interrupted switch.
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import network_install, profiles, record
    from k8sdds.deploy.network_switch import switch as switching
    from k8sdds.system.ssh import Connections

    known = profiles.load(profile)
    chosen = network_install.choose_network(known, network, mtu, interface, password_file)
    wanted = network_install.with_network(known, chosen)
    profiles.password(wanted)
    targets = profiles.targets(wanted)
    with record.locked(known.name), Connections(targets, accept_new_host_keys) as connections:
        # Check that the machines support the new network before the old one is removed.
        flow.survey(wanted, connections).raise_problems(wanted)
        done = switching.switch(known, chosen, connections, print_note)
        if done.changed:
            print_note("verifying that the nodes exchange datagrams")
            switching.run_smoke_test(wanted, connections)
    if as_json:
        print_text(json.dumps(asdict(done), indent=1))
        return
    if not done.changed:
        print_text(
            f"no changes: {known.name} already has {network}, and there are no leftovers of other networks"
        )
        return
    leftovers = sum(map(len, done.removed.values()))
    print_text(
        f"{known.name} now has {network} ({done.took_s:.0f} s): removed {leftovers} leftovers of the old"
        f" network from {len(done.removed)} nodes, recreated {len(done.recreated)} pods"
    )
    if network != known.network.name:
        print_text(
            f"The profile has {known.network.name}: its next `k8sdds deploy` installs that network again."
        )
