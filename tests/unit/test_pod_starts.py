"""Pods that are timed: which are created, what is recorded of them, that none is left, and what is valid."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds import versions
from k8sdds.bundle import contents, golang
from k8sdds.campaign import contradictions
from k8sdds.kubernetes.client import ApiError
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.networks import NETWORKS
from k8sdds.results.metrics import Metrics
from k8sdds.system.errors import PartFailed, PrerequisiteError, Problem
from k8sdds.testbeds.cluster import matching, pod_room, pod_starts, pods, preflight
from k8sdds.testbeds.cluster.matching import Match, Programs
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.cluster.pod_pool import PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.lab import pod_starts as lab_pod_starts
from k8sdds.workloads import TrialOutputs, find, pod_start

NUMBERS = itertools.count()
STEPS = ("PodScheduled", "PodReadyToStartContainers", "Ready")


def cell(count: int, **values: Any) -> Cell:
    settings = {"network": "host", "test": "pod-start", "payload_bytes": 56} | values
    return Cell(**settings, test_options={"pods": count})


class Pool:
    """Pods that get ready while the test waits for them."""

    def __init__(self, error: Exception | None = None, steps: tuple[str, ...] = STEPS) -> None:
        self.exists: dict[str, dict[str, Any]] = {}
        self.posted: list[dict[str, Any]] = []
        self.error = error
        self.steps = steps
        self.listeners: list[Callable[[dict[str, Any], float], None]] = []
        self.watch = SimpleNamespace(
            listeners=self.listeners, wait_ready=self.wait_ready, listings=1, pod=self.state
        )

    def pod(self, slot: Slot) -> Any:
        return SimpleNamespace(node=slot.node, interface="eth0", mtu_bytes=1450)

    def state(self, name: str) -> dict[str, Any]:
        node = len(self.exists[name]["metadata"]["name"])
        return {"status": {"podIPs": [{"ip": f"10.244.0.{node}"}, {"ip": "fd00::1"}]}}

    def new_name(self, slot: Slot) -> str:
        return f"{slot.participant}-{next(NUMBERS)}"

    def manifest(self, slot: Slot, name: str) -> dict[str, Any]:
        return pods.pod(name, slot, "image", "campaign", (1, 1))

    def post(self, body: dict[str, Any]) -> None:
        self.posted.append(body)
        self.exists[body["metadata"]["name"]] = body

    def remove(self, names: list[str]) -> None:
        for name in names:
            self.exists.pop(name, None)

    def wait_ready(self, names: list[str]) -> None:
        if self.error:
            raise self.error
        for seconds in range(len(self.steps) + 1):
            for name in [*names, "of-another-trial"]:
                conditions = [
                    {"type": step, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    for step in self.steps[:seconds]
                ]
                meta = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
                for listener in self.listeners:
                    listener({"metadata": meta, "status": {"conditions": conditions}}, 1e9 + seconds)


def slots(host: bool = False) -> list[Slot]:
    named = {"pub0": "n1", "sub0": "n2"}
    return [Slot.of(Participant.named(name), node, host, cell(1)) for name, node in named.items()]


def measure(pool: Pool, folder: Path, count: int, host: bool = False, **options: Any) -> Any:
    own = cell(count)
    own = own.model_copy(update={"test_options": own.test_options | options})
    pod_starts.measure(cast(PodPool, pool), own, slots(host), folder, cast(Any, None))
    return json.loads((folder / pod_start.FILE).read_text())


def outputs(folder: Path, count: int) -> TrialOutputs:
    trial = Trial(cell=cell(count), testbed="cluster", repetition=0, duration_s=1, warmup_s=0)
    return TrialOutputs(trial, cast(Any, SimpleNamespace(outcomes={})), folder, {})


def written(folder: Path, count: int, **document: Any) -> TrialOutputs:
    (folder / pod_start.FILE).write_text(json.dumps(document))
    return outputs(folder, count)


def ready_later(folder: Path, pod: dict[str, Any], count: int) -> TrialOutputs:
    """Return the outputs of a trial whose pods get ready one after the other."""
    pods = {f"p{i}": pod | {"ready_s": i + 3.0} for i in range(count)}
    return written(folder, count, pods=pods, all_ready_s=count + 2)


def test_pods_start_on_the_nodes_of_the_participants_and_are_deleted(tmp_path: Path) -> None:
    pool = Pool()
    found = measure(pool, tmp_path / "attempt", 3)
    assert len(pool.posted) == len(found["pods"]) == 3
    assert pool.exists == {} and pool.listeners == []
    for body in pool.posted:
        assert versions.PARTICIPANT_LABEL not in body["metadata"]["labels"]
        affinity = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        fields = [term["matchFields"] for term in affinity["nodeSelectorTerms"]]
        assert [field["values"] for (field,) in fields] == [["n1"], ["n2"]]
        assert body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1m"
        assert "hostNetwork" not in body["spec"] and "sysctls" not in body["spec"]["securityContext"]
    for times in found["pods"].values():
        assert times["network_ready_s"] - times["scheduled_s"] == pytest.approx(1)
        assert times["ready_s"] - times["network_ready_s"] == pytest.approx(1)
        assert not times["coarse"]
    measure(pool, tmp_path / "host", 1, host=True)
    assert pool.posted[-1]["spec"]["hostNetwork"]


def test_two_pods_match_on_the_nodes_of_the_participants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def matched(programs: Programs, *_: Any) -> Match:
        assert programs.cell.middleware == "fastdds"
        assert [p.name for p in programs.pods] == list(programs.endpoints) == ["pub0", "sub0"]
        assert all(endpoint.address.startswith("10.244.0.") for endpoint in programs.endpoints.values())
        return Match(1e9 + 20, 0.001, 7)

    monkeypatch.setattr(matching, "match", matched)
    monkeypatch.setattr("k8sdds.testbeds.cluster.pod_starts.time.monotonic", lambda: 1e9)
    pool = Pool()
    found = measure(pool, tmp_path, 4, dds="fastdds")
    assert len(pool.posted) == len(found["pods"]) == 4 and pool.exists == {}
    first, second, *others = pool.posted
    for body, name, node in ((first, "pub0", "n1"), (second, "sub0", "n2")):
        (container,) = body["spec"]["containers"]
        assert container["name"] == name and container["resources"]["requests"]["cpu"] == "50m"
        affinity = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [term["matchFields"][0]["values"] for term in affinity["nodeSelectorTerms"]] == [[node]]
    assert all(body["metadata"]["name"].startswith("start-") for body in pool.posted)
    assert {body["spec"]["containers"][0]["name"] for body in others} == {"start"}
    assert found["match"]["pods"] == [body["metadata"]["name"] for body in (first, second)]
    assert found["match"]["since_request_s"] == 20 and found["match"]["since_ready_s"] == 17
    record = Metrics()
    find("pod-start").measure(record, outputs(tmp_path, 4))
    assert (record.pods_matched_s, record.pods_matching_s) == (20, 17)


@pytest.mark.parametrize(
    ("match", "reason"),
    [
        (None, "no-match: no pods were to match"),
        ({"pods": ["a", "b"], "failure": "sub0: no peer"}, "no-match: pods a and b: sub0: no peer"),
        ({"pods": ["a", "b"], "since_request_s": 1.0}, "no-match: no sample passed between pods a and b"),
        ({"pods": ["a", "b"], "received": 9}, "no-match: pods a and b: the time of the match is missing"),
    ],
)
def test_a_match_needs_samples(tmp_path: Path, match: dict[str, Any] | None, reason: str) -> None:
    pods = {name: {"ready_s": 1.0} for name in "ab"}
    attempt = written(tmp_path, 2, pods=pods, all_ready_s=1.0, match=match)
    assert not str(find("pod-start").invalid(attempt)).startswith("no-match")
    attempt.trial.cell.test_options["dds"] = "cyclonedds"
    assert str(find("pod-start").invalid(attempt)) == reason


def test_a_match_needs_two_pods_and_a_cluster() -> None:
    def unsupported(count: int, **values: Any) -> str:
        own = cell(count, network="flannel-vxlan", **values)
        own.test_options["dds"] = "cyclonedds"
        return find("pod-start").unsupported(own) or ""

    assert "set pods to 2 or more" in unsupported(1) and "policies" in unsupported(2, policies=1)
    assert unsupported(2) == ""
    own = cell(2, network="flannel-vxlan")
    own.test_options["dds"] = "cyclonedds"
    (problem,) = lab_pod_starts.problems([own])
    assert "cannot match over DDS" in problem.what and "--testbed cluster" in problem.remedy
    assert preflight.pod_start_problems([own]) == []
    second = own.model_copy(update={"network": "macvlan"})
    (problem,) = preflight.pod_start_problems([second])
    assert problem.what.startswith("macvlan: dds: ")
    own.test_options["dds"] = "raw"
    assert "give cyclonedds or fastdds" in str(contradictions.unsupported(own))


def test_no_other_test_starts_pods(tmp_path: Path) -> None:
    pool = Pool()
    pod_starts.measure(cast(PodPool, pool), cell(1, test="ping"), slots(), tmp_path, cast(Any, None))
    assert pool.posted == [] and list(tmp_path.iterdir()) == []


def test_steps_that_a_broken_watch_missed_are_not_timed(tmp_path: Path) -> None:
    pool = Pool()

    def breaks(pod: dict[str, Any], at_s: float) -> None:
        pool.watch.listings = 2

    pool.listeners.append(breaks)
    assert "the watch of the pods broke" in measure(pool, tmp_path, 2)["failure"]
    assert pool.exists == {} and pool.listeners == [breaks]


def test_pods_are_deleted_after_errors(tmp_path: Path) -> None:
    pool = Pool(PrerequisiteError("pod start-1: no node has room"))
    assert measure(pool, tmp_path, 2) == {"failure": "pod start-1: no node has room"}
    assert pool.exists == {} and pool.listeners == []
    reason = str(find("pod-start").invalid(outputs(tmp_path, 2)))
    assert reason == "no-pods: pod start-1: no node has room"
    lost = Pool(PartFailed("pod start-1 was killed"))
    with pytest.raises(PartFailed):
        measure(lost, tmp_path, 2)
    assert lost.exists == {} and lost.listeners == []


def test_the_steps_add_up_and_percentiles_need_enough_pods(tmp_path: Path) -> None:
    pod = {"scheduled_s": 0.5, "network_ready_s": 2.0, "running_s": 2.0, "coarse": False}
    record = Metrics()
    find("pod-start").measure(record, ready_later(tmp_path, pod, 19))
    assert (record.pods_ready_s, record.pod_start_mean_s, record.pod_scheduling_s) == (21, 12, 0.5)
    assert (record.pod_network_s, record.pod_containers_s) == (1.5, 10)
    assert record.pod_start_p50_s is None
    assert record.missing == {
        "pod_start_p50_s": "19 values, 20 are needed", "pod_start_p90_s": "19 values, 100 are needed",
    }  # fmt: skip
    many = Metrics()
    find("pod-start").measure(many, ready_later(tmp_path, pod, 100))
    assert many.pod_start_p50_s == pytest.approx(52.5)
    assert many.pod_start_p90_s == pytest.approx(92.1)
    assert many.missing is None


def test_a_condition_that_nodes_do_not_report_is_named(tmp_path: Path) -> None:
    record = Metrics()
    find("pod-start").measure(record, ready_later(tmp_path, {"scheduled_s": 0.5, "coarse": False}, 1))
    assert record.pod_network_s is None and record.pod_containers_s is None
    assert record.missing and record.missing["pod_network_s"] == pod_start.NO_CONDITION
    assert record.pod_start_mean_s == 3


def test_pods_that_missed_a_step_are_named(tmp_path: Path) -> None:
    seen = {"scheduled_s": 0.5, "network_ready_s": 2.0, "ready_s": 3.0}
    pods = {"a": seen, "b": seen | {"network_ready_s": None}, "c": seen | {"scheduled_s": None}}
    record = Metrics()
    find("pod-start").measure(record, written(tmp_path, 3, pods=pods, all_ready_s=3.0))
    assert record.missing and record.pod_network_s is None
    assert record.missing["pod_scheduling_s"] == "the condition PodScheduled of pod c was not reported"
    assert record.missing["pod_network_s"] == record.missing["pod_scheduling_s"]
    assert record.missing["pod_containers_s"] == (
        "the condition PodReadyToStartContainers of pod b was not reported"
    )


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            {"pods": {name: {"ready_s": 1.0, "coarse": True} for name in "abc"}},
            "coarse: several steps of pods a and 2 more were reported at once",
        ),
        ({"pods": {"a": {"ready_s": None}}}, "no-pods: 0 of 1 pods got ready: Ready of pod a was not reported"),
        ({"pods": {"a": {"ready_s": "1"}}}, "no-pods: the times of the pods are missing"),
    ],
)  # fmt: skip
def test_incomplete_times_are_not_valid(tmp_path: Path, document: dict[str, Any], reason: str) -> None:
    assert str(find("pod-start").invalid(written(tmp_path, 1, **document))).startswith(reason)


def problems(network: str, **values: Any) -> list[Problem]:
    return lab_pod_starts.problems([cell(20, network=network, **values)])


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("host", "its pods use the network of their node"),
        ("calico-vxlan", "its plugin reserves addresses through the API server"),
        ("cilium-vxlan", "its plugin calls the agent of the node"),
        ("weavenet-encrypt", "its plugin calls the router of the node"),
    ],
)
def test_a_lab_refuses_networks_whose_plugins_need_a_daemon(network: str, reason: str) -> None:
    (problem,) = problems(network)
    assert problem.what == f"{network}: test pod-start times CNI plugins in the lab, but {reason}"
    assert "(flannel-vxlan, flannel-hostgw, " in problem.remedy and problem.input


def test_every_network_of_the_lab_has_plugins_or_a_reason() -> None:
    assert all((network.cni_plugins is None) == bool(network.no_cni_plugins) for network in NETWORKS.values())


def test_a_lab_names_the_plugins_that_are_not_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path))
    (problem,) = problems("flannel-vxlan")
    assert "needs the CNI plugins flannel, bridge, host-local, portmap, which are not" in problem.what
    assert "k8sdds bundle create" in problem.remedy and not problem.input
    (tmp_path / "programs").mkdir()
    for name in ("bridge", "host-local", "portmap"):
        golang._built(contents.PROGRAMS[name], contents.HOST_ARCH).write_bytes(b"")
    (problem,) = problems("flannel-vxlan")
    assert "needs the CNI plugins flannel, which are not" in problem.what
    assert problems("kube-router") == []
    (problem,) = problems("kube-router", policies=2)
    assert "policies" in problem.what and problem.input
    assert problems("host", test="ping") == []


def test_the_lab_reports_the_work_of_the_plugins_alone(tmp_path: Path) -> None:
    pods = {f"start-{i}": {"scheduled_s": 0.1, "network_ready_s": 0.3 + i / 10} for i in range(3)}
    record = Metrics()
    find("pod-start").measure(record, written(tmp_path, 3, pods=pods, last_step="network_ready_s"))
    assert record.pod_network_s == pytest.approx(0.3)
    assert record.pods_ready_s is None and record.pod_start_mean_s is None and record.missing is None
    assert find("pod-start").describe(record) == "CNI plugins need 300 ms for a pod"
    reason = str(find("pod-start").invalid(outputs(tmp_path, 4)))
    assert reason == "no-pods: 3 of 4 pods got ready"


def cluster_node(name: str, pods: str, ranges: tuple[str, ...]) -> NodeInfo:
    ready = [{"type": "Ready", "status": "True"}]
    status = {"conditions": ready, "nodeInfo": {"architecture": "amd64"}, "allocatable": {"pods": pods}}
    return NodeInfo.parse({"metadata": {"name": name}, "spec": {"podCIDRs": list(ranges)}, "status": status})


class Api:
    """An API server with running pods, which this user may list or not. Pods of `host:NODE` use the node's network."""

    def __init__(self, running: dict[str, int], may_list: bool = True) -> None:
        self.items = [
            {"spec": {"nodeName": node.removeprefix("host:"), "hostNetwork": node.startswith("host:")}}
            for node, count in running.items()
            for _ in range(count)
        ]
        self.may_list = may_list

    def get(self, path: str, fieldSelector: str) -> dict[str, Any]:
        if not self.may_list:
            raise ApiError(403, "forbidden")
        assert path == "/api/v1/pods" and "Succeeded" in fieldSelector
        return {"items": self.items}


WIDE = ("10.244.0.0/24",)


@pytest.mark.parametrize(
    ("network", "pods", "ranges", "running", "named"),
    [
        ("flannel-vxlan", "110", WIDE, {"a": 5, "b": 3}, ""),
        ("flannel-vxlan", "110", WIDE, {"a": 70, "b": 60}, "a has room for 35: its kubelet runs at most"),
        ("flannel-vxlan", "30", WIDE, {}, "a has room for 25: its kubelet runs at most 30, and 5 run"),
        ("flannel-vxlan", "110", ("10.244.0.0/27",), {}, "10.244.0.0/27 has 29 addresses, and 5 are used"),
        ("flannel-vxlan", "110", (*WIDE, "fd00::/123"), {}, "its range fd00::/123 has 29 addresses"),
        ("flannel-vxlan", "110", ("10.244.0.0/25",), {"host:a": 60, "host:b": 60}, "at most 110, and 65 run"),
        ("flannel-vxlan", "250", ("10.244.0.0/25",), {"host:a": 60, "host:b": 60}, ""),
        # Its pods have the address of their node, and Calico has ranges of its own.
        ("host", "110", ("10.244.0.0/27",), {}, ""),
        ("calico-vxlan", "110", ("10.244.0.0/27",), {}, ""),
        ("host", "", (), {"a": 500}, ""),
    ],
)
def test_pods_that_do_not_fit_are_refused(
    network: str, pods: str, ranges: tuple[str, ...], running: dict[str, int], named: str
) -> None:
    nodes = [cluster_node(name, pods, ranges) for name in ("a", "b")]
    cells = [cell(100, network=network), cell(1, network=network)]
    found = pod_room.problems(cells, nodes, cast(Any, Api(running)))
    assert [named in problem.what for problem in found] == ([True] if named else [])
    for problem in found:
        assert "its 100 pods do not fit" in problem.what and "start at most" in problem.remedy
    unknown = cast(Any, Api(running, may_list=False))
    assert bool(pod_room.problems(cells, nodes, unknown)) == bool(named and not running)
    assert pod_room.problems(cells, [], unknown) == []


@pytest.mark.parametrize(("kind", "room"), [("own", 48), ("shared", 47)])
def test_room_is_left_for_the_pod_whose_memory_others_share(kind: str, room: int) -> None:
    nodes = [cluster_node(name, "30", WIDE) for name in ("a", "b")]
    memory = Cell(network="flannel-vxlan", test="latency", payload_bytes=56, transport="shared-memory")
    sharing = [memory.model_copy(update={"dev_shm": kind, "payload_bytes": size}) for size in (56, 1024)]
    starting, api = cell(100, network="flannel-vxlan"), cast(Any, Api({}))
    (problem,) = pod_room.problems([*sharing, starting], nodes, api)
    assert f"start at most {room} " in problem.remedy
