"""Test the statistics and the order of the benchmarks."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from itertools import combinations_with_replacement
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

# At the end: benchmarks/zenoh.py has the name of a package.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import common
import lab_cluster
import packet_cost

from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.testbeds.lab.plan import make_plan
from tests.run_folders import Plan, make


def test_the_interval_leaves_out_as_many_averages_as_the_tables_of_the_test() -> None:
    # The critical value for n = 8 at 5 % is 3: the interval ends at the fourth average from each end.
    logs = [0.01 * 2**i for i in range(8)]
    averages = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[: i + 1])
    interval = common.signed_rank_interval([math.exp(value) for value in logs])
    assert interval == pytest.approx((math.exp(averages[3]), math.exp(averages[-4])))
    # Six ratios are needed; fewer have an interval of Student's t-distribution.
    assert common.signed_rank_interval([1.1, 1.2, 0.9, 1.0, 1.3]) is None
    values = common.Values()
    for number, (ours, other) in enumerate([(11, 10), (12, 10), (13, 10)]):
        values.add("ours", number, ours)
        values.add("other", number, other)
    paired = values.ratio("ours", "other")
    assert paired and paired.low and paired.high
    assert paired.value == pytest.approx(1.2)
    assert paired.low < 1 < 1.2 < paired.high


@given(st.lists(st.floats(0.5, 2, exclude_min=True), min_size=6, max_size=20, unique=True))
def test_the_interval_excludes_1_if_the_test_finds_a_difference(ratios: list[float]) -> None:
    logs = [math.log(ratio) for ratio in ratios]
    if any(abs(a + b) < 1e-9 for a, b in combinations_with_replacement(logs, 2)) or len(set(logs)) < len(
        logs
    ):
        return  # the exact distribution is that of different ranks
    low, high = common.signed_rank_interval(ratios) or (0, 0)
    p_value = stats.wilcoxon(logs, method="exact").pvalue
    assert (low > 1 or high < 1) == (p_value <= 0.05)


def test_each_item_is_as_often_first_as_last() -> None:
    schedule = common.interleave(8, [["a", "b"], ["c", "d"]], seed=3)
    assert len(schedule) == 32
    pairs = [tuple(item for _, item in schedule[i : i + 2]) for i in range(0, 32, 2)]
    for pair in ("ab", "cd"):
        assert pairs.count(tuple(pair)) == pairs.count(tuple(reversed(pair))) == 4


def test_run_folders_of_one_repetition_are_pooled_and_compared_in_pairs(tmp_path: Path) -> None:
    def measured(testbed: str, seeds: tuple[int, ...]) -> lab_cluster.Measured:
        folders = [tmp_path / f"{testbed}-{seed}" for seed in seeds]
        for folder, seed in zip(folders, seeds, strict=True):
            make(folder, Plan(repetitions=1, seed=seed, testbed=testbed))
        return lab_cluster.Measured(folders)

    lab, cluster = measured("lab", (1, 2, 3)), measured("cluster", (4, 5, 6))
    case = ("flannel-vxlan", 1024, "throughput_mbps")
    ours, others = cluster.relative(*case), lab.relative(*case)
    assert ours.keys() == others.keys() == {0, 1, 2}
    found = lab_cluster.difference(ours, others)
    assert found and found.n == 3 and found.value == pytest.approx(sum(ours[i] - others[i] for i in ours) / 3)
    # A repetition without a partner has no difference.
    alone = lab_cluster.difference({0: 1.0, 1: 5.0}, {0: 3.0, 2: 7.0})
    assert alone and (alone.n, alone.value) == (1, -2.0)


@pytest.mark.parametrize(
    ("networks", "payloads", "refused"),
    [
        (("kube-router", "flannel-vxlan"), [1024, 64], None),
        (
            ("flannel-vxlan", "kube-router", "cilium-vxlan"),
            [64, 1024],
            "networks flannel-vxlan, host, kube-router",
        ),
        (("flannel-vxlan",), [64, 1024], "networks flannel-vxlan, host, kube-router"),
        (("flannel-vxlan", "kube-router"), [64], "payload_bytes 64, 1024, not 64"),
    ],
)
def test_pairs_of_other_networks_or_payloads_are_refused(
    networks: tuple[str, ...],
    payloads: list[int],
    refused: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "lab-0"

    def options(networks: tuple[str, ...], payloads: list[int]) -> argparse.Namespace:
        return argparse.Namespace(network=networks, payload=payloads, seconds=1)

    monkeypatch.setattr(lab_cluster, "k8sdds", lambda *_, **__: folder.mkdir())
    lab_cluster.measure(folder, "lab", options(("flannel-vxlan", "kube-router"), [64, 1024]), 1, {})
    # A run folder that does not exist yet is measured as requested, whatever was attempted before.
    (tmp_path / "cluster-0.yaml").write_text("not read")
    folders = [folder, tmp_path / "cluster-0"]
    if refused is None:
        lab_cluster.require_same_cases(folders, options(networks, payloads))
    else:
        with pytest.raises(InputError, match=refused):
            lab_cluster.require_same_cases(folders, options(networks, payloads))


def test_lab_cluster_needs_a_complete_pair(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"no pair in .* is complete"):
        lab_cluster.add_tables(Mock(), tmp_path, Mock(pairs=2))


def test_lab_cluster_refuses_its_baseline_as_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lab_cluster.py", "--network", "host"])
    with pytest.raises(SystemExit):
        lab_cluster.main()
    assert "--network host: every pair measures it as the baseline" in capsys.readouterr().err


@pytest.mark.parametrize("subscribers", [1, 3])
def test_all_receivers_of_the_packet_benchmark_are_on_the_second_node(subscribers: int) -> None:
    pods = make_plan(packet_cost.cell_of("host", subscribers)).topology.pods
    assert [pod.node for pod in pods] == [0, *[1] * subscribers]


@pytest.mark.parametrize(
    ("printed", "address"),
    [
        ('[{"addr_info": [{"local": "10.244.1.2"}]}]', "10.244.1.2"),
        ('[{"addr_info": []}]', None),
        ("[{}]", None),
        ("[]", None),
        (None, None),
    ],
)
def test_pods_without_a_readable_address_are_refused(
    printed: str | None, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if printed is None:
            raise subprocess.TimeoutExpired(argv, 10)
        return subprocess.CompletedProcess(argv, 0, printed, "")

    monkeypatch.setattr(subprocess, "run", run)
    if address is None:
        with pytest.raises(argparse.ArgumentTypeError, match="process 8"):
            packet_cost.pods_on_cluster("cilium-native=7,8")
    else:
        found = packet_cost.pods_on_cluster("cilium-native=7,8")
        assert found == ("cilium-native", packet_cost.Pods(7, 8, address))


def test_a_failed_sender_is_reported_with_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if argv[-3] == "new":
            raise subprocess.TimeoutExpired(argv, packet_cost.TIMEOUT_S)
        return subprocess.CompletedProcess(argv, 1, "", "timed out")

    monkeypatch.setattr(subprocess, "run", run)
    for flow, reason in (("new", "did not end within 120 s"), ("established", "failed: timed out")):
        with pytest.raises(PrerequisiteError, match=f"^cilium-native on the cluster: the sender {reason}"):
            packet_cost.ns_per_packet(
                "cilium-native on the cluster", packet_cost.Pods(7, 8, "10.244.1.2"), flow
            )


def test_two_pairs_of_pods_of_one_network_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 0, '[{"addr_info": [{"local": "10.244.1.2"}]}]', "")

    monkeypatch.setattr(subprocess, "run", run)
    pods = ["--pods", "cilium-native=7,8", "--pods", "cilium-native=9,10"]
    monkeypatch.setattr(sys, "argv", ["packet_cost.py", *pods])
    with pytest.raises(SystemExit):
        packet_cost.main()
    assert "more than one pair of pods for cilium-native" in capsys.readouterr().err
