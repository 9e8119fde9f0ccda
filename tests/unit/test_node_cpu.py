"""The CPU time of nodes: of a trial, and of all flows of an application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis.requirements import BLOCK, MET, NOT_MET, UNDECIDED, budget_rows, judge_flows
from k8sdds.campaign import applications, node_cpu
from k8sdds.model.measurement import OutsideCpu
from k8sdds.recommend import evidence, results
from k8sdds.recommend.answer import answer
from k8sdds.results.record import TrialRecord
from k8sdds.workloads import TrialOutputs
from tests.applications import Truth, application, folder
from tests.unit import builders

LENGTH_S = 2.0
CORES = 4


def outputs(
    places: dict[str, tuple[str, str]],
    used_s: dict[str, float | None],
    softirq_s: float = 0.0,
    idle_s: float = 0.0,
    outside: OutsideCpu | None = None,
    spin_s: float = 0.0,
) -> TrialOutputs:
    """Return the outputs of a trial with meters over 2 s, on machines with 4 cores."""
    machine = {"cpus": CORES, "softirq_s": softirq_s, "idle_s": idle_s, "iowait_s": 0.0, "steal_s": 0.0}
    interval = {"duration_s": LENGTH_S}
    meters = {
        name: {"interval": interval, "cpu_s": used, "machine": machine} for name, used in used_s.items()
    }
    subscribers = sum(name.startswith("sub") for name in used_s)
    trial = builders.trial(builders.cell(test="paced", subscribers=subscribers), duration_s=2)
    machines = {machine for _, machine in places.values()} if outside else set()
    summaries = {"pub0": {"pacer_spin_s": spin_s, "measured_s": LENGTH_S}}
    return builders.outputs(trial, meters, summaries, nodes=places, outside=dict.fromkeys(machines, outside))


def test_participants_of_a_node_are_added() -> None:
    places = {"pub0": ("a", "m1"), "sub0": ("b", "m2"), "sub1": ("b", "m2")}
    found = node_cpu.by_node(outputs(places, {"pub0": 0.2, "sub0": 0.4, "sub1": 0.6}, softirq_s=0.1))
    assert found == {"a": {"participants": 10.0, "shared": 5.0}, "b": {"participants": 50.0, "shared": 5.0}}
    assert node_cpu.busiest(found) == 55.0 and node_cpu.total(found) == 70.0


def test_nodes_of_one_machine_share_what_it_does_outside_of_pods() -> None:
    places = {"pub0": ("a", "m"), "sub0": ("b", "m"), "sub1": ("b", "m")}
    used = {"pub0": 0.5, "sub0": 0.5, "sub1": 1.0}
    outside = OutsideCpu(network=3.0, kernel_threads=1.0)
    found = node_cpu.by_node(outputs(places, used, softirq_s=0.4, outside=outside))
    assert found == {"a": {"participants": 25.0, "shared": 6.0}, "b": {"participants": 75.0, "shared": 18.0}}


def test_the_time_until_samples_were_due_is_not_a_cost() -> None:
    places = {"pub0": ("a", "m1"), "sub0": ("b", "m2")}
    found = node_cpu.by_node(outputs(places, {"pub0": 0.4, "sub0": 0.1}, spin_s=0.3))
    assert found is not None and node_cpu.total(found) == pytest.approx(5.0 + 5.0)


@pytest.mark.parametrize(("separate", "shared"), [(True, 20.0), (False, 5.0), (None, 5.0)])
def test_softirqs_that_are_charged_to_processes_count_once(separate: bool | None, shared: float) -> None:
    """The machine is busy for 2 s: 1.5 s in pods, 0.4 s in other programs. So 0.1 s of 0.4 s of softirqs are in none."""
    places = {"pub0": ("a", "m"), "sub0": ("a", "m")}
    outside = OutsideCpu(others=20.0, separate_interrupts=separate)
    idle_s = CORES * LENGTH_S - 2.0
    found = node_cpu.by_node(
        outputs(places, {"pub0": 0.5, "sub0": 1.0}, softirq_s=0.4, idle_s=idle_s, outside=outside)
    )
    assert found is not None and found["a"]["shared"] == pytest.approx(shared)


@pytest.mark.parametrize("missing", ["meters", "place"])
def test_a_part_of_the_participants_is_no_sum(missing: str) -> None:
    places = {"pub0": ("a", "m"), "sub0": ("b", "m")}
    if missing == "place":
        del places["sub0"]
    found = node_cpu.by_node(outputs(places, {"pub0": 0.5, "sub0": None if missing == "meters" else 0.1}))
    assert found is None and node_cpu.busiest(found) is None


def row(block: int, background: bool = False, **nodes: tuple[float, float]) -> dict[str, Any]:
    parts = {node: {"participants": used, "shared": shared} for node, (used, shared) in nodes.items()}
    return {BLOCK: block, "nodes_cpu": parts, "background": {"flows": 1} if background else None}


def test_flows_are_added_on_each_node_in_each_block() -> None:
    camera = [row(0, a=(10, 2), b=(30, 4)), row(1, a=(11, 2), b=(31, 4)), row(2, a=(10, 2))]
    commands = [row(0, a=(40, 1), b=(5, 1)), row(1, a=(1, 1), c=(60, 1))]
    found = budget_rows({"camera": camera, "commands": commands})
    # In block 0, node a has the most; in block 1, node c. Block 2 does not have both flows.
    assert [(each[BLOCK], each["node_cpu_percent"]) for each in found] == [(0, 53), (1, 61)]
    assert [each["total_cpu_percent"] for each in found] == [53 + 40, 15 + 35 + 61]


def test_softirqs_of_flows_that_were_measured_together_count_once() -> None:
    flows = {"camera": [row(0, True, a=(10, 8))], "commands": [row(0, True, a=(20, 6))]}
    assert [each["node_cpu_percent"] for each in budget_rows(flows)] == [38]


def budget(cpu_percent: float) -> Any:
    flow = {"payload_bytes": 1024, "rate": 100, "subscribers": 2}
    return application(
        flows=[{"name": "camera", **flow}, {"name": "commands", **flow}],
        cpu_percent=cpu_percent,
        together=False,
    )


@pytest.mark.parametrize(("limit", "verdict"), [(25, MET), (15, NOT_MET)])
def test_the_budget_of_a_node_is_judged_by_the_sum_of_all_flows(
    limit: float, verdict: str, tmp_path: Path
) -> None:
    """Each participant uses 10 %: each alone is within 15 %, both flows together are not."""
    experiment = applications.experiment(budget(limit))
    run = folder(tmp_path / "run", experiment, Truth(cpu={}, noise=0.01, drift=0.01))
    found = answer(evidence.of_own_run(run, experiment))
    assert found.recommended is not None
    judged = found.recommended.judgements[-1]
    assert judged.requirement.describe() == f"all flows: CPU of each node <= {limit:g} %"
    assert judged.verdict == verdict and judged.n == 5
    # In JSON, a requirement of all flows has no flow.
    assert [each["flow"] for each in results.data(found)["recommended"]["requirements"]][-2:] == [
        "commands",
        None,
    ]
    assert judged.value == pytest.approx(22, rel=0.05)  # 2 × 10 % and 2 × 1 % of softirqs


def test_a_record_without_nodes_leaves_the_budget_undecided() -> None:
    old = [vars(TrialRecord(subscribers=1)) | {BLOCK: block} for block in range(3)]
    requirements = [each for each in budget(50).requirements if not each.flow]
    (judged,) = judge_flows(requirements, {"camera": old, "commands": old})
    assert (judged.verdict, judged.why) == (UNDECIDED, "not measured")
