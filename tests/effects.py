"""Apply the declared effects of actions to facts, and compare them with the facts of real machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from k8sdds import versions
from k8sdds.deploy.actions import Action, Effect
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.facts.cluster_state import WORKLOADS, ClusterState, cluster_state


def after(facts: Mapping[str, Facts], control_plane: str, actions: Iterable[Action]) -> dict[str, Facts]:
    """Return the facts of all machines after these actions, as their effects declare them."""
    changed = dict(facts)
    for action in actions:
        changed[action.node] = _on_node(changed[action.node], action.effect)
        changed[control_plane] = _on_control_plane(changed[control_plane], action.effect)
    return changed


def contradictions(facts: Mapping[str, Facts], control_plane: str, actions: Iterable[Action]) -> list[str]:
    """Return each declared effect that the facts do not show; later actions override earlier ones."""
    cluster = cluster_state(facts[control_plane])
    expected: dict[tuple[str, str], tuple[str, object, object]] = {}
    for action in actions:
        for key, effect, fact in _compare(action, facts[action.node], cluster):
            expected[key] = f"{action.node}: {action.phase}: {action.title}: {' '.join(key)}", effect, fact
    return [
        f"{what}: {fact!r}, expected {effect!r}" for what, effect, fact in expected.values() if fact != effect
    ]


def _compare(
    action: Action, facts: Facts, cluster: ClusterState
) -> Iterator[tuple[tuple[str, str], object, object]]:
    effect, node = action.effect, action.node
    for key in ("marker", "kube_proxy"):
        if value := getattr(effect, key):
            yield (node, key), value, facts.values.get(key)
    pairs = {
        "file": effect.files,
        "symlink": effect.symlinks,
        "sysctl": effect.sysctls,
        "image": {name: f"sha256:{sha}" for name, sha in effect.images.items()},
        "program": effect.programs,
        "unit": dict.fromkeys(effect.active_units, "active"),
    }
    for key, values in pairs.items():
        reported = facts.pairs(key)
        for name, value in values.items():
            yield (node, f"{key} {name}"), value, reported.get(name)
    for path in effect.deleted_files:
        yield (node, f"file {path}"), None, facts.pairs("file").get(path)
    for key, names in (("flag", effect.flags), ("leftover", effect.paths)):
        for name in names:
            yield (node, f"{key} {name}"), True, name in facts.all(key)
    if effect.api_server:
        yield ("cluster", "API server"), True, cluster.up
    for name in effect.ready_nodes:
        yield ("cluster", f"node {name}"), True, cluster.ready.get(name)
    for name, labels in effect.node_labels.items():
        for label, value in labels.items():
            yield ("cluster", f"label {label} of {name}"), value, cluster.labels.get(name, {}).get(label)
    for name, own in effect.own_labels.items():
        yield ("cluster", f"own labels of {name}"), own, cluster.own_labels.get(name)
    for name, taints in effect.own_taints.items():
        yield ("cluster", f"own taints of {name}"), frozenset(taints), cluster.own_taints.get(name)
        for identity, taint in taints.items():
            yield (
                ("cluster", f"taint {identity} of {name}"),
                taint,
                cluster.taints.get(name, {}).get(identity),
            )
    for identity, applied in effect.objects.items():
        yield ("cluster", identity), applied.sha256, cluster.objects.get(identity)
        if applied.network and identity.startswith("DaemonSet/"):
            yield ("cluster", f"network {applied.network}"), True, applied.network in cluster.networks
    for identity in effect.deleted_objects:
        yield ("cluster", identity), None, cluster.objects.get(identity)
    for identity in effect.ready_workloads:
        yield ("cluster", f"pods of {identity}"), True, identity not in cluster.not_ready
    if effect.proven:
        yield ("cluster", "proof"), effect.proven, cluster.proven


def _on_node(facts: Facts, effect: Effect) -> Facts:
    values = dict(facts.values)
    for key in ("marker", "kube_proxy"):
        if value := getattr(effect, key):
            values[key] = value
    lists = {key: list(entries) for key, entries in facts.lists.items()}
    for key, entries in {
        "file": effect.files,
        "symlink": effect.symlinks,
        "sysctl": effect.sysctls,
        "image": {name: f"sha256:{sha}" for name, sha in effect.images.items()},
        "program": effect.programs,
        "unit": dict.fromkeys(effect.active_units, "active"),
    }.items():
        if entries:
            pairs = {**facts.pairs(key), **entries}
            lists[key] = [f"{name} {value}" for name, value in pairs.items()]
    # A link replaces a file at its path, and a file a link.
    for key, gone in (("file", {*effect.deleted_files, *effect.symlinks}), ("symlink", set(effect.files))):
        lists[key] = [line for line in lists.get(key, ()) if line.partition(" ")[0] not in gone]
    lists["flag"] = [*lists.get("flag", ()), *effect.flags]
    lists["leftover"] = [*lists.get("leftover", ()), *effect.paths]
    return replace(facts, values=values, lists={key: tuple(entries) for key, entries in lists.items()})


def _on_control_plane(facts: Facts, effect: Effect) -> Facts:
    values = dict(facts.values)
    if effect.api_server:
        values["kube.api"] = "ready"
    cluster = cluster_state(replace(facts, values={**values, "kube.api": "ready"}))
    ready = {**cluster.ready, **dict.fromkeys(effect.ready_nodes, True)}
    labels = {name: dict(cluster.labels.get(name, {})) for name in ready}
    for name, changes in effect.node_labels.items():
        merged = {**labels[name], **changes}
        labels[name] = {label: value for label, value in merged.items() if value is not None}
    own_labels = {**cluster.own_labels, **effect.own_labels}
    nodes = [
        f"{name} {is_ready} {','.join(sorted(own_labels.get(name, ())))} {json.dumps(labels[name])}"
        for name, is_ready in ready.items()
    ]
    objects: dict[str, str] = {}
    for line in facts.all("kube.object"):
        identity, _, rest = line.partition(" ")
        objects[identity] = rest
    for identity, applied in effect.objects.items():
        # Pods of the smoke test are deleted at its end; those of workloads become ready.
        counts = "1/1" if identity.startswith(WORKLOADS) else "/"
        objects[identity] = f"{applied.sha256} {counts} {applied.network} "
    for identity in effect.deleted_objects:
        objects.pop(identity, None)
    if effect.proven:
        namespace = f"Namespace//{versions.SYSTEM_NAMESPACE}"
        sha256 = objects.get(namespace, "").partition(" ")[0]
        objects[namespace] = f"{sha256} /  {effect.proven}"
    lists = {
        **facts.lists,
        "kube.node": tuple(nodes),
        "kube.taints": tuple(_taints(cluster, effect)),
        "kube.object": tuple(f"{identity} {rest}" for identity, rest in objects.items()),
    }
    return replace(facts, values=values, lists=lists)


def _taints(cluster: ClusterState, effect: Effect) -> Iterator[str]:
    for name in dict.fromkeys([*cluster.taints, *effect.own_taints]):
        current, own = dict(cluster.taints.get(name, {})), cluster.own_taints.get(name, frozenset())
        if name in effect.own_taints:
            for identity in own - set(effect.own_taints[name]):
                current.pop(identity, None)
            current |= effect.own_taints[name]
            own = frozenset(effect.own_taints[name])
        listed = []
        for taint in current.values():
            key_value, _, kind = taint.rpartition(":")
            key, _, value = key_value.partition("=")
            listed.append({"effect": kind, "key": key, **({"value": value} if value else {})})
        yield f"{name} {','.join(sorted(own))} {json.dumps(listed) if listed else ''}"
