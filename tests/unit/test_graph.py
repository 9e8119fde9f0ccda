"""Applications whose nodes run at the same time: files, texts, cells, what a trial shows, and verdicts."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from k8sdds.analysis import link_conditions, missing
from k8sdds.analysis.requirements import MET, NOT_MET, UNDECIDED, budget_rows, judge_flows, trials_of
from k8sdds.campaign import applications, contradictions, experiments
from k8sdds.campaign.expansion import Expansion, candidates, expand
from k8sdds.campaign.experiments import Changes
from k8sdds.middleware import Surroundings, of
from k8sdds.model import graph
from k8sdds.model.application import Application
from k8sdds.model.measurement import ClockError, Inputs, ParticipantPaths
from k8sdds.model.placement import crossing, same_node
from k8sdds.model.trial import AXES, Cell, Endpoint, Participant, Trial
from k8sdds.recommend import evidence, files, results
from k8sdds.recommend import graph as graph_answer
from k8sdds.recommend.answer import Answer, answer
from k8sdds.report.figures import details
from k8sdds.results import histograms
from k8sdds.results.record import checked
from k8sdds.system.errors import InputError
from k8sdds.testbeds import interface_bytes
from k8sdds.testbeds.lab.places import ends
from k8sdds.testbeds.lab.topology import topology_of
from tests.applications import folder
from tests.unit.test_attempt import Recording

FILE = """\
name: robot
flows:
  - name: scan
    payload_bytes: 4096
    rate: 200
    deadline_ms: 5
    missed_percent: 50
  - name: imu
    payload_bytes: 64
    rate: 100
    reliability: best-effort
    loss_percent: 1
  - name: command
    payload_bytes: 128
    after: [scan, imu]
    compute_ms: 0.5
    deadline_ms: 20
nodes:
  driver: {publishes: [scan, imu]}
  planner: {subscribes: [scan, imu], publishes: command}
  motor: {subscribes: command}
chains:
  - {name: reaction, from: scan, to: command, delay: p50 <= 1 s}
choices: {networks: [host, flannel-hostgw], middleware: cyclonedds, receive_mode: listener}
"""
TEXT = """\
graph 1
flow scan bytes 4096 rate 200 reliable deadline_us 5000
flow imu bytes 64 rate 100 best-effort deadline_us 10000
flow command bytes 128 after scan,imu compute_us 500 reliable deadline_us 20000
node driver publishes scan,imu
node planner subscribes scan,imu publishes command
node motor subscribes command
"""


def load(tmp_path: Path, text: str = FILE) -> Application:
    path = tmp_path / "robot.yaml"
    path.write_text(text)
    return applications.load(str(path))


def cell_of(application: Application) -> Cell:
    return candidates(applications.experiment(application)).measurable[0].cells[0]


# -- files ----------------------------------------------------------------------------------------------------


def test_a_file_becomes_the_text_that_each_node_reads(tmp_path: Path) -> None:
    application = load(tmp_path)
    assert application.graph().text() == TEXT
    command = application.flows[2]
    assert (command.rate, command.publishers, command.subscribers) == (100, 1, 1)
    assert [requirement.describe() for requirement in application.requirements] == [
        "scan: 98 % of 200 samples/s",
        "scan: missed deadlines <= 50 %",
        "imu: 98 % of 100 samples/s",
        "imu: loss <= 1 %",
        "command: 98 % of 100 samples/s",
        "reaction: p50 chain <= 1 s",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("subscribes: [scan, imu]", "subscribes: [scan, imo]", 20, "there is no flow 'imo' (did you mean 'imu'?)"),
        ("[scan, imu], publishes", "[scan, scan], publishes", 20, "scan is listed twice"),
        ("publishes: command", "publishes: []", 13, "no node publishes flow command: list it in `publishes`"),
        ("motor: {sub", "motor: {publishes: imu, sub", 8, "the nodes driver and motor publish flow imu"),
        ("motor: {subscribes: command}", "motor: {subscribes: imu}", 13, "no node subscribes to flow command"),
        ("after: [scan, imu]", "after: [scan, gps]", 15, "there is no flow 'gps' (known: scan, imu, command)"),
        ("[scan, imu], publishes: command}\n  motor: {subscribes: command}",
         "[scan], publishes: command}\n  motor: {subscribes: [command, imu]}", 15, "does not subscribe to imu: add imu to"),
        ("after: [scan, imu]", "after: [scan, command]", 15, "flow command needs its own samples: leave it out"),
        ("    compute_ms: 0.5", "    schedule: a.txt", 16, "its samples follow those of other flows"),
        ("after: [scan, imu]", "after: []", 13, "or name a file as `schedule`, or flows as `after`"),
        ("driver: {pub", "driver: {subscribes: scan, pub", 19, "samples go to other nodes"),
        ("    rate: 200", "    rate: 0.0000004", 5, "a flow of a graph has 0.001 to 10,000,000 samples per second"),
        ("deadline_ms: 20", "deadline_ms: 1e10", 17, "a deadline in a graph is at most 1,000,000,000 ms"),
        ("deadline_ms: 20", "deadline_ms: 1e308", 17, "a deadline in a graph is at most 1,000,000,000 ms"),
        ("motor: {subscribes: command}", "motor: {}", 21, "has neither `publishes` nor `subscribes`"),
        ("payload_bytes: 64", "payload_bytes: 30", 9, "at least 36 bytes"),
        ("from: scan", "from: imu", 23, "command follows from scan (scan → command)"),
        ("to: command", "to: commands", 23, "there is no flow 'commands' (did you mean 'command'?)"),
        ("p50 <= 1 s", "blind <= 1 s", 23, "a chain limits mean, p50"),
        ("name: reaction", "name: imu", 23, "a flow or another chain is named 'imu'"),
        ("    rate: 200", "    rate: 200\n    subscribers: 2", 6, "follows from `nodes`, which give 1: leave it out"),
        ("    compute_ms: 0.5", "    rate: 7", 16, "follows from `after`, which give 100: leave it out"),
        ("    rate: 200", "    rate: 200\n    compute_ms: 1", 6, "has no effect without `after`"),
        ("    rate: 200", "    rate: 200\n    delay: jitter <= 1 ms", 6, "jitter is not measured when `nodes` run at once"),
        ("nodes:", "together: false\nnodes:", 23, "needs `nodes` that run at once"),
        ("motor: {sub", "motor: {on: base, sub", 19, "motor has a machine: state one for each node, or for none"),
    ],
)  # fmt: skip
def test_mistakes_name_file_line_and_remedy(
    old: str, new: str, line: int, message: str, tmp_path: Path
) -> None:
    assert FILE.count(old) == 1
    with pytest.raises(InputError) as error:
        load(tmp_path, FILE.replace(old, new))
    assert re.search(rf"robot\.yaml:{line}: [^\n]*{re.escape(message)}", error.value.message), (
        error.value.message
    )


def test_a_recorded_schedule_is_part_of_the_graph(tmp_path: Path) -> None:
    (tmp_path / "imu.txt").write_text("period 100000\n0 64\n1000 2000\n90000 36\n")
    text = FILE.replace("    payload_bytes: 64\n    rate: 100\n", "    schedule: imu.txt\n")
    own = load(tmp_path, text)
    whole = graph.parse(cell_of(own).graph)
    assert whole.flow("imu").text() == (
        "flow imu schedule 100000:0/64,1000/2000,90000/36 best-effort deadline_us 33333"
    )
    assert [flow.rate for flow in own.flows] == [200, 30, 30]
    assert whole.due_within(0.25) == {"scan": 50, "imu": 8, "command": 8}
    (tmp_path / "imu.txt").write_text("period 100000\n0 28\n")
    with pytest.raises(InputError, match="at least 36 bytes"):
        load(tmp_path, text)


def test_without_together_each_flow_is_measured_alone(tmp_path: Path) -> None:
    own = load(tmp_path, FILE.partition("chains:")[0] + "together: false\n")
    alone = candidates(applications.experiment(own)).measurable[0].cells
    assert [(cell.test, cell.rate, cell.subscribers, cell.reliability) for cell in alone] == [
        ("paced", 200, 1, "reliable"), ("paced", 100, 1, "best-effort"), ("paced", 100, 1, "reliable")
    ]  # fmt: skip
    assert not any(cell.graph or cell.background for cell in alone)
    rows = {cell.cell_id: [{"by_flow": None, "repetition": 1}] for cell in alone}
    assert trials_of(own, [cell.cell_id for cell in alone], rows) == dict(
        zip(("scan", "imu", "command"), rows.values(), strict=True)
    )


def test_flows_that_need_each_other_are_refused(tmp_path: Path) -> None:
    text = FILE.replace("    rate: 100\n", "    after: command\n").replace(
        "driver: {publishes: [scan, imu]}", "driver: {publishes: scan}"
    )
    text = text.replace("motor: {subscribes: command}", "motor: {subscribes: command, publishes: imu}")
    with pytest.raises(
        InputError,
        match=r"needs its own samples: (command after imu after command|imu after command after imu)",
    ):
        load(tmp_path, text)


def test_what_needs_nodes_is_refused_without_them(tmp_path: Path) -> None:
    start, _, rest = FILE.partition("nodes:")
    without = start + "choices:" + rest.partition("choices:")[2]
    with pytest.raises(InputError, match=r"robot.yaml:15: .*needs `nodes`, one of which publishes this flow"):
        load(tmp_path, without)
    flow = {"payload_bytes": 64, "rate": 1}
    many = {"name": "many", "flows": [{"name": f"flow{index}", **flow} for index in range(17)]}
    with pytest.raises(ValidationError, match="at most 16 values, or `nodes`"):
        Application.model_validate(many)
    nodes = {
        "a": {"publishes": [each["name"] for each in many["flows"]]},
        "b": {"subscribes": [each["name"] for each in many["flows"]]},
    }
    assert Application.model_validate(many | {"nodes": nodes}).cells == 1


def test_the_usual_deadline_is_the_period_of_the_origin(tmp_path: Path) -> None:
    command = load(tmp_path, FILE.replace("    deadline_ms: 20\n", "")).graph().flow("command")
    # Its rate is that of imu, but its first input is scan.
    assert command.deadline_us == 5000


def test_what_follows_from_nodes_follows_changes(tmp_path: Path) -> None:
    path = tmp_path / "robot.yaml"
    path.write_text(FILE)
    changed = applications.load(str(path), Changes(settings=["nodes.motor.subscribes=[command, imu]"]))
    assert [(flow.rate, flow.subscribers) for flow in changed.flows] == [(200, 1), (100, 2), (100, 1)]


# -- texts ----------------------------------------------------------------------------------------------------


def test_comments_blanks_and_the_order_of_words_do_not_matter() -> None:
    changed = TEXT.replace("graph 1\n", "# mine\n\n  graph   1  # version\n").replace(
        "bytes 64 rate 100", "rate 100.0 bytes 64"
    )
    assert graph.normalized(changed) == TEXT
    assert graph.normalized("") == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph 1", "graph 2", "line 1: expected `graph 1`"),
        ("bytes 64", "bytes 35", "line 3: bytes is a whole number from 36"),
        ("rate 100", "rate 1e3", "line 3: rate is a number from 0.001"),
        ("rate 100", "rate 0.0005", "line 3: rate is a number from 0.001"),
        ("rate 100", "", "line 3: flow imu has one of `rate`, `after` and `schedule`"),
        ("rate 100", "rate 100 compute_us 5", "line 3: flow imu: only a flow with `after` has compute_us"),
        ("bytes 64 rate 100", "schedule 1000:0/28", "line 3: bytes is a whole number from 36"),
        ("bytes 64 rate 100", "schedule 1000:0/64,5000/64", "line 3: line 3: 5000 is not before the end of the period"),
        ("rate 100", "schedule 1000:0/64", "line 3: flow imu: the schedule states the sizes: leave out bytes"),
        ("best-effort", "", "line 3: flow imu is `reliable` or `best-effort`"),
        ("deadline_us 10000", "", "line 3: flow imu needs deadline_us"),
        ("best-effort", "best-effort keyed", "line 3: unexpected 'keyed'"),
        ("node motor", "node planner", "line 7: planner is stated twice"),
        ("node motor", "node Motor", "line 7: 'Motor' is not a name"),
        ("node motor", "edge motor", "line 7: expected `flow NAME"),
        ("node motor subscribes command", "node motor subscribes", "line 7: subscribes has no value"),
        ("after scan,imu", "after scan,gps", "there is no flow 'gps'"),
    ],
)  # fmt: skip
def test_a_wrong_text_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        graph.parse(TEXT.replace(old, new))


@given(
    st.floats(graph.MIN_RATE, graph.MAX_RATE),
    st.one_of(st.none(), st.floats(1e-9, 1e9)),
    st.floats(0, 10_000),
)
def test_the_text_of_an_application_states_its_graph(
    rate: float, deadline_ms: float | None, compute_ms: float
) -> None:
    flows = [
        {"name": "a", "payload_bytes": 64, "rate": rate, "deadline_ms": deadline_ms},
        {"name": "b", "payload_bytes": 64, "after": "a", "compute_ms": compute_ms},
    ]
    nodes = {"x": {"publishes": "a"}, "y": {"subscribes": "a", "publishes": "b"}, "z": {"subscribes": "b"}}
    own = Application.model_validate({"name": "any", "flows": flows, "nodes": nodes}).graph()
    assert graph.parse(own.text()) == own
    assert graph.normalized(own.text()) == own.text()


def test_a_graph_that_is_too_large_is_refused() -> None:
    names = [f"{'f' * 36}{index:03}" for index in range(400)]
    flows = [{"name": name, "payload_bytes": 64, "rate": 1} for name in names]
    nodes = {"source": {"publishes": names}} | {f"n{index}": {"subscribes": names} for index in range(300)}
    with pytest.raises(ValidationError, match="a graph has at most 4,194,304 bytes"):
        Application.model_validate({"name": "large", "flows": flows, "nodes": nodes})


def test_a_trial_has_a_publisher_and_a_subscriber_even_if_every_node_subscribes() -> None:
    ring = graph.parse(
        "graph 1\nflow a bytes 64 after b reliable deadline_us 1\nflow b bytes 64 rate 1 reliable deadline_us 1\n"
        "node x subscribes b publishes a\nnode y subscribes a publishes b\n"
    )
    assert {name: node.name for name, node in ring.members.items()} == {"pub0": "y", "sub0": "x"}
    assert ring.chain("a") == ["b", "a"]


# -- cells ----------------------------------------------------------------------------------------------------


def test_a_configuration_is_one_cell_whose_participants_are_the_nodes(tmp_path: Path) -> None:
    application = load(tmp_path)
    found = candidates(applications.experiment(application)).measurable
    assert [len(candidate.cells) for candidate in found] == [1, 1]
    cell = found[0].cells[0]
    assert (cell.test, cell.graph, cell.payload_bytes, cell.rate) == ("graph", TEXT, 4096, 400)
    assert {it.name: node.name for it, node in cell.graph_nodes.items()} == {
        "pub0": "driver", "sub0": "planner", "sub1": "motor"
    }  # fmt: skip
    assert [it.name for it in cell.participants] == ["pub0", "sub0", "sub1"]
    assert not contradictions.of_cell(cell)


def test_batches_are_stated_for_each_flow_that_has_some(tmp_path: Path) -> None:
    text = FILE.replace(
        "middleware: cyclonedds", "middleware: [cyclonedds, zenoh, fastdds], batch_bytes: [0, 1000]"
    )
    found = candidates(applications.experiment(load(tmp_path, text)))
    plain, batched = (
        next(each.cells[0] for each in found.measurable if dict(each.choices)["batch_bytes"] == size)
        for size in (0, 1000)
    )
    assert (plain.graph, plain.batch_bytes, batched.batch_bytes) == (TEXT, 0, 1000)
    lines = dict(zip(("scan", "imu", "command"), batched.graph.splitlines()[1:4], strict=True))
    assert [name for name, line in lines.items() if line.endswith(" batch 1000")] == ["imu", "command"]
    assert graph.parse(batched.graph).text() == batched.graph
    chosen = {(each.cells[0].middleware, each.cells[0].batch_bytes) for each in found.measurable}
    assert chosen == {("cyclonedds", 0), ("cyclonedds", 1000), ("zenoh", 0), ("fastdds", 0)}
    own = load(tmp_path, text.replace("payload_bytes: 64\n", "payload_bytes: 64\n    batch_bytes: 0\n"))
    assert " batch 1000" not in own.graph(batch_bytes=1000).flow("imu").text()


def test_ids_follow_from_the_content_of_the_graph(tmp_path: Path) -> None:
    cell = cell_of(load(tmp_path))
    described = FILE.replace("name: robot", "name: other").replace("missed_percent: 50", "missed_percent: 5")
    assert cell_of(load(tmp_path, described)).cell_id == cell.cell_id
    assert cell_of(load(tmp_path, FILE.replace("rate: 200", "rate: 201"))).cell_id != cell.cell_id
    # An experiment that states the text measures the same cell.
    assert stated(tmp_path, "receive_mode: listener", "      # same\n").cells[0].cell_id == cell.cell_id


def stated(folder: Path, setting: str, end: str = "") -> Expansion:
    """Return an experiment that states the text of the graph, with a setting next to it."""
    indented = "".join(f"      {line}\n" for line in TEXT.splitlines())
    sweep = f"  - networks: host\n    {setting}\n    test: graph\n    graph: |\n{indented}{end}"
    (folder / "text.yaml").write_text(f"name: text\nsweeps:\n{sweep}")
    return expand(experiments.load(str(folder / "text.yaml")))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("reliability: best-effort", "reliability: a graph states it for each flow"),
        ("batch_bytes: 4096", "batch_bytes: a graph states it for each flow"),
        ("publishers: 2", "a graph states what is sent, and by which participants: leave out publishers"),
        ("rate: 7", "leave out rate"),
    ],
)
def test_a_sweep_does_not_state_what_its_graph_states(setting: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        stated(tmp_path, setting)
    assert "text.yaml:" in error.value.message


def test_each_setting_of_what_is_sent_is_known_to_graphs() -> None:
    sent = {name: axis.graph for name, axis in AXES.items() if axis.scope in ("workload", "dds")}
    applies = [name for name, graphs in sent.items() if graphs == "applies"]
    # Another one here needs a decision: what does it mean for the nodes of an application?
    assert applies == [
        "test", "transport", "middleware", "middleware_config", "middleware_config_sha256", "schedule_sha256", "graph",
        "message_bytes", "fragment_bytes", "discovery", "discovery_servers", "receive_mode", "publish_mode", "flow_bytes",
        "flow_period_ms",
    ]  # fmt: skip


def test_flows_of_any_reliability_make_two_graphs(tmp_path: Path) -> None:
    application = load(tmp_path, FILE.replace("best-effort", "any"))
    found = candidates(applications.experiment(application)).measurable
    on_host = [candidate.cells[0] for candidate in found if candidate.cells[0].network == "host"]
    assert [graph.parse(cell.graph).flow("imu").reliable for cell in on_host] == [True, False]
    assert {cell.reliability for cell in on_host} == {"reliable"}


def test_the_reliability_of_a_graph_follows_from_its_flows(tmp_path: Path) -> None:
    mixed = load(tmp_path, FILE.replace("middleware: cyclonedds", "middleware: [zenoh, zenoh-udp]"))
    found = candidates(applications.experiment(mixed))
    assert {one.cells[0].middleware for one in found.measurable} == {"zenoh"}
    assert any("reliability must be best-effort with zenoh-udp" in why for _, why in found.excluded)
    # The flows state it, so it is no choice.
    assert "reliability" not in dict(found.measurable[0].choices)
    text = FILE.replace("missed_percent: 50", "reliability: best-effort").replace(
        "after: [scan, imu]", "after: [scan, imu]\n    reliability: best-effort"
    )
    udp = load(tmp_path, text.replace("middleware: cyclonedds", "middleware: zenoh-udp"))
    cell = candidates(applications.experiment(udp)).measurable[0].cells[0]
    program = of(cell)
    assert cell.reliability == "best-effort" and program is not None and program.drops(cell)
    assert "-bestEffort" not in command_line(cell)


def test_machines_are_nodes_of_the_testbed(tmp_path: Path) -> None:
    text = FILE.replace("driver: {", "driver: {on: robot, ").replace("planner: {", "planner: {on: base, ")
    cell = cell_of(load(tmp_path, text.replace("motor: {", "motor: {on: robot, ")))
    assert (cell.placement, cell.nodes) == ({"pub0": 0, "sub0": 1, "sub1": 0}, 2)
    cell = cell_of(
        load(tmp_path, text.replace("on: base", "on: robot").replace("motor: {", "motor: {on: robot, "))
    )
    assert (cell.placement, cell.crosses_links) == ("same-node", False)


CAMERA = """\
name: camera
flows:
  - {name: image, payload_bytes: 4096, rate: 30}
  - {name: gps, payload_bytes: 64, rate: 5}
nodes:
  camera: {publishes: image, on: robot}
  gps: {publishes: gps, on: base}
  display: {subscribes: [image, gps], on: robot}
choices: {networks: flannel-hostgw, middleware: cyclonedds, receive_mode: listener}
"""


def test_samples_of_one_flow_must_cross_a_link(tmp_path: Path) -> None:
    cell = cell_of(load(tmp_path, CAMERA))
    placed = {pod.participant: pod.node for pod in topology_of(cell).pods}
    assert same_node(cell, placed) is None
    # Networks are observed between these.
    assert [cell.name_of(one) for one in crossing(cell, placed) or ()] == ["gps", "display"]
    sender, receiver = ends(cell, topology_of(cell))
    assert (sender.name, receiver.name) == ("pub1", "sub0")
    # Two machines, but each flow stays on one.
    apart = CAMERA.replace("subscribes: [image, gps], on: robot", "subscribes: image, on: robot")
    apart = apart.replace("nodes:", "nodes:\n  log: {subscribes: gps, on: base}")
    cell = cell_of(load(tmp_path, apart))
    places = {pod.participant: pod.node for pod in topology_of(cell).pods}
    pair = same_node(cell, places)
    assert pair is not None and [cell.name_of(one) for one in pair] == ["camera", "display"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"graph": ""}, "a graph test needs `graph`"),
        ({"middleware": "raw", "payload_bytes": 100_000}, "raw does not run graphs"),
        ({"instances": 3}, "a graph has no instances"),
        ({"security": "SignRTPS"}, "a graph has no security"),
        ({"test": "paced"}, "only a graph test runs a graph"),
    ],
)
def test_settings_that_graphs_do_not_have(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    cell = cell_of(load(tmp_path)).model_copy(update=settings)
    assert message in (contradictions.unsupported(cell) or "")


@pytest.mark.parametrize(
    ("middleware", "peers"), [("cyclonedds", ["::1", "::3"]), ("zenoh", ["::1", "::2", "::3"])]
)
def test_the_command_line_of_a_node(middleware: str, peers: list[str], tmp_path: Path) -> None:
    argv = command_line(cell_of(load(tmp_path)).model_copy(update={"middleware": middleware}))
    assert argv[:5] == ["/perftest", "-graph", "/in/graph.txt", "-node", "planner"]
    assert [word for before, word in pairwise(argv) if before == "-peer"] == peers
    assert not {"-pub", "-sub", "-dataLen", "-bestEffort", "-qosFile"} & set(argv)


def command_line(cell: Cell) -> list[str]:
    """Return the command line of the node `planner`."""
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=3, warmup_s=0.5)
    endpoints = {
        f"{name}": Endpoint(f"::{n}", "eth0", None) for n, name in enumerate(("pub0", "sub0", "sub1"), 1)
    }
    paths = ParticipantPaths("/perftest", Path("/out"), Inputs(graph=Path("/in/graph.txt")))
    program = of(cell)
    assert program is not None
    surroundings = Surroundings(endpoints, 1, paths, None, [], "1")
    return program.command(trial, Participant.named("sub0"), surroundings).argv


# -- what a trial shows ---------------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording("graph", tmp_path / "attempt")


def change(recording: Recording, participant: str, name: str, **values: Any) -> None:
    """Change what a participant reported about a flow."""
    flows = deepcopy(recording.reported(participant)["flows"])
    for entry in flows:
        if entry["flow"] == name:
            entry.update(values)
    recording.change(participant, flows=flows)


def test_recorded_files_give_the_recorded_values(recording: Recording) -> None:
    record = recording.record()
    assert {key: record[key] for key in recording.expected} == recording.expected
    assert record["valid"] and checked(record, "trials.jsonl:1") == record
    command = record["by_flow"]["command"]
    assert command["publisher"] == "planner" and list(command["subscribers"]) == ["motor"]
    assert command["sent"] == command["received"] == 200
    # The delay begins when the last input arrived and includes 500 µs of computing; the chain begins when the scan was due.
    assert command["chain"]["delay_p50_us"] > command["delay_p50_us"] > 500
    assert record["sent"] == 800 and record["received"] == 800 and record["lost_percent"] == 0
    # One number of all flows would be that of the flow with the most samples.
    assert record["delay_p90_us"] is None and record["missing"]["delay_p90_us"] == histograms.EACH_FLOW
    assert details.shares(record) == []
    row = {**record, "network_label": "host"}
    assert missing.remedy([row], "delay_p90_us").startswith("read tables/flows.csv")


@pytest.mark.parametrize(
    ("participant", "flow", "values", "reason"),
    [
        ("sub0", "imu", {"received": 199}, "miscounted: planner received 199 samples of imu and lost 0; 200 were sent"),
        ("pub0", "scan", {"samples": 7}, "miscounted: driver sent 400 of 7 samples of scan, and 0 not"),
        ("pub0", "scan", {"samples": 390, "sent": 390}, "miscounted: 390 samples of scan were due at driver, not 400"),
        ("sub1", "command", {"sent": 7}, "miscounted: motor received command from planner, which announced 7 samples"),
        ("sub1", "command", {"publisher": "motor"}, "miscounted: motor received command from motor"),
        ("sub1", "command", {"received": 198, "lost": 2}, "lost-samples: motor lost 2 samples of the reliable flow"),
        ("sub1", "command", {"flow": "other"}, "no-report: motor did not report what it received of command"),
        ("sub0", "command", {"flow": "other"}, "no-report: planner did not report what it sent of command"),
    ],
)  # fmt: skip
def test_counts_that_do_not_add_up_are_not_valid(
    recording: Recording, participant: str, flow: str, values: dict[str, Any], reason: str
) -> None:
    change(recording, participant, flow, **values)
    record = recording.record()
    assert not record["valid"] and record["reason"].startswith(reason)


def slow(recording: Recording) -> dict[str, Any]:
    """Return the record if a node computed too slowly: the samples that it sent are the fast ones."""
    change(recording, "sub0", "command", sent=68, not_sent=132)
    change(recording, "sub1", "command", sent=68, received=68, missed=0)
    return recording.record()


def flow_trials(application: Application, *records: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the trials of each flow and chain in these repetitions of one cell."""
    rows = [record | {"block_key": number} for number, record in enumerate(records)]
    return trials_of(application, ["cell"], {"cell": rows})


def verdicts_of(application: Application, trials: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    return {
        each.requirement.describe(): each.verdict for each in judge_flows(application.requirements, trials)
    }


def measured(path: Path, record: dict[str, Any], *more: str) -> Answer:
    """Return the answer of a run folder all of whose trials have the flows of a record."""
    experiment = applications.experiment(load(path))
    kept = ("by_flow", "sent", "received", "lost", "lost_percent", "tail_episodes", "missing", *more)
    run = folder(path / "run", experiment, **{key: record[key] for key in kept})
    return answer(evidence.of_own_run(run, experiment))


def test_samples_that_never_followed_count_as_missing(recording: Recording, tmp_path: Path) -> None:
    record = slow(recording)
    assert record["valid"]
    command = record["by_flow"]["command"]
    assert (command["scheduled"], command["deadline_missed"], command["achieved_rate_percent"]) == (
        200,
        132,
        34,
    )
    assert command["delay_p50_us"] is command["chain"]["delay_p50_us"] is None
    assert (
        command["chain"]["missing"]["delay_p50_us"] == "66 % of the values are missing, at most 25 % may be"
    )
    assert (
        "rate: command: 18 of 200 samples were written more than one period late, 132 were not sent"
        in record["warnings"]
    )
    application = load(tmp_path, FILE.replace("p50 <= 1 s", "p50 <= 1 s, missed_percent: 1"))
    verdicts = verdicts_of(application, flow_trials(application, *[record] * 3))
    assert verdicts["reaction: p50 chain <= 1 s"] == UNDECIDED
    assert (
        verdicts["reaction: missing samples <= 1 %"] == verdicts["command: 98 % of 100 samples/s"] == NOT_MET
    )


def test_inputs_that_never_arrived_count_as_missing(recording: Recording) -> None:
    # The node does not know of them, so nothing was due for it.
    change(recording, "sub0", "command", sent=150, samples=150)
    change(recording, "sub1", "command", sent=150, received=150)
    command = recording.record()["by_flow"]["command"]
    assert (command["scheduled"], command["achieved_rate_percent"], command["deadline_missed"]) == (
        200,
        75,
        51,
    )
    assert (command["chain"]["sent"], command["chain"]["received"], command["chain"]["lost_percent"]) == (
        200,
        150,
        25,
    )


def test_a_flow_with_one_input_follows_each_of_its_samples(recording: Recording) -> None:
    text = recording.trial.cell.graph.replace("after scan,imu", "after imu")
    recording.set_cell(graph=text)
    assert recording.record()["valid"]
    change(recording, "sub0", "command", sent=150, samples=150)
    change(recording, "sub1", "command", sent=150, received=150)
    reason = "miscounted: planner received 200 samples of imu, so that 150 of command were due"
    assert recording.record()["reason"] == reason


def test_delays_between_machines_need_synchronized_clocks(recording: Recording) -> None:
    for participant in ("sub0", "sub1"):
        log = recording.folder / participant / "latency.hlog"
        log.write_text(
            log.read_text().replace("=one_way:", "=one_way_realtime:").replace("=chain:", "=chain_realtime:")
        )
    command = recording.record()["by_flow"]["command"]
    assert command["delay_p50_us"] is command["chain"]["delay_p50_us"] is None
    assert command["missing"]["delay_p50_us"] == "the participants do not share a clock"
    error = ClockError(1, "chrony")
    record = recording.record(replace(recording.measurement(), clock_error=error))
    assert record["delay_method"] == "synchronized clocks"
    assert record["by_flow"]["command"]["delay_p50_us"] > 500


def test_reasons_name_the_nodes(recording: Recording) -> None:
    record = recording.record(recording.measurement(sub1=-11))
    assert "sub1 (motor)" in record["reason"]


def test_a_document_without_a_count_is_no_report(recording: Recording) -> None:
    change(recording, "sub1", "command", missed=None)
    assert recording.record()["reason"].startswith("no-report")


def test_losses_of_a_best_effort_flow_are_a_result(recording: Recording) -> None:
    change(recording, "sub0", "imu", received=190, lost=10, missed=60)
    record = recording.record()
    assert record["valid"]
    imu = record["by_flow"]["imu"]
    assert (imu["lost"], imu["lost_percent"], imu["deadline_missed_percent"]) == (10, 5, 30)
    assert record["lost"] == 10 and record["lost_percent"] == 10 / 8


def test_a_flow_that_never_arrives_is_a_result_only_if_links_lose_samples(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(recording, "sub0", "imu", received=0, lost=200, missed=200)
    assert recording.record()["reason"].startswith("no-samples: planner got no sample of imu")
    monkeypatch.setattr(link_conditions, "differing", lambda *_: "")
    lost = {"node0": {"up": {"lost": 7, "outage_drops": 0}}}
    assert recording.record(replace(recording.measurement(), links=lost))["valid"]


def test_bytes_between_nodes_on_one_machine_need_no_link(recording: Recording) -> None:
    delivered = recording.reported("sub0")["delivered_bytes"]
    measurement = recording.measurement()
    measurement.received_bytes["sub0"] = delivered - 1
    assert recording.record(measurement)["reason"].startswith("not-on-wire")
    places = {"pub0": ("node0", "lab"), "sub0": ("node0", "lab"), "sub1": ("node1", "lab")}
    measurement.nodes.update(places)
    assert recording.record(measurement)["valid"]


def test_costs_are_those_of_all_nodes_that_send(recording: Recording) -> None:
    cell = recording.trial.cell
    assert [it.name for it in cell.publishing] == ["pub0", "sub0"]
    assert [it.name for it in cell.subscribing] == ["sub0", "sub1"]
    created = {"pub0": 40, "sub0": 10, "sub1": 5}
    for name, number in created.items():
        recording.meter(name, "network", ip_frag_creates=number)
    record = recording.record()
    assert (record["ip_fragments_created"], record["ip_fragments_per_sent_sample"]) == (50, 50 / 800)
    roles = [key for key in record if key.startswith(("publisher_", "subscriber_"))]
    assert roles and all(record[key] is None for key in roles)
    outcomes = recording.measurement().outcomes
    sent, _ = interface_bytes(outcomes, {name: name for name in outcomes}, cell.publishing)
    counted = [recording.meters[name]["attempt_interfaces"]["eth0"]["tx_bytes"] for name in ("pub0", "sub0")]
    assert sent == sum(counted)


def test_a_pair_of_nodes_is_one_between_which_samples_travel(recording: Recording) -> None:
    cell = recording.trial.cell
    pairs = [(one.name, other.name) for one, other in cell.pairs]
    assert pairs == [("pub0", "sub0"), ("sub0", "sub1")]
    timed = [(one.name, other.name) for one, other in cell.timed_pairs]
    # The chain to the motor began at the driver.
    assert timed == [*pairs, ("pub0", "sub1")]


# -- verdicts -------------------------------------------------------------------------------------------------


def test_verdicts_come_from_the_flows_of_the_record(recording: Recording, tmp_path: Path) -> None:
    record = recording.record()
    application = load(tmp_path)
    slower, faster = deepcopy(record), deepcopy(record)
    slower["by_flow"]["command"]["chain"]["delay_p50_us"] *= 1.25
    faster["by_flow"]["command"]["chain"]["delay_p50_us"] /= 1.25
    trials = flow_trials(application, record, slower, faster)
    assert list(trials) == ["scan", "imu", "command", "reaction"]
    assert [row["sent"] for row in trials["scan"]] == [400] * 3
    verdicts = verdicts_of(application, trials)
    assert verdicts["reaction: p50 chain <= 1 s"] == MET
    assert verdicts["scan: 98 % of 200 samples/s"] == MET
    strict = load(tmp_path, FILE.replace("p50 <= 1 s", "p50 <= 1 us"))
    *_, chain = judge_flows(strict.requirements, trials)
    assert chain.verdict == NOT_MET
    assert chain.value == pytest.approx(record["by_flow"]["command"]["chain"]["delay_p50_us"])


def test_a_percentile_that_one_repetition_lacks_has_no_mean(recording: Recording, tmp_path: Path) -> None:
    full = recording.record()
    part = deepcopy(full)
    few = "5 episodes above it, 10 are needed (200 values)"
    chain = part["by_flow"]["command"]["chain"]
    chain |= {"delay_p50_us": None, "missing": {"delay_p50_us": few}, "tail_episodes": {"delay_p50_us": 5}}
    application = load(tmp_path)
    trials = flow_trials(application, full, part)
    assert [row["delay_p50_us"] for row in trials["reaction"]] == [None, None]
    assert [row["missing"]["delay_p50_us"] for row in trials["reaction"]] == [
        f"in another repetition, {few}",
        few,
    ]
    assert all(row["delay_p50_us"] for row in trials["command"])
    *_, reaction = judge_flows(application.requirements, trials)
    assert (reaction.verdict, reaction.n) == (UNDECIDED, 0)


def test_a_chain_does_not_lack_what_its_flow_lacks(recording: Recording, tmp_path: Path) -> None:
    record = recording.record()
    flow = record["by_flow"]["command"]
    del flow["chain"]["missing"], flow["chain"]["tail_episodes"]
    flow["missing"] = {"delay_mean_us": "no sample arrived"}
    trials = flow_trials(load(tmp_path), record)
    assert trials["reaction"][0]["missing"] is None and trials["command"][0]["missing"]


def test_the_cpu_time_of_a_node_counts_once(recording: Recording, tmp_path: Path) -> None:
    nodes = {"n0": {"participants": 20.0, "shared": 5.0}, "n1": {"participants": 10.0, "shared": 1.0}}
    trials = flow_trials(load(tmp_path), recording.record() | {"nodes_cpu": nodes})
    assert budget_rows(trials) == [{"block_key": 0, "node_cpu_percent": 25.0, "total_cpu_percent": 36.0}]


def test_the_answer_has_tables_of_flows_and_chains(recording: Recording, tmp_path: Path) -> None:
    record = recording.record()
    found = measured(tmp_path, record)
    assert found.recommended is not None
    captions = {table.caption.split(" of the ")[0].split(",")[0]: table for table in results.tables(found)}
    flows, chains = captions["Flows"], captions["Chains"]
    assert [row[0].text for row in flows.rows] == ["scan", "imu", "command"]
    assert [cell.text for cell in flows.rows[0][1:4]] == [
        "2,000",
        "0",
        f"{5 * record['by_flow']['scan']['deadline_missed']:,}",
    ]
    assert chains.rows[0][0].small == "scan → command"
    assert any(sentence.startswith("The first to fail is ") for sentence in results.lead(found))
    # The file that confirms it measures the same cell.
    files.write(found, tmp_path / "files")
    confirm = expand(experiments.load(str(tmp_path / "files" / "confirm.yaml")))
    cell = next(
        candidate.cells[0]
        for candidate in candidates(applications.experiment(load(tmp_path))).measurable
        if dict(candidate.choices)["networks"] == found.recommended.option.choices["network"]
    )
    same = {"middleware_config": "", "middleware_config_sha256": ""}
    assert confirm.cells[0].model_copy(update=same).canonical() == cell.canonical()


def test_the_first_to_fail_is_one_that_failed(recording: Recording, tmp_path: Path) -> None:
    # Nothing is known of the chain.
    found = measured(tmp_path, slow(recording), "by_node")
    first = next(sentence for sentence in results.lead(found) if sentence.startswith("The first to fail"))
    assert first == "The first to fail is command: 98 % of 100 samples/s, which is at 3,300 % of its limit."
    assert results.data(found)["first_to_fail"]["limited_by"] == {
        "what": "queue",
        "seen": "planner sent 75 % of the samples of command more than a period late, or never",
        "change": "Publish the flows of planner from several nodes, or make command best-effort if it may lose some",
    }
    requirements, *_ = results.tables(found)
    signs = [row[0].sign for row in requirements.rows]
    assert signs[:2] == ["✗", "?"] and "?" not in signs[2:]
    # Without the one that failed, the unknown one is the worst case.
    judged = [each for each in found.ranked[0].judgements if each.verdict != NOT_MET]
    text, *_ = graph_answer.sentences(load(tmp_path), replace(found.ranked[0], judgements=tuple(judged)))
    assert text.startswith(
        "The first to fail is reaction: p50 chain <= 1 s, of which no value is known (66 % of the values are missing"
    )


def test_trials_of_a_graph_are_no_evidence_about_other_applications(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only a run folder of it"):
        evidence.of_folders(load(tmp_path), ["nowhere"])
