"""Kubernetes objects as they are applied: stamped, so that what is there can be compared with what is not."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from k8sdds import versions
from k8sdds.deploy.facts import Facts

Object = dict[str, Any]


def identity(one: Object) -> str:
    """Kind/namespace/name, as the facts have it."""
    meta = one["metadata"]
    return f"{one['kind']}/{meta.get('namespace', '')}/{meta['name']}"


def digest(value: Any) -> str:
    """Short hash of data, the same for the same data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def stamped(objects: Iterable[Object], network: str = "") -> list[Object]:
    """Copies with the labels by which they are found, and the hash of what they were before."""
    made = []
    for one in objects:
        sha = digest(one)
        new = copy.deepcopy(one)
        labels = new["metadata"].setdefault("labels", {})
        labels[versions.MANAGED_BY_LABEL] = versions.MANAGED_BY
        if network and one["kind"] != "Namespace":
            labels[versions.NETWORK_LABEL] = network
        new["metadata"].setdefault("annotations", {})[versions.SHA256_ANNOTATION] = sha
        made.append(new)
    return made


def listed(objects: Sequence[Object]) -> str:
    """Objects as one document for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=1) + "\n"


def apply_script(objects: Sequence[Object]) -> str:
    """Shell words that apply stamped objects on the control plane; none of them may be secret."""
    return f"{APPLY} -f - >/dev/null <<'END_OF_OBJECTS'\n{listed(objects)}END_OF_OBJECTS\n"


APPLY = "kubectl apply --server-side --force-conflicts --field-manager=k8sdds"


def wait_script(ready: Sequence[str], timeout_s: int = 180) -> str:
    """Shell words that wait until workloads, `daemonset/NAMESPACE/NAME`, are ready on all their nodes."""
    lines = []
    for one in ready:
        kind, namespace, name = one.split("/")
        lines.append(
            f"kubectl --namespace {namespace} rollout status {kind}/{name}"
            f" --timeout={timeout_s}s >/dev/null || {{\n"
            f"  kubectl --namespace {namespace} get pods -o wide >&2\n"
            f"  kubectl --namespace {namespace} get events --sort-by=.lastTimestamp | tail -n 15 >&2\n"
            "  exit 1\n}\n"
        )
    return "".join(lines)


@dataclass(frozen=True)
class Cluster:
    """What the API server knew when the facts were gathered."""

    up: bool = False
    ready: dict[str, bool] = field(default_factory=dict)
    """Node → whether it is ready."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    own_labels: dict[str, frozenset[str]] = field(default_factory=dict)
    """Node → names of the labels that deploy has set on it."""
    objects: dict[str, str] = field(default_factory=dict)
    """Identity → hash as stamped."""
    short: frozenset[str] = frozenset()
    """Workloads of which not all pods are ready, as identities."""
    networks: frozenset[str] = frozenset()
    """Names of the networks whose DaemonSets are there."""
    proven: str = ""


def cluster(facts: Facts | None) -> Cluster:
    """The cluster as the facts of its control plane tell it."""
    if facts is None or facts.one.get("kube.api") != "ready":
        return Cluster()
    ready, labels, own = {}, {}, {}
    for line in facts.all("kube.node"):
        name, state, names, text = line.split(" ", 3)
        ready[name], labels[name] = state == "True", json.loads(text)
        own[name] = frozenset(names.split(",")) - {""}
    objects, short, networks, proven = {}, set(), set(), ""
    for line in facts.all("kube.object"):
        one, sha, counts, network, seen = (*line.split(" "), "", "", "", "")[:5]
        objects[one] = sha
        have, _, want = counts.partition("/")
        if one.startswith(("DaemonSet/", "Deployment/", "StatefulSet/")) and (have or "0") != (want or "0"):
            short.add(one)
        if one.startswith("DaemonSet/") and network:
            networks.add(network)
        if one == f"Namespace//{versions.SYSTEM_NAMESPACE}":
            proven = seen
    return Cluster(True, ready, labels, own, objects, frozenset(short), frozenset(networks), proven)
