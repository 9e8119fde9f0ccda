"""Taints of a profile: in the plan of a deploy, and tolerated by the pods of k8sdds only if deploy set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from k8sdds.bundle import Bundle
from k8sdds.deploy.actions import Action
from k8sdds.deploy.facts import Facts, cluster_state
from k8sdds.deploy.phases.objects import discovery_objects
from k8sdds.deploy.plan import plan
from k8sdds.model.trial import Cell
from k8sdds.testbeds.cluster import preflight
from k8sdds.testbeds.cluster.nodes import NodeInfo, tolerations
from tests.effects import after
from tests.unit.test_deploy_plan import PROFILE, bundle, desired  # noqa: F401

TAINT = "dedicated=robots:NoSchedule"


def text(taints: str) -> str:
    return PROFILE.replace("name: pi2", f"name: pi2, taints: {taints}")


def taints(bundle: Bundle, wanted: str, machines: Mapping[str, Facts]) -> list[Action]:  # noqa: F811
    return [action for action in plan(desired(bundle, text(wanted), machines)) if action.phase == "taints"]


def states(bundle: Bundle, line: str) -> dict[str, Facts]:  # noqa: F811
    """Return the machines of a cluster without taints of k8sdds, whose API server has this line on taints."""
    state = desired(bundle, text("[]"))
    machines = dict(after(state.facts, "master", plan(state)))
    lists = {**machines["master"].lists, "kube.taints": (line,)}
    return machines | {"master": replace(machines["master"], lists=lists)}


def test_taints_are_set_changed_and_removed(bundle: Bundle) -> None:  # noqa: F811
    state = desired(bundle, text(f"['{TAINT}', quiet:NoExecute]"))
    actions = plan(state)
    (action,) = [action for action in actions if action.phase == "taints"]
    assert "kubectl taint node pi2 --overwrite dedicated=robots:NoSchedule quiet=:NoExecute" in action.script
    assert ("pi2", "join") in action.needs
    machines = after(state.facts, "master", actions)
    assert plan(desired(bundle, text(f"['{TAINT}', quiet:NoExecute]"), machines)) == []
    (changed,) = taints(bundle, "['dedicated=cars:NoSchedule']", machines)
    assert "--overwrite dedicated=cars:NoSchedule quiet:NoExecute- >" in changed.script
    (removed,) = taints(bundle, "[]", machines)
    assert "dedicated:NoSchedule- quiet:NoExecute-" in removed.script
    assert removed.script.endswith("k8sdds.io/taints- >/dev/null\n")
    machines = after(machines, "master", [removed])
    assert taints(bundle, "[]", machines) == [] and cluster_state(machines["master"]).taints["pi2"] == {}


def test_taints_of_the_user_stay(bundle: Bundle) -> None:  # noqa: F811
    machines = states(bundle, 'pi2  [{"effect":"NoSchedule","key":"dedicated","value":"robots"}]')
    # With the same value, it stays the user's even if the profile drops it later.
    assert taints(bundle, f"['{TAINT}']", machines) == [] and taints(bundle, "[]", machines) == []


def test_interrupted_change_is_completed(bundle: Bundle) -> None:  # noqa: F811
    machines = states(bundle, "pi2 dedicated:NoSchedule ")  # the annotation was written before the taint
    (action,) = taints(bundle, f"['{TAINT}']", machines)
    assert "kubectl taint node pi2 --overwrite dedicated=robots:NoSchedule" in action.script
    (action,) = taints(bundle, "[]", machines)
    assert "kubectl taint" not in action.script and "k8sdds.io/taints-" in action.script


def test_discovery_service_tolerates_the_taints_of_the_profile(bundle: Bundle) -> None:  # noqa: F811
    expected = [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]
    for wanted, tolerated in ((f"['{TAINT}']", expected), ("[]", None)):
        objects = discovery_objects(desired(bundle, text(wanted) + "discovery_service: true\n"))
        (servers,) = [manifest for manifest in objects if manifest["kind"] == "StatefulSet"]
        assert servers["spec"]["template"]["spec"].get("tolerations") == tolerated


def test_participants_tolerate_only_taints_that_deploy_set() -> None:
    taint = {"key": "dedicated", "value": "robots", "effect": "NoSchedule"}
    other = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}

    def node(own: str, *found: dict[str, str]) -> NodeInfo:
        metadata = {"name": "pi2", "annotations": {"k8sdds.io/taints": own} if own else {}}
        return NodeInfo.parse({"metadata": metadata, "spec": {"taints": list(found)}, "status": ready})

    dedicated = node("dedicated:NoSchedule", taint)
    assert not dedicated.unusable and tolerations([dedicated]) == [
        {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert node("", taint).unusable == "taint dedicated:NoSchedule" and tolerations([node("", taint)]) == []
    (named,) = [NodeInfo.parse({"metadata": {"name": "pi2"}, "spec": {"taints": [taint]}, "status": ready},
                               ["dedicated:NoSchedule"])]  # fmt: skip
    assert not named.unusable and tolerations([named]) == tolerations([], named.tolerated)
    away = node("dedicated:NoSchedule", taint, other)
    assert node("", taint).is_reserved and not away.is_reserved and not dedicated.is_reserved
    assert away.untolerated == (f"{other['key']}:NoSchedule",)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["x", "y"], "mine:NoExecute,x:NoSchedule,y:NoSchedule"),
        (["mine", "y"], "mine:NoExecute,mine:NoSchedule,y:NoSchedule"),
        (["gpu", "node.kubernetes.io/disk-pressure"], ""),
        (["node.kubernetes.io/disk-pressure", "gpu"], ""),
        (["node.cloudprovider.kubernetes.io/uninitialized"], ""),
        (["gpu", "ToBeDeletedByClusterAutoscaler"], ""),
    ],
)
def test_all_missing_taints_are_suggested_at_once(keys: list[str], expected: str) -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"architecture": "amd64"}}
    tolerated = ("mine:NoExecute",)
    nodes = [
        NodeInfo.parse({"metadata": {"name": name}, "spec": {"taints": spec}, "status": status}, tolerated)
        for name, spec in (("n1", []), ("n2", taints))
    ]
    assert nodes[1].unusable == " and ".join(f"taint {key}:NoSchedule" for key in keys)
    cell = Cell(network="unknown", test="latency", payload_bytes=1024)
    (problem,) = preflight.placement_problems([cell], nodes, "a.example/b", tolerated=tolerated)
    assert problem.remedy.partition("--tolerate ")[2] == expected
