"""Records of attempts from recorded files of participants, and reasons for invalid attempts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds.campaign import record as attempt
from k8sdds.model.axis import PROCESS
from k8sdds.model.impairments import Loss
from k8sdds.model.link import Link
from k8sdds.model.measurement import Measurement, Outcome, OutsideCpu
from k8sdds.model.reason import Reason
from k8sdds.model.trial import AXES, Trial
from k8sdds.results import link_statistics
from k8sdds.results.metrics import METRICS
from k8sdds.results.record import checked
from k8sdds.workloads import find
from tests.unit.test_axes import OTHER_VALUE

RECORDED = Path(__file__).parent / "recorded"
NAMES = ("latency", "paced", "multicast", "best-effort")
TOOLS = ("tcp-stream", "tcp-crr", "http", "ping")

FACTS = ["block", "order", "domain", "started_at", "mtu_bytes", "engine", "engine_mode", "fidelity", "wall_s"]
"""Keys of a record that the campaign and the testbed provide."""


class Recording:
    """A trial recorded in the lab, with a copy of its files that a test can change."""

    def __init__(self, name: str, folder: Path) -> None:
        shutil.copytree(RECORDED / name, folder, dirs_exist_ok=True)
        expected = json.loads((folder / "expected.json").read_text())
        self.folder = folder
        self.trial = Trial.model_validate(expected["trial"])
        self.expected: dict[str, Any] = expected["record"]
        self.meters = {
            participant.name: json.loads((folder / participant.name / "meters.json").read_text())
            for participant in self.trial.cell.participants
        }

    def measurement(self, **codes: int) -> Measurement:
        links = self.expected["link_bytes"]
        statistics = link_statistics.read(self.folder)
        return Measurement(
            outcomes={
                participant.name: Outcome(
                    participant, codes.get(participant.name, 0), self.meters[participant.name]
                )
                for participant in self.trial.cell.participants
            },
            sent_bytes=links["sent"],
            received_bytes=links["received"],
            includes_scheduling=self.expected["includes_scheduling"],
            conntrack_entries=self.expected.get("conntrack_entries"),
            links=link_statistics.summary(statistics) if statistics else None,
        )

    def reported(self, participant: str) -> dict[str, Any]:
        return json.loads((self.folder / participant / "stdout").read_text())["k8sdds"]

    def set_cell(self, **values: Any) -> None:
        cell = self.trial.cell.model_copy(update=values)
        self.trial = self.trial.model_copy(update={"cell": cell})

    def change(self, participant: str, **values: Any) -> None:
        """Change keys in the output of a participant."""
        path = self.folder / participant / "stdout"
        data = json.loads(path.read_text())
        data["k8sdds"].update(values)
        path.write_text(json.dumps(data))

    def set_trial(self, **values: Any) -> None:
        self.trial = self.trial.model_copy(update=values)

    def meter(self, participant: str, part: str, **values: float) -> None:
        self.meters[participant][part].update(values)

    def write(self, participant: str, text: str) -> None:
        (self.folder / participant / "stdout").write_text(text)

    def record(self, measurement: Measurement | None = None, **changed_facts: Any) -> dict[str, Any]:
        facts = {key: self.expected[key] for key in FACTS} | changed_facts
        measured = measurement or self.measurement()
        return attempt.record(self.trial, 1, measured, self.folder, facts).as_json()


@pytest.fixture
def recording(tmp_path: Path, request: pytest.FixtureRequest) -> Recording:
    return Recording(getattr(request, "param", "multicast"), tmp_path)


@pytest.mark.parametrize("recording", NAMES + TOOLS, indirect=True)
def test_recorded_files_give_the_recorded_values(recording: Recording) -> None:
    record = recording.record()
    # Keys that were added to the record after the recording are not in it.
    assert {key: record[key] for key in recording.expected} == recording.expected
    assert recording.expected["valid"]


@pytest.mark.parametrize("recording", ["deadline"], indirect=True)
def test_the_age_follows_from_what_subscribers_reported(recording: Recording) -> None:
    record = recording.record()
    delays = [name for name in find("paced").metrics if METRICS[name].group == "delay"]
    assert {name: record[name] for name in delays} == {name: recording.expected[name] for name in delays}
    # Each sample is the newest for a period, on average half of it longer than its delay.
    assert record["age_mean_us"] == pytest.approx(record["delay_mean_us"] + 1e6 / 400 / 2, rel=0.02)
    assert record["delay_max_us"] < record["age_p99_us"] + 1e6 / 400 and record["blind_ms"] > 1000 / 400
    assert (record["gaps"], record["out_of_order"], record["retransmitted_bytes_per_payload_byte"]) == (
        13,
        0,
        0,
    )
    # A participant that was not read, or middleware that does not count, leaves the ratio unknown.
    recording.change("pub0", retransmitted_bytes=None)
    assert recording.record()["retransmitted_bytes_per_payload_byte"] is None
    recording.change("pub0", retransmitted_bytes=40_960)
    assert recording.record()["retransmitted_bytes_per_payload_byte"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("mtu_bytes", "unknown"), ("mtu_bytes", 1450.5), ("engine", 3), ("nodes", ["a"]), ("placement", 5)],
)
def test_an_invalid_fact_of_the_testbed_is_null_with_a_warning(
    recording: Recording, key: str, value: Any
) -> None:
    usual = recording.record()
    record = recording.record(**{key: value})
    (warning,) = [text for text in record["warnings"] if text not in usual["warnings"]]
    assert warning.startswith(f"facts: {key} is null because {value!r} is not valid: ")
    assert record == usual | {key: None, "warnings": [*usual["warnings"], warning]}
    assert record["valid"]


def reason(record: dict[str, Any]) -> str:
    assert not record["valid"]
    return record["reason"]


def _no_samples(recording: Recording) -> None:
    for name in ("sub0", "sub1"):
        recording.change(name, received=0)


def _no_histograms(recording: Recording) -> None:
    for name in ("sub0", "sub1"):
        (recording.folder / name / "latency.hlog").unlink()


def _sent_to_each(recording: Recording) -> None:
    pub = recording.meters["pub0"]
    pub["interfaces"]["eth0"]["tx_bytes"] += 3 * pub["network"]["ip_out_mcast_bytes"]


def _received(made: Recording, **received: int | None) -> Measurement:
    """Return the measurement with other bytes that crossed the links; None: the link was not read."""
    measurement = made.measurement()
    counts = measurement.received_bytes | received
    return replace(measurement, received_bytes={k: size for k, size in counts.items() if size is not None})


def _without_warmup(made: Recording) -> Measurement:
    sub1 = made.reported("sub1")
    delivered = sub1["received"] + sub1["warmup_received"]
    return _received(made, sub1=delivered * made.trial.cell.payload_bytes - 1)


def _explained(made: Recording) -> Measurement:
    measurement = made.measurement(sub1=125)
    failed = replace(measurement.outcomes["sub1"], message="not ready after 15 s: sub1")
    return replace(measurement, outcomes=measurement.outcomes | {"sub1": failed})


@pytest.mark.parametrize(
    ("recording", "change", "why"),
    [
        ("multicast", lambda it: it.change("sub1", lost=3), "lost-samples: 3 samples"),
        ("multicast", _no_samples, "no-samples: nothing was received"),
        ("latency", lambda it: it.change("pub0", latency_ns=None), "no-samples: no round trip"),
        ("paced", _no_histograms, "no-samples: no delay was measured"),
        ("multicast", lambda it: it.meters["pub0"].update(network=None), "no-proof: the counters of pub0"),
        (
            "multicast",
            lambda it: it.meter("pub0", "network", ip_out_mcast_bytes=1000),
            "not-on-wire: .* only 1000 as",
        ),
        ("multicast", _sent_to_each, r"not-on-wire: pub0 sent \d+ bytes for"),
        ("best-effort", lambda it: it.meter("pub0", "network", ip_out_mcast_bytes=10**9), ".* in a unicast trial"),
        ("multicast", lambda it: _received(it, sub1=1000), "not-on-wire: sub1 got"),
        ("multicast", _without_warmup, "not-on-wire: sub1 got"),
        ("multicast", lambda it: _received(it, sub0=None), "no-proof: the link of sub0's node"),
        # The cause, not its consequence.
        ("multicast", lambda it: it.measurement(pub0=4, sub1=139), "crashed: sub1: .* killed by signal 11"),
        ("multicast", lambda it: it.measurement(pub0=4, sub0=139, sub1=137), "part-failed: sub1: .* signal 9"),
        ("multicast", _explained, "not-started: sub1: "),
        *(
            ("multicast", lambda it, text=text: it.write("sub0", text), "no-report:")
            for text in ("", "{", "[]", '{"perftest": []}', '{"k8sdds": 3}')
        ),
    ],
    indirect=["recording"],
)  # fmt: skip
def test_outputs_that_contradict_the_trial_make_the_attempt_invalid(
    recording: Recording, change: Callable[[Recording], Measurement | None], why: str
) -> None:
    assert re.match(why, reason(recording.record(change(recording))))


@pytest.mark.parametrize(
    ("recording", "change", "warning"),
    [
        *(
            (name, lambda it: it.change("pub0", ended_by="count"), "early-end: pub0 reached")
            for name in NAMES
        ),
        ("multicast", lambda it: it.set_trial(duration_s=0.3), "duration: "),
        (
            "multicast",
            lambda it: it.meter("sub1", "interval", duration_s=0.5),
            "cpu-interval: .* 0.5 s, its samples 0.399",
        ),
        ("multicast", lambda it: it.meter("pub0", "machine", user_s=9.0), "disturbed: other processes used"),
        (
            "multicast",
            lambda it: it.meter("pub0", "machine", steal_s=0.08),
            "disturbed: the hypervisor took 20 % of a core",
        ),
        (
            "multicast",
            lambda it: it.meters["sub1"].update(stderr_dropped_bytes=4000),
            "log: sub1 .* 4000 bytes of it were not",
        ),
    ],
    indirect=["recording"],
)
def test_what_makes_a_result_doubtful_is_a_warning(
    recording: Recording, change: Callable[[Recording], None], warning: str
) -> None:
    usual = recording.record()["warnings"]
    change(recording)
    record = recording.record()
    (text,) = [text for text in record["warnings"] if text not in usual]
    assert record["valid"] and re.match(warning, text)


def test_samples_of_one_node_left_it(recording: Recording) -> None:
    few, many = (
        recording.record(replace(recording.measurement(), uplink_bytes=size))
        for size in (900_000, 400_000_000)
    )
    assert few["valid"] and few["link_bytes"]["uplink"] == 900_000
    assert reason(many).startswith("not-on-node: the link to other nodes carried 400000000 bytes")


def test_samples_did_not_cross_the_interfaces_of_the_network(recording: Recording) -> None:
    measurement = recording.measurement()
    assert recording.record(replace(measurement, carried_bytes=measurement.received_bytes))["valid"]
    few = {**measurement.received_bytes, "sub1": 1000}
    record = recording.record(replace(measurement, carried_bytes=few))
    assert reason(record).startswith("not-on-network: sub1 got")
    assert record["link_bytes"]["carried"] == few


@pytest.mark.parametrize("recording", ["best-effort", "multicast"], indirect=True)
def test_unicast_samples_cross_the_network_once_for_each_subscriber_of_a_node(recording: Recording) -> None:
    measurement = recording.measurement()
    nodes = {"pub0": ("n1", "n1"), "sub0": ("n2", "n2"), "sub1": ("n2", "n2")}
    for share, unicast_is_valid in ((2, True), (1.5, False)):
        carried = {name: round(share * count) for name, count in measurement.received_bytes.items()}
        record = recording.record(replace(measurement, carried_bytes=carried, nodes=nodes))
        assert record["valid"] == (unicast_is_valid or recording.trial.cell.transport == "multicast")
        if not record["valid"]:
            assert reason(record).startswith("not-on-network: sub0, sub1 got ")


@pytest.mark.parametrize("recording", ["best-effort"], indirect=True)
@pytest.mark.parametrize(("router", "is_valid"), [("n2", True), ("n1", False), (None, True)])
def test_samples_cross_the_network_once_to_a_router_on_the_node(
    recording: Recording, router: str | None, is_valid: bool
) -> None:
    through = {"middleware": "zenoh", "discovery": "server"}
    recording.trial = recording.trial.model_copy(
        update={"cell": recording.trial.cell.model_copy(update=through)}
    )
    measurement = recording.measurement()
    nodes = {"pub0": ("n1", "n1"), "sub0": ("n2", "n2"), "sub1": ("n2", "n2")}
    nodes |= {"discovery": (router, router)} if router else {}
    carried = {name: round(1.5 * count) for name, count in measurement.received_bytes.items()}
    assert recording.record(replace(measurement, carried_bytes=carried, nodes=nodes))["valid"] == is_valid


@pytest.mark.parametrize("recording", ["paced"], indirect=True)
@pytest.mark.parametrize(
    ("carried", "code"), [(900_000, ""), (800_000, "not-on-network: sub0 got 858000 bytes")]
)
def test_what_a_pod_received_crossed_the_network(recording: Recording, carried: int, code: str) -> None:
    """Also what is not payload: of 1,000,000 bytes, 42 of each packet are headers and 100,000 may be local."""
    recording.meters["sub0"]["attempt_interfaces"]["eth0"] |= {"rx_bytes": 1_000_000, "rx_packets": 1000}
    measurement = replace(recording.measurement(), carried_bytes={"sub0": carried})
    assert (recording.record(measurement)["reason"] or "").startswith(code)
    assert recording.record(measurement)["valid"] == (code == "")


@pytest.mark.parametrize("recording", ["best-effort"], indirect=True)
@pytest.mark.parametrize(("transport", "crossed"), [("multicast", True), ("unicast", False)])
def test_multicast_of_a_receiver_reaches_others_on_its_node_without_the_link(
    recording: Recording, transport: str, crossed: bool
) -> None:
    cell = recording.trial.cell.model_copy(update={"transport": transport})
    recording.trial = recording.trial.model_copy(update={"cell": cell})
    for name in ("sub0", "sub1"):
        counters = {"rx_bytes": 10**9, "rx_packets": 10**6, "tx_bytes": 5 * 10**8, "tx_packets": 5 * 10**5}
        recording.meters[name]["attempt_interfaces"] = {"eth0": counters}
    nodes = {"pub0": ("n1", "n1"), "sub0": ("n2", "n2"), "sub1": ("n2", "n2")}
    carried = {name: 5 * 10**8 for name in ("sub0", "sub1")}
    record = recording.record(replace(recording.measurement(), carried_bytes=carried, nodes=nodes))
    assert (record["reason"] or "").startswith("not-on-network") != crossed


def test_the_rate_of_a_burst_is_that_over_the_measured_time(recording: Recording) -> None:
    common = {"first_ns": 10**9, "last_ns": 10**9 + 10**6, "samples": 70}
    for name in ("sub0", "sub1"):
        recording.change(name, common_interval=common, received=80)
    record = recording.record()
    publisher = recording.reported("pub0")
    assert record["valid"] and sum(text.startswith("uneven: sub") for text in record["warnings"]) == 2
    assert record["samples_per_s"] == pytest.approx(80 / publisher["measured_s"])
    assert record["interval_s"] == pytest.approx(publisher["measured_s"])
    payload_bytes = recording.trial.cell.payload_bytes
    assert record["throughput_mbps"] == pytest.approx(record["samples_per_s"] * payload_bytes * 8 / 1e6)


@pytest.mark.parametrize(("share", "warned"), [(0.99, False), (0.97, True)])
def test_a_rate_may_be_missed_by_two_percent(recording: Recording, share: float, warned: bool) -> None:
    data = recording.reported("pub0")
    rate = data["sent"] / data["measured_s"] / share
    recording.set_cell(rate=rate)
    record = recording.record()
    assert record["achieved_rate_percent"] == pytest.approx(100 * share)
    assert [text.startswith("rate: ") for text in record["warnings"]] == [True] * warned


@pytest.mark.parametrize("recording", ["best-effort"], indirect=True)
@pytest.mark.parametrize(("limit", "warned"), [(19, True), (20, False)])
def test_a_loss_above_the_limit_is_a_result_with_a_warning(
    recording: Recording, limit: float, warned: bool
) -> None:
    recording.set_trial(max_loss_percent=limit)
    received, before = recording.reported("sub1")["received"], recording.record()["lost"]
    recording.change("sub1", lost=received // 4)
    record = recording.record()
    assert record["valid"] and record["throughput_mbps"] > 0 and record["lost"] > before
    assert any(text.startswith("loss: sub1 lost 20 % of the") for text in record["warnings"]) == warned


@pytest.mark.parametrize("recording", ["paced"], indirect=True)
@pytest.mark.parametrize(
    ("link", "limit", "reason"),
    [
        (Link(loss=Loss(percent=10)), 100, None),
        (Link(loss=Loss(percent=10)), 99, "lost-samples"),
        (Link(rate_mbit=54), 100, "lost-samples"),
        (Link(rate_mbit=54, engine="userspace"), 100, "lost-samples"),
    ],
)
def test_a_reliable_trial_may_lose_samples_over_impaired_links_without_a_limit(
    recording: Recording, link: Link, limit: float, reason: str | None
) -> None:
    assert recording.trial.cell.reliability == "reliable"
    recording.set_cell(link=link)
    recording.set_trial(max_loss_percent=limit)
    recording.change("sub0", lost=7)
    record = recording.record()
    assert (Reason.read(record["reason"]).code if record["reason"] else None) == reason, record["reason"]
    assert record["lost"] == 7 and record["lost_percent"] > 0


@pytest.fixture
def silent(tmp_path: Path) -> Recording:
    """Return a trial over a link with so much loss that no sample of 512 KiB arrived: both participants exit with 5."""
    return Recording("nothing-arrived", tmp_path)


def of_silent(it: Recording, pub0: int = 5, sub0: int = 5) -> Measurement:
    return it.measurement(pub0=pub0, sub0=sub0)


def test_that_no_sample_arrives_over_links_that_lose_packets_is_a_result(silent: Recording) -> None:
    record = silent.record(of_silent(silent))
    for name in (
        *find("paced").metrics,
        "sent",
        "received",
        "lost_percent",
        "delay_by_subscriber",
        "missing",
    ):
        assert record[name] == silent.expected[name], name
    assert record["valid"] and record["lost"] == record["sent"] > 0
    shares = ("lost_percent", "deadline_missed_percent")
    assert {record[name] for name in shares} == {100} and record["achieved_rate_percent"] == 100
    assert record["blind_ms"] == pytest.approx(1000 * silent.trial.duration_s, rel=1e-3), "the whole interval"
    times = [name for name in METRICS if name.startswith("delay_")]
    assert {record[name] for name in (*times, "age_mean_us", "age_max_us")} == {None}
    named = {name for name in times if name != "delay_jitter_us"}
    assert record["missing"] == dict.fromkeys(named, "no sample arrived") and record["delay_count"] == 0
    codes = [Reason.read(text).code for text in record["warnings"]]
    assert {"no-samples", "loss", "cpu-interval"} <= set(codes)
    assert checked(record, "trials.jsonl:1") == record, "it is read again as it was written"


def test_that_publishers_drop_all_samples_is_a_result_if_less_was_sent(silent: Recording) -> None:
    silent.set_cell(middleware="zenoh", link=Link())
    (silent.folder / "links.json").unlink()
    written = silent.expected["sent"] * silent.trial.cell.payload_bytes
    out, into = (silent.meters[name]["interfaces"]["eth0"] for name in ("pub0", "sub0"))
    unproven = "no link is known to have lost packets"
    for sent, arrived, why in (
        (written - 1, written // 2, None),
        (written, written // 2, unproven),
        (written - 1, 50_000, unproven),  # discovery
        (200, 200, unproven),
    ):
        out["tx_bytes"], into["rx_bytes"] = sent, arrived
        record = silent.record(of_silent(silent))
        assert (why or "") in str(record["reason"]) and record["valid"] == (why is None)
    silent.set_cell(middleware="cyclonedds")
    assert not silent.record(of_silent(silent))["valid"], "it never drops samples by itself"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda it: it.set_cell(link=Link()), "no-samples: pub0: no sample arrived"),
        (lambda it: it.set_cell(link=Link(rate_mbit=54)), "no-samples: pub0: no sample arrived"),
        (lambda it: it.set_cell(link=Link(loss=Loss(percent=10))), r"link: \w+ of node\d: .* not 10 %"),
        (
            lambda it: (it.folder / "links.json").unlink(),
            "no-samples: .* no link is known to have lost packets",
        ),
        (lambda it: it.change("pub0", sent=0), "no-samples: pub0: no sample arrived"),
        (lambda it: it.set_cell(test="outage"), "no-samples: pub0: no sample arrived"),
        (lambda it: it.set_cell(reliability="reliable"), "lost-samples: "),
        (lambda it: it.write("sub0", ""), "no-report: "),
        (lambda it: of_silent(it, sub0=4), "peer-lost: sub0"),
        (lambda it: of_silent(it, sub0=139), "crashed: sub0"),
    ],
)
def test_that_no_sample_arrives_needs_the_proof_of_the_links(
    silent: Recording, change: Callable[[Recording], Measurement | None], why: str
) -> None:
    changed = change(silent)
    measured = changed if isinstance(changed, Measurement) else of_silent(silent)
    assert re.match(why, reason(silent.record(measured)))


def test_a_reliable_trial_without_a_limit_of_the_loss_may_lose_all_samples(silent: Recording) -> None:
    silent.set_cell(reliability="reliable")
    silent.set_trial(max_loss_percent=100)
    assert silent.record(of_silent(silent))["valid"]


def test_a_throughput_test_in_which_nothing_arrives_measured_a_rate_of_0(silent: Recording) -> None:
    silent.set_cell(test="throughput", test_options={})
    record = silent.record(of_silent(silent))
    assert record["valid"] and (record["throughput_mbps"], record["samples_per_s"]) == (0, 0)
    assert not any(text.startswith("uneven") for text in record["warnings"])


def test_intervals_and_the_batch_that_was_used_are_recorded(recording: Recording) -> None:
    assert recording.record()["publisher_cpu_interval_s"] == pytest.approx(0.400141115)
    recording.meters["sub1"]["interval"]["duration_s"] += 0.1
    for name, last_ns in (("sub0", 380_000_000), ("sub1", 400_000_000)):
        recording.change(name, common_interval={"first_ns": 0, "last_ns": last_ns, "samples": 70})
    recording.change("pub0", qos={"batch_bytes": 4000})
    record = recording.record()
    assert record["subscriber_cpu_interval_s"] == pytest.approx((0.399658241 + 0.498923198) / 2)
    assert (record["interval_s"], record["batch_bytes"]) == (pytest.approx(0.39), 4000)


@pytest.mark.parametrize(
    ("timed_out", "unknown"),
    [(0, ""), (91, ""), (92, "p99"), (184, "p99 mean max"), (920, "p99 p90 mean max")],
)
@pytest.mark.parametrize("recording", ["latency"], indirect=True)
def test_percentiles_that_unanswered_pings_could_move_are_unknown(
    recording: Recording, timed_out: int, unknown: str
) -> None:
    recording.change("pub0", pongs_timed_out=timed_out)
    record = recording.record()
    assert (record["pings"], record["pings_unanswered"]) == (18385, timed_out)
    assert record["pings_unanswered_percent"] == pytest.approx(timed_out / 183.85)
    assert record["valid"] and record["latency_count"] == 18385
    quantities = ("p50", "p90", "p99", "mean", "max")
    assert {name for name in quantities if record[f"latency_{name}_us"] is None} == set(unknown.split())
    assert record["latency_p9999_us"] is None
    if not timed_out:
        assert record["missing"] == {"latency_p9999_us": "18385 values, 100000 are needed"}
    assert any(text.startswith("unanswered-pings: ") for text in record["warnings"]) == (timed_out > 183)


@pytest.mark.parametrize("recording", ["paced"], indirect=True)
def test_lost_and_unsent_samples_missed_their_deadline(recording: Recording) -> None:
    usual = recording.record()
    schedule = recording.reported("pub0")["schedule"]
    recording.change("pub0", sent=190, schedule=schedule | {"not_sent": 10})
    recording.change("sub0", received=190)
    recording.change("sub1", received=187)
    record = recording.record()
    assert record["achieved_rate_percent"] == 95
    assert record["deadline_missed"] == usual["deadline_missed"] + 10 + 13
    assert record["deadline_missed_percent"] == pytest.approx(record["deadline_missed"] / 400 * 100)
    assert any(text.startswith("rate: pub0") and "did not send 10" in text for text in record["warnings"])


@pytest.mark.parametrize("recording", ["best-effort"], indirect=True)
def test_unanswered_pings_of_a_throughput_test_cost_only_its_buffer_delay(recording: Recording) -> None:
    recording.change("pub0", pongs_timed_out=5)
    record = recording.record()
    assert record["valid"] and record["loaded_latency_p50_us"] is None
    assert record["missing"]["loaded_latency_p50_us"].startswith("33.3 % of the values are missing")


@pytest.mark.parametrize(
    ("code", "word"),
    [(2, "usage"), (3, "no-match"), (4, "peer-lost"), (5, "no-samples"), (6, "middleware"), (124, "deadline"),
     (125, "part-failed"), (127, "not-started"), (9, "crashed"), (139, "crashed"), (130, "part-failed"),
     (137, "part-failed"), (143, "part-failed")],
)  # fmt: skip
def test_every_exit_code_has_its_reason(recording: Recording, code: int, word: str) -> None:
    (recording.folder / "pub0" / "stderr").write_text("first\nlast line\n")
    text = reason(recording.record(recording.measurement(pub0=code)))
    assert text.startswith(f"{word}: pub0: ")
    assert text.endswith("last line")


def test_participants_without_a_match_are_a_result_only_of_a_search_for_subscribers(
    recording: Recording,
) -> None:
    unmatched = recording.measurement(pub0=3)
    for options, valid in (({}, False), ({"max_subscribers": 40}, True)):
        recording.set_cell(test="capacity", test_options=options, rate=100)
        record = recording.record(unmatched)
        assert record["valid"] is valid
        stated = " ".join(record["warnings"]) if valid else reason(record)
        assert valid or not record["warnings"]
        assert "no-match: pub0: the participants did not discover each other" in stated


@pytest.mark.parametrize(
    ("outside", "user_s", "disturbed"),
    [
        (OutsideCpu(others=9.0), 0.0, ""),
        (OutsideCpu(others=40.0), 0.0, "disturbed: other processes used 40 % of a core during the attempt"),
        (OutsideCpu(links=0.0), 0.5, "disturbed: other processes used "),
        (OutsideCpu(links=1000.0), 0.5, ""),
    ],
)
def test_work_of_other_programs_is_a_warning_unless_they_emulate_links(
    recording: Recording, outside: OutsideCpu, user_s: float, disturbed: str
) -> None:
    recording.meters["pub0"]["machine"]["user_s"] += user_s
    measured = recording.measurement()
    nodes = {name: ("node0", "lab") for name in measured.outcomes}
    warnings = recording.record(replace(measured, nodes=nodes, outside={"lab": outside}))["warnings"]
    assert [text[: len(disturbed)] for text in warnings] == ([disturbed] if disturbed else [])


def test_ip_fragments_are_counted_and_contradict_mtu(recording: Recording) -> None:
    recording.meter("pub0", "network", ip_frag_creates=3 * recording.expected["sent"])
    record = recording.record()
    fragments = record["ip_fragments_created"]
    assert fragments == 3 * record["sent"] and record["ip_fragments_per_sent_sample"] == 3
    assert (record["message_bytes"], record["fragment_bytes"]) == ("auto", "default")
    assert record["effective_message_bytes"] == 14720 and record["warnings"] == []
    recording.set_cell(message_bytes="mtu")
    (warning,) = recording.record()["warnings"]
    assert warning.startswith(f"fragmented: pub0 created {fragments} IP fragments")
    recording.meter("pub0", "network", ip_frag_creates=0)
    record = recording.record()
    assert record["warnings"] == [] and record["ip_fragments_per_sent_sample"] == 0


def test_a_value_that_json_does_not_have_invalidates_the_record_and_is_null(recording: Recording) -> None:
    recording.meters["pub0"]["machine"]["busy_s"] = 1e308
    record = recording.record()
    assert record["reason"].startswith("damaged: machine_cpu_percent: inf is not possible")
    assert record["machine_cpu_percent"] is None and json.dumps(record, allow_nan=False)


def test_the_machine_is_not_metered_over_a_few_ticks(recording: Recording) -> None:
    """A paced trial with one sample measures for milliseconds, of which each busy core has a whole tick or none."""
    recording.meters["pub0"]["interval"]["duration_s"] = 0.0042
    record = recording.record()
    assert record["valid"] and not any(text.startswith("disturbed") for text in record["warnings"])
    assert record["machine_cpu_percent"] is record["softirq_percent"] is record["nodes_cpu"] is None


def test_an_attempt_without_files_has_a_record(recording: Recording) -> None:
    participants = recording.trial.cell.participants
    for participant in participants:
        shutil.rmtree(recording.folder / participant.name)
    gone = Measurement({p.name: Outcome(p, 125, None, "not ready") for p in participants}, None, {})
    record = recording.record(gone)
    assert reason(record).startswith("not-started")
    assert record["throughput_mbps"] is record["publisher_cpu_percent"] is None


def test_a_trial_that_did_not_run_as_requested_is_not_valid(recording: Recording) -> None:
    requested = {"realtime_priority": 50, "lock_memory": True, "dscp": 46}
    recording.set_cell(**requested)
    for participant in recording.trial.cell.participants:
        transport = recording.reported(participant.name)["transport"]
        recording.change(participant.name, transport=transport | {"dscp": [46]})
        recording.meters[participant.name]["execution"] = {
            "threads": {"fifo 50": 9}, "locked_bytes": 4096, "cpus": "0",
        }  # fmt: skip
    record = recording.record()
    assert record["valid"], record["reason"]
    assert {key: record[key] for key in requested} == requested
    assert record["execution"]["pub0"] == {
        "threads": {"fifo 50": 9}, "locked_bytes": 4096, "cpus": "0", "dscp": [46],
    }  # fmt: skip
    for key, value, code in (
        ("threads", {"fifo 50": 8, "other": 1}, "not-real-time"),
        ("locked_bytes", 0, "not-locked"),
    ):
        execution = recording.meters["sub0"]["execution"]
        recording.meters["sub0"]["execution"] = execution | {key: value}
        assert str(recording.record()["reason"]).startswith(f"{code}: ")
        recording.meters["sub0"]["execution"] = execution
    recording.change("sub0", transport=transport | {"dscp": [0, 46]})
    assert recording.record()["reason"] == "not-marked: the sockets of sub0 have the DSCP [0, 46]"


@pytest.mark.parametrize(("middleware", "recorded"), [("zenoh", True), ("fastdds", False)])
def test_locked_memory_is_recorded_where_participants_may_lock_what_they_share(
    recording: Recording, middleware: str, recorded: bool
) -> None:
    recording.set_cell(network="host", middleware=middleware, transport="shared-memory")
    recording.meters["pub0"]["execution"] = {"threads": {"other": 9}, "locked_bytes": 4096, "cpus": "0"}
    execution = recording.record().get("execution")
    assert (execution["pub0"]["locked_bytes"] == 4096) if recorded else execution is None


@pytest.mark.parametrize("recording", ["best-effort"], indirect=True)
@pytest.mark.parametrize(("second", "warned"), [(100, False), (70, True)])
def test_a_rate_that_changes_within_a_trial_is_a_warning(
    recording: Recording, second: int, warned: bool
) -> None:
    rates = [100] * 20 + [second] * 21
    rows = [f"{100 * number},{rate},{rate * 1000}" for number, rate in enumerate(rates, 1)]
    for name in ("sub0", "sub1"):
        (recording.folder / name / "timeline.csv").write_text("\n".join(["elapsed_ms,samples,bytes", *rows]))
    record = recording.record()
    assert record["valid"] and len(record["warnings"]) == warned
    for text in record["warnings"]:
        assert text.startswith("unsteady: ") and "lower than that of the first by 35.3% of the mean" in text


@pytest.mark.parametrize("name", [name for name, axis in AXES.items() if axis.scope == PROCESS])
def test_a_setting_of_processes_that_is_not_seen_in_effect_makes_a_trial_invalid(
    recording: Recording, name: str
) -> None:
    recording.set_cell(**{name: OTHER_VALUE[name]})
    record = recording.record()
    assert reason(record) and record["execution"]
