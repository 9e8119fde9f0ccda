"""Read Kubernetes objects from manifests, and build the documents and scripts that apply them.

Applied objects carry a hash of their content, so that a later run detects which of them differ.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from k8sdds import versions
from k8sdds.system import yaml_text
from k8sdds.system.paths import shared

Object = dict[str, Any]

APPLY = "kubectl apply --server-side --force-conflicts --field-manager=k8sdds"


def read_manifest(name: str) -> list[Object]:
    """Return the objects of a manifest below deploy/ as new data that the caller may change."""
    return copy.deepcopy(_parse_manifest(name))


@functools.cache
def _parse_manifest(name: str) -> list[Object]:
    return yaml_text.load_all((shared("deploy") / name).read_text(encoding="utf-8"))


def identity(manifest: Object) -> str:
    """Return KIND/NAMESPACE/NAME of an object, which is how facts name it."""
    metadata = manifest["metadata"]
    return f"{manifest['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"


def digest(value: Any) -> str:
    """Return a short hash of JSON data that does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def stamped(objects: Iterable[Object], network: str = "") -> list[Object]:
    """Return copies of objects with the labels of k8sdds, that of their network, and the hash of their content."""
    copies = []
    for manifest in objects:
        sha256 = digest(manifest)
        new = copy.deepcopy(manifest)
        labels = new["metadata"].setdefault("labels", {})
        labels[versions.MANAGED_BY_LABEL] = versions.MANAGED_BY
        if network and manifest["kind"] != "Namespace":
            labels[versions.NETWORK_LABEL] = network
        new["metadata"].setdefault("annotations", {})[versions.SHA256_ANNOTATION] = sha256
        copies.append(new)
    return copies


def restorable(manifest: Object) -> Object:
    """Return an object of the API server as it can be applied again after its deletion."""
    kept = {
        key: manifest["metadata"][key]
        for key in ("name", "namespace", "labels")
        if key in manifest["metadata"]
    }
    annotations = manifest["metadata"].get("annotations", {})
    kept["annotations"] = {key: text for key, text in annotations.items() if key.startswith("k8sdds.io/")}
    return {**{key: part for key, part in manifest.items() if key != "status"}, "metadata": kept}


def stamp(manifest: Object) -> str:
    """Return the hash that `stamped` wrote on an object; empty without one."""
    return str(manifest["metadata"].get("annotations", {}).get(versions.SHA256_ANNOTATION, ""))


def list_document(objects: Sequence[Object]) -> str:
    """Return objects as one JSON document for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=1) + "\n"


def apply_script(objects: Sequence[Object]) -> str:
    """Return a shell script that applies stamped objects on the control plane.

    The script contains the objects, so none of them may be secret.
    """
    return f"{APPLY} -f - >/dev/null <<'END_OF_OBJECTS'\n{list_document(objects)}END_OF_OBJECTS\n"


def wait_script(workloads: Sequence[str], timeout_s: int) -> str:
    """Return a shell script that waits until workloads (`DaemonSet/NAMESPACE/NAME`) are ready on all their nodes.

    After the timeout of one of them, the script prints pods and events, and fails.
    """
    script = ""
    for workload in workloads:
        kind, namespace, name = workload.split("/")
        script += (
            f"kubectl --namespace {namespace} rollout status {kind}/{name} --timeout={timeout_s}s >/dev/null || {{\n"
            f"  kubectl --namespace {namespace} get pods -o wide >&2\n"
            f"  kubectl --namespace {namespace} get events --sort-by=.lastTimestamp | tail -n 15 >&2\n"
            "  exit 1\n}\n"
        )
    return script
