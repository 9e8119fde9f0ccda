"""Policies, tuning sets and steering of a cluster's trials: what is created, verified and removed, also after errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds.analysis import link_conditions
from k8sdds.deploy import experiment_tuning, node_links
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.impairments import Loss
from k8sdds.model.link import Link
from k8sdds.model.measurement import Outcome
from k8sdds.model.trial import Cell, Trial
from k8sdds.results import link_statistics
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.reading import UnreadableError
from k8sdds.testbeds import core_layout, probing
from k8sdds.testbeds.cluster import links, network_policies, pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace, identifier
from k8sdds.testbeds.cluster.network_policies import Policies
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_settings import NodeSettings, NodeTuning, Steering
from k8sdds.testbeds.cluster.pod_pool import PodPlace, PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot
from tests.unit.test_cluster import nodes
from tests.unit.test_link_emulation import simulated

CAMPAIGN = identifier("one")


class Cluster:
    """Policies that exist, and a network that enforces them on the pod `sub0`."""

    def __init__(self) -> None:
        self.policies: dict[str, dict[str, Any]] = {}
        self.asked: list[int] = []
        """Number of policies each time that packets were sent."""
        self.quota = 1000

    def resource(self, version: str, kind: str) -> str:
        return {"networking.k8s.io/v1 NetworkPolicy": "networkpolicies"}[f"{version} {kind}"]

    def create(self, path: str, body: dict[str, Any]) -> None:
        if len(self.policies) >= self.quota:
            raise PrerequisiteError("exceeded quota")
        self.policies[f"{path}/{body['metadata']['name']}"] = body

    def delete(self, path: str) -> None:
        self.policies.pop(path, None)

    def answered(self, sender: object, receiver: object, address: str) -> int:
        self.asked.append(len(self.policies))
        return 5 if isinstance(sender, PodPlace) or not any(map(self._selects, self.policies.values())) else 0

    def _selects(self, policy: Mapping[str, Any]) -> bool:
        labels = pods.pod("sub0-pod", slots()["sub0"], "image", CAMPAIGN, (1, 1))["metadata"]["labels"]
        selected: dict[str, str] = policy["spec"]["podSelector"]["matchLabels"]
        return selected.items() <= labels.items()


class Pods:
    def pod(self, slot: Slot) -> ReadyPod:
        return ReadyPod(slot.participant, "10.244.1.2", "eth0", 1500, slot.node, {})


class Probes:
    @contextmanager
    def observing(self, node: str) -> Iterator[object]:
        yield SimpleNamespace(run=lambda argv: b"")


def cell(policies: int) -> Cell:
    return Cell(network="kube-router", test="throughput", payload_bytes=1024, policies=policies)


def slots() -> dict[str, Slot]:
    places = zip(cell(1).participants, ("n1", "n2"), strict=True)
    return {participant.name: Slot.of(participant, node, False, cell(1)) for participant, node in places}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(probing, "answered", cluster.answered)
    monkeypatch.setattr(network_policies, "TIMEOUT_S", 0)
    monkeypatch.setattr(network_policies, "TIMEOUT_PER_POLICY_S", 0)
    monkeypatch.setattr(network_policies, "POLL_S", 0)
    return cluster


def policies_of(cluster: Cluster, campaign: str) -> Policies:
    namespace = CampaignNamespace(
        cast(KubernetesClient, cluster), identifier(campaign), "prepared", owned=False, title=campaign
    )
    return Policies(namespace, cast(PodPool, Pods()), cast(NodeProbes, Probes()))


@pytest.fixture
def policies(cluster: Cluster) -> Policies:
    return policies_of(cluster, "one")


def test_policies_select_the_participants_pods(cluster: Cluster, policies: Policies) -> None:
    assert policies.provide(cell(3), slots())
    assert policies.proof == "3 policies deny what n1 sends to sub0"
    assert len(cluster.policies) == 3
    assert not policies.provide(cell(3), slots()), "nothing to change"
    assert policies.remove()
    assert not cluster.policies and not policies.proof


def test_another_number_of_policies_begins_without_any(cluster: Cluster, policies: Policies) -> None:
    """What packets show does not depend on the number, so that 1 could be measured with the rules of 100."""
    policies.provide(cell(100), slots())
    cluster.asked.clear()
    policies.provide(cell(1), slots())
    assert sorted(set(cluster.asked)) == [0, 1] and cluster.asked[0] == 0


def test_policies_that_are_not_in_effect_are_not_taken_for_verified(
    cluster: Cluster, policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_selects", lambda policy: False)
    message = "2 NetworkPolicies are not in effect for packets from n1 to sub0: 5 of 5"
    for _ in range(2):
        with pytest.raises(PrerequisiteError, match=message):
            policies.provide(cell(2), slots())


def test_a_failed_creation_leaves_no_policies(cluster: Cluster, policies: Policies) -> None:
    cluster.quota = 2
    with pytest.raises(PrerequisiteError, match="quota"):
        policies.provide(cell(5), slots())
    policies.remove()
    assert not cluster.policies


def test_campaigns_in_one_namespace_have_policies_of_their_own(cluster: Cluster, policies: Policies) -> None:
    other = policies_of(cluster, "another")
    policies.provide(cell(2), slots())
    with pytest.raises(PrerequisiteError, match="still in effect"):
        other.provide(cell(1), slots())
    other.remove()
    assert len(cluster.policies) == 2


def test_a_failed_tuning_is_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def apply(cluster: str, sets: list[str], _: object) -> tuple[dict[str, Any], dict[str, Any]]:
        calls.append("apply")
        if len(calls) == 1:
            raise PrerequisiteError("lost")
        return {"n1": ()}, {"n1": ("sysctl net.ipv4.tcp_rmem free 1 2 3",)}

    def restore(cluster: str, sets: list[str], before: dict[str, Any]) -> None:
        calls.append(f"restore {sets} {before}")

    monkeypatch.setattr(experiment_tuning, "apply", apply)
    monkeypatch.setattr(experiment_tuning, "restore", restore)
    nodes, buffers = NodeTuning("c", []), NodeSettings("tcp-buffers")
    with pytest.raises(PrerequisiteError, match="lost"):
        nodes.provide(buffers)
    assert nodes.provide(buffers) and not nodes.provide(buffers)
    assert nodes.seen == {"n1": {"net.ipv4.tcp_rmem": "1 2 3"}}
    assert nodes.provide(NodeSettings()) and not nodes.provide(NodeSettings())
    restored = "restore ['tcp-buffers'] {}", "restore ['tcp-buffers'] {'n1': ()}"
    assert calls == ["apply", restored[0], "apply", restored[1]]


STEERED = {"pub0": "n1", "sub0": "n2"}


def test_split_steers_received_packets_to_the_cores_of_the_participants_and_other_layouts_do_not() -> None:
    masks = {}
    for name in ("split", "same", "free"):
        layout = core_layout.assign(name, 1, 1, (0, 1))
        masks[name] = core_layout.steering(name, layout, STEERED)
    off = dict.fromkeys(STEERED.values(), core_layout.NOT_STEERED)
    assert masks == {"split": {"n1": "00000001", "n2": "00000002"}, "same": off, "free": off}
    assert core_layout.mask(()) == core_layout.NOT_STEERED


def test_nodes_of_one_kernel_that_cannot_be_steered_are_reported() -> None:
    throughput = Cell(network="host", test="throughput", payload_bytes=64)
    layout = core_layout.assign("split", 1, 1, (0, 1))
    one = nodes()
    assert "share one kernel" in Steering("", one).apply(throughput, layout, STEERED)
    latency = throughput.model_copy(update={"layout": "same"})
    assert not Steering("", one).apply(latency, core_layout.assign("same", 1, 1, (0, 1)), STEERED)
    machines = [replace(node, boot_id=node.name) for node in one]
    assert not Steering("", machines).apply(throughput, layout, STEERED)


def test_outages_of_links_are_counted_by_the_clock_of_each_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The clock of the subscriber's machine began a second before that of the publisher's.

    The kept statistics have the times of the subscriber's clock. Its node began them 0.25 s after the publisher's.
    """
    link = {"up": {"delay": {"mean_us": 1000}}, "outages": {"at_s": 1, "for_s": 0.5}, "engine": "userspace"}
    measured = Cell(network="host", test="paced", rate=10, payload_bytes=64, link=link)
    trial = Trial(cell=measured, testbed="cluster", repetition=0, duration_s=3, warmup_s=0)
    asked: dict[str, node_links.Emulation] = {}

    def statistics(node: str, started_us: int, clock_us: int, failed_us: int) -> node_links.NodeStatistics:
        seen = simulated(Loss(percent=0), 100, 1)
        document = seen | {
            "started_us": started_us, "seconds": 4, "links": {node: seen["links"]["node0"]}
        }  # fmt: skip
        moments = (started_us, started_us + failed_us, started_us + failed_us + 500_000)
        answers = "\n".join([*map(str, moments), json.dumps(document)])
        return node_links.read_statistics(answers, node, ["100", "off"], clock_us)

    @contextmanager
    def emulated(cluster: str, emulations: Any, image: str, at_most_s: float) -> Iterator[object]:
        asked.update(emulations)
        stopped = {
            "n1": statistics("n1", 5_000_000, 10**15, 2_000_000),
            "n2": statistics("n2", 6_250_000, 10**15 - 10**6, 1_750_000),
        }
        yield SimpleNamespace(start=lambda: None, stop=lambda: stopped)

    monkeypatch.setattr(node_links, "emulated", emulated)
    places = zip(measured.participants, (("n1", "10.0.0.1"), ("n2", "10.0.0.2")), strict=True)
    ready = {
        participant.name: ReadyPod("", "", "eth0", 1500, node, {"cpus": [0, 1, 2, 3]}, address)
        for participant, (node, address) in places
    }
    reading = links.EmulatedLinks("lab", trial, ready, "image", "campaign", tmp_path, 10)
    with reading.recording():
        reading.before()
    assert asked["n1"].peers == ["10.0.0.2"] and asked["n1"].schedule == [
        (1_000_000, "100"),
        (1_500_000, "off"),
    ]
    assert [its.configuration["seed"] - asked["n1"].configuration["seed"] for its in asked.values()] == [0, 1]
    # The measured interval began at 6 s of the publisher's clock, which is 7 s of the other one.
    meters = {
        name: {
            "started_at_ns": 10**18 + 10**9,
            "start_monotonic_ns": (1 + ahead_s) * 10**9,
            "interval": {"start_monotonic_ns": (6 + ahead_s) * 10**9, "duration_s": 3},
        }
        for name, ahead_s in (("pub0", 0), ("sub0", 1))
    }
    outcomes = {each.name: Outcome(each, 0, meters[each.name]) for each in measured.participants}
    found = reading.after(outcomes)["links"]
    assert {node: (ways["up"]["outages"], ways["up"]["outage_s"]) for node, ways in found.items()} == {
        "n1": (1, 0.5),
        "n2": (1, 0.5),
    }
    assert link_conditions.differing(measured.link, found, trial.duration_s) == ""
    kept = json.loads((tmp_path / link_statistics.FILE).read_text())
    assert kept["started_us"] == 6_000_000
    assert {node: its["started_us"] for node, its in kept["links"].items()} == {
        "n1": 6_000_000,
        "n2": 6_250_000,
    }
    assert [(state["node"], state["at_us"]) for state in kept["outages"]] == [
        ("n1", 2_000_000),
        ("n1", 2_500_000),
        ("n2", 2_000_000),
        ("n2", 2_500_000),
    ]
    elsewhere = ready | {"pub0": replace(ready["pub0"], facts={"cpus": [4, 5, 6, 7]})}
    only = trial.model_copy(
        update={"cell": measured.model_copy(update={"link": Link(**link, nodes="subscribers")})}
    )
    cores = [links.facts(each, elsewhere, "campaign")["link_engine"]["core"] for each in (trial, only)]
    assert cores == [core_layout.harness((4, 5, 6, 7))[0], core_layout.harness((0, 1, 2, 3))[0]]


def test_answers_of_nodes_that_are_something_else_fail_the_attempt() -> None:
    """A node must not crash the campaign, whatever it prints."""
    assert node_links.read_clock("5000000\n1700000000123456789\n") == 1_700_000_000_123_456 - 5_000_000
    statistics = json.dumps(simulated(Loss(percent=0), 100, 1) | {"seconds": 4})
    answers = f"5000000\n7000000\n7500000\n{statistics}\n"
    found = node_links.read_statistics(answers, "n1", ["100", "off"], 0).values.outages
    assert [each.model_dump() for each in found] == [
        {"node": "n1", "at_us": 2_000_000, "state": "100"},
        {"node": "n1", "at_us": 2_500_000, "state": "off"},
    ]
    for answer in ("", "x\n1\n", "1\n", "1 2\n", f"{'9' * 5000}\n1\n"):
        with pytest.raises(UnreadableError, match="another version"):
            node_links.read_clock(answer)
    broken = {"5\n": "instead of times", "": "instead of times", f"x\n{statistics}": "instead of times"}
    broken |= {"5\n6\n{": "not valid JSON", "5\n{}\n": "Field required", "9\n8\n" + statistics: "at_us"}
    for answer, reason in broken.items():
        with pytest.raises(UnreadableError, match=reason):
            node_links.read_statistics(answer, "n1", ["100"], 0)
