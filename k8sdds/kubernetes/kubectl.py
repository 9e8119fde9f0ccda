"""The API server through kubectl on the control plane: what a switch of networks asks of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from k8sdds import versions
from k8sdds.deploy.actions import KUBECONFIG, KUBECTL_CACHE
from k8sdds.kubernetes import apply as kube
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Done, Host

KINDS = (
    "configmaps", "secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles",
    "clusterrolebindings",
)  # fmt: skip
"""What networks install beside their DaemonSets."""
TIMEOUT_S = 120

Object = dict[str, Any]


@dataclass(frozen=True)
class ClusterNode:
    """A node as the API server knows it."""

    name: str
    address: str
    pods: IPv4Network | None
    """Its pods' range."""
    annotations: tuple[str, ...] = ()
    unavailable: str = ""
    """Reason of the condition NetworkUnavailable, which a network sets."""


@dataclass(frozen=True)
class ControlPlane:
    """The machine that kubectl runs on."""

    host: Host

    def ask(self, words: str, content: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run kubectl with these words of a shell; `content` is its stdin."""
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        script = f"export {path} KUBECONFIG={KUBECONFIG} KUBECACHEDIR={KUBECTL_CACHE}; kubectl {words}"
        return self.host.send(content, script, timeout_s=timeout_s)

    def must(self, what: str, words: str, content: bytes = b"", timeout_s: float = TIMEOUT_S) -> str:
        """Its output; PrerequisiteError where it fails."""
        done = self.ask(words, content, timeout_s)
        if done.code:
            raise PrerequisiteError(
                f"{self.host.name}: {what}: {done.err.strip() or done.out.strip()}",
                "does the cluster stand? k8sdds status PROFILE; what its machines say: k8sdds logs PROFILE",
            )
        return done.out

    def list(self, words: str) -> list[Object]:
        """The objects that `kubectl get WORDS` finds."""
        text = self.must("cannot ask the API server", f"get {words} -o json --request-timeout=20s")
        found: list[Object] = json.loads(text)["items"]
        return found

    def nodes(self) -> list[ClusterNode]:
        """All nodes of the cluster."""
        return [_node(one) for one in self.list("nodes")]

    def networks(self) -> dict[str, Object]:
        """The networks that are installed, by name, each with its agent's DaemonSet."""
        found = self.list(f"daemonsets -n {versions.NETWORK_NAMESPACE} -l {versions.NETWORK_LABEL}")
        return {one["metadata"]["labels"][versions.NETWORK_LABEL]: one for one in found}

    def apply(self, objects: Sequence[Object]) -> None:
        """Make these objects so, the namespace first. What is secret travels by stdin alone."""
        spaces = [one for one in objects if one["kind"] == "Namespace"]
        for part in (spaces, [one for one in objects if one not in spaces]):
            if part:
                words = kube.APPLY.removeprefix("kubectl ") + " -f -"
                self.must("cannot install the network", words, kube.listed(part).encode())

    def remove_network(self, name: str, timeout_s: int) -> None:
        """Remove all objects of a network, its agents first: they make again what is removed on nodes."""
        label = f"-l {versions.NETWORK_LABEL}={shlex.quote(name)} --ignore-not-found"
        words = f"delete daemonsets -n {versions.NETWORK_NAMESPACE} {label} --cascade=foreground --timeout={timeout_s}s"
        self.must(f"cannot end {name}", words, timeout_s=timeout_s + 10)
        words = f"delete {','.join(KINDS)} --all-namespaces {label} --timeout={timeout_s}s"
        self.must(f"cannot remove {name}", words, timeout_s=timeout_s + 10)

    def forget(self, node: ClusterNode, prefixes: Sequence[str]) -> None:
        """Take off a node what a network has written on it: annotations, and the condition it has set."""
        gone = [key for key in node.annotations if key.startswith(tuple(prefixes))]
        if gone:
            words = " ".join(shlex.quote(f"{key}-") for key in gone)
            self.must("cannot remove annotations", f"annotate node {node.name} {words}")
        if node.unavailable:
            patch = {"status": {"conditions": [{"type": "NetworkUnavailable", "$patch": "delete"}]}}
            words = f"patch node {node.name} --subresource=status -p {shlex.quote(json.dumps(patch))}"
            self.must("cannot remove the condition NetworkUnavailable", words)

    def agents(self, daemonset: str) -> list[Object]:
        """The pods of a network's DaemonSet."""
        found = self.list(f"pods -n {versions.NETWORK_NAMESPACE}")
        return [one for one in found if _owner(one) == ("DaemonSet", daemonset)]

    def reasons(self, daemonset: str) -> list[str]:
        """Why agents of a network are not ready: what their containers wait for, and warnings about them."""
        lines = []
        names = set()
        for pod in self.agents(daemonset):
            names.add(pod["metadata"]["name"])
            node = pod["spec"].get("nodeName", "no node")
            status = pod.get("status", {})
            for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
                state = one.get("state", {}).get("waiting") or one.get("lastState", {}).get("terminated")
                if state and not one.get("ready"):
                    said = f" {state['message']}" if state.get("message") else ""
                    lines.append(f"{node}: {one['name']}: {state.get('reason', 'not ready')}{said}")
        for event in self.list(f"events -n {versions.NETWORK_NAMESPACE} --field-selector type=Warning"):
            about = event["involvedObject"].get("name", "")
            if about in names or about == daemonset:
                lines.append(f"{about}: {event.get('reason')}: {event.get('message', '').strip()}")
        return list(dict.fromkeys(lines))[-8:]

    def logs(self, daemonset: str) -> list[str]:
        """The last lines of the agents' logs."""
        words = f"logs -n {versions.NETWORK_NAMESPACE} daemonset/{daemonset} --all-pods --all-containers --tail=4 --prefix"
        return self.ask(words).out.strip().splitlines()[-12:]


def _node(one: Object) -> ClusterNode:
    status = one["status"]
    addresses = [found["address"] for found in status.get("addresses", ()) if found["type"] == "InternalIP"]
    unavailable = [found for found in status.get("conditions", ()) if found["type"] == "NetworkUnavailable"]
    range_ = one["spec"].get("podCIDR")
    return ClusterNode(
        name=one["metadata"]["name"],
        address=next((text for text in addresses if ":" not in text), ""),
        pods=IPv4Network(range_) if range_ and ":" not in range_ else None,
        annotations=tuple(one["metadata"].get("annotations", {})),
        unavailable=unavailable[0].get("reason", "?") if unavailable else "",
    )


def _owner(one: Object) -> tuple[str, str]:
    for owner in one["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return owner["kind"], owner["name"]
    return "", ""
