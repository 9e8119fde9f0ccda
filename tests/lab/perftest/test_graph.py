"""Test graphs: the nodes of an application, each with its flows, in processes of their own that run at once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from perftest_tools import SLOWNESS, A, B, Perftest, Process, end_all, preload, sh, tool

from k8sdds.results import hdr, histograms

MIDDLEWARES = ("cyclonedds", "fastdds", "zenoh")
COMPUTE_US = 3000
PIPELINE = f"""\
graph 1
# from the camera to the planner
flow camera bytes 20000 rate 100 reliable deadline_us 33333
flow objects bytes 1000 after camera compute_us {COMPUTE_US} reliable deadline_us 100000
node driver publishes camera
node detector subscribes camera publishes objects
node planner subscribes objects
"""
JOINED = """\
graph 1
flow slow bytes 36 rate 20 reliable
flow fast bytes 5000 rate 100 reliable
flow fused-all bytes 100 after slow,fast reliable
node sensors publishes slow,fast
node fusion publishes fused-all subscribes fast,slow
node log subscribes fused-all
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.graph"
    path.write_text(PIPELINE)
    return path


def nodes_of(path: Path) -> list[str]:
    return [line.split()[1] for line in path.read_text().splitlines() if line.startswith("node")]


def begin(
    perftest: Perftest, path: Path, *args: object, nodes: Iterable[str] | None = None, **options: object
) -> dict[str, Process]:
    """Start the nodes of a graph, and return them by name."""
    return {node: perftest.node(path, node, *args, **options) for node in nodes or nodes_of(path)}


def run(perftest: Perftest, path: Path, *args: object, **options: object) -> dict[str, dict]:
    """Run the nodes of a graph, and return their results (`results_of`)."""
    return results_of(begin(perftest, path, *args, **options))


def results_of(processes: dict[str, Process]) -> dict[str, dict]:
    """Wait for the nodes of a graph, check their exit codes and that all counts are exact, and return their results."""
    end_all(*processes.values())
    results = {node: process.k8sdds for node, process in processes.items()}
    sent = {
        flow["flow"]: flow
        for each in results.values()
        for flow in each["flows"]
        if flow["role"] == "publisher"
    }
    for each in results.values():
        assert each["foreign_samples"] == each["foreign_messages"] == 0
        for flow in each["flows"]:
            if flow["role"] == "subscriber":
                assert flow["received"] + flow["lost"] == flow["sent"] == sent[flow["flow"]]["sent"]
                assert flow["duplicates"] == 0
                assert flow["missed"] >= flow["lost"]
            else:
                assert flow["sent"] + flow["not_sent"] == flow["samples"]
    return results


def flow_of(results: dict[str, dict], node: str, flow: str) -> dict:
    return next(each for each in results[node]["flows"] if each["flow"] == flow)


@pytest.mark.parametrize("receive", ["listener", "waitset"])
@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_a_pipeline(perftest, graph: Path, middleware: str, receive: str) -> None:
    results = run(perftest, graph, "-receive", receive, middleware=middleware, time=2)
    assert [(each["role"], each["id"], each["node"], each["test"]) for each in results.values()] == [
        ("node", index, node, "graph") for index, node in enumerate(("driver", "detector", "planner"))
    ]
    camera, objects = flow_of(results, "detector", "camera"), flow_of(results, "planner", "objects")
    assert flow_of(results, "driver", "camera")["samples"] == 200
    assert camera["lost"] == objects["lost"] == 0
    # Each image of the measured interval leads to one list of objects.
    assert objects["received"] + flow_of(results, "detector", "objects")["not_sent"] == camera["received"]
    assert camera["publisher"] == "driver" and camera["deadline_ns"] == 33_333_000
    assert [camera[key] for key in ("clock", "chain_clock")] == ["shared", "shared"]
    assert camera["delivered_bytes"] == camera["received"] * 20_000
    for flow in (camera, objects):
        assert flow["delay"]["count"] == flow["chain"]["count"] == flow["received"]
        assert flow["age"]["max"] > 0 and flow["blind"] > 0
    # A flow that follows no other is the origin of its chain.
    assert camera["delay"] == camera["chain"]
    assert objects["chain"]["min"] > objects["delay"]["min"] >= COMPUTE_US * 1000
    assert results["planner"]["received"] == objects["received"] and results["driver"]["received"] == 0
    assert results["driver"]["sent_bytes"] == results["driver"]["sent"] * 20_000
    planner = results["planner"]
    assert planner["first_sample_monotonic_ns"] < planner["last_sample_monotonic_ns"]
    # The samples are those that were due in the schedule, however long the last ones take.
    assert planner["samples_per_s"] == pytest.approx(objects["received"] / 2)
    assert planner["throughput_mbps"] == pytest.approx(planner["samples_per_s"] * 8e-3, rel=1e-4)


def test_the_log_has_a_histogram_of_each_flow(perftest, graph: Path, tmp_path: Path) -> None:
    folders = {node: tmp_path / node for node in nodes_of(graph)}
    logs = {node: folder / histograms.LOG for node, folder in folders.items()}
    processes = {}
    for node, folder in folders.items():
        folder.mkdir()
        processes |= begin(perftest, graph, "-histogramFile", logs[node], nodes=[node])
    end_all(*processes.values())
    results = {node: process.k8sdds for node, process in processes.items()}
    logged: dict[str, hdr.Histogram] = histograms.latencies(histograms.logged(tmp_path))
    for node, flow in (("detector", "camera"), ("planner", "objects")):
        expected = flow_of(results, node, flow)
        for tag, key in (("one_way", "delay"), ("chain", "chain")):
            assert logged[f"{tag}:{flow}"].total == expected["received"]
            assert logged[f"{tag}:{flow}"].maximum == pytest.approx(expected[key]["max"], rel=1e-3)
    assert sorted(logged) == ["chain:camera", "chain:objects", "one_way:camera", "one_way:objects"]
    assert logs["driver"].read_text() == ""


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_one_flow_to_three_nodes(perftest, tmp_path: Path, middleware: str) -> None:
    path = tmp_path / "fan.graph"
    path.write_text(
        "graph 1\nflow cloud bytes 30000 rate 50 best-effort\nflow odom bytes 100 rate 100 reliable\n"
        "node car publishes cloud,odom\n" + "".join(f"node map{n} subscribes odom,cloud\n" for n in range(3))
    )
    results = run(perftest, path, middleware=middleware)
    clouds = [flow_of(results, f"map{n}", "cloud") for n in range(3)]
    assert [cloud["delivered_bytes"] for cloud in clouds] == [30_000 * cloud["received"] for cloud in clouds]
    assert [flow_of(results, f"map{n}", "odom")["lost"] for n in range(3)] == [0, 0, 0]
    # Each flow has its own reliability.
    assert {(each["qos"]["reliability"], each["options"]["bestEffort"]) for each in results.values()} == {
        (None, None)
    }


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_a_sample_follows_a_new_one_of_each_input(perftest, tmp_path: Path, middleware: str) -> None:
    path = tmp_path / "joined.graph"
    path.write_text(JOINED)
    results = run(perftest, path, middleware=middleware)
    slow, fused = flow_of(results, "fusion", "slow"), flow_of(results, "log", "fused-all")
    published = flow_of(results, "fusion", "fused-all")
    # Each needs a new sample of the slow flow, which is the origin.
    assert 0 < published["samples"] <= slow["received"]
    assert fused["received"] == published["sent"] > 0 and fused["lost"] == 0
    # The period of the first input, which is the origin.
    assert fused["deadline_ns"] == 50_000_000


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_a_flow_with_a_recorded_schedule(perftest, tmp_path: Path, middleware: str) -> None:
    path = tmp_path / "recorded.graph"
    samples = [(0, 60_000), (10_000, 36), (10_000, 500)]
    path.write_text(
        "graph 1\nflow video schedule 100000:0/60000,10000/36,10000/500 reliable deadline_us 50000\n"
        "node a publishes video\nnode b subscribes video\n"
    )
    results = run(perftest, path, middleware=middleware)
    published, received = flow_of(results, "a", "video"), flow_of(results, "b", "video")
    assert published["samples"] == 15 and received["received"] == published["sent"]
    sizes = [samples[n % len(samples)][1] for n in range(published["sent"])]
    assert published["sent_bytes"] == received["delivered_bytes"] == sum(sizes)


def test_nodes_that_subscribe_to_each_other(perftest, tmp_path: Path) -> None:
    path = tmp_path / "mutual.graph"
    path.write_text(
        "graph 1\nflow request bytes 100 rate 100 reliable\nflow answer bytes 100 after request reliable\n"
        "flow effect bytes 100 after answer reliable\n"
        "node client publishes request,effect subscribes answer\nnode server subscribes request,effect publishes answer\n"
    )
    results = run(perftest, path)
    request, answer = flow_of(results, "client", "request"), flow_of(results, "server", "answer")
    effect = flow_of(results, "client", "effect")
    # Each sample leads to one, unless its turn comes too late.
    assert (request["sent"], answer["sent"]) == (answer["samples"], effect["samples"])
    assert flow_of(results, "client", "answer")["received"] == answer["sent"]
    assert flow_of(results, "server", "effect")["received"] == effect["sent"]


@pytest.mark.parametrize("middleware", ["cyclonedds"])
def test_batches(perftest, tmp_path: Path, middleware: str) -> None:
    path = tmp_path / "batched.graph"
    path.write_text(
        "graph 1\nflow small bytes 100 rate 500 reliable batch 1000\nflow large bytes 900 rate 50 reliable batch 1000\n"
        "node a publishes small,large\nnode b subscribes large,small\n"
    )
    results = run(perftest, path, middleware=middleware)
    assert results["a"]["qos"]["batch_bytes"] == 1000
    assert flow_of(results, "b", "small")["lost"] == flow_of(results, "b", "large")["lost"] == 0


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_twenty_nodes(perftest, tmp_path: Path, middleware: str) -> None:
    path = tmp_path / "twenty.graph"
    lines = ["graph 1"]
    for n in range(10):
        kind = "best-effort" if n % 2 else "reliable"
        lines += [
            f"flow sensor{n} bytes {1000 + 3000 * n} rate {10 + n} {kind}",
            f"flow fused{n} bytes 256 after sensor{n},sensor{(n + 1) % 10} compute_us 100 reliable",
            f"node s{n} publishes sensor{n} subscribes fused{n}",
            f"node f{n} publishes fused{n} subscribes sensor{n},sensor{(n + 1) % 10},fused{(n + 5) % 10}",
        ]
    path.write_text("\n".join(lines))
    results = run(perftest, path, middleware=middleware, time=1)
    for n in range(10):
        for subscriber in (f"s{n}", f"f{(n + 5) % 10}"):
            assert flow_of(results, subscriber, f"fused{n}")["lost"] == 0


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_nodes_on_two_machines(perftest, graph: Path, link: tuple[str, str], middleware: str) -> None:
    # Zenoh requires the address of each node in the order of the file.
    places = {"driver": (link[0], A), "detector": (link[1], B), "planner": (link[0], A)}
    addresses = [word for _, address in places.values() for word in ("-peer", address)]
    processes = {
        node: perftest.node(graph, node, *addresses, nic="eth0", netns=netns, middleware=middleware)
        for node, (netns, _) in places.items()
    }
    results = results_of(processes)
    assert (
        flow_of(results, "detector", "camera")["lost"] == flow_of(results, "planner", "objects")["lost"] == 0
    )
    assert flow_of(results, "planner", "objects")["received"] > 0


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/proc/self/ns/time"), reason="requires root and time namespaces"
)
def test_the_origin_passes_between_different_clocks(perftest, graph: Path) -> None:
    shifted = ("unshare", "--time", "--monotonic", "100000", "--fork", "--kill-child")
    processes = {
        node: perftest.node(graph, node, within=shifted if node == "detector" else ())
        for node in nodes_of(graph)
    }
    results = results_of(processes)
    for node, flow in (("detector", "camera"), ("planner", "objects")):
        found = flow_of(results, node, flow)
        assert [found[key] for key in ("clock", "chain_clock")] == ["separate", "separate"]
        assert abs(found["clock_step_ns"]) < 1_000_000
        for delays in (found["delay"], found["chain"]):
            # Clocks that are not compared differ by more than the longest delay of a histogram.
            assert 0 <= delays["min"] <= delays["max"] < 100_000_000_000
    # A clock that is slewed by 500 ppm makes a delay seem shorter.
    assert flow_of(results, "planner", "objects")["chain"]["min"] >= COMPUTE_US * 500


@pytest.mark.parametrize("middleware", ["fastdds", "zenoh"])
def test_flows_in_shared_memory(perftest, graph: Path, middleware: str) -> None:
    results = run(perftest, graph, "-transport", "SHMEM", middleware=middleware)
    objects = flow_of(results, "planner", "objects")
    # Zenoh drops the samples in its buffers if a busy machine lets a thread of its own run too late.
    assert objects["received"] > 0 and (objects["lost"] == 0 or middleware == "zenoh")


def test_nodes_begin_when_all_have_found_their_peers(perftest, graph: Path) -> None:
    early = begin(perftest, graph, nodes=["driver", "detector"])
    late = begin(perftest, graph, nodes=["planner"])
    processes = early | late
    for process in processes.values():
        process.wait_for_phase("M")
    end_all(*processes.values())
    assert all(process.phases() == "E" for process in processes.values())


@pytest.mark.parametrize("middleware", MIDDLEWARES)
@pytest.mark.parametrize("node", ["driver", "detector", "planner"])
def test_a_killed_node_ends_the_others(perftest, graph: Path, middleware: str, node: str) -> None:
    processes = begin(perftest, graph, "-peerTimeout", 5 * SLOWNESS, time=60, middleware=middleware)
    for process in processes.values():
        process.wait_for_phase("M")
    processes[node].signal(signal.SIGKILL)
    others = [process for name, process in processes.items() if name != node]
    end_all(*others, codes=[4, 4])
    for process in others:
        assert "peer lost" in process.k8sdds["exit"]["reason"] and process.k8sdds["flows"]


def test_a_node_that_is_started_again_ends_the_others(perftest, graph: Path) -> None:
    # The others do not notice earlier that it is lost.
    args = ("-peerTimeout", 120, "-awaitPeers")
    processes = begin(perftest, graph, *args, time=100)
    for process in processes.values():
        process.wait_for_phase("M")
    processes.pop("detector").signal(signal.SIGKILL)
    begin(perftest, graph, *args, nodes=["detector"], time=100)
    end_all(*processes.values(), codes=[4, 4])
    reasons = {process.k8sdds["exit"]["reason"] for process in processes.values()}
    assert "peer lost: node detector was started again" in reasons


def test_a_node_that_is_alive_but_makes_no_progress(perftest, graph: Path, tmp_path: Path) -> None:
    """A preloaded function blocks the thread that sends the samples of the detector."""
    [loaded] = re.findall(r"libddsc\S*(?= =>)", sh(f"ldd {tool('libk8sdds-perftest-cyclonedds.so')}"))
    stall = tmp_path / "stall"
    source = (
        "#include <stdint.h>\n#include <unistd.h>\n"
        "int dds_write_ts(int writer, const void *data, int64_t time) {\n"
        "  static int (*real)(int, const void *, int64_t);\n"
        f'  if (!real) real = dlsym(dlopen("{loaded}", RTLD_NOW | RTLD_NOLOAD), "dds_write_ts");\n'
        f'  while (!access("{stall}", F_OK)) pause();\n'
        "  return real(writer, data, time);\n}\n"
    )
    args = ("-peerTimeout", 3 * SLOWNESS)
    processes = begin(perftest, graph, *args, nodes=["driver", "planner"], time=5 * SLOWNESS)
    processes |= begin(
        perftest, graph, *args, nodes=["detector"], time=5 * SLOWNESS, env=preload(tmp_path, source)
    )
    for process in processes.values():
        process.wait_for_phase("M")
    stall.touch()
    end_all(*processes.values(), codes=[4, 4, 4])
    # The first one that notices it names what is missing, and the others name that one.
    messages = "".join(process.err for process in processes.values())
    assert re.search("peer lost: no (END of the flows objects|REPORT of the nodes .+) in time", messages)


def test_a_computation_that_takes_too_long(perftest, tmp_path: Path) -> None:
    path = tmp_path / "slow.graph"
    path.write_text(
        "graph 1\nflow camera bytes 1000 rate 50 reliable\nflow objects bytes 100 after camera compute_us 10000000 reliable\n"
        "node driver publishes camera\nnode detector subscribes camera publishes objects\nnode planner subscribes camera,objects\n"
    )
    results = run(perftest, path, warm_up=0)
    objects = flow_of(results, "detector", "objects")
    # 10 s of computing are longer than the schedule and the time for samples that are late.
    assert objects["sent"] == 0
    assert objects["not_sent"] == objects["samples"] == flow_of(results, "detector", "camera")["received"]


def test_a_missing_node(perftest, graph: Path) -> None:
    processes = begin(perftest, graph, "-discoveryTimeout", 1 * SLOWNESS, nodes=["driver", "planner"])
    end_all(*processes.values(), codes=[3, 3])
    assert "detector" in processes["driver"].err
    assert processes["driver"].k8sdds["discovery_s"] >= SLOWNESS


def test_nodes_with_different_graphs(perftest, graph: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.graph"
    other.write_text(PIPELINE.replace("rate 100", "rate 101"))
    refuse_each_other(
        begin(perftest, graph, nodes=["driver"])["driver"],
        begin(perftest, other, nodes=["planner"])["planner"],
    )


@pytest.mark.parametrize("times", [{"warm_up": 0.2}, {"time": 0.6}])
def test_nodes_with_different_times(perftest, graph: Path, times: dict) -> None:
    refuse_each_other(
        begin(perftest, graph, nodes=["driver"])["driver"],
        begin(perftest, graph, nodes=["planner"], **times)["planner"],
    )


def refuse_each_other(driver: Process, planner: Process) -> None:
    codes = {driver.end(), planner.end()}
    assert 2 in codes and codes <= {2, 3}
    assert "give all nodes the same files, -warmUp and -executionTime" in driver.err + planner.err


def test_two_processes_of_one_node(perftest, graph: Path) -> None:
    first, second = (begin(perftest, graph, nodes=["driver"])["driver"] for _ in range(2))
    codes = {first.end(), second.end()}
    assert 2 in codes and codes <= {2, 3}
    assert "another process is the node driver" in first.err + second.err
