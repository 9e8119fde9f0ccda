"""The registry of networks: one module per family. A new network is one module and one line here."""

from __future__ import annotations

from k8sdds.errors import InputError
from k8sdds.model.network import Network
from k8sdds.model.yamltext import nearest
from k8sdds.networks import flannel, kube_router, node, weave

NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        node.BAREMETAL,
        node.HOST,
        flannel.VXLAN,
        flannel.HOSTGW,
        kube_router.KUBE_ROUTER,
        weave.WEAVENET,
    )
}


def find(name: str) -> Network:
    """The network of this name; an unknown one is an InputError that suggests the nearest."""
    try:
        return NETWORKS[name]
    except KeyError:
        hint = nearest(name, list(NETWORKS))
        raise InputError(f"there is no network {name!r}{hint}", "see: k8sdds list --networks") from None
