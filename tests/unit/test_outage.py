"""Outages: what a recorded subscriber got around one, and which tests of them are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from k8sdds import middleware
from k8sdds.campaign import experiments, preflight
from k8sdds.campaign.expansion import expand
from k8sdds.model.experiment import Experiment
from k8sdds.model.link import USERSPACE
from k8sdds.model.options import OutageOptions
from k8sdds.model.trial import FIRST_SUBSCRIBER, Trial
from k8sdds.perftest.output import PEER_LOST
from k8sdds.results import arrivals, link_statistics
from k8sdds.results.arrivals import Arrival, Interruption
from k8sdds.system import yaml_text
from k8sdds.system.numbers import number
from k8sdds.testbeds.cluster import links as cluster_links
from k8sdds.testbeds.cluster import preflight as cluster_preflight
from k8sdds.testbeds.lab import outage as lab_outage
from k8sdds.testbeds.lab import preflight as lab_preflight
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.workloads import find, recovery
from tests.unit.test_attempt import Recording

RECORDED = Path(__file__).parent / "recorded/outage"
RATE = 100


@pytest.fixture
def outage() -> Interruption:
    found = arrivals.interruption(RECORDED)
    assert found is not None and found.length_s >= 1
    return found


@pytest.fixture
def arrived() -> list[Arrival]:
    return arrivals.of_subscriber(RECORDED / "sub0")[0]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording("outage", tmp_path)


def test_the_record_has_the_recovery(recording: Recording) -> None:
    record = recording.record()
    assert record["valid"]
    for name in (*find("outage").metrics, *find("outage").columns):
        assert record.get(name) == recording.expected.get(name), name
    assert record["outage_blind_ms"] >= 1000 * record["outage_s"] >= 1000
    assert record["recovered_percent"] == 100 and record["lost"] == 0


def test_a_trial_that_ends_before_the_recovery_states_it(recording: Recording, tmp_path: Path) -> None:
    outage = arrivals.interruption(tmp_path)
    assert outage is not None
    path = tmp_path / "sub0" / arrivals.FILE
    head, *lines = path.read_text().splitlines(keepends=True)
    before = [line for line in lines if int(line.split(",")[1]) < outage.failed_us]
    path.write_text("".join([head, *before]))
    record = recording.record()
    assert record["valid"] and record["recovered_percent"] == 0
    unknown = ("outage_blind_ms", "recovery_first_ms", "recovery_full_ms", "recovery_bytes")
    assert [record[name] for name in unknown] == [None] * 4
    start_ns, length_s = (
        recording.meters["pub0"]["interval"][key] for key in ("start_monotonic_ns", "duration_s")
    )
    rest_ms = (start_ns / 1000 - outage.repaired_us) / 1000 + 1000 * length_s
    assert 2900 < rest_ms < 3100, "6 s, of which the outage began after 2 s and took 1 s"
    assert record["outage_observed_ms"] == pytest.approx(rest_ms, abs=0.001)
    within = f"within {number(rest_ms)} ms after the repair"
    assert {name: record["missing"][name] for name in unknown} == {
        "outage_blind_ms": f"no fresh sample {within}",
        "recovery_first_ms": f"no fresh sample {within}",
        "recovery_full_ms": f"not recovered {within}",
        "recovery_bytes": f"not recovered {within}",
    }


def test_what_a_trial_observed_after_the_repair_ends_with_the_trial(recording: Recording) -> None:
    recording.meter("pub0", "interval", duration_s=4.0)
    assert 900 < recording.record()["outage_observed_ms"] < 1100
    recording.meters["pub0"]["interval"] = None
    assert recording.record()["outage_observed_ms"] == 0


def test_a_participant_that_does_not_return_is_a_result_only_over_the_requested_link(
    recording: Recording, tmp_path: Path
) -> None:
    lost = recording.record(recording.measurement(sub0=PEER_LOST))
    assert lost["valid"] and lost["warnings"][0].startswith("peer-lost: sub0: ")
    path = tmp_path / link_statistics.FILE
    statistics = json.loads(path.read_text())
    statistics["links"]["node1"]["down"]["error_us"]["p99"] = 50_000
    path.write_text(json.dumps(statistics))
    late = recording.record(recording.measurement(sub0=PEER_LOST))
    assert late["reason"].startswith("link: down of node1: 1 % of the packets were late by 50000 µs or more")


def test_a_trial_without_its_outage_is_not_valid(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / arrivals.INTERRUPTION).unlink()
    assert recording.record()["reason"] == "no-outage: the trial ended before the outage did"


def recovered(arrived: list[Arrival], outage: Interruption) -> recovery.Recovery:
    return recovery.of(arrived, outage, rate=RATE)


def test_the_log_has_every_sample(arrived: list[Arrival]) -> None:
    subscriber = json.loads((RECORDED / "sub0/stdout").read_text())["k8sdds"]
    assert sum(arrival.samples for arrival in arrived) == subscriber["received"] == 600
    assert sum(arrival.late for arrival in arrived) == subscriber["arrivals"]["missed"]
    first_us = subscriber["first_sample_monotonic_ns"] // 1000
    assert abs(arrived[0].at_us - first_us) < 1000, "by the same clock as the summary"


def test_nothing_arrives_in_the_outage(arrived: list[Arrival], outage: Interruption) -> None:
    sent = [one for one in arrived if one.at_us - one.delay_us >= outage.failed_us]
    assert sent[0].at_us > outage.repaired_us
    found = recovered(arrived, outage)
    assert found.first_ms is not None and found.full_ms is not None
    assert found.blind_ms == pytest.approx(1000 * outage.length_s + found.first_ms)
    assert 0 < found.first_ms <= found.full_ms
    # Cyclone DDS sends again what was due in the outage, so that it arrives late.
    assert found.late >= RATE


def without(arrived: list[Arrival], outage: Interruption) -> list[Arrival]:
    return [one for one in arrived if one.at_us < outage.repaired_us]


def every_third(arrived: list[Arrival], outage: Interruption) -> list[Arrival]:
    return without(arrived, outage) + [one for one in arrived if one.at_us >= outage.repaired_us][::3]


def delayed(arrived: list[Arrival], outage: Interruption) -> list[Arrival]:
    return [
        one._replace(max_delay_us=one.max_delay_us + 100_000) if one.at_us >= outage.repaired_us else one
        for one in arrived
    ]


@pytest.mark.parametrize("change", [without, every_third, delayed])
def test_what_stays_worse_than_before_is_no_recovery(
    change: Callable[[list[Arrival], Interruption], list[Arrival]],
    arrived: list[Arrival],
    outage: Interruption,
) -> None:
    found = recovery.of(change(arrived, outage), outage, rate=RATE)
    assert found.full_ms is None
    assert (found.first_ms is None) == (found.blind_ms is None) == (change is without)


def test_a_later_stall_is_not_that_of_the_outage(arrived: list[Arrival], outage: Interruption) -> None:
    late_us = outage.repaired_us + 1_000_000
    stalled = [one for one in arrived if not late_us < one.at_us < late_us + 2_000_000]
    assert recovered(stalled, outage).blind_ms == recovered(arrived, outage).blind_ms


def test_the_traffic_of_the_recovery_is_what_was_sent_again(outage: Interruption) -> None:
    links = link_statistics.read(RECORDED)
    assert links is not None
    extra = recovery.extra_bytes(links, outage, outage.repaired_us + 600_000)
    sent_again = json.loads((RECORDED / "pub0/stdout").read_text())["k8sdds"]["retransmitted_bytes"]
    assert extra is not None and sent_again > 0
    assert sent_again <= extra <= 1.5 * sent_again, (
        "with the headers of packets, heartbeats and acknowledgments"
    )
    other = outage.model_copy(update={"node": "node9"})
    assert recovery.extra_bytes(links, other, outage.repaired_us) is None


@pytest.mark.parametrize(
    ("name", "read"), [("outage.json", arrivals.interruption), ("links.json", link_statistics.read)]
)
def test_damaged_files_are_not_read(name: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    content = (RECORDED / name).read_bytes()
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path)
    (tmp_path / name).write_bytes(content[:-5] + b'"x,')
    assert not read(tmp_path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def enlarge(path: Path) -> None:
    os.truncate(path, 80 * arrivals.MAX_LINES + 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (cut, "sub0/arrivals.csv is damaged: line 504 has other columns"),
        (Path.unlink, "sub0 has no arrivals.csv"),
        (enlarge, "larger than 80,000,000 bytes"),
    ],
)
def test_arrivals_that_cannot_be_read_are_no_proof(
    change: Callable[[Path], None], why: str, recording: Recording, tmp_path: Path
) -> None:
    """Such a file is not read as if nothing had arrived."""
    change(tmp_path / "sub0" / arrivals.FILE)
    record = recording.record()
    assert record["reason"].startswith("no-proof: what arrived is not known: ") and why in record["reason"]
    assert not record.get("outage_s") and not record.get("missing")


def loaded(text: str) -> Experiment:
    return yaml_text.parse(text, Experiment, "outages.yaml", experiments.KNOWN)


def written(test: str, more: str = ", rate: 100", top: str = "", network: str = "host") -> Experiment:
    """Return an experiment with an outage test, as the user writes it."""
    sweep = f"sweeps: [{{networks: [{network}], test: {test}{more}}}]\n"
    return loaded(f"name: outages\n{top or 'duration_s: 6'}\nbaseline: host\n{sweep}")


def expansion(test: str, more: str = "", link: str = "", network: str = "host") -> Any:
    experiment = written(test, f", rate: 100{more}", f"duration_s: 6\n{link}", network)
    return expand(lab_outage.with_forwarders(experiment))


def test_links_of_the_test_are_forwarded() -> None:
    (cell,) = expansion("outage").cells
    assert cell.link.engine == USERSPACE
    (cell,) = expansion("paced").cells
    assert cell.link.engine == "auto"


@pytest.mark.parametrize(
    ("test", "more", "link", "message"),
    [
        ("{name: outage, for_s: 5}", "", "", "need 9 s"),
        ("{name: outage, after_s: 0.5}", ", publishers: 2", "", ""),
        ("outage", ", publishers: 100", "", "log what arrives for at most 5 s"),
        ("outage", ", rate_profile: 'burst:5'", "", "constant rate"),
        ("outage", ", placement: same-node", "", "no link between nodes"),
        ("outage", "", "link: {engine: kernel, delay: {mean_us: 5}}\n", "engine: userspace"),
        ("outage", "", "link: {nodes: publishers, delay: {mean_us: 5}}\n", "nodes: all"),
        ("outage", "", "link: {outages: [{at_s: 1, for_s: 1}]}\n", "leave out `outages`"),
        ("{name: outage, what: server}", ", middleware: fastdds", "", "set `discovery: server`"),
        ("{name: outage, what: server}", ", middleware: fastdds, discovery: server", "", ""),
        ("{name: outage, what: pod}", "", "link: {engine: kernel, delay: {mean_us: 5}}\n", ""),
    ],
)
def test_refusals(test: str, more: str, link: str, message: str) -> None:
    problems = [
        problem.what + problem.remedy for problem in preflight.contradictions(expansion(test, more, link))
    ]
    assert any(message in problem for problem in problems) if message else problems == []


def test_a_slow_rate_needs_more_time_before_the_outage() -> None:
    (problem,) = preflight.contradictions(expand(written("outage", ", rate: 5", "duration_s: 60")))
    assert "set after_s of the test to at least 4" in problem.what


@pytest.mark.parametrize("options", [
    {"what": "lossy"}, {"drop_percent": 30}, {"for_s": 31}, {"for_s": 0}, {"what": "switch"}, {"where": "switch"},
    {"what": "pod", "where": "publisher"}, {"what": "server", "where": "publisher"},
])  # fmt: skip
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OutageOptions(**options)


@pytest.mark.parametrize(
    ("test", "networks", "message"),
    [
        ("{name: outage, what: agent}", "flannel-vxlan", "no process of its agent"),
        ("{name: outage, what: agent}", "flannel-vxlan", "; measure on a cluster that `k8sdds deploy` built"),
        (
            "{name: outage, what: agent}",
            "{name: flannel-wireguard, engine: kernel}",
            "; use {name: flannel-wireguard, engine: userspace}, or measure on a cluster",
        ),
        ("{name: outage, what: agent}", "baremetal", "; use another network"),
        ("{name: outage, what: agent}", "{name: flannel-wireguard, engine: userspace}", ""),
        ("{name: outage, what: address}", "flannel-vxlan", "a node's new address"),
        ("{name: outage, what: address}", "host", ""),
        ("{name: outage, what: pod}", "weavenet", ""),
    ],
)
def test_what_does_not_exist_in_the_lab_does_not_fail_there(test: str, networks: str, message: str) -> None:
    (cell,) = expand(written(test, network=networks)).cells
    problem = lab_preflight._contradiction(cell)
    text = f"{problem.what}; {problem.remedy}" if problem else ""
    assert message in text if message else not text


def test_a_pod_that_is_killed_has_a_successor_with_another_address_on_its_node() -> None:
    (cell,) = expansion("{name: outage, what: pod}", ", subscribers: 2", network="flannel-vxlan").cells
    plan = make_plan(cell)
    pods = {pod.name: pod for pod in plan.topology.pods}
    assert list(pods) == ["pub0", "sub0", "sub1", "standby"]
    assert pods["standby"].node == pods["sub0"].node != pods["sub1"].node
    addresses = {attachment.address for attachment in plan.datapath.attachments.values()}
    assert len(addresses) == len(pods)
    (other,) = expansion("outage", ", subscribers: 2", network="flannel-vxlan").cells
    assert [pod.name for pod in make_plan(other).topology.pods] == ["pub0", "sub0", "sub1"]


def test_samples_of_the_killed_process_count(tmp_path: Path) -> None:
    (cell,) = expansion("{name: outage, what: pod}").cells
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=6, warmup_s=0.5)
    killed = tmp_path / arrivals.KILLED / "sub0"
    killed.mkdir(parents=True)
    (tmp_path / "sub0").mkdir()
    lines = (RECORDED / "sub0" / arrivals.FILE).read_text().splitlines(keepends=True)
    (killed / arrivals.FILE).write_text("".join(lines[:101]))
    (tmp_path / "sub0" / arrivals.FILE).write_text("".join([lines[0], *lines[151:]]))
    document = json.loads((RECORDED / "sub0/stdout").read_text())
    document["k8sdds"] |= {"received": 450, "lost": 150}
    (tmp_path / "sub0/stdout").write_text(json.dumps(document))

    summary = middleware.find("cyclonedds").summary(trial, FIRST_SUBSCRIBER, tmp_path)
    before = sum(int(line.split(",")[2]) for line in lines[1:101])
    assert summary is not None and summary["received"] == 450 + before and summary["lost"] == 150 - before
    seen = arrivals.of_attempt(tmp_path, ["sub0"])["sub0"][0]
    assert len(seen) == len(lines) - 51 and seen == sorted(seen)
    (killed / arrivals.FILE).unlink()
    assert middleware.find("cyclonedds").summary(trial, FIRST_SUBSCRIBER, tmp_path) is None


@pytest.mark.parametrize("what", [kind for kind in get_args(OutageOptions.model_fields["what"].annotation)])
def test_all_but_addresses_fail_on_clusters(what: str) -> None:
    more = ", middleware: fastdds, discovery: server" if what == "server" else ""
    drop = ", drop_percent: 50" if what == "lossy" else ""
    test = f"{{name: outage, what: {what}{drop}}}"
    (cell,) = expand(written(test, f", rate: 100{more}", network="flannel-vxlan")).cells
    problems = cluster_preflight.unsupported([cell], can_switch=True)
    assert [f"what: {what}" in problem.what for problem in problems] == [True] * (what == "address")


def test_each_subscriber_has_the_moments_by_its_own_clock(recording: Recording, tmp_path: Path) -> None:
    expected = recording.record()
    ahead_us = 7_000_000
    moments = json.loads((tmp_path / arrivals.INTERRUPTION).read_text())
    moved = {name: value + ahead_us if name.endswith("_us") else value for name, value in moments.items()}
    (tmp_path / "sub0" / arrivals.INTERRUPTION).write_text(json.dumps(moved))
    log = tmp_path / "sub0" / arrivals.FILE
    head, *lines = log.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    log.write_text(
        "\n".join([head, *(",".join([row[0], str(int(row[1]) + ahead_us), *row[2:]]) for row in rows)])
    )
    record = recording.record()
    for name in ("outage_blind_ms", "recovery_first_ms", "recovery_full_ms", "recovered_percent"):
        assert record[name] == expected[name], name


@pytest.mark.parametrize(("what", "engine"), [("link", USERSPACE), ("pod", "auto")])
def test_only_links_that_fail_are_forwarded_on_clusters(what: str, engine: str) -> None:
    test = f"{{name: outage, what: {what}}}"
    (cell,) = expand(cluster_links.with_forwarders(written(test, network="flannel-vxlan"))).cells
    assert cell.link.engine == engine
