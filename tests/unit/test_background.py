"""Background load: its place in the cell, what runs where, and when an attempt with it is valid."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from k8sdds.analysis import conditions
from k8sdds.campaign import background, validity
from k8sdds.campaign.expansion import expand
from k8sdds.model.background import Background
from k8sdds.model.experiment import Experiment
from k8sdds.model.measurement import Listener, Outcome
from k8sdds.model.trial import LOAD_SINK, LOAD_SOURCE, Cell, Endpoint, Trial
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster import pod_pool, preflight
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.lab.topology import topology_of
from tests.unit import builders


def cell(**load: Any) -> Cell:
    return builders.cell(test="latency", background=Background(**load))


def trial(**load: Any) -> Trial:
    return builders.trial(cell(**load), duration_s=3, warmup_s=0.5)


def test_no_background_is_no_part_of_the_id() -> None:
    plain = builders.cell(test="latency")
    assert cell().cell_id == plain.cell_id and not cell().loads and "background" not in plain.canonical()
    assert len({cell(flows=1).cell_id, cell(flows=2).cell_id, cell(cpus=[0]).cell_id, plain.cell_id}) == 4


@pytest.mark.parametrize(
    "wrong", [{"flows": 1501}, {"flows": -1}, {"flows": 1, "rate_mbit": 0}, {"kind": "tcp"}, {"cpus": [0, 0]}, {"cpus": [-1]}]
)  # fmt: skip
def test_wrong_backgrounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Background(**wrong)


def test_a_sweep_combines_backgrounds() -> None:
    loads = [{}, {"flows": 9, "rate_mbit": 2}, {"cpus": [1]}]
    sweep = {"networks": ["host"], "test": ["latency"], "payload_bytes": [64], "background": loads}
    loaded = Experiment.model_validate({"name": "x", "sweeps": [sweep]})
    cells = expand(loaded).cells
    assert [c.background.describe() for c in cells] == ["none", "9 udp flows of 2 Mbit/s", "busy core 1"]
    again = Experiment.model_validate(loaded.model_dump(mode="json", exclude_none=True))
    assert [c.cell_id for c in expand(again).cells] == [c.cell_id for c in cells]
    text = cells[1].background.model_dump_json()
    assert conditions.describe({"background": text}) == "background 9 udp flows of 2 Mbit/s"
    assert conditions.describe({"background": "damaged"}) == "background damaged"
    # The load runs between other pods of the same nodes.
    node_of = {pod.name: pod.node for pod in topology_of(cell(flows=1)).pods}
    assert node_of["load0"] == node_of["pub0"] != node_of["sub0"] == node_of["load1"]
    assert set(pod.name for pod in topology_of(cell(cpus=[0])).pods) == {"pub0", "sub0", "load0"}


def test_1500_flows_are_12_processes_that_start_after_their_servers(tmp_path: Path) -> None:
    endpoints = {"load1": Endpoint("10.0.0.4", "eth0", None)}
    sink, source = background.launches(
        trial(flows=1500, kind="tcp", rate_mbit=0.5, cpus=[1]), tmp_path, endpoints, lambda _, folder: folder
    )
    assert (sink.participant, source.participant) == (LOAD_SINK, LOAD_SOURCE)
    assert sink.argv[2].count("iperf3 --server") == source.argv[2].count("iperf3 --client 10.0.0.4") == 12
    assert source.env == {"TMPDIR": str(tmp_path.resolve() / "load0")}
    counts = [
        int(line.split("--parallel ")[1].split()[0])
        for line in source.argv[2].splitlines()
        if "--par" in line
    ]
    assert sum(counts) == 1500 and max(counts) == 128
    assert "--bitrate 500000 --length 6250 >" in source.argv[2] and "--taskset 1" in source.argv[2]
    assert sink.listens == Listener("tcp", 5312) and source.listens == Listener("tcp", 5312, connects=True)
    assert source.window is not None and (source.window.after_s, source.window.length_s) == (0.5, 3)


def test_a_client_is_ready_when_it_is_connected() -> None:
    head = "  sl  local_address rem_address   st\n"
    listens = "   0: 00000000:14B5 00000000:0000 0A\n"
    connected = "   1: 0200000A:C001 0400000A:14B5 01\n"
    server, client = Listener("tcp", 5301), Listener("tcp", 5301, connects=True)
    for line, of_server, of_client in (
        (listens, True, False), (connected, False, True), (connected.replace(" 01", " 02"), False, False),
    ):  # fmt: skip
        assert server.is_ready(head + line) == of_server
        assert client.is_ready(head + line) == of_client


BOOT_S = 1000.0
"""When the participants' measured interval of 2 s begins, in seconds since boot."""


def outputs(folder: Path, measured: Trial, source: str, sink: str, cpu_s: float = 0.1) -> Any:
    # The clock of the meters started 100 s later than that of the lines.
    own = {"interval": {"start_monotonic_ns": round((BOOT_S - 100) * 1e9), "duration_s": 2.0}}
    meters = {}
    for name, lines in (("load0", source), ("load1", sink)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "stdout").write_text(lines)
        began_s = float(lines.split()[0]) if lines and lines != "damaged" else BOOT_S
        meters[name] = {"start_monotonic_ns": round((began_s - 100) * 1e9)}
    return SimpleNamespace(
        trial=measured,
        folder=folder,
        summaries={"pub0": {}, "sub0": {}},
        meters_of=lambda participant: own,
        meters=meters | {"load0": meters["load0"] | {"interval": {"duration_s": 2.0}, "cpu_s": cpu_s}},
    )


def printed(
    read_per_s: int, written_per_s: int, start_s: float = BOOT_S - 1, end_s: float = BOOT_S + 4
) -> str:
    """Return what a pod prints every 0.5 s about constant rates."""
    times = [start_s + 0.5 * step for step in range(int((end_s - start_s) * 2) + 1)]
    return "".join(
        f"{t:.2f} {int((t - start_s) * read_per_s)} {int((t - start_s) * written_per_s)}\n" for t in times
    )


def test_the_record_has_the_achieved_rate(tmp_path: Path) -> None:
    def found(source: str, sink: str, **load: Any) -> Any:
        return outputs(tmp_path, trial(**load), source, sink)

    whole = found(printed(0, 1_250_000), printed(1_200_000, 0), flows=10, rate_mbit=1)
    achieved = background.observed(whole)
    # The clock of the samples has a resolution of 10 ms.
    assert achieved["interval_s"] == pytest.approx(2, abs=1)
    assert (achieved["sent_mbps"], achieved["received_mbps"]) == (pytest.approx(10), pytest.approx(9.6))
    assert achieved["sent_percent"] == pytest.approx(100)
    assert background.invalid(whole) is None and background.warnings(whole) == []
    # It was stopped right after the participants.
    assert not background.invalid(
        found(printed(0, 9, end_s=BOOT_S + 1.5), printed(9, 0, end_s=BOOT_S + 2), flows=10)
    )
    slow = found(printed(0, 625_000), printed(600_000, 0), flows=10, rate_mbit=1)
    assert background.warnings(slow) == ["background: the flows sent 50 % of the requested rate"]
    unlimited = found(printed(0, 10**9), printed(10**9, 0), flows=1, kind="tcp", rate_mbit=0)
    assert background.observed(unlimited)["sent_percent"] is None and background.warnings(unlimited) == []


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("", ""),
        ("damaged", printed(9, 9)),
        (printed(0, 9, start_s=BOOT_S + 1), printed(9, 0)),
        (printed(0, 9), printed(9, 0, end_s=BOOT_S + 0.5)),
        (printed(0, 9000), printed(0, 0)),
    ],
)
def test_an_attempt_without_its_background_is_invalid(tmp_path: Path, source: str, sink: str) -> None:
    reason = background.invalid(outputs(tmp_path, trial(flows=1), source, sink))
    assert reason is not None and reason.code == "background"


def test_the_background_is_the_reason_only_if_it_failed_itself(tmp_path: Path) -> None:
    measured = trial(flows=1)
    together = [*measured.cell.participants, *measured.cell.loads]

    def reason(code: int, message: str, *failed: str) -> str | None:
        codes = {member.name: code for member in together if not failed or member.name in failed}
        outcomes = {
            member.name: Outcome(member, codes.get(member.name, 0), None, message) for member in together
        }
        found: Any = SimpleNamespace(
            trial=measured, folder=tmp_path, measurement=SimpleNamespace(outcomes=outcomes)
        )
        return str(validity.reason(found))

    assert reason(background.ENDED, "a program ended", "load0") == "background: load0: a program ended"
    not_started = reason(NOT_STARTED, "sub0 did not start: no memory")
    assert not_started is not None and not_started.startswith("not-started: ")


def test_each_core_must_be_used_by_its_busy_process(tmp_path: Path) -> None:
    def lines(*columns: str) -> str:
        """Return lines of every second, of which the measured interval contains the second and the third."""
        return "".join(f"{BOOT_S - 1 + step:.2f} 0 0 {text}\n" for step, text in enumerate(columns))

    measured = trial(cpus=[0, 3])
    # The second process had not begun when the first line was printed.
    busy = outputs(tmp_path, measured, lines("0:10", "0:100", "0:200 3:50", "0:300 3:150"), "", cpu_s=1.8)
    achieved = background.observed(busy)
    assert background.invalid(busy) is None and achieved["cpu_percent"] == pytest.approx(90)
    assert (achieved["cpu0_percent"], achieved["cpu3_percent"]) == (pytest.approx(100), pytest.approx(75))
    elsewhere = outputs(tmp_path, measured, lines("0:1 1:1", "0:9 1:9", "0:99 1:99", "0:200 1:200"), "")
    assert str(background.invalid(elsewhere)) == "background: stress-ng used no CPU time on core 3"
    idle = outputs(tmp_path, measured, lines(*["0:1 3:1"] * 4), "")
    assert str(background.invalid(idle)) == "background: stress-ng used no CPU time on core 0, 3"
    assert background.invalid(outputs(tmp_path, trial(), "", "")) is None


def test_problems_name_the_core_and_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_layout, "available", lambda: (0, 1))
    monkeypatch.setattr(background.shutil, "which", lambda name, path: None)
    problems = background.problems([trial(flows=1, cpus=[1, 7])])
    assert sorted(problem.what.split(",")[0] for problem in problems) == [
        "background.cpus needs stress-ng", "background.cpus: k8sdds cannot use core 7", "background.flows needs iperf3"
    ]  # fmt: skip
    assert background.problems([trial()]) == []
    assert preflight.unsupported([cell(flows=1), cell(cpus=[0])], can_switch=False) == []


def test_pods_may_not_use_other_cores_than_their_node_gives_them() -> None:
    pod = ReadyPod("load0", "10.0.0.4", "eth0", 1450, "edge1", {"cpus": [0, 2]})
    pod_pool.require_cores(cell(cpus=[0, 2]), pod)
    with pytest.raises(PrerequisiteError) as refused:
        pod_pool.require_cores(cell(cpus=[0, 1]), pod)
    assert refused.value.message == "background.cpus: pods on node edge1 cannot use core 1, only 0, 2"
    assert "static CPU manager" in refused.value.remedy
