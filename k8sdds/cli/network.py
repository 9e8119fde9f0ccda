"""`k8sdds network`: list networks, show their Kubernetes objects, and switch the network of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli import list as list_command
from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import AcceptKeys, DryRun, Force, ProfileName, Yes
from k8sdds.cli.output import Json, RowsOutput
from k8sdds.cli.terminal import confirm, print_note, print_text
from k8sdds.report.export import to_json
from k8sdds.system import yaml_text

if TYPE_CHECKING:
    from k8sdds.deploy.network_switch.switch import SwitchResult
    from k8sdds.model.profile import Profile

app = Commands(help="Switch the pod network of a cluster, or show what would be installed.")

Name = Annotated[str, "NETWORK: Name of a network; see `k8sdds list networks`."]
Mtu = Annotated[
    int | None,
    option("--mtu BYTES: MTU of the pods, in bytes. Default: the network's default.", min=576, max=65535),
]
Interface = Annotated[
    str | None,
    "--interface NAME: Network interface between the nodes. Default: the interface of the default route.",
]
Password = Annotated[
    str | None,
    "--password-file FILE: File (mode 0600) with the secret of an encrypted network. Default: as in the"
    " profile.",
]
Engine = Annotated[
    str | None,
    "--engine NAME: Engine of the network: sleeve, WeaveNet's datapath in userspace, or fastdp, its own; for Cilium,"
    " kube-proxy or kube-proxy-replacement. Default: as in the profile.",
]


@app.add("k8sdds network list")
def list_(out: RowsOutput) -> None:
    """List the networks and their properties, like `k8sdds list networks`."""
    list_command.list_("networks", out=out)


@app.add("k8sdds network show one-machine", "k8sdds network show ./my-lab.yaml weavenet --mtu 1400")
def show(
    profile: ProfileName,
    network: Annotated[str | None, "NETWORK: Network to show. Default: the network of the profile."] = None,
    mtu: Mtu = None,
    interface: Interface = None,
    engine: Engine = None,
) -> None:
    """Print the Kubernetes objects of a network for this profile, without secrets."""
    from k8sdds.deploy import network_install, profiles
    from k8sdds.networks import pod_networks

    loaded = profiles.load(profile)
    name = network or loaded.network.name
    # The secret is not printed, so its file does not have to exist.
    password_file = "any" if pod_networks().get(name) else None
    shown = network_install.choose_network(loaded, name, mtu, interface, password_file, engine)
    install = network_install.render(network_install.with_network(loaded, shown))
    documents = []
    for manifest in install.manifests:
        if manifest["kind"] == "Secret":
            manifest = {**manifest, "data": dict.fromkeys(manifest["data"], "(not shown)")}
        documents.append(yaml_text.dump(manifest))
    print_text("---\n".join(documents).rstrip("\n"))


@app.add(
    "k8sdds network switch one-machine flannel-hostgw --yes",
    "k8sdds network switch ./my-lab.yaml weavenet-encrypt --password-file weave.key",
    "k8sdds network switch one-machine flannel-vxlan --dry-run",
)
def switch(
    profile: ProfileName,
    network: Name,
    yes: Yes = False,
    force: Force = False,
    mtu: Mtu = None,
    interface: Interface = None,
    password_file: Password = None,
    engine: Engine = None,
    accept_new_host_keys: AcceptKeys = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replace the network of a cluster without rebuilding the cluster.

    Removes the old network from all nodes, verifies that nothing is left,
    installs the new network, and recreates every pod that uses the pod network.
    Run it again to finish an interrupted switch.
    Does not change the profile: the next `deploy` installs the profile's network again.
    """
    from k8sdds.deploy import deployed_clusters, network_install, profiles

    loaded = profiles.load(profile)
    new_network = network_install.choose_network(loaded, network, mtu, interface, password_file, engine)

    def ask(planned: SwitchResult) -> None:
        confirm(f"Install {network} on {loaded.name} and recreate every pod that uses the pod network?", yes)

    result = deployed_clusters.switch_and_verify(
        loaded, new_network, accept_new_host_keys, print_note, dry_run, ask, force
    )
    if as_json:
        print_text(to_json(asdict(result)))
    else:
        for line in _described(result, loaded, dry_run):
            print_text(line)


def _described(result: SwitchResult, profile: Profile, dry_run: bool) -> Iterator[str]:
    network, leftovers = result.network, sum(map(len, result.removed.values()))
    if not result.changed:
        yield f"no changes: {profile.name} already has {network}, and there are no leftovers of other networks"
    elif dry_run and not result.removed:
        yield f"would recreate {len(result.recreated)} pods that joined another network"
    elif dry_run:
        yield (
            f"would remove what other networks left: {leftovers} items on {len(result.removed)} nodes; would install"
            f" {network}, and recreate every pod that uses the pod network"
        )
    else:
        yield (
            f"{profile.name} now has {network} ({result.took_s:.0f} s): removed {leftovers} leftovers of the old"
            f" network from {len(result.removed)} nodes, recreated {len(result.recreated)} pods"
        )
        if network != profile.network.name:
            yield f"The profile has {profile.network.name}: its next `k8sdds deploy` installs that network again."
