"""Tests of standard tools: their commands, what they report, and when an attempt is not valid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds import middleware
from k8sdds.bundle import contents
from k8sdds.campaign import contradictions, preflight
from k8sdds.campaign.expansion import expand
from k8sdds.model.background import STRESSOR
from k8sdds.model.measurement import Launch, Listener, ParticipantPaths, Window
from k8sdds.model.trial import Cell, Endpoint, Participant
from k8sdds.setup import packages
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import shared
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.workloads import WORKLOADS, of_metric, tool_packages
from k8sdds.workloads.http import LATE_S, Report
from k8sdds.workloads.ping import measured
from k8sdds.workloads.program import Command, Surroundings
from k8sdds.workloads.tools import NO_EFFECT, ToolWorkload, wrong_interval
from tests.unit import builders
from tests.unit.test_attempt import RECORDED, Recording

GRAPH = (RECORDED / "graph" / "graph.txt").read_text()
TOOLS = [workload for workload in WORKLOADS.values() if isinstance(workload, ToolWorkload)]


def cell(test: str, **values: Any) -> Cell:
    return Cell(network="host", test=test, **({"payload_bytes": 1024} | values))


def command(trial_cell: Cell, participant: str, **durations: float) -> Command:
    trial = builders.trial(trial_cell, **({"duration_s": 3, "warmup_s": 0.5} | durations))
    endpoints = {"pub0": Endpoint("10.0.0.1", "eth0", None), "sub0": Endpoint("10.0.0.2", "eth0", None)}
    paths = ParticipantPaths("k8sdds-perftest", Path("out"))
    surroundings = Surroundings(endpoints, 1, paths)
    return middleware.program_of(trial_cell).command(trial, Participant.named(participant), surroundings)


@pytest.mark.parametrize("workload", TOOLS, ids=lambda workload: workload.name)
def test_a_tool_replaces_the_middleware(workload: ToolWorkload) -> None:
    own = cell(workload.name)
    assert middleware.of(own) is None
    assert middleware.program_of(own) is workload.program  # and not the default middleware
    assert middleware.program_of(cell("throughput")) is middleware.of(cell("throughput"))


@pytest.mark.parametrize("workload", TOOLS, ids=lambda workload: workload.name)
def test_settings_without_effect_are_refused_by_name(workload: ToolWorkload) -> None:
    other: dict[str, Any] = {
        "reliability": "best-effort", "transport": "multicast", "security": "sign", "qos": "fast", "rate": 5.0,
        "middleware_config": "a.xml", "discovery": "server", "receive_mode": "spin", "middleware": "fastdds",
        "publish_mode": "asynchronous", "message_bytes": "mtu", "fragment_bytes": "mtu", "rate_profile": "burst:2",
        "flow_bytes": 2048, "message_type": "sensor_msgs/msg/Imu", "schedule": "a.txt", "graph": GRAPH,
    }  # fmt: skip
    for name, default in NO_EFFECT.items():
        value = other.get(name, not default if isinstance(default, bool) else None)
        changed = cell(workload.name, **{name: 2 if value is None else value})
        refused = contradictions.unsupported(changed)
        if name in workload.uses:
            assert refused is None
        else:
            assert refused == f"{name} has no effect in a {workload.name} test: leave it out"


def test_an_experiment_needs_no_middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = {"networks": ["host"], "test": [{"name": "tcp-stream", "flows": 8}]}
    experiment = builders.experiment(sweep)
    expansion = expand(experiment)
    assert preflight.contradictions(expansion) == []
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    problems = preflight._program_problems(expansion.trials("lab"), "lab")
    assert [problem.what for problem in problems] == [
        "test tcp-stream needs iperf3 (package iperf3), which is not installed"
    ]
    assert preflight._program_problems(expansion.trials("cluster"), "cluster") == []


def test_a_cluster_needs_no_programs_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_built(name: str) -> str:
        raise PrerequisiteError(f"{name} is not built", "run: k8sdds setup")

    monkeypatch.setattr("k8sdds.workloads.transactions.native_program", not_built)
    program = middleware.program_of(cell("tcp-crr"))
    assert program.problems([], "cluster") == []
    assert [problem.what for problem in program.problems([], "lab")] == ["k8sdds-transactions is not built"]


def test_the_window_of_the_meters_is_in_whole_seconds_like_the_interval_of_the_tool() -> None:
    client = command(cell("tcp-stream", test_options={"flows": 8, "mss": 460}), "pub0", duration_s=2.5)
    assert client.argv[client.argv.index("--time") + 1] == "3"
    assert client.argv[client.argv.index("--omit") + 1] == "1"
    assert client.window == Window(1, 3)
    server = command(cell("tcp-stream"), "sub0")
    assert server.listens == Listener("tcp", 5201)
    launch = Launch(Participant("subscriber"), ("x",), Path(), listens=server.listens, window=server.window)
    assert launch.supervisor_options == ["--window", "1:3", "--no-phase", "--service"]


def test_values_that_wrk_added_are_removed() -> None:
    # Of 2 connections that sent 8 requests in 400 µs, one waited 350 µs: wrk adds 250 and 150.
    report = Report(
        requests=8, seconds=0.0004, bytes=0, errors=0, round_trips_us=[(50, 7), (150, 1), (250, 1), (350, 1)]
    )
    assert report.measured(2) == {50: 7, 350: 1}


def test_wrk_may_end_late_by_its_period() -> None:
    client = Participant("publisher")
    assert str(wrong_interval(client, 1.15, 1)) == "interval: pub0 measured 1.15 s of 1 s"
    assert wrong_interval(client, 1.15, 1, LATE_S) is None
    assert wrong_interval(client, 0.85, 1, LATE_S) is not None


def test_http_has_objects_instead_of_a_payload() -> None:
    refused = contradictions.unsupported(cell("http", payload_bytes=64))
    assert refused == "payload_bytes has no effect in a http test: leave it out, and set object_bytes"
    server = command(cell("http", test_options={"object_bytes": 5000}), "sub0")
    assert server.listens == Listener("tcp", 8080)
    assert len(server.private["object"]) == 5000


def test_packages_of_tools_are_in_the_image_of_both_builds() -> None:
    (image,) = (image for image in contents.IMAGES if image.native == "perftest")
    included = {*image.packages, *contents.BASE_PACKAGES}
    assert {*tool_packages().values(), STRESSOR} <= included
    containerfile = shared("perftest-images") / "perftest/Containerfile"
    assert {*tool_packages().values(), STRESSOR} <= set(containerfile.read_text().split())
    assert {*tool_packages().values(), STRESSOR} <= set(packages.LAB)


def test_an_error_of_iperf3_with_exit_code_0_is_the_reason(recording: Recording) -> None:
    stopped = '{"error": "interrupt - the server has terminated"}'
    (recording.folder / "sub0" / "stdout").write_text(stopped)
    (recording.folder / "pub0" / "stdout").write_text('{"error": "unable to create a new stream"}')
    assert reason(recording).endswith("without a complete summary: unable to create a new stream")


def test_a_pod_of_ping_may_open_icmp_sockets_without_a_capability() -> None:
    own, dds = (Slot.of(Participant("publisher"), "n1", False, cell(test)) for test in ("ping", "throughput"))
    context = pods.pod("a", own, "image", "c", (1, 1))["spec"]["securityContext"]
    assert context["sysctls"] == [{"name": "net.ipv4.ping_group_range", "value": "0 65532"}]
    assert own.capabilities == ()
    assert "sysctls" not in pods.pod("a", dds, "image", "c", (1, 1))["spec"]["securityContext"]
    # A pod on the node's own network has the node's sysctls.
    assert Slot.of(Participant("publisher"), "n1", True, cell("ping")).sysctls == ()


@pytest.mark.parametrize(
    ("values", "flows", "bits_per_s"),
    [
        ({"rate": 1000}, 4, 1000 * 1024 * 8 // 4),
        ({"rate": 5, "payload_bytes": 1}, 128, 1),  # 0 stands for an unlimited rate
        ({}, 1, 0),
    ],
)
def test_the_rate_of_all_flows_together_is_offered(values: dict, flows: int, bits_per_s: int) -> None:
    argv = command(cell("tcp-stream", **values, test_options={"flows": flows}), "pub0").argv
    assert argv[argv.index("--bitrate") + 1] == str(bits_per_s)


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100000A:1451 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100000A:9C40 0200000A:1452 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
"""


def test_a_listening_socket_is_found() -> None:
    assert Listener("tcp", 5201).is_ready(TCP.format(state="0A"))
    assert not Listener("tcp", 5201).is_ready(TCP.format(state="01"))
    assert Listener("udp", 5201).is_ready(TCP.format(state="07"))
    # The port of the other side does not count.
    assert not Listener("udp", 5202).is_ready(TCP.format(state="07"))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording("tcp-stream", tmp_path)


def reason(recording: Recording, **codes: int) -> str:
    record = recording.record(recording.measurement(**codes))
    assert not record["valid"]
    return str(record["reason"])


def test_dds_settings_are_not_part_of_the_record(recording: Recording) -> None:
    record = recording.record()
    assert record["flows"] == 8
    assert not {name for name in ("middleware", "reliability", "qos") if record.get(name) is not None}


def test_the_error_of_a_tool_is_the_reason(recording: Recording) -> None:
    (recording.folder / "pub0" / "stdout").write_text(json.dumps({"error": "unable to connect\x1b[31m"}))
    assert reason(recording, pub0=1).startswith(
        "crashed: pub0: the participant exited with code 1: unable to connect"
    )
    assert reason(recording).startswith("no-report")


def test_payload_that_no_link_carried_is_not_valid(recording: Recording) -> None:
    few = replace(recording.measurement(), received_bytes={"sub0": 1000})
    assert str(recording.record(few)["reason"]).startswith("not-on-wire: sub0 got")


@pytest.mark.parametrize(("seconds", "word"), [(0.5, "interval"), (-1, "no-report"), ("a", "no-report")])
def test_another_interval_than_requested_is_not_valid(
    recording: Recording, seconds: object, word: str
) -> None:
    path = recording.folder / "pub0" / "stdout"
    document = json.loads(path.read_text())
    document["end"]["sum_received"]["seconds"] = seconds
    path.write_text(json.dumps(document))
    assert reason(recording).startswith(f"{word}: ")


def test_loss_is_relative_to_what_the_server_expected(recording: Recording) -> None:
    path = recording.folder / "pub0" / "stdout"
    document = json.loads(path.read_text())
    document["end"]["sum"] = {"bytes": 0, "seconds": 1, "lost_packets": 30, "packets": 20, "jitter_ms": 0.5}
    document["end"]["sum_received"]["bytes"] = 70 * 1000
    path.write_text(json.dumps(document))
    own = recording.trial.cell.model_copy(
        update={"test": "udp-stream", "payload_bytes": 1000, "test_options": {}}
    )
    recording.trial = recording.trial.model_copy(update={"cell": own})
    record = recording.record()
    assert (record["received"], record["lost"], record["lost_percent"]) == (70, 30, 30)
    assert record["stream_jitter_us"] == 500


def test_a_sample_of_dds_is_not_smaller_than_its_header() -> None:
    assert contradictions.unsupported(cell("tcp-rr", payload_bytes=1)) is None
    assert contradictions.unsupported(cell("throughput", payload_bytes=27)) == (
        "a sample of a throughput test has at least 28 bytes"
    )


def test_missing_round_trips_are_not_valid(tmp_path: Path) -> None:
    crr = Recording("tcp-crr", tmp_path)
    (tmp_path / "pub0" / "latency.hlog").unlink()
    assert reason(crr).startswith("histogram: it has 0 round trips of")
    (tmp_path / "pub0" / "stdout").write_text('{"transactions": 1e30}')
    assert reason(crr).startswith("no-report")


def test_tools_do_not_take_over_the_metrics_of_all_tests() -> None:
    for metric in ("lost_percent", "throughput_mbps", "samples_per_s", "publisher_cpu_percent"):
        assert of_metric(metric) == "throughput"
    assert of_metric("pings_unanswered_percent") == "latency"
    assert of_metric("throughput_mbps", {"udp-stream"}) == "udp-stream"


def test_ping_starts_its_numbers_again_after_65536_requests(tmp_path: Path) -> None:
    lines = [
        f"[{1000 + number / 20_000:.6f}] 64 bytes from 10.0.0.2: icmp_seq={number % 65536} ttl=64 time=0.030 ms"
        for number in range(1, 80_001)
    ]
    del lines[70_000]  # a reply that did not arrive
    lines[75_000], lines[75_001] = lines[75_001], lines[75_000]
    (tmp_path / "pub0").mkdir()
    (tmp_path / "pub0" / "stdout").write_text("\n".join(["PING", *lines]))
    trial = builders.trial(cell("ping"), duration_s=3, warmup_s=1)
    replies = measured(trial, tmp_path)
    assert [reply.sequence for reply in replies] == [n for n in range(20_001, 80_001) if n != 70_001]


def test_costs_are_those_of_the_interval_that_a_tool_measured(tmp_path: Path) -> None:
    http = Recording("http", tmp_path)
    usual = http.record()
    for meters in http.meters.values():
        meters["interval"]["duration_s"] /= 1.1  # as if wrk had ended 0.1 s late
        meters["cpu_s"] /= 1.1
        meters["machine"]["busy_s"] /= 1.1
    late = http.record()
    costs = ("publisher_cpu_us_per_sample", "subscriber_cpu_us_per_sample", "machine_cpu_ms_per_mb")
    assert all(late[cost] == pytest.approx(usual[cost]) for cost in costs)
    assert not [warning for warning in late["warnings"] if warning.startswith("cpu-interval")]


def test_the_congestion_control_of_the_pods_is_a_condition_of_tests_over_tcp(tmp_path: Path) -> None:
    stream, ping = Recording("tcp-stream", tmp_path / "tcp"), Recording("ping", tmp_path / "icmp")
    assert stream.record()["tcp_congestion_control"] is None  # recorded by an earlier version
    for meters in (*stream.meters.values(), *ping.meters.values()):
        meters["tcp_congestion_control"] = "bbr"
    assert stream.record()["tcp_congestion_control"] == "bbr"
    assert "tcp_congestion_control" not in ping.record()
    stream.meters["sub0"]["tcp_congestion_control"] = "cubic"
    assert stream.record()["tcp_congestion_control"] == "bbr, cubic"
    assert [name for name, workload in WORKLOADS.items() if workload.tcp] == [
        "tcp-stream",
        "tcp-rr",
        "tcp-crr",
        "service",
        "http",
    ]
