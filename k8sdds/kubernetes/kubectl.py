"""Run kubectl on the control plane over SSH."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from k8sdds import versions
from k8sdds.kubernetes.apply import APPLY, Object, list_document
from k8sdds.kubernetes.client import answer
from k8sdds.model.ip_families import TITLES, Subnet, address_of
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.reading import UnreadableError
from k8sdds.system.ssh import Host, ScriptResult

KUBECONFIG = "/etc/kubernetes/admin.conf"
"""The administrator's kubeconfig on the control plane."""
CACHE_FOLDER = "/run/k8sdds-kubectl"
"""Where kubectl caches API discovery on a machine: in memory, instead of in root's home."""
KINDS = (
    "configmaps", "secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles",
    "clusterrolebindings", "customresourcedefinitions",
)  # fmt: skip
"""Kinds of objects that networks install in addition to their DaemonSets."""
TIMEOUT_S = 120


@dataclass(frozen=True)
class ClusterNode:
    """A node as the API server reports it."""

    name: str
    addresses: tuple[str, ...]
    """One address of each IP family."""
    pods: tuple[Subnet, ...]
    """Address ranges of its pods, one of each IP family."""
    annotations: tuple[str, ...] = ()
    """Names of its annotations."""
    unavailable: str = ""
    """Reason of its condition NetworkUnavailable, which networks set."""


@dataclass(frozen=True)
class Kubectl:
    """Run kubectl on one machine with the rights of the administrator."""

    host: Host

    def run(self, command: str, content: bytes = b"", timeout_s: float = TIMEOUT_S) -> ScriptResult:
        """Run kubectl and return its exit code and output.

        Args:
            command: Its arguments, quoted for a shell.
            content: Its standard input.
            timeout_s: Timeout of the command.
        """
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        script = f"export {path} KUBECONFIG={KUBECONFIG} KUBECACHEDIR={CACHE_FOLDER}; kubectl {command}"
        return self.host.send(content, script, timeout_s=timeout_s)

    def output(self, failure: str, command: str, content: bytes = b"", timeout_s: float = TIMEOUT_S) -> str:
        """Run kubectl as `run` does and return its standard output.

        Raises:
            PrerequisiteError: kubectl failed; the message begins with the host and `failure`.
        """
        done = self.run(command, content, timeout_s)
        if done.code:
            raise PrerequisiteError(
                f"{self.host.name}: {failure}: {done.err.strip() or done.out.strip()}",
                "check the cluster with `k8sdds status PROFILE` and collect logs with `k8sdds logs PROFILE`",
            )
        return done.out

    def get(self, query: str) -> list[Object]:
        """Return the objects that `kubectl get QUERY` finds."""
        text = self.output("cannot query the API server", f"get {query} -o json --request-timeout=20s")
        try:
            objects: list[Object] = answer(text.encode(), self.host.name)["items"]
        except UnreadableError as error:
            raise PrerequisiteError(f"{self.host.name}: kubectl get {query}: {error.message}") from error
        return objects

    def nodes(self) -> list[ClusterNode]:
        """Return all nodes of the cluster."""
        try:
            return [_node(node) for node in self.get("nodes")]
        except (TypeError, AttributeError, ValueError) as error:
            raise PrerequisiteError(
                f"{self.host.name}: kubectl printed something else than nodes: {error}"
            ) from error

    def networks(self) -> dict[str, Object]:
        """Return the installed networks by name, each with the DaemonSet of its agent."""
        daemonsets = self.get(f"daemonsets -n {versions.NETWORK_NAMESPACE} -l {versions.NETWORK_LABEL}")
        return {
            daemonset["metadata"]["labels"][versions.NETWORK_LABEL]: daemonset for daemonset in daemonsets
        }

    def apply(self, objects: Sequence[Object]) -> None:
        """Apply a network's objects, namespaces first. They are passed on standard input, since some are secret."""
        namespaces = [manifest for manifest in objects if manifest["kind"] == "Namespace"]
        for part in (namespaces, [manifest for manifest in objects if manifest not in namespaces]):
            if part:
                command = APPLY.removeprefix("kubectl ") + " -f -"
                self.output("cannot install the network", command, list_document(part).encode())

    def stop_agents(self, network: str, timeout_s: int) -> None:
        """Delete the agents of a network and wait for their end. They would recreate what is removed on nodes."""
        command = f"delete daemonsets -n {versions.NETWORK_NAMESPACE} --cascade=foreground"
        self._delete(f"cannot stop the agents of {network}", command, network, timeout_s)

    def delete_objects(self, network: str, timeout_s: int) -> None:
        """Delete the other objects of a network."""
        command = f"delete {','.join(KINDS)} --all-namespaces"
        self._delete(f"cannot delete the objects of {network}", command, network, timeout_s)

    def _delete(self, problem: str, command: str, network: str, timeout_s: int) -> None:
        label = (
            f"-l {versions.NETWORK_LABEL}={shlex.quote(network)} --ignore-not-found --timeout={timeout_s}s"
        )
        self.output(problem, f"{command} {label}", timeout_s=timeout_s + 10)

    def clean_nodes(self, nodes: Sequence[ClusterNode], prefixes: Sequence[str]) -> None:
        """Remove what a network wrote on node objects: annotations, and the condition that it set.

        Args:
            nodes: The nodes.
            prefixes: Prefixes of the annotations to remove.
        """
        own = {
            node.name: [name for name in node.annotations if name.startswith(tuple(prefixes))]
            for node in nodes
        }
        annotated = [name for name, annotations in own.items() if annotations]
        if annotated:
            removals = {shlex.quote(f"{name}-") for annotations in own.values() for name in annotations}
            command = f"annotate node {' '.join(annotated)} {' '.join(sorted(removals))}"
            self.output("cannot remove annotations", command)
        unavailable = [node.name for node in nodes if node.unavailable]
        if unavailable:
            patch = {"status": {"conditions": [{"type": "NetworkUnavailable", "$patch": "delete"}]}}
            command = (
                f"patch node {' '.join(unavailable)} --subresource=status -p {shlex.quote(json.dumps(patch))}"
            )
            self.output("cannot remove the condition NetworkUnavailable", command)

    def agents(self, daemonset: str) -> list[Object]:
        """Return the pods of a network's DaemonSet."""
        pods = self.get(f"pods -n {versions.NETWORK_NAMESPACE}")
        return [pod for pod in pods if _owner(pod) == ("DaemonSet", daemonset)]

    def reasons(self, daemonset: str) -> list[str]:
        """Return why the agents of a network are not ready: waiting containers, and warning events."""
        lines = []
        names = set()
        for pod in self.agents(daemonset):
            names.add(pod["metadata"]["name"])
            node = pod["spec"].get("nodeName", "no node")
            status = pod.get("status", {})
            for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
                state = container.get("state", {}).get("waiting") or container.get("lastState", {}).get(
                    "terminated"
                )
                if state and not container.get("ready"):
                    message = f" {state['message']}" if state.get("message") else ""
                    lines.append(f"{node}: {container['name']}: {state.get('reason', 'not ready')}{message}")
        for event in self.get(f"events -n {versions.NETWORK_NAMESPACE} --field-selector type=Warning"):
            subject = event["involvedObject"].get("name", "")
            if subject in names or subject == daemonset:
                lines.append(f"{subject}: {event.get('reason')}: {event.get('message', '').strip()}")
        return list(dict.fromkeys(lines))[-8:]

    def logs(self, daemonset: str) -> list[str]:
        """Return the last lines of the agents' logs."""
        options = "--all-pods --all-containers --tail=4 --prefix"
        done = self.run(f"logs -n {versions.NETWORK_NAMESPACE} daemonset/{daemonset} {options}")
        return done.out.strip().splitlines()[-12:]


def _node(node: Object) -> ClusterNode:
    status = node["status"]
    addresses = [entry["address"] for entry in status.get("addresses", ()) if entry["type"] == "InternalIP"]
    unavailable = [
        condition for condition in status.get("conditions", ()) if condition["type"] == "NetworkUnavailable"
    ]
    ranges = node["spec"].get("podCIDRs") or [node["spec"].get("podCIDR")]
    return ClusterNode(
        name=node["metadata"]["name"],
        addresses=tuple(filter(None, (address_of(family, addresses) for family in TITLES))),
        pods=tuple(ip_network(text) for text in ranges if text),
        annotations=tuple(node["metadata"].get("annotations", {})),
        unavailable=unavailable[0].get("reason", "?") if unavailable else "",
    )


def _owner(manifest: Object) -> tuple[str, str]:
    for owner in manifest["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return owner["kind"], owner["name"]
    return "", ""
