"""Write the NetworkPolicies that admit the flows of an application, and state what policies cannot express."""

from __future__ import annotations

import ipaddress
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from k8sdds import middleware
from k8sdds.discovery import MULTICAST, PEERS, SERVER, Service
from k8sdds.middleware.ports import GROUP, Ports
from k8sdds.model.application import Application
from k8sdds.networks import NETWORKS, names_of
from k8sdds.networks.network import Network
from k8sdds.networks.policies import policy
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.yaml_text import nearest

PART_OF, COMPONENT, NAME = (f"app.kubernetes.io/{key}" for key in ("part-of", "component", "name"))
"""Labels of pods, which Kubernetes recommends: the application, its node or role, and the discovery service."""
_DNS = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
}
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_MAX_LABEL, _WIDTH = 63, 110


@dataclass(frozen=True)
class Communication:
    """How the participants of an application communicate."""

    middleware: str = "cyclonedds"
    domain: int = 0
    processes: int = 1
    """Participants in a pod."""
    discovery: str = PEERS
    group: str | None = None
    """Multicast group of discovery and samples; None means that of DDS."""
    network: str | None = None
    """The network of the cluster; None if it is not stated."""

    @property
    def ports(self) -> Ports:
        """The ports of each pod. Raises InputError if they are unknown, or if no policy can name them."""
        names = list(middleware.MIDDLEWARES)
        if self.middleware not in names:
            what = f"unknown middleware {self.middleware!r}{nearest(self.middleware, names)}"
            raise InputError(what, "see: k8sdds docs applications")
        ports = middleware.find(self.middleware).ports(self.domain, self.processes, self.discovery)
        if ports is None:
            known = [name for name, each in middleware.MIDDLEWARES.items() if each.ports(0, 1, PEERS)]
            remedy = f"give one of these to --middleware: {', '.join(known)}"
            raise InputError(f"the ports of {self.middleware} are unknown", remedy)
        return ports

    @property
    def service(self) -> Service | None:
        """The discovery service that participants use. Raises InputError if the middleware has none."""
        if self.discovery != SERVER:
            return None
        service = middleware.find(self.middleware).service
        if service is None:
            raise InputError(
                f"{self.middleware} has no discovery service", "give --discovery peers or multicast"
            )
        return service


def text(application: Application, used: Communication) -> str:
    """Return the policies as YAML, after comments with what they cannot express. Raises InputError."""
    about = [
        f"NetworkPolicies of {application.name}: {used.middleware}, domain {used.domain}, by {used.discovery}.",
        f"Label each pod with {PART_OF}: {application.name} and {COMPONENT}: {', '.join(peers(application))}.",
        "They limit only pods with these labels, and only in the namespace in which you create them; they add up with"
        " other policies.",
        *(f"- {limit}." for limit in _limits(used)),
    ]
    comments = (
        textwrap.fill(line, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
        for line in about
    )
    return "\n".join(comments) + "\n" + "---\n".join(map(yaml_text.dump, policies(application, used)))


def policies(application: Application, used: Communication) -> list[dict[str, Any]]:
    """Return one policy for each node or role of an application, and one for its discovery service."""
    own, service = used.ports, used.service
    if used.group is not None and used.discovery != MULTICAST:
        raise InputError("--group requires --discovery multicast", "add it, or leave out --group")
    found = []
    for component, related in peers(application).items():
        ingress: list[dict[str, Any]] = []
        egress: list[dict[str, Any]] = []
        if related and own.from_peers:
            others, ports = [_pods(application.name, *related)], _ports(own, own.from_peers)
            egress.append({"to": others, "ports": ports})
            ingress.append({"from": others, "ports": _ports(own, own.at_group) + ports})
        if own.at_group:
            egress.append({"to": [_group(used.group or GROUP)], "ports": _ports(own, own.at_group)})
        if service:
            egress.append({"to": [_servers(service)], "ports": _ports(own, (service.port,))})
        if service and own.from_service:
            ingress.append({"from": [_servers(service)], "ports": _ports(own, own.from_service)})
        if used.discovery != MULTICAST:
            egress.append(_DNS)
        selector = _pods(application.name, component)["podSelector"]
        found.append(
            policy({"name": f"{application.name}-{component}"}, selector, ingress=ingress, egress=egress)
        )
    if not service:
        return found
    if service.name in peers(application):
        what = f"{application.name}: the node {service.name} has the name of the discovery service"
        raise InputError(what, "rename the node: each needs a policy with its own name")
    return [*found, _of_service(application.name, service, own)]


def peers(application: Application) -> dict[str, list[str]]:
    """Return the nodes of an application, or the roles of its flows, each with those that share a flow with it."""
    if not application.nodes:
        roles = ((f"{flow.name}-publisher", f"{flow.name}-subscriber") for flow in application.flows)
        return {own: [other] for pair in roles for own, other in permutations(pair)}
    found: dict[str, list[str]] = {name: [] for name in application.nodes}
    for (name, own), (other, node) in permutations(application.nodes.items(), 2):
        if {*own.publishes} & {*node.subscribes} or {*own.subscribes} & {*node.publishes}:
            found[name].append(other)
    return found


def _of_service(application: str, service: Service, own: Ports) -> dict[str, Any]:
    pods = [_pods(application)]
    answers = [{"to": pods, "ports": _ports(own, own.from_service)}] if own.from_service else []
    return policy(
        {"name": f"{application}-{service.name}"},
        _servers(service)["podSelector"],
        ingress=[{"from": pods, "ports": _ports(own, (service.port,))}],
        egress=answers,
    )


def _pods(application: str, *components: str) -> dict[str, Any]:
    """Return the peer of a rule that is all pods of an application, or those of components."""
    selector: dict[str, Any] = {"matchLabels": {PART_OF: _label(application)}}
    if len(components) == 1:
        selector["matchLabels"][COMPONENT] = _label(components[0])
    elif components:
        values = [*map(_label, components)]
        selector["matchExpressions"] = [{"key": COMPONENT, "operator": "In", "values": values}]
    return {"podSelector": selector}


def _servers(service: Service) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {NAME: service.name}}}


def _group(address: str) -> dict[str, Any]:
    try:
        group = ipaddress.ip_address(address)
    except ValueError:
        group = None
    if group is None or not group.is_multicast or "%" in address:
        raise InputError(
            f"--group {address}: not the address of a multicast group", f"give one such as {GROUP}"
        )
    return {"ipBlock": {"cidr": f"{group}/{group.max_prefixlen}"}}


def _ports(own: Ports, numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [{"protocol": own.protocol, "port": number} for number in numbers]


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text) or len(text) > _MAX_LABEL:
        remedy = f"choose a name of at most {_MAX_LABEL} characters that ends with a letter or a digit"
        raise InputError(f"{text} cannot be a label of pods", remedy)
    return text


def _limits(used: Communication) -> Iterator[str]:
    """Yield what the policies of an application depend on, and what they cannot express."""
    if needs := used.ports.needs:
        yield needs
    if used.discovery == MULTICAST:
        yield (
            "A multicast group is not a pod: networks differ in whether policies apply to it. WeaveNet admits all"
            " multicast from pods"
        )
        yield "Samples by multicast must be sent to the same group as discovery"
    else:
        yield "The rule for kube-dns lets pods resolve names: remove it if you configure addresses"
    if used.processes == 1:
        yield "Each pod is one process with one participant. For more, give --processes"
    if used.service:
        yield f"The discovery service has the label {NAME}: {used.service.name}, in the same namespace"
    yield (
        "Pods that share a flow can exchange samples of all topics: policies filter ports, not topics; use DDS Security"
        " for topics"
    )
    yield "Policies do not apply to pods with hostNetwork, nor to samples in shared memory"
    yield _enforcement(used)


def require_multicast(used: Communication, network: Network) -> None:
    """Check that a network carries multicast, if the participants need it. Raises InputError."""
    if used.discovery == MULTICAST and not network.multicast:
        what = f"{network.name} carries no multicast between nodes"
        carrying = names_of(lambda network: network.multicast)
        raise InputError(what, f"give --discovery peers, or a network that does ({carrying})")


def _enforcement(used: Communication) -> str:
    enforcing = names_of(lambda network: network.policy)
    if used.network is None:
        return (
            f"These networks enforce policies: {enforcing}. On others, such as Flannel, they have no effect"
        )
    network = NETWORKS.get(used.network)
    if network is None:
        what = f"k8sdds does not know whether {used.network!r} enforces policies{nearest(used.network, [*NETWORKS])}"
        raise InputError(what, "leave out --network, or see: k8sdds list networks")
    require_multicast(used, network)
    return (
        f"{network.name} {'enforces policies' if network.policy else 'ignores policies: they have no effect'}"
    )
