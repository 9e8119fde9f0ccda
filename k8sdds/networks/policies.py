"""Define NetworkPolicies. Those of an experiment select all its pods and allow only packets from these pods."""

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
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return policy(metadata, selector, ingress=[{"from": [{"podSelector": selector}]}])


def policy(metadata: Mapping[str, Any], selector: Mapping[str, Any], **rules: Any) -> dict[str, Any]:
    """Return a policy of the selected pods. `rules`: lists of `ingress` and `egress`; a missing one is not limited."""
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "NetworkPolicy",
        "metadata": dict(metadata),
        "spec": {
            "podSelector": dict(selector),
            "policyTypes": [direction.capitalize() for direction in rules],
            **rules,
        },
    }
