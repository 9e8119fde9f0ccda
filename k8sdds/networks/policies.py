"""Define the NetworkPolicies of an experiment: each selects all pods and allows only packets from these pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMESPACE = "k8sdds"
"""Namespace of the pods in the lab, where it is only a part of comments."""
API_GROUP, API_VERSION = "networking.k8s.io", "v1"


def policy_name(number: int) -> str:
    """Return the name of a policy in the lab, or the beginning of its name on a cluster."""
    return f"participants-{number}"


def manifest(name: str, namespace: str, labels: Mapping[str, str], pods: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest of a policy. `pods`: labels of the participants' pods."""
    selector = {"matchLabels": dict(pods)}
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": selector}]}],
        },
    }
