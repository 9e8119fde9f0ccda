"""Parse the state of the cluster from the facts of its control plane."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from k8sdds import versions
from k8sdds.deploy.facts import Facts

WORKLOADS = ("DaemonSet/", "Deployment/", "StatefulSet/")


@dataclass(frozen=True)
class ClusterState:
    """State of the cluster as its API server reported it. Objects are named KIND/NAMESPACE/NAME."""

    up: bool = False
    ready: dict[str, bool] = field(default_factory=dict)
    """By node: whether it is ready."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """By node: all its labels."""
    own_labels: dict[str, frozenset[str]] = field(default_factory=dict)
    """By node: names of the labels that deploy set."""
    taints: dict[str, dict[str, str]] = field(default_factory=dict)
    """By node: all its taints, KEY:EFFECT to KEY=VALUE:EFFECT."""
    own_taints: dict[str, frozenset[str]] = field(default_factory=dict)
    """By node: KEY:EFFECT of the taints that deploy set."""
    objects: dict[str, str] = field(default_factory=dict)
    """By object of k8sdds: hash of its content as applied."""
    not_ready: frozenset[str] = frozenset()
    """Workloads with fewer ready pods than required."""
    networks: frozenset[str] = frozenset()
    """Names of the networks whose DaemonSets exist."""
    proven: str = ""
    """What the last smoke test proved; empty if none passed."""


def cluster_state(facts: Facts | None) -> ClusterState:
    """Return the state of the cluster, which is empty when the API server did not answer.

    Args:
        facts: Facts of the control plane.
    """
    if facts is None or facts.values.get("kube.api") != "ready":
        return ClusterState()
    ready, labels, own_labels = {}, {}, {}
    for line in facts.all("kube.node"):
        name, is_ready, own, text = line.split(" ", 3)
        ready[name], labels[name] = is_ready == "True", json.loads(text)
        own_labels[name] = frozenset(own.split(",")) - {""}
    taints, own_taints = {}, {}
    for line in facts.all("kube.taints"):
        name, own, text = (*line.split(" ", 2), "", "")[:3]
        taints[name] = {
            f"{taint['key']}:{taint['effect']}": f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in json.loads(text or "[]")
        }
        own_taints[name] = frozenset(own.split(",")) - {""}
    objects, not_ready, networks, proven = {}, set(), set(), ""
    for line in facts.all("kube.object"):
        identity, sha256, counts, network, proof = (*line.split(" "), "", "", "", "")[:5]
        objects[identity] = sha256
        count, _, required = counts.partition("/")
        if identity.startswith(WORKLOADS) and (count or "0") != (required or "0"):
            not_ready.add(identity)
        if identity.startswith("DaemonSet/") and network:
            networks.add(network)
        if identity == f"Namespace//{versions.SYSTEM_NAMESPACE}":
            proven = proof
    return ClusterState(
        True, ready, labels, own_labels, taints, own_taints, objects, frozenset(not_ready),
        frozenset(networks), proven,
    )  # fmt: skip
