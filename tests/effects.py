"""Derive from the actions of a plan which facts the machines have afterward, by reading their scripts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from k8sdds import versions
from k8sdds.deploy.actions import KUBECONFIG, Action, sha256
from k8sdds.deploy.desired_state import KUBELET_CONFIG
from k8sdds.deploy.facts import ETCD_DATA, WORKLOADS, ClusterState, Facts, cluster_state
from k8sdds.kubernetes import apply

PATHS = {"initialised": (KUBECONFIG, ETCD_DATA), "joined": (KUBELET_CONFIG,)}
"""What kubeadm has created when the flag is written."""


def after(facts: Mapping[str, Facts], control_plane: str, actions: Iterable[Action]) -> dict[str, Facts]:
    """Return the facts of all machines after these actions."""
    changed = dict(facts)
    for action in actions:
        changed[action.node] = _on_node(changed[action.node], action)
        changed[control_plane] = _on_control_plane(changed[control_plane], action)
    return changed


def _found(pattern: str, action: Action) -> list[Any]:
    return re.findall(pattern, action.script, re.MULTILINE)


def _files(action: Action) -> dict[str, str]:
    """Return the files that an action writes: path to SHA-256."""
    here_documents = r"^put (\S+) \d+ <<'(END_OF_FILE_*)'\n((?:.*\n)*?)\2$"
    files = {path: sha256(text) for path, _, text in _found(here_documents, action)}
    private = {secret.path: secret.content for secret in action.private}
    files |= {path: sha256(private[source]) for path, source in _found(r"^put (\S+) \d+ <(/\S+)$", action)}
    return files | {upload.target: upload.sha256 for upload in action.uploads}


def _on_node(facts: Facts, action: Action) -> Facts:
    values = dict(facts.values)
    values |= [("marker", name) for name in _found(r"^echo (\S+) >/etc/k8sdds/cluster.new$", action)]
    values |= [("kube_proxy", mode) for mode in _found(r'^ "mode": "(\w+)"', action)]
    values |= [("cpu_manager", policy) for policy in _found(r'"policyName":"(\w+)"\' \$state$', action)]
    links = {path: target for target, path in _found(r"; ln -sfn (\S+) (\S+)$", action)}
    new = {
        "file": _files(action),
        "symlink": links,
        "sysctl": dict(_found(r"^sysctl -qw (\S+)=(\S+)$", action)),
        "image": {image.name: f"sha256:{image.sha256}" for image in action.images},
        "program": {name: f"v{version}" for name, version in _found(r" (\w+)='([0-9.]+)-\*'", action)},
        "unit": {"containerd": "active"} if "systemctl enable containerd" in action.script else {},
    }
    lists = {key: list(entries) for key, entries in facts.lists.items()}
    for key, entries in new.items():
        lists[key] = [f"{name} {value}" for name, value in {**facts.pairs(key), **entries}.items()]
    # A link replaces a file at its path, and a file a link.
    deleted = {*_found(r"^rm -f (/\S+)$", action), *links}
    for key, gone in (("file", deleted), ("symlink", set(new["file"]))):
        lists[key] = [line for line in lists[key] if line.partition(" ")[0] not in gone]
    flags = _found(r"^: >/etc/k8sdds/(\w+)$", action)
    lists["flag"] = [*lists.get("flag", ()), *flags]
    lists["leftover"] = [*lists.get("leftover", ()), *(path for flag in flags for path in PATHS[flag])]
    return replace(facts, values=values, lists={key: tuple(entries) for key, entries in lists.items()})


def _on_control_plane(facts: Facts, action: Action) -> Facts:
    values = dict(facts.values)
    if "kubectl get --raw /readyz" in action.script:
        values["kube.api"] = "ready"
    cluster = cluster_state(replace(facts, values={**values, "kube.api": "ready"}))
    waited = [name for names in _found(r"kubectl wait node (.*?) --for", action) for name in names.split()]
    joined = [action.node for _ in _found(r"^: >/etc/k8sdds/(\w+)$", action)]
    ready = {**cluster.ready, **dict.fromkeys([*waited, *joined], True)}
    labels = {name: dict(cluster.labels.get(name, {})) for name in ready}
    own_labels = {name: ",".join(sorted(own)) for name, own in cluster.own_labels.items()}
    for words in _commands("kubectl patch node", action):
        metadata = json.loads(words[7])["metadata"]
        labels[words[3]] = {
            key: value for key, value in (labels[words[3]] | metadata["labels"]).items() if value is not None
        }
        own_labels[words[3]] = metadata["annotations"][versions.NODE_LABELS_ANNOTATION] or ""
    nodes = [
        f"{name} {is_ready} {own_labels.get(name, '')} {json.dumps(labels[name])}"
        for name, is_ready in ready.items()
    ]
    lists = {
        **facts.lists,
        "kube.node": tuple(nodes),
        "kube.taints": tuple(_taints(cluster, action)),
        "kube.object": tuple(f"{key} {rest}" for key, rest in _objects(facts, action).items()),
    }
    return replace(facts, values=values, lists=lists)


def _commands(start: str, action: Action) -> list[list[str]]:
    return [shlex.split(line) for line in action.script.splitlines() if line.startswith(start)]


def _objects(facts: Facts, action: Action) -> dict[str, str]:
    """Return the objects of the cluster, each with what the probe prints after its identity."""
    objects = {line.partition(" ")[0]: line.partition(" ")[2] for line in facts.all("kube.object")}
    documents = _found(r"<<'END_OF_OBJECTS'\n((?:.*\n)*?)END_OF_OBJECTS$", action)
    documents += [secret.content for secret in action.private if secret.path.endswith("objects.json")]
    for manifest in (item for document in documents for item in json.loads(document)["items"]):
        # Pods of the smoke test are deleted at its end; those of workloads become ready.
        counts = "1/1" if apply.identity(manifest).startswith(WORKLOADS) else "/"
        network = manifest["metadata"]["labels"].get(versions.NETWORK_LABEL, "")
        objects[apply.identity(manifest)] = f"{apply.stamp(manifest)} {counts} {network} "
    for kind, name in _found(r"^kubectl delete (\w+) (\S+)", action):
        gone = [key for key in objects if key.lower().startswith(f"{kind}/") and key.endswith(f"/{name}")]
        objects = {key: rest for key, rest in objects.items() if key not in gone}
    for proof in _found(rf"--overwrite {versions.PROVEN_ANNOTATION}=(\S+)", action):
        namespace = f"Namespace//{versions.SYSTEM_NAMESPACE}"
        objects[namespace] = f"{objects[namespace].partition(' ')[0]} /  {proof}"
    return objects


def _taints(cluster: ClusterState, action: Action) -> Iterator[str]:
    taints = {name: dict(taints) for name, taints in cluster.taints.items()}
    own = {name: ",".join(sorted(names)) for name, names in cluster.own_taints.items()}
    for _, _, _, name, _, *changes, _ in _commands("kubectl taint node", action):
        current = taints.setdefault(name, {})
        for change in changes:
            key, _, effect = change.rpartition(":")
            if effect.endswith("-"):
                current.pop(change[:-1], None)
            else:
                current[f"{key.partition('=')[0]}:{effect}"] = change
    for words in _commands("kubectl annotate node", action):
        own[words[3]] = words[5].partition("=")[2]
    for name in dict.fromkeys([*taints, *own]):
        listed = []
        for taint in taints.get(name, {}).values():
            key_value, _, kind = taint.rpartition(":")
            key, _, value = key_value.partition("=")
            listed.append({"effect": kind, "key": key, **({"value": value} if value else {})})
        yield f"{name} {own.get(name, '')} {json.dumps(listed) if listed else ''}"
