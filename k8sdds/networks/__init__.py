"""The registry of networks: one module per family. A new network is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable

from k8sdds.model.experiment import Experiment, NetworkChoice
from k8sdds.networks.flannel import ipsec, wireguard
from k8sdds.networks.flannel import lab as flannel
from k8sdds.networks.host import network as node
from k8sdds.networks.kube_router import network as kube_router
from k8sdds.networks.network import Network
from k8sdds.networks.weave import encryption
from k8sdds.networks.weave import lab as weave
from k8sdds.system.errors import InputError
from k8sdds.system.yaml_text import nearest

NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        node.BAREMETAL,
        node.HOST,
        flannel.VXLAN,
        flannel.HOSTGW,
        ipsec.IPSEC,
        wireguard.WIREGUARD,
        kube_router.KUBE_ROUTER,
        weave.WEAVENET,
        encryption.WEAVENET_ENCRYPT,
    )
}


def find(name: str) -> Network:
    """The network of this name; an unknown one is an InputError that suggests the nearest."""
    try:
        return NETWORKS[name]
    except KeyError:
        hint = nearest(name, list(NETWORKS))
        raise InputError(f"there is no network {name!r}{hint}", "see: k8sdds list --networks") from None


def resolved(experiment: Experiment, can: Callable[[str], bool]) -> Experiment:
    """The experiment with an engine for every network that has a choice, and the engine in its label.

    `can`: whether this machine has a feature. Without an `engine` of its own a network gets the first whose
    needs are all there, else the last, so that its lacks can be told.
    """
    renamed: dict[str, str] = {}

    def choose(choice: NetworkChoice) -> NetworkChoice:
        network = find(choice.name)
        if not network.engines:
            return choice
        fitting = next((one for one in network.engines if all(map(can, one.needs))), network.engines[-1])
        option = choice.engine or fitting.option
        title = network.engine_title({"engine": option})
        bare = choice.shown
        label = bare if bare.endswith(f" ({title})") else f"{bare} ({title})"
        renamed[bare] = label
        return choice.model_copy(update={"engine": option, "label": label})

    sweeps = [
        sweep.model_copy(update={"networks": [choose(choice) for choice in sweep.networks]})
        for sweep in experiment.sweeps
    ]
    baseline = renamed.get(experiment.baseline, experiment.baseline)
    return experiment.model_copy(update={"sweeps": sweeps, "baseline": baseline})


def bare_label(label: str) -> str:
    """A label without the engine that `resolved` has put behind it."""
    titles = {engine.title for network in NETWORKS.values() for engine in network.engines}
    head, _, tail = label.rpartition(" (")
    return head if tail.rstrip(")") in titles else label
