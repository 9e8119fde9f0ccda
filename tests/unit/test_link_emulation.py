"""What engines of links are asked to do, and whether an attempt's links did it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import link_conditions
from k8sdds.links import with_engines
from k8sdds.model import link_files
from k8sdds.model.experiment import Experiment
from k8sdds.model.impairments import Delay, Direction, Loss, Queue, Rate
from k8sdds.model.link import KERNEL, USERSPACE, Link
from k8sdds.model.trial import Cell
from k8sdds.results import link_statistics
from k8sdds.testbeds.lab import netem
from k8sdds.testbeds.lab.plan import Plan, make_plan
from k8sdds.testbeds.lab.preflight import _contradiction
from k8sdds.testbeds.lab.topology import SWITCH, emulated
from k8sdds.testbeds.link_emulation import Port, configuration, schedule

PORT = Port("node0", "link-node0", "far-node0")


def emulation(**link: Any) -> dict[str, Any]:
    found: dict[str, Any] = configuration(Link(**link), [PORT], 7, None)["links"][0]
    return found


def test_the_standard_deviation_of_each_distribution_is_the_requested_one() -> None:
    """netem's jitter is half of the width of a uniform distribution, and a scale of the pareto table."""
    up = emulation(delay={"mean_us": 4000, "jitter_us": 600, "distribution": "uniform"})["up"]["delay"]
    assert (up["mean_us"], up["jitter_us"]) == (4000, pytest.approx(600 * 3**0.5))
    up = emulation(delay={"mean_us": 4000, "jitter_us": 820, "distribution": "pareto"})["up"]["delay"]
    assert up["jitter_us"] == pytest.approx(1000, rel=1e-3)
    assert up["mean_us"] == pytest.approx(4033.5, rel=1e-4)


def test_short_keys_apply_once_to_the_way_between_two_nodes() -> None:
    link = emulation(delay_us=2000, loss_percent=1, rate_mbit=10, engine=USERSPACE)
    usual = {"rate": {"mbit": 10}, "queue": {"ms": 50, "discipline": "drop-tail"}}
    assert link["up"] == {"delay": {**link["up"]["delay"], "mean_us": 2000}, **usual}
    assert link["down"] == {"loss": {"percent": 1, "udp_only": True}, **usual}


def plan(network: str = "flannel-vxlan", **link: Any) -> Plan:
    return make_plan(Cell(network=network, test="paced", payload_bytes=64, rate=10, link=Link(**link)))


def test_a_wifi_outage_is_a_low_rate_and_then_silence_after_which_the_link_is_restored() -> None:
    once = {"at_s": 2, "for_s": 0.5, "kind": "wifi", "fading_s": 0.25}
    link = Link(rate_mbit=54, outages=once, engine=USERSPACE)
    assert schedule(link.outage_phases(3)) == [(1_750_000, "rate 6"), (2_000_000, "100"), (2_500_000, "off")]
    link = Link(rate_mbit=54, outages={"every_s": 4, "for_s": 0.5, "kind": "wifi"}, engine=USERSPACE)
    assert schedule(link.outage_phases(8)) == [
        (1_000_000, "rate 6"), (2_000_000, "100"), (2_500_000, "off"),
        (5_000_000, "rate 6"), (6_000_000, "100"), (6_500_000, "off"),
    ]  # fmt: skip
    assert schedule([]) == []


def test_only_chosen_nodes_have_a_forwarder_between_their_link_and_the_switch() -> None:
    built = plan(loss={"percent": 1}, nodes="subscribers", engine=USERSPACE)
    assert emulated(built.topology, built.cell.link) == [Port("node1", "link-node1", "far-node1")]
    switch = "\n".join(
        line
        for batch in built.batches
        if (batch.namespace, batch.tool) == (SWITCH, "ip")
        for line in batch.lines
    )
    assert "link add far-node1 mtu 1500 type veth peer name to-node1 mtu 1500" in switch
    assert "link add link-node1 mtu 1500 type veth peer name eth0 mtu 1500" in switch
    assert "link add to-node0 mtu 1500 type veth peer name eth0" in switch and "link-node0" not in switch
    split = {batch.namespace for batch in built.batches if batch.tool == "ethtool"}
    assert split == {"node1", SWITCH}


def test_netem_gets_both_directions_and_a_queue_behind_the_delay() -> None:
    direction = Direction(
        delay=Delay(mean_us=2000, jitter_us=500),
        loss=Loss(p_percent=1, r_percent=25, h_percent=10),
        rate=Rate(mbit=54),
        queue=Queue(packets=200, discipline="codel"),
    )
    assert netem.queues("eth0", direction, 1500) == (
        "qdisc replace dev eth0 root handle 3: tbf rate 400gbit burst 1518 limit 1518",
        "qdisc add dev eth0 parent 3:1 handle 1: netem limit 1000000 delay 2000us 500us distribution normal"
        " loss gemodel 1% 25% 90% 0% rate 400gbit",
        "qdisc add dev eth0 parent 1:1 handle 2: tbf rate 54000kbit burst 3036 limit 1518",
        "qdisc add dev eth0 parent 2:1 codel limit 200",
    )
    built = plan(delay={"mean_us": 1000, "jitter_us": 10}, engine=KERNEL)
    devices = {(batch.namespace, batch.lines[0].split()[3]) for batch in built.batches if batch.tool == "tc"}
    assert devices == {("node0", "eth0"), ("node1", "eth0"), (SWITCH, "to-node0"), (SWITCH, "to-node1")}


@pytest.mark.parametrize(
    ("mbit", "mtu", "queue", "shape"),
    [
        # A jumbo frame passes through every bucket and queue.
        (1, 9000, Queue(ms=1), "burst 18036 limit 9018"),
        (1000, 1500, Queue(ms=20), "burst 31250 limit 2500000"),
        (54, 1500, Queue(bytes=100_000), "burst 3036 limit 100000"),
        (54, 1500, None, "burst 3036 limit 337500"),
    ],
)
def test_the_bucket_of_a_rate_is_small(mbit: float, mtu: int, queue: Queue | None, shape: str) -> None:
    _, netem_line, tbf = netem.queues("eth0", Direction(rate=Rate(mbit=mbit), queue=queue), mtu)
    assert netem_line.endswith("netem limit 1000000") and tbf.endswith(shape)


# Linux 6.1.0-56 of Debian: CoDel dropped 10 packets, which all queues above it count.
DROPPED = """[
{"kind": "netem", "handle": "1:", "root": true, "refcnt": 3, "options": {"limit": 1000000, "ecn": false, "gap": 0},
 "bytes": 104774, "packets": 107, "drops": 10, "overlimits": 0, "requeues": 0, "backlog": 0, "qlen": 0},
{"kind": "tbf", "handle": "2:", "parent": "1:1", "options": {"rate": 87500, "burst": 3035, "lat": 465303},
 "bytes": 104774, "packets": 107, "drops": 10, "overlimits": 283, "requeues": 0, "backlog": 0, "qlen": 0},
{"kind": "codel", "handle": "8002:", "parent": "2:1", "options": {"limit": 29, "target": 4999, "interval": 99999},
 "bytes": 104774, "packets": 107, "drops": 10, "overlimits": 0, "requeues": 0, "backlog": 0, "qlen": 0, "count": 7,
 "lastcount": 1, "ldelay": 4, "drop_next": 0, "maxpacket": 1042, "ecn_mark": 0, "drop_overlimit": 0}]"""


def test_what_the_queue_of_a_rate_drops_is_no_loss() -> None:
    found = netem.counters(DROPPED)
    assert found == netem.Counters(sent=107, lost=0, queue_drops=10, waiting=0)
    summary = found.summary(netem.Counters(sent=6, lost=0, queue_drops=0, waiting=1))
    assert summary == {"packets": 110, "lost": 0, "decided": 110, "queue_drops": 10, "outage_drops": 0}
    assert netem.counters('[{"kind": "noqueue", "handle": "0:", "root": true, "refcnt": 2}]') is None


def test_what_the_kernel_counts_proves_its_loss() -> None:
    def seen(lost: int) -> link_statistics.Conditions:
        counted = netem.Counters(4000, lost, 0, 0).summary(netem.Counters(0, 0, 0, 0))
        return {"node0": {"up": link_statistics.UNKNOWN | counted, "down": link_statistics.UNKNOWN}}

    assert not link_conditions.differing(Link(up={"loss": {"percent": 20}}, engine=KERNEL), seen(1000), 1)
    wrong = link_conditions.differing(Link(up={"loss": {"percent": 25}}, engine=KERNEL), seen(1000), 1)
    assert wrong == "up of node0: 1000 of 5000 packets were lost, not 25 %"
    # netem drops packets when it has no room for them.
    overflow = link_conditions.differing(Link(rate_mbit=1, engine=KERNEL), seen(1), 1)
    assert overflow == "up of node0: 1 of 4001 packets were lost, not 0 %"
    counted = summary(simulated(Loss(percent=0), 1, 1))["node0"]["up"]
    assert list(counted) == list(link_statistics.UNKNOWN)


DELAY = {"delay": {"mean_us": 100}}


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ({"test": "tcp-stream", "link": {**DELAY, "engine": KERNEL}}, None),
        ({"link": {**DELAY, "engine": USERSPACE, "offloads": {"tso": True}}}, "switches tso on"),
        ({"link": {**DELAY, "engine": USERSPACE, "lag": 2}}, "members of a LAG"),
        ({"test": "tcp-stream", "link": {**DELAY, "engine": USERSPACE, "offloads": {"gro": True}}}, None),
        ({"test": "tcp-stream", "link": {"rate_mbit": 10, "offloads": {"tso": True}}}, None),
    ],
)  # fmt: skip
def test_engines_impair_each_packet_of_the_wire(cell: dict[str, Any], text: str | None) -> None:
    values = {"network": "host", "test": "throughput", "payload_bytes": 1024} | cell
    problem = _contradiction(Cell(**values))
    assert text in problem.what if problem and text else problem is None and text is None


@pytest.mark.parametrize(
    ("link", "has_netem", "engine"),
    [
        ({"rate_mbit": 10, "loss_percent": 1}, False, "auto"),
        ({"delay_us": 100}, True, "auto"),
        ({"delay_us": 100}, False, USERSPACE),
        ({"delay": {"mean_us": 100, "jitter_us": 10}}, True, KERNEL),
        ({"delay": {"mean_us": 100, "jitter_us": 10}}, False, USERSPACE),
        ({"delay": {"mean_us": 100, "jitter_us": 10, "correlation_percent": 25}}, True, USERSPACE),
        ({"outages": {"at_s": 1, "for_s": 1}}, True, USERSPACE),
        ({"mtu": 9000}, False, "auto"),
    ],
)
def test_the_engine_is_part_of_the_link_where_there_is_a_choice(
    link: dict[str, Any], has_netem: bool, engine: str
) -> None:
    experiment = Experiment.model_validate({"name": "x", "link": link, "sweeps": [{"networks": ["host"]}]})
    (choice,) = with_engines(experiment, has_netem).link
    assert next(choice.each()).engine == engine


# -- what an attempt proves -----------------------------------------------------------------------------


def simulated(
    loss: Loss, packets: int, seed: int, error_us: float = 20, delay_us: float = 200
) -> dict[str, Any]:
    """Return statistics as `k8sdds-link` prints them, for a chain of Gilbert and Elliott with other code."""
    p, r, h, k = (percent / 100 for percent in loss.states)
    numbers = random.Random(seed)
    runs: dict[bool, list[int]] = {True: [], False: []}
    before, bad = None, False
    for _ in range(packets):
        lost = numbers.random() >= (h if bad else k)
        bad = numbers.random() >= r if bad else numbers.random() < p
        if lost == before:
            runs[lost][-1] += 1
        else:
            runs[lost].append(1)
        before = lost
    delays = {"p50": 100, "p99": delay_us}
    direction = {
        "packets_in": packets,
        "dropped": dict.fromkeys(("queue", "outage", "missed", "overflow", "unsent"), 0)
        | {"loss": sum(runs[True])},
        "loss_bursts": [[length, 1] for length in runs[True]],
        "loss_decisions": packets,
        "oversized": 0,
        "duplicated": 0,
        "reordered": 0,
        "delay_us": delays,
        "error_us": delays | {"p99": error_us},
        "rate": None,
        "series": {"bin_ms": 100} | {name: [] for name in SERIES},
    }
    return {"started_us": 0, "outages": [], "links": {"node0": {"up": direction, "down": direction}}}


SERIES = ("packets_in", "bytes_out", "lost", "queue", "outage", "mean_delay_us")
MEASURED = (10e6, 14e6)


def summary(
    statistics: dict[str, Any], measured: link_statistics.Interval | None = None
) -> link_statistics.Conditions:
    read = link_statistics.LinkStatistics.model_validate(statistics)
    return link_statistics.summary(read, measured)


def differing(link: Link, statistics: dict[str, Any]) -> str:
    return link_conditions.differing(link, summary(statistics, MEASURED), 4)


LOSSES = [
    Loss(percent=1),
    Loss(percent=30),
    Loss(p_percent=1, r_percent=25),
    Loss(p_percent=0.01, r_percent=10),
    Loss(p_percent=2, r_percent=50, h_percent=20, k_percent=99),
]


@pytest.mark.parametrize("loss", LOSSES, ids=Loss.describe)
@pytest.mark.parametrize("packets", [0, 100, 20_000])
def test_links_that_do_what_is_asked_are_accepted(loss: Loss, packets: int) -> None:
    assert not any(differing(Link(loss=loss), simulated(loss, packets, seed)) for seed in range(20))


@pytest.mark.parametrize(
    ("wanted", "done", "text"),
    [
        (Loss(percent=1), Loss(percent=1.5), "packets were lost, not 1 %"),
        (Loss(percent=1), Loss(percent=0), "0 of 20000 packets were lost, not 1 %"),
        (Loss(p_percent=1, r_percent=25), Loss(p_percent=1, r_percent=50), "not with 4 packets on average"),
        (Loss(p_percent=1, r_percent=25), Loss(p_percent=2, r_percent=25), "that passed, not 1 %"),
        (Loss(p_percent=1, r_percent=25), Loss(percent=100 / 26), "that passed, not 1 %"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.describe(),
)
def test_links_that_do_something_else_are_found(wanted: Loss, done: Loss, text: str) -> None:
    for seed in range(5):
        assert text in differing(Link(loss=wanted), simulated(done, 20_000, seed))


def test_late_packets_are_found() -> None:
    link = Link(delay=Delay(mean_us=10_000))
    assert not differing(link, simulated(Loss(percent=0), 100, 1, error_us=199, delay_us=10_000))
    late = differing(link, simulated(Loss(percent=0), 100, 1, error_us=201, delay_us=10_000))
    assert late == "up of node0: 1 % of the packets were late by 201 µs or more; at most 200 µs are allowed"


def test_late_packets_hide_nothing_else() -> None:
    statistics = simulated(Loss(percent=0), 20_000, 1, error_us=2000)
    assert "late by 2000 µs" in differing(Link(), statistics)
    lost = differing(Link(down={"loss": {"percent": 1}}), statistics)
    assert lost == "down of node0: 0 of 20000 packets were lost, not 1 %"
    outage = Link(outages={"at_s": 1, "for_s": 0.5}, engine=USERSPACE)
    assert "0 outages began in the measured interval, not 1" in differing(outage, statistics)


@pytest.mark.parametrize(
    ("cause", "text"),
    [("missed", "about 100,000 packets/s in each direction"), ("overflow", "lower the rate or the delay")],
)
def test_a_tiny_share_of_packets_may_not_be_forwarded(cause: str, text: str) -> None:
    statistics = simulated(Loss(percent=0), 20_000, 1)
    statistics["links"]["node0"]["down"]["dropped"][cause] = 2
    assert not differing(Link(), statistics)
    statistics["links"]["node0"]["down"]["dropped"][cause] = 3
    found = differing(Link(), statistics)
    assert "3 of 20000 packets were not forwarded" in found and text in found


def test_packets_above_the_mtu_are_found() -> None:
    statistics = simulated(Loss(percent=0), 100, 1)
    statistics["links"]["node0"]["down"]["oversized"] = 1
    assert "1 of 100 packets were larger than the MTU" in differing(Link(), statistics)


def test_the_kernel_must_have_counted() -> None:
    link = Link(up={"loss": {"percent": 20}}, engine=KERNEL)
    found = link_conditions.differing(
        link, {"node0": dict.fromkeys(("up", "down"), link_statistics.UNKNOWN)}, 1
    )
    assert found == "up of node0: what its queues did was not counted"


def test_recorded_losses_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "pattern").write_text("0010\n1\n")
    link = link_files.checked(Link(up={"loss": {"file": str(tmp_path / "pattern")}}))

    def seen(decided: int, lost: int, outage_drops: int = 0) -> str:
        statistics = simulated(Loss(percent=0), 100, 1)
        direction = statistics["links"]["node0"]["up"] = {**statistics["links"]["node0"]["up"]}
        direction["loss_decisions"] = decided
        direction["dropped"] = direction["dropped"] | {"loss": lost, "outage": outage_drops}
        return differing(link, statistics)

    assert not seen(0, 0) and not seen(3, 1) and not seen(10, 4)
    assert seen(10, 3) == "up of node0: 3 of 10 packets were lost, not 4 as recorded"
    assert "5 of 10" in seen(10, 5)
    # Of 12 packets, 4 are lost; an outage that drops two of them hides at most two losses.
    assert [lost for lost in range(8) if not seen(10, lost, outage_drops=2)] == [2, 3, 4]


def with_states(*states: tuple[float, str]) -> dict[str, Any]:
    """Return statistics with these states of all links, by the time since the measured interval began, in s."""
    changed = [
        {"node": "*", "at_us": 10_000_000 + round(at_s * 1e6), "state": state} for at_s, state in states
    ]
    return simulated(Loss(percent=0), 100, 1) | {"outages": changed}


def test_outages_are_proven_to_be_in_the_measured_interval() -> None:
    link = Link(outages={"at_s": 1, "every_s": 2, "for_s": 0.5}, engine=USERSPACE)
    done = with_states((1.003, "100"), (1.505, "off"), (3.001, "100"), (3.502, "off"))
    counted = summary(done, MEASURED)["node0"]["up"]
    assert (counted["outages"], counted["outage_s"]) == (2, pytest.approx(1.003))
    assert not differing(link, done)
    once = with_states((1, "100"), (1.5, "off"), (5, "100"), (5.5, "off"))
    assert differing(link, once) == "up of node0: 1 outages began in the measured interval, not 2"
    short = with_states((1, "100"), (1.4, "off"), (3, "100"), (3.5, "off"))
    assert "lasted 0.900 s of the measured interval, not 1.000 s" in differing(link, short)
    unknown = summary(done)
    assert "not known" in link_conditions.differing(link, unknown, 4)
    # What lasts longer than the interval counts until its end.
    last = Link(outages={"at_s": 3.5, "for_s": 30}, engine=USERSPACE)
    assert not differing(last, with_states((3.5, "100"))) and "0 outages" in differing(last, with_states())
