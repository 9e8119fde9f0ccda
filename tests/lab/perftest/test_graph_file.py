"""Test the files of graphs, and the options of their nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perftest_tools import Perftest

PIPELINE = """\
graph 1
flow camera bytes 20000 rate 100 reliable deadline_us 33333
flow objects bytes 1000 after camera compute_us 3000 reliable deadline_us 100000
node driver publishes camera
node detector subscribes camera publishes objects
node planner subscribes objects
"""
END = "node a publishes x\nnode b subscribes x\n"
WRONG_FILES = {
    "": "is empty",
    "graph 2\n": "line 1: 'graph 2' is not 'graph 1'",
    "flow x bytes 100 rate 1 reliable\n": "line 1: 'flow x bytes 100 rate 1 reliable' is not 'graph 1'",
    "graph 1\n": "has no flows",
    "graph 1\nedge a b\n": "line 2: 'edge a b' is neither a flow nor a node",
    "graph 1\nflow X bytes 100 rate 1 reliable\n": "line 2: 'X' is not a name",
    f"graph 1\nflow {'x' * 61} bytes 100 rate 1 reliable\n": "is not a name; give 1 to 60",
    "graph 1\nflow\n": "line 2: the value of 'flow' is missing",
    "graph 1\nflow x bytes\n": "line 2: the value of 'bytes' is missing",
    "graph 1\nflow x bytes 35 rate 1 reliable\n": "line 2: bytes: '35' is not a number from 36",
    "graph 1\nflow x bytes 1e3 rate 1 reliable\n": "'1e3' is not a number",
    "graph 1\nflow x rate 1 reliable\n": "line 2: bytes is missing",
    "graph 1\nflow x bytes 100 reliable\n": "line 2: a flow has one of rate, schedule and after",
    "graph 1\nflow x bytes 100 rate 1 after x reliable\n": "a flow has one of rate, schedule and after",
    "graph 1\nflow x bytes 100 rate 0 reliable\n": "line 2: rate: '0' is not a number from 0.001",
    "graph 1\nflow x bytes 100 rate 1.2.3 reliable\n": "line 2: rate: '1.2.3'",
    "graph 1\nflow x bytes 100 rate 1\n": "line 2: a flow is either reliable or best-effort",
    "graph 1\nflow x bytes 100 rate 1 reliable best-effort\n": "a flow is either reliable or best-effort",
    "graph 1\nflow x bytes 100 rate 1 reliable rate 2\n": "line 2: 'rate' is given twice",
    "graph 1\nflow x bytes 100 rate 1 reliable fast\n": "line 2: 'fast' is not a word of a flow",
    "graph 1\nflow x bytes 100 rate 1 reliable compute_us 5\n": "only a flow with after has compute_us",
    "graph 1\nflow x bytes 100 rate 1 reliable deadline_us 0\n": "deadline_us: '0'",
    "graph 1\nflow x schedule video.txt reliable\n": "line 2: schedule, with a line for each of its parts: line 1: 'period video.txt' is not",
    "graph 1\nflow x schedule 1000:0/35 reliable\n": "schedule: has a sample of 35 bytes",
    "graph 1\nflow x schedule 1000:0/36,1000/36 reliable\n": "line 3: 1000 is not before the end of the period",
    "graph 1\nflow x schedule 1000:0/100 bytes 100 reliable\n": "a schedule states the sizes",
    "graph 1\nflow x bytes 100 rate 1 reliable\n\nflow x bytes 100 rate 1 reliable\n": "line 4: the flow 'x' is already above",
    "graph 1\nflow x bytes 100 rate 1 reliable\nnode b subscribes x\n": "line 2: no node publishes the flow 'x'",
    "graph 1\nflow x bytes 100 rate 1 reliable\nnode a publishes x\n": "line 2: no node subscribes to the flow 'x'",
    "graph 1\nflow x bytes 100 rate 1 reliable\nnode a publishes x subscribes x\n": "line 3: the node subscribes to its own flow 'x'",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node c publishes x\n": "line 5: the flow 'x' is already published by 'a'",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node a subscribes x\n": "line 5: the node 'a' is already above",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node c subscribes y\n": "line 5: there is no flow 'y'",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node c subscribes x,x\n": "line 5: 'x' is twice in a list",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node c subscribes x,\n": "line 5: '' is not a name",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node c reads x\n": "line 5: 'reads' is not a word of a node",
    f"graph 1\nflow x bytes 100 rate 1 reliable\n{END}node c\n": "line 5: the node neither publishes nor subscribes",
    f"graph 1\nflow x bytes 100 after y reliable\nflow y bytes 100 rate 1 reliable\n{END}node c publishes y\nnode d subscribes y\n": (
        "line 2: the node 'a' publishes 'x' after 'y'; let it subscribe to that flow"
    ),
    (
        "graph 1\nflow x bytes 100 after y reliable\nflow y bytes 100 after x reliable\n"
        "node a publishes x subscribes y\nnode b publishes y subscribes x\n"
    ): "line 2: the flow 'x' follows itself",
    "graph 1\n" + "".join(f"flow f{n} bytes 100 rate 1 reliable\n" for n in range(501)): "line 502: more than 500 flows",
    "graph 1\nflow x bytes 100 rate 1 reliable\n" + "".join(f"node n{n} subscribes x\n" for n in range(501)): "more than 500 nodes",
    "graph 1\nflow x bytes 100 rate 1 reliable\nnode a publishes " + ",".join(f"f{n}" for n in range(501)): "line 3: more than 500 flows in a list",
    "graph 1\n#" + "x" * (4 << 20): "is longer than 4194304 bytes",
}  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG_FILES)))
def test_wrong_files(perftest, tmp_path: Path, number: int) -> None:
    text, message = list(WRONG_FILES.items())[number]
    path = tmp_path / "wrong.txt"
    path.write_text(text)
    done = perftest.run("-graph", path, "-node", "a", "-executionTime", 1, "-outputFormat", "json", "-check")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"k8sdds-perftest: -graph: {path}: ") and message in done.stderr


WORDS = st.sampled_from(
    ["graph", "1", "flow", "node", "a", "b", "a,b", ",", "bytes", "36", "100", "rate", "0.5", "after", "schedule", "compute_us",
     "deadline_us", "batch", "reliable", "best-effort", "publishes", "subscribes", "9" * 13, "-1", "#", "\r", "\x0b"]
)  # fmt: skip


@given(st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=5).map("\n".join))
def test_any_file_is_accepted_or_refused_with_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("graph") / "any.txt"
    path.write_text(f"{PIPELINE}{text}", newline="")
    done = Perftest(0).run(
        "-graph", path, "-node", "driver", "-executionTime", 1, "-outputFormat", "json", "-check"
    )
    assert (done.returncode, done.stderr.count("\n")) in [(0, 0), (2, 1)], done.stderr


REFUSED = {
    "-graph {file} -executionTime 1": "-node is missing",
    "-node driver -executionTime 1": "-graph is missing",
    "-graph {file} -node driver": "-executionTime is missing",
    "-graph {file} -node nobody -executionTime 1 -outputFormat json": "-node: {file} has no node 'nobody'",
    "-graph {file} -node driver -executionTime 1": "-outputFormat",
    "-graph {file} -node driver -executionTime 1 -outputFormat json -dataLen 100": "-dataLen: is not an option of a node",
    "-graph {file} -node driver -executionTime 1 -outputFormat json -bestEffort": "-bestEffort: is not an option of a node",
    "-graph {file} -node driver -executionTime 1 -outputFormat json -pubRate 5:sleep": "-pubRate: is an option of the publisher only",
    "-sub -warmUp 1": "-warmUp: is an option of the publisher or of the node of a graph only",
    "-graph {file} -node driver -executionTime 1 -outputFormat json -numPublishers 2": "-numPublishers: is an option of the subscriber",
    "-pub -graph {file}": "-graph: is an option of the node of a graph only",
    "-graph {file} -node driver -executionTime 1 -outputFormat json -middleware raw -peer 127.0.0.1": "-graph: raw has no topics",
    "-graph {batch} -node a -executionTime 1 -outputFormat json -middleware fastdds": "-graph: batch: fastdds does not support",
    "-graph {batch} -node a -executionTime 1 -outputFormat json -middleware zenoh -transport TCPv4": "-graph: zenoh batches",
    "-graph {file} -node driver -executionTime 1 -outputFormat json -middleware zenoh": "give TCPv4, or a graph of best-effort flows",
}  # fmt: skip


@pytest.mark.parametrize("command", REFUSED)
def test_refused_options(perftest, tmp_path: Path, command: str) -> None:
    graph = tmp_path / "pipeline.graph"
    graph.write_text(PIPELINE)
    batch = tmp_path / "batch.graph"
    batch.write_text(f"graph 1\nflow x bytes 100 rate 1 reliable batch 1000\n{END}")
    done = perftest.run(*command.format(file=graph, batch=batch).split(), "-check")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert REFUSED[command].format(file=graph) in done.stderr


def test_all_nodes_may_have_the_same_options(perftest, tmp_path: Path) -> None:
    path = tmp_path / "best-effort.graph"
    path.write_text(f"graph 1\nflow x bytes 100 rate 1 best-effort\n{END}")
    for node in ("a", "b"):
        done = perftest.run(
            *f"-graph {path} -node {node} -executionTime 1 -outputFormat json -sendQueueSize 10 -check".split()
        )
        assert done.returncode == 0, done.stderr
