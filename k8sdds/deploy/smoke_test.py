"""Build the smoke test of a cluster: pods on all nodes exchange datagrams, and multicast where supported."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

from k8sdds import networks, versions
from k8sdds.deploy import limits
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.deploy.scripts import shell
from k8sdds.kubernetes import apply
from k8sdds.model import ip_families
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.profile import Profile
from k8sdds.model.trial import host_and_port
from k8sdds.networks.macvlan import multus

MANIFEST = "smoke-test/manifest.yaml"
"""Two objects: the namespace, and a pod as template."""
PORT = 7000
GROUPS: dict[IpFamily, str] = {"ipv4": "239.255.0.1", "ipv6": "ff05::7000"}
"""Multicast groups of all networks of a site."""
TIMEOUT_S = 20
PARALLEL = 8
"""Number of pods that probe at a time: each needs a kubectl on the control plane."""
_RUN = f"kubectl --namespace {versions.SYSTEM_NAMESPACE}"


@dataclass(frozen=True)
class SmokeTest:
    """The smoke test of a cluster."""

    nodes: int
    proof: str
    """Identifies a passed test: that these networks connect these nodes."""
    script: str
    limit_s: int
    """How long it may take."""


def of(profile: Profile, network: RenderedNetwork) -> SmokeTest:
    """Return the smoke test of a profile with this network."""
    names, families = sorted(node.name for node in profile.nodes), profile.kubernetes.ip_families
    second = profile.second_network
    # Clusters that passed the test before it used the second network have the proof without its name.
    proof = apply.digest([network.name, list(network.manifests), names, *filter(None, [second])])
    commands = script(names, network.name, proof, families, second)
    return SmokeTest(len(names), proof, commands, limit_s(len(names), families, second))


def limit_s(nodes: int, families: Sequence[IpFamily], second: str | None = None) -> int:
    """Return how long the test of a cluster with this second network may take, in s."""
    exchanges = len(families) * (2 if second else 1)
    return limits.of_cluster(limits.SMOKE_TEST_S, nodes) + TIMEOUT_S * math.ceil(nodes / PARALLEL) * exchanges


def namespace() -> apply.Object:
    """Return the namespace of the services that k8sdds runs on a cluster, unstamped."""
    return apply.read_manifest(MANIFEST)[0]


def script(
    nodes: Sequence[str],
    network: str,
    proven: str,
    families: Sequence[IpFamily] = ip_families.DEFAULT,
    second: str | None = None,
) -> str:
    """Return the shell script that runs the test on the control plane and records its proof.

    The pods use the network, and then the second one of the profile. Each decides whether multicast must pass on it.
    `families` are in the order of the pods' addresses.
    """
    parts = [_create_pods(nodes, families[0], second)]
    for name in filter(None, (network, second)):
        parts += _connect(nodes, name, families)
    annotation = f"{versions.PROVEN_ANNOTATION}={proven}"
    parts.append(
        f"kubectl annotate namespace {versions.SYSTEM_NAMESPACE} --overwrite {annotation} >/dev/null\n"
    )
    return "".join(parts)


def _connect(nodes: Sequence[str], network: str, families: Sequence[IpFamily]) -> list[str]:
    """Return the scripts in which the pods use their interface on a network."""
    known = networks.find(network)
    interface, install = known.pod_interface, known.cluster
    # The family of the first addresses last, which multicast uses.
    parts = [_exchange(nodes, interface, index) for index in reversed(range(len(families)))]
    if len(nodes) > 1 and known.multicast and not (install and install.host_network_multicast):
        parts.append(_multicast(nodes[0], host_and_port(GROUPS[families[0]], PORT), interface))
    return parts


def _names(nodes: Sequence[str]) -> str:
    return " ".join(f"smoke-{name}" for name in nodes)


def _create_pods(nodes: Sequence[str], family: IpFamily, second: str | None) -> str:
    namespace_manifest, template = apply.stamped(apply.read_manifest(MANIFEST))
    # All nodes of a cluster have the same families; the group of one is sufficient.
    (container,) = template["spec"]["containers"]
    container["command"][-1] = GROUPS[family]
    if second:
        template["metadata"].setdefault("annotations", {}).update(multus.request(multus.ATTACHMENT))
    pods = []
    for name in nodes:
        pod = copy.deepcopy(template)
        pod["metadata"]["name"] = f"smoke-{name}"
        pod["spec"]["nodeName"] = name
        pods.append(pod)
    return shell(
        "smoke_pods", RUN=_RUN, PODS=_names(nodes), APPLY_NAMESPACE=apply.apply_script([namespace_manifest]),
        APPLY_PODS=apply.apply_script(pods), READY_S=str(limits.of_cluster(limits.SMOKE_PODS_S, len(nodes))),
    )  # fmt: skip


def _exchange(nodes: Sequence[str], interface: str, index: int) -> str:
    """Return the script in which each pod probes the next, and the last the first: every node sends and receives.

    The addresses are those of an interface, or the own addresses of the pods with this index, with brackets if they
    are of IPv6.
    """
    if interface:
        show = f"{_RUN} exec $0 -- ip -4 -o address show dev {interface} >'$work'/address-$0"
        files = " ".join(f"$work/address-{pod}" for pod in _names(nodes).split())
        # A failed command leaves an empty file: the script names the pod.
        addresses = f"echo {_names(nodes)} | xargs -n 1 -P {PARALLEL} sh -c '{show}' || :\n"
        own = 'pod = FILENAME; sub(".*/address-", "", pod); sub("/.*", "", $4); print pod, $4'
        addresses += f"awk '{{ {own} }}' {files}"
    else:
        own = f'{{.metadata.name}} {{.status.podIPs[{index}].ip}}{{"\\n"}}'
        each = f"{{range .items[*]}}{own}{{end}}" if len(nodes) > 1 else own
        brackets = "sed 's/[^ ]*:[^ ]*/[&]/g'"
        addresses = f"{_RUN} get pods {_names(nodes)} -o jsonpath='{each}' | {brackets}"
    return shell(
        "smoke_exchange", RUN=_RUN, PODS=_names(nodes), ADDRESSES=addresses, PORT=str(PORT), TIMEOUT_S=str(TIMEOUT_S),
        PARALLEL=str(PARALLEL),
    )  # fmt: skip


def _multicast(node: str, group: str, interface: str) -> str:
    option = f" --interface {interface}" if interface else ""
    return shell(
        "smoke_multicast", RUN=_RUN, POD=_names([node]), GROUP=group, TIMEOUT_S=str(TIMEOUT_S), INTERFACE=option
    )  # fmt: skip
