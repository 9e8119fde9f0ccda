"""Test the decisions of the cluster testbed with recorded responses of a real API server."""

from __future__ import annotations

import copy
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from k8sdds import versions
from k8sdds.campaign import experiments
from k8sdds.kubernetes.client import ApiError
from k8sdds.kubernetes.metrics.quantities import parse_time_s
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.networks import UNKNOWN
from k8sdds.system.cgroups import CpuResources
from k8sdds.system.errors import InputError
from k8sdds.testbeds import Block, selection
from k8sdds.testbeds.cluster import discovery, installed, links, namespace, placement, pods, preflight
from k8sdds.testbeds.cluster.blocks import count_switches, make_blocks
from k8sdds.testbeds.cluster.node_settings import NodeTuning
from k8sdds.testbeds.cluster.nodes import (
    CONTROL_PLANE,
    NodeInfo,
    cores,
    one_kernel,
    usable,
)
from k8sdds.testbeds.cluster.placement import assign, of_service
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.testbeds.selection import SelectedTestbed
from tests.unit import builders

RECORDED = Path(__file__).parent / "recorded" / "cluster"
PODS = json.loads((RECORDED / "pods.json").read_text())
NODES = json.loads((RECORDED / "nodes.json").read_text())
IMAGE = "k8sdds.local/perftest:0.1.0"


def nodes(**changes: dict[str, Any]) -> list[NodeInfo]:
    """Return the recorded nodes, some with a changed spec or status."""
    return [NodeInfo.parse(data) for data in changed(**changes)]


def changed(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the recorded Node objects, some with a changed spec or status."""
    objects = copy.deepcopy(NODES)
    for data in objects:
        change = changes.get(data["metadata"]["name"], {})
        data["spec"] |= change.get("spec", {})
        data["status"] |= change.get("status", {})
    return objects


def cell(**values: Any) -> Cell:
    return builders.cell(**{"network": "flannel-vxlan"} | values)


def test_the_placement_names_the_node_of_a_service() -> None:
    named = {"pub0": 0, "sub0": 1}
    able = usable(nodes(), versions.BUNDLE_ARCHITECTURES)
    names = [each.name for each in able]
    assert of_service(cell(placement=named), able) == of_service(cell(), None) == ""
    assert of_service(cell(placement=named | {"discovery": 1}), able) == names[1]
    assert of_service(cell(placement=named | {"discovery": names[0]}), able) == names[0]
    with pytest.raises(InputError, match="puts discovery on 'elsewhere'"):
        of_service(cell(placement=named | {"discovery": "elsewhere"}), able)


def trials(*cells: Cell, repetitions: int = 1) -> list[Trial]:
    return [builders.trial(one, "cluster", number) for number in range(repetitions) for one in cells]


def test_workers_come_before_control_planes_and_unusable_nodes_are_excluded() -> None:
    def names(**changes: dict[str, Any]) -> list[str]:
        return [node.name for node in usable(nodes(**changes), ["amd64"])]

    assert names() == ["n2", "n3", "n1"]
    assert names(n1={"spec": {"taints": [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]}}) == ["n2", "n3"]
    assert names(n3={"spec": {"unschedulable": True}}) == ["n2", "n1"]
    away = nodes(n2=reported("Unknown", "no report"))
    assert [node.unusable for node in away if node.name == "n2"] == ["not ready: no report"]
    assert usable(nodes(), ["arm64"]) == []
    reserved = {"spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}}
    pressed = {"spec": {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]}}
    (problem,) = preflight.placement_problems(
        [cell()], nodes(n2=reserved, n3=pressed), "registry.example/perftest"
    )
    assert "n2: taint dedicated:NoExecute; n3: taint node.kubernetes.io/disk-pressure" in problem.what
    assert problem.remedy.endswith("or use nodes with taints: --tolerate dedicated:NoExecute")


NO_NETWORK = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns"
    " error: cni plugin not initialized"
)
"""Message of a real kubelet while the configuration of its node's network is missing."""
CHANGED_AT = "2026-11-28T08:04:55Z"


def reported(status: str, message: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "message": message, "lastTransitionTime": CHANGED_AT}
    return {"status": {"conditions": [condition]}}


def test_nodes_whose_network_is_being_replaced_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are not ready for another reason, or for longer, are not awaited."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(time, "time", lambda: parse_time_s(CHANGED_AT) + 20)

    def unusable(*answers: list[dict[str, Any]]) -> list[str]:
        """Return why nodes cannot be used, if the API server gives these answers in turn."""
        remaining = iter(answers)

        class Api:
            def get(self, path: str) -> dict[str, Any]:
                return {"items": next(remaining)}

        testbed = ClusterTestbed(cast(Any, Api()), SelectedTestbed("cluster"), "c")
        return [node.unusable for node in testbed.nodes if node.unusable]

    without = changed(n2=reported("False", NO_NETWORK))
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    tainted = changed(n3=reported("True", "") | {"spec": {"taints": [taint]}})
    assert unusable(without, without, tainted, changed()) == [] and len(waits) == 3
    assert unusable(changed(n2=reported("Unknown", "no report"))) == ["not ready: no report"]
    monkeypatch.setattr(time, "time", lambda: parse_time_s(CHANGED_AT) + 40)
    assert unusable(without) == [f"not ready: {NO_NETWORK}"]


def test_cores_of_machines_with_usable_nodes_are_counted_once() -> None:
    def of(cpu: str | None, boot_id: str) -> dict[str, Any]:
        return {"status": {"capacity": {"cpu": cpu} if cpu else {}, "nodeInfo": {"bootID": boot_id}}}

    shared = {"n1": of("4", "a"), "n2": of("4", "a"), "n3": of("8", "b")}
    assert cores(nodes(**shared)) == 12
    assert cores(nodes(**shared | {"n3": {**of("8", "b"), "spec": {"unschedulable": True}}})) == 4
    assert cores(nodes(**shared | {"n3": of(None, "b")})) == cores([]) == 0


class NoRights:
    """A client of a user who may not read the objects of the network."""

    def get(self, path: str) -> dict[str, Any]:
        raise ApiError(403, "forbidden")


def test_remains_on_nodes_and_a_shared_kernel_are_detected() -> None:
    # The recorded nodes have annotations and a condition of Flannel, but this user may not see whether it runs.
    found = installed.detect(NoRights(), nodes())  # type: ignore[arg-type]
    assert found.name == UNKNOWN and "condition FlannelIsUp" in found.remains
    assert installed.detect(NoRights(), []).name == UNKNOWN  # type: ignore[arg-type]
    assert one_kernel(nodes())
    assert not one_kernel(nodes()[:1])


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("spread", {"pub0": "n2", "sub0": "n3", "sub1": "n1", "sub2": "n3"}),
        ("packed", {"pub0": "n2", "sub0": "n3", "sub1": "n3", "sub2": "n3"}),
        ({"pub": "n1", "sub": 0}, {"pub0": "n1", "sub0": "n2", "sub1": "n2", "sub2": "n2"}),
        (
            {"pub0": 2, "sub": "kubernetes.io/hostname=n3", "sub1": "n2"},
            {"pub0": "n1", "sub0": "n3", "sub1": "n2", "sub2": "n3"},
        ),
        ({"pub0": "n1", "sub": "kubernetes.io/arch=amd64"}, {"pub0": "n1", "sub0": "n2", "sub1": "n3", "sub2": "n1"}),
    ],
)  # fmt: skip
def test_placement(placement: Any, expected: dict[str, str]) -> None:
    assignment = assign(cell(subscribers=3, placement=placement), usable(nodes(), ["amd64"]))
    assert {participant.name: node for participant, node in assignment.items()} == expected


def test_an_impossible_placement_is_an_input_error() -> None:
    for values, named in (
        ({"placement": {"pub0": 0}}, "sub0"), ({"placement": {"pub0": 0, "sub0": 3}}, "node 3"),
        ({"placement": {"pub0": "n9", "sub0": 1}}, "'n9'"), ({"placement": {"pub0": "zone=a", "sub0": 1}}, "zone=a"),
        ({"nodes": 4}, "nodes: 4"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=named):
            assign(cell(**values), usable(nodes(), ["amd64"]))


def test_a_pod_that_cannot_become_ready_has_a_reason() -> None:
    for name, message in (
        ("image", "ErrImageNeverPull"), ("pull", "ImagePullBackOff"), ("crash", "exited with code 7"),
        ("start", "/nothing"), ("oom", "OOMKilled"),
    ):  # fmt: skip
        assert message in pods.failure(PODS[name]) and not pods.is_ready(PODS[name])
    assert "nodes are available" in pods.unscheduled_reason(PODS["nowhere"])
    assert pods.failure(PODS["nowhere"]) == pods.failure(PODS["good"]) == "" and pods.is_ready(PODS["good"])
    terminating, wrong = copy.deepcopy(PODS["good"]), copy.deepcopy(PODS["start"])
    terminating["metadata"]["deletionTimestamp"] = "2026-11-21T16:00:00Z"
    assert pods.failure(terminating) and not pods.is_ready(terminating)
    state = wrong["status"]["containerStatuses"][0]["state"]["terminated"]
    state["message"] = "exec /opt/k8sdds/k8sdds-supervisor: exec format error"
    assert "another architecture" in pods.failure(wrong)


def test_memory_and_cpu_follow_the_cells() -> None:
    small = pods.memory_bytes([cell()])
    large = pods.memory_bytes([cell(), cell(payload_bytes=2**20)])
    assert small[0] < large[0] < large[1]
    slot = pods.Slot("pub0", "pub", "n1", False, CpuResources(0.5))
    pod = pods.pod("x", slot, IMAGE, "c", large)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "640Mi", "cpu": "500m"}


@pytest.mark.parametrize(
    ("quota", "request_", "guaranteed"),
    [(1, 1, True), (2.0, 2.0, True), (0.3, 0.3, False), (1.5, 1.5, False), (1, 0.5, False), (None, 1, False)],
)
def test_pods_whose_request_and_limit_are_the_same_whole_cores_are_guaranteed(
    quota: float | None, request_: float, guaranteed: bool
) -> None:
    slot = pods.Slot("pub0", "pub", "n1", False, CpuResources(quota, request=request_))
    resources = pods.pod("x", slot, IMAGE, "c", pods.memory_bytes([cell()]))["spec"]["containers"][0][
        "resources"
    ]
    assert (resources["requests"] == resources["limits"]) == guaranteed


def test_a_pod_has_only_the_capabilities_that_its_trial_requests() -> None:
    def security(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        slot = pods.Slot.of(Participant("publisher"), "n1", False, cell(**changes))
        spec = pods.pod("x", slot, IMAGE, "c", (1, 1))["spec"]
        return spec["securityContext"], spec["containers"][0]["securityContext"]

    of_pod, of_container = security(dscp=46)
    assert of_pod["runAsNonRoot"] and of_container["capabilities"] == {"drop": ["ALL"]}
    of_pod, of_container = security(realtime_priority=50)
    assert of_pod["runAsUser"] == 0 and not of_container["allowPrivilegeEscalation"]
    assert of_container["capabilities"] == {"drop": ["ALL"], "add": ["SYS_NICE"]}
    _, of_container = security(realtime_priority=50, lock_memory=True)
    assert of_container["capabilities"]["add"] == ["SYS_NICE", "IPC_LOCK"]
    levels = [namespace.manifest("c", "n", privileged)["metadata"]["labels"] for privileged in (False, True)]
    assert [labels["pod-security.kubernetes.io/enforce"] for labels in levels] == ["restricted", "privileged"]


def test_participants_that_share_memory_are_containers_of_one_pod() -> None:
    shared = cell(network="host", middleware="fastdds", transport="shared-memory", subscribers=2)
    assert preflight.unsupported([shared], can_switch=False) == []
    assert preflight.placement_problems([shared], nodes()[:1], IMAGE) == [], "one node is enough"
    (slot,) = set(placement.slots(shared, nodes()).values())
    assert slot.containers == ("pub0", "sub0", "sub1") and not slot.host, "with a network of its own"
    spec = pods.pod("x", slot, IMAGE, "c", pods.memory_bytes([shared]))["spec"]
    mounts = [
        {mount["mountPath"]: mount["name"] for mount in box["volumeMounts"]} for box in spec["containers"]
    ]
    volumes = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
    assert {volumes[mount["/dev/shm"]]["medium"] for mount in mounts} == {"Memory"}
    assert len({mount["/dev/shm"] for mount in mounts}) == 1
    assert len({mount[path] for mount in mounts for path in ("/out", "/run/k8sdds")}) == 6
    for box in spec["containers"]:
        assert box["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "hostIPC" not in spec and spec["securityContext"]["runAsNonRoot"]
    (anywhere,) = set(placement.slots(shared, None).values())
    assert pods.pod("x", anywhere, IMAGE, "c", (1, 1))["spec"]["affinity"] == {}


@pytest.mark.parametrize(("network", "host"), [("host", True), ("flannel-vxlan", False)])
def test_participants_that_do_not_share_memory_are_pods_of_one_node(network: str, host: bool) -> None:
    own = cell(network=network, middleware="fastdds", transport="shared-memory", dev_shm="own")
    assert preflight.unsupported([own], can_switch=False) == []
    (problem,) = preflight.placement_problems([own], [], IMAGE)
    assert "shared-memory between pods" in problem.what
    slots = placement.slots(own, nodes())
    assert {name: slot.containers for name, slot in slots.items()} == {"pub0": ("pub0",), "sub0": ("sub0",)}
    assert len({slot.node for slot in slots.values()}) == 1
    for slot in slots.values():
        spec = pods.pod("x", slot, IMAGE, "c", (1, 1))["spec"]
        (box,) = spec["containers"]
        (name,) = [mount["name"] for mount in box["volumeMounts"] if mount["mountPath"] == "/dev/shm"]
        assert {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}[name]["medium"] == "Memory"
        assert spec.get("hostNetwork", False) == host and "nodeAffinity" in spec["affinity"]


def test_pods_of_a_node_share_the_memory_of_a_further_pod() -> None:
    shared = cell(network="flannel-vxlan", middleware="zenoh", transport="shared-memory")
    assert preflight.unsupported([shared], can_switch=False) == []
    slots = placement.slots(shared, nodes())
    (node,) = {slot.node for slot in slots.values()}
    holder = pods.pod("x", pods.memory_holder(node), IMAGE, "c", (1, 1))
    (volume,) = [each for each in holder["spec"]["volumes"] if each["name"] == "shared-memory"]
    assert volume["emptyDir"]["medium"] == "Memory"
    folder = pods.memory_folder({"metadata": {"uid": "1-2"}})
    assert folder == "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/shared-memory"
    for slot in slots.values():
        spec = pods.pod("x", slot, IMAGE, "c", (1, 1), node_memory=folder)["spec"]
        paths = [each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each]
        assert paths == [folder] and "hostNetwork" not in spec


def test_containers_of_one_pod_can_have_user_ids_of_their_own() -> None:
    shared = {"network": "host", "transport": "shared-memory", "users": "other"}
    with_own = cell(middleware="fastdds", **shared)
    assert preflight.unsupported([with_own], can_switch=False) == []
    assert preflight.placement_problems([with_own], nodes(), IMAGE) == []
    (slot,) = set(placement.slots(with_own, nodes()).values())
    spec = pods.pod("x", slot, IMAGE, "c", (1, 1))["spec"]
    users = [box["securityContext"]["runAsUser"] for box in spec["containers"]]
    assert users == [versions.UNPRIVILEGED_USER, versions.UNPRIVILEGED_USER - 1]
    # All may write into its volumes.
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"middleware": "zenoh"}, {"IPC_LOCK": "zenoh"}),
        ({"middleware": "zenoh", "lock_memory": True}, {"IPC_LOCK": "zenoh"}),
        ({"middleware": "fastdds", "lock_memory": True}, {"IPC_LOCK": "lock_memory"}),
        (
            {"middleware": "fastdds", "lock_memory": True, "realtime_priority": 10},
            {"SYS_NICE": "realtime_priority", "IPC_LOCK": "lock_memory"},
        ),
    ],
)
def test_what_needs_a_capability_cannot_have_another_user_id(
    changes: dict[str, Any], needed: dict[str, str]
) -> None:
    shared = {"network": "host", "transport": "shared-memory", "users": "other"}
    problems = preflight.unsupported([cell(**shared | changes)], can_switch=False)
    assert [(problem.what, problem.remedy) for problem in problems] == [
        (
            f"users: other: only root keeps {capability} in a container, which {cause} needs",
            f"leave out {cause} or users: other, or use --testbed lab",
        )
        for capability, cause in needed.items()
    ]


@pytest.mark.parametrize(
    ("changes", "placed"),
    [
        ({}, False),
        ({"network": "host"}, True),
        ({"network": "host", "middleware": "fastdds"}, False),
        ({"placement": {"pub": 0, "sub": 1, "discovery": 0}}, True),
        ({"placement": {"pub": 0, "sub": 1, "discovery": 0}, "middleware": "fastdds"}, True),
        ({"network": "host", "discovery": "peers"}, False),
    ],
)
def test_a_server_of_a_prepared_namespace_is_not_placed(changes: dict[str, Any], placed: bool) -> None:
    cells = [cell(**{"network": "flannel-vxlan", "middleware": "zenoh", "discovery": "server"} | changes)]
    assert not discovery.problems(cells, None)
    found = discovery.problems(cells * 2, "mine")
    assert len(found) == placed and all(each.input and "namespace mine" in each.what for each in found)


def test_the_background_runs_on_the_nodes_of_the_first_participants() -> None:
    loaded = cell(network="flannel-vxlan", subscribers=2, background={"flows": 5})
    slots = placement.slots(loaded, nodes())
    assert slots["load0"].node == slots["pub0"].node != slots["sub0"].node == slots["load1"].node
    assert (slots["load0"].role, slots["load0"].host) == ("load", False)
    together = cell(network="flannel-vxlan", placement="same-node", subscribers=3)
    assert preflight.placement_problems([together], nodes()[:1], IMAGE) == [], "one node is enough"
    slots = placement.slots(together, nodes())
    assert len(slots) == 4 and len({slot.node for slot in slots.values()}) == 1
    for needs_nodes in (loaded, together):
        (unknown,) = preflight.placement_problems([needs_nodes], [], IMAGE)
        assert "this user may not list nodes" in unknown.what


def test_settings_that_only_the_lab_supports_are_rejected() -> None:
    cells = [cell(network="baremetal"), cell(link={"lag": 2}), cell(capture=True)]
    problems = preflight.unsupported(cells, can_switch=True)
    assert len(problems) == 3 and all(problem.input for problem in problems)
    smaller = cell(network_options={"mtu": 1376})
    assert preflight.unsupported([smaller], can_switch=True) == []
    assert preflight.unsupported([cell()], can_switch=False) == []
    assert "mtu" in preflight.unsupported([smaller], can_switch=False)[0].what


def test_links_are_emulated_on_nodes_that_k8sdds_deployed() -> None:
    lossy = {"loss": {"percent": 1}, "engine": "userspace"}
    assert preflight.unsupported([cell(link=lossy)], can_switch=True) == []
    for link, deployed, network, why in (
        (lossy, False, "flannel-vxlan", "did not deploy"),
        ({"engine": "userspace"}, False, "flannel-vxlan", "no access to the nodes"),
        (lossy | {"engine": "kernel"}, True, "flannel-vxlan", "k8sdds-link emulates"),
        (lossy, True, "cilium-vxlan", "Cilium takes packets"),
    ):
        (problem,) = preflight.unsupported([cell(network=network, link=link)], can_switch=deployed)
        assert why in problem.what and problem.remedy and problem.input


def test_the_links_of_publishers_or_subscribers_alone_are_emulated() -> None:
    wanted = cell(subscribers=2)
    places = dict(zip(wanted.participants, ("a", "b", "c"), strict=True))
    impaired = {
        nodes: links.impaired(cell(subscribers=2, link={"loss": {"percent": 1}, "nodes": nodes}), places)
        for nodes in ("all", "publishers", "subscribers")
    }
    assert impaired == {"all": {"a", "b", "c"}, "publishers": {"a"}, "subscribers": {"b", "c"}}


def test_missing_networks_are_reported() -> None:
    weavenet, others = cell(network="weavenet"), [cell(network="host")]
    # An engine that only clusters have is another network.
    sleeve = cell(network="weavenet", network_options={"engine": "sleeve"})
    (problem,) = preflight.missing_networks([weavenet, *others], ["host", "kube-router"])
    assert "weavenet" in problem.what and "kube-router" in problem.what
    (problem,) = preflight.missing_networks([weavenet], ["host", "unknown"])
    assert "--pod-network" in problem.remedy
    for missing, label in ((weavenet, "weavenet"), (sleeve, "weavenet (sleeve)")):
        assert preflight.missing_networks([missing], ["host", label]) == []
        installed = ["host"] if missing is weavenet else ["host", "weavenet"]
        (problem,) = preflight.missing_networks([missing], installed, lambda name: "no kernel")
        assert problem.what == f"{label} cannot be installed on this cluster: no kernel"


@pytest.mark.parametrize(
    ("available", "requested", "installed_by_others", "measured"),
    [
        (["host", "flannel-vxlan"], [], "", ["host", "flannel-vxlan"]),
        # The network that others installed is measured in place of those that the cluster does not have.
        (["host", "cilium-vxlan"], [], "cilium-vxlan", ["host", "cilium-vxlan"]),
        # If the baseline is missing, nothing is removed.
        (["flannel-vxlan"], [], "", ["host", "flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet"]),
        (["host"], ["weavenet"], "", ["host", "weavenet"]),
    ],
)
def test_networks_that_the_cluster_does_not_have_are_removed(
    available: list[str], requested: list[str], installed_by_others: str, measured: list[str]
) -> None:
    quickstart = experiments.load("quickstart")
    reduced, removed = preflight.reduce_networks(quickstart, available, requested, installed_by_others)
    assert [choice.name for choice in reduced.sweeps[0].networks] == measured
    assert removed == [choice.name for choice in quickstart.sweeps[0].networks if choice.name not in measured]


def test_problems_of_nodes_are_reported_before_the_start() -> None:
    def problem(found: list[NodeInfo], image: str = IMAGE, runtime: Any = None, **values: Any) -> Any:
        more = [runtime] if runtime else []
        return (*preflight.placement_problems([cell(**values)], found, image, *more), None)[0]

    assert problem(nodes()) is None
    late = nodes(n2={"status": {"images": [{"names": ["other"]}]}})
    assert "is not on n2" in problem(late).what
    # The runtime has it, although the kubelet does not report it yet, or has more images than it reports.
    assert problem(late, runtime={"n2": {IMAGE}}.__getitem__) is None
    assert "is not on n2" in problem(late, runtime={"n2": {"other"}}.__getitem__).what
    many = nodes(n2={"status": {"images": [{"names": [f"other:{number}"]} for number in range(50)]}})
    assert problem(many) is None
    cordoned = {"spec": {"unschedulable": True}}
    assert "n2: cordoned" in problem(nodes(n2=cordoned, n3=cordoned)).what
    assert problem(nodes(), placement={"pub": "n1", "sub": "n1"}).input
    # The image cannot run on these nodes, even if they have it.
    foreign = problem(nodes(), f"{IMAGE}-arm64")
    assert foreign.input and "runs on arm64 only" in foreign.what and foreign.remedy == f"use --image {IMAGE}"


def test_identifiers_of_campaigns_are_valid_names() -> None:
    long = "20261121T162359Z-Quick_start.with-a-very-long-name-that-goes-"
    name = namespace.identifier(f"{long}on")
    assert len(f"k8sdds-{name}") <= 63 and name == name.lower()
    assert name != namespace.identifier(f"{long}off")


def test_the_current_testbed_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    assert selection.read() == SelectedTestbed()
    selected = SelectedTestbed("cluster", kubeconfig="/k", context="c", namespace="n", network="weavenet",
                               image_login="/l", tolerate="a:NoSchedule,b:NoExecute")  # fmt: skip
    assert selected.taints == ("a:NoSchedule", "b:NoExecute") and SelectedTestbed().taints == ()
    assert selected.options()[-4:] == ["--image-login", "/l", "--tolerate", "a:NoSchedule,b:NoExecute"]
    shown = "kubeconfig /k, context c, namespace n, image login /l, tolerates a:NoSchedule, b:NoExecute"
    assert selected.describe() == f"cluster ({shown})"
    deployed = SelectedTestbed("cluster", "pi", tolerate="a:NoSchedule")
    assert deployed.describe() == "cluster pi (built by k8sdds deploy, tolerates a:NoSchedule)"
    selection.write(selected)
    assert selection.read() == selected
    selection.write(SelectedTestbed())
    assert selection.read() == SelectedTestbed()
    for text in ("{", "[]", '{"testbed": "moon"}', '{"testbed": "lab", "what": 1}'):
        selection.file().write_text(text)
        with pytest.raises(InputError, match="k8sdds testbed lab"):
            selection.read()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (IMAGE, "k8sdds.local/tools:1"), ("perftest:0.1.0", "tools:1"),
        ("registry.example:5000/lab/perftest:0.1.0", "registry.example:5000/lab/tools:1"),
        ("registry.example/perftest@sha256:00", "registry.example/tools:1"),
    ],
)  # fmt: skip
def test_other_images_come_from_the_registry_of_perftest(image: str, expected: str) -> None:
    assert selection.sibling_image(image, versions.TOOLS_IMAGE) == expected


def cluster(**values: Any) -> ClusterTestbed:
    return ClusterTestbed(cast(Any, None), SelectedTestbed("cluster", **values), "c")  # blocks need no API


def both_tests(*networks: str) -> list[Trial]:
    cells = [cell(network=name, test=test) for name in networks for test in ("throughput", "latency")]
    return trials(*cells, repetitions=3)


def test_networks_that_replace_each_other_have_separate_blocks() -> None:
    metered = cluster(meter=True)
    for block in metered.blocks(both_tests("host", "flannel-vxlan"), 7):
        assert len({trial.cell.network for trial in block.trials}) == 1 and len(block.trials) == 2
    assert [len(block.trials) for block in metered.blocks(both_tests("host"), 7)] == [2, 2, 2]
    together = cluster().blocks(both_tests("host", "flannel-vxlan"), 7)
    assert [len(block.trials) for block in together] == [4, 4, 4]
    several = both_tests("host", "flannel-vxlan", "flannel-hostgw")
    apart = cluster().blocks(several, 7)
    assert [block.index for block in apart] == list(range(9))
    for number, block in enumerate(apart):
        assert {trial.repetition for trial in block.trials} == {number // 3}
        assert len({trial.cell.network for trial in block.trials}) == 1
    assert {trial.trial_id for block in apart for trial in block.trials} == {one.trial_id for one in several}
    orders = {tuple(block.trials[0].cell.network for block in apart[i : i + 3]) for i in (0, 3, 6)}
    assert len(orders) > 1  # each repetition has its own random order
    assert cluster().blocks(several, 7) == apart


def test_a_repetition_begins_with_the_installed_network_and_is_random_otherwise() -> None:
    networks = ("host", "flannel-vxlan", "flannel-hostgw", "kube-router")
    measured = trials(*(cell(network=name, test="latency") for name in networks), repetitions=2)
    positions: Counter[tuple[int, str, int]] = Counter()
    for seed in range(600):
        names = [block.trials[0].cell.network for block in cluster().blocks(measured, seed)]
        first, second = names[:4], names[4:]
        assert sorted(first) == sorted(second) == sorted(networks)
        pods = [[name for name in order if name != "host"] for order in (first, second)]
        assert pods[0][-1] == pods[1][0]
        for number, order in enumerate((first, second)):
            positions.update((number, name, order.index(name)) for name in networks)
    # Every network has every position in both repetitions, each in about 150 of 600 orders.
    assert len(positions) == 32 and all(110 < count < 190 for count in positions.values())


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        ((("host",), ("host", "flannel-vxlan")), 0),
        ((("host",),), 0),
        ((("kube-router",), ("host",)), 2),
        ((("flannel-vxlan",), ("host",), ("kube-router",)), 2),
        ((("kube-router",), ("flannel-hostgw",), ("flannel-hostgw",)), 3),
    ],
)
def test_the_number_of_switches_includes_the_first_and_the_restored_network(
    networks: tuple[tuple[str, ...], ...], expected: int
) -> None:
    blocks = [
        Block(index, tuple(trials(*(cell(network=name) for name in names))))
        for index, names in enumerate(networks)
    ]
    assert count_switches(blocks, lambda mode: mode[0] == "flannel-vxlan") == expected


def test_each_tuning_and_number_of_policies_has_blocks_of_its_own() -> None:
    def blocks(measured: list[Trial]) -> list[Block]:
        return make_blocks(measured, seed=1, one_network=False)

    tunings = ("none", "tcp-buffers")
    cells = [cell(network=network, tuning=name) for network in ("host", "kube-router") for name in tunings]
    measured = trials(*cells, repetitions=2)
    assert len(blocks(measured)) == 8
    assert all(len({trial.cell.tuning for trial in block.trials}) == 1 for block in blocks(measured))
    assert len(blocks([trial for trial in measured if trial.cell.network == "host"])) == 4, "host alone, too"
    usual = [trial for trial in measured if trial.cell.tuning == "none"]
    assert len(blocks(usual)) == 2, "one network and the host share a block"
    policies = blocks(trials(*(cell(network="kube-router", policies=count) for count in (0, 1, 100))))
    assert sorted(block.trials[0].cell.policies for block in policies) == [0, 1, 100]
    (problem,) = NodeTuning("", cells[1:2]).problems()
    assert "tuning tcp-buffers: k8sdds has no access to the nodes" in problem.what
    assert NodeTuning("", cells[:1]).problems() == []
