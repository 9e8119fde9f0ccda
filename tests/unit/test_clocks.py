"""Test the bounds of clocks with recorded output of chronyc 4.3 and pmc 3.1.1.

The daemons ran in two network namespaces without changing the clock (`chronyd -x`; `free_running` for ptp4l, whose slave
then stays UNCALIBRATED).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.deploy import clocks
from k8sdds.model.measurement import ClockState
from k8sdds.model.trial import Cell, Participant, participants
from k8sdds.system.errors import K8sddsError
from k8sdds.system.ssh import Connections, HostError, ScriptResult
from k8sdds.testbeds.cluster import evidence
from k8sdds.testbeds.cluster.evidence import NO_ACCESS, clock_error
from k8sdds.testbeds.cluster.pod_pool import ReadyPod

CHRONY = (
    "chrony\n0A620001,10.98.0.1,9,1795349819.604693744,-0.000002624,-0.000000160,0.000000487,0.014,-0.002,0.117,"
    "0.000007674,0.000001926,1.0,Normal\n"
)
LOCAL = (
    "chrony\n7F7F0101,,8,1795349804.412621811,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,0.000000000,"
    "0.000000000,0.0,Normal\n"
)
UNSYNCHRONIZED = (
    "chrony\n00000000,,0,0.000000000,-0.000000001,0.000000000,0.000000000,0.001,0.000,0.000,1.000000000,1.000000000,"
    "0.0,Not synchronised\n"
)
UNCALIBRATED = """\
ptp4l
sending: GET TIME_STATUS_NP
sending: GET CURRENT_DATA_SET
\tc62579.fffe.10c723-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP\x20
\t\tmaster_offset              96
\t\tingress_time               1795349871855524216
\t\tcumulativeScaledRateOffset +0.000000000
\t\tscaledLastGmPhaseChange    0
\t\tgmTimeBaseIndicator        0
\t\tlastGmPhaseChange          0x0000'0000000000000000.0000
\t\tgmPresent                  true
\t\tgmIdentity                 f6de1d.fffe.576873
sending: GET PORT_PROPERTIES_NP
\tc62579.fffe.10c723-0 seq 1 RESPONSE MANAGEMENT CURRENT_DATA_SET\x20
\t\tstepsRemoved     1
\t\toffsetFromMaster 96.0
\t\tmeanPathDelay    1352.0
\tc62579.fffe.10c723-1 seq 2 RESPONSE MANAGEMENT PORT_PROPERTIES_NP\x20
\t\tportIdentity            c62579.fffe.10c723-1
\t\tportState               UNCALIBRATED
\t\ttimestamping            SOFTWARE
\t\tinterface               eth0
"""
SLAVE = UNCALIBRATED.replace("UNCALIBRATED", "SLAVE")
GRANDMASTER = (
    SLAVE.replace("SLAVE", "MASTER")
    .replace("96.0", "0.0")
    .replace("1352.0", "0.0")
    .replace("gmPresent                  true", "gmPresent                  false")
)
"""Its GM identity is its own; the other values are 0 in the recorded output, too."""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        # 1.926 + 7.674 / 2 + 2.624
        (CHRONY, ClockState("chrony", pytest.approx(8.387), "true time")),
        (SLAVE, ClockState("ptp4l", pytest.approx(1.448), "f6de1d.fffe.576873")),
        (GRANDMASTER, ClockState("ptp4l", 0, "f6de1d.fffe.576873")),
    ],
    ids=["chrony", "ptp4l", "grandmaster"],
)
def test_a_synchronized_clock_has_a_bound(output: str, expected: ClockState) -> None:
    assert clocks.parse(output) == expected


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "neither chronyd nor ptp4l"),
        ("chrony\n506 Cannot talk to daemon\n", "chrony: 506 Cannot talk to daemon"),
        ("chrony\n", "chrony: no output"),
        (UNSYNCHRONIZED, "chrony: its clock is not synchronized"),
        (LOCAL, "chrony: its clock follows no other clock"),
        (CHRONY.replace("Normal", "Fine"), "chrony: 0A620001,10.98.0.1,9"),
        (CHRONY.replace("0.000007674", "nan"), "not a number: nan"),
        (CHRONY.replace("0.000007674", "1e-6"), "not a number: 1e-6"),
        (CHRONY.replace("0.000001926", "-0.1"), "chrony: 0A620001"),
        (CHRONY + CHRONY.partition("\n")[2], "chrony: 0A620001"),
        (UNCALIBRATED, "ptp4l: its clock is not synchronized (port state UNCALIBRATED)"),
        (SLAVE.replace("SOFTWARE", "HARDWARE"), "let chrony follow that clock"),
        (SLAVE.replace("1352.0", "0.0"), "has not measured the path delay"),
        (SLAVE.replace("96.0", "inf"), "not a number: inf"),
        ("ptp4l\nsending: GET TIME_STATUS_NP\nsending: GET CURRENT_DATA_SET\n", "ptp4l: sending: GET TIME_STATUS_NP"),
        ("sntp\n\x1b[31mred\x00", "unknown output: sntp [31mred"),
    ],
)  # fmt: skip
def test_other_output_gives_no_bound_but_a_reason(output: str, reason: str) -> None:
    state = clocks.parse(output)
    assert state.error_us is None
    assert reason in state.reason
    assert state.reason.isprintable() and len(state.reason) < 300


@given(
    st.sampled_from([CHRONY, SLAVE, "chrony\n", "ptp4l\n", ""]),
    st.integers(0, len(CHRONY)),
    st.text(max_size=20),
)
def test_a_damaged_report_never_gives_a_negative_bound(report: str, at: int, text: str) -> None:
    error_us = clocks.parse(report[:at] + text + report[at:]).error_us
    assert error_us is None or error_us >= 0


# -- the clocks of a trial --------------------------------------------------------------------------------------------


def pods(**nodes: str) -> dict[str, ReadyPod]:
    """Return pods on these nodes. Nodes with the same first letter share a machine."""
    return {
        name: ReadyPod(f"{name}-pod", "10.0.0.1", "eth0", 1500, node, {"boot_id": node[0]})
        for name, node in nodes.items()
    }


def pairs(subscribers: int) -> list[tuple[Participant, Participant]]:
    """Return the first publisher with each of these subscribers."""
    publisher, *others = participants(1, subscribers)
    return [(publisher, other) for other in others]


def states(**errors_us: float | None) -> dict[str, ClockState]:
    return {
        node: ClockState("chrony", error_us, "true time", "" if error_us is not None else "chrony: stopped")
        for node, error_us in errors_us.items()
    }


def test_the_worst_pair_of_machines_and_the_worse_reading_count() -> None:
    everyone = pods(pub0="a", sub0="b", sub1="c")
    error = clock_error(pairs(2), everyone, [states(a=1, b=2, c=4), states(a=5, b=2, c=3)])
    assert (error.bound_us, error.source) == (9, "chrony")
    # Subscribers run on the publisher's machine or on b; the clocks of two subscribers are not compared.
    paired = pods(pub0="a1", sub0="a1", sub1="b")
    assert clock_error(pairs(2), paired, [states(a1=1, b=2)] * 2).bound_us == 3


def test_clocks_of_nodes_of_a_graph_that_run_as_subscribers_are_compared() -> None:
    publisher, *others = participants(1, 2)
    readings = [states(a=0.1, b=5, c=5)] * 2
    everyone = pods(pub0="a", sub0="b", sub1="c")
    assert clock_error([(publisher, others[0]), (others[0], others[1])], everyone, readings).bound_us == 10
    assert clock_error([(publisher, others[0])], pods(pub0="a1", sub0="a2"), []).bound_us == 0


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        ([{}, {}], NO_ACCESS),
        ([states(a=1, b=2), states(a=1, b=None)], "b: chrony: stopped"),
        (
            [{"a": ClockState("ptp4l", 1.0, "00.1"), "b": ClockState("ptp4l", 1.0, "00.2")}] * 2,
            "follow different clocks: a 00.1 by ptp4l, b 00.2 by ptp4l",
        ),
        (
            [{"a": ClockState("ptp4l", 1.0, "00.1"), "b": ClockState("chrony", 1.0, "true time")}] * 2,
            "follow different clocks",
        ),
    ],
)
def test_an_unknown_clock_gives_no_bound_but_a_reason(
    readings: list[dict[str, ClockState]], reason: str
) -> None:
    error = clock_error(pairs(1), pods(pub0="a", sub0="b"), readings)
    assert error.bound_us is None and reason in error.source


class FakeHost:
    """A machine that returns this output for the script, or cannot be reached."""

    def __init__(self, output: str | None) -> None:
        self._output = output

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        assert script == clocks.SCRIPT and timeout_s
        if self._output is None:
            raise HostError("c", "no answer within 10 s", "check it")
        return ScriptResult(0, self._output, "")


def test_a_node_that_does_not_answer_has_no_bound() -> None:
    connections = Connections([])
    connections.hosts.update(a=FakeHost(CHRONY), b=FakeHost(""), c=FakeHost(None))  # type: ignore[arg-type]
    read = clocks.read(connections, ["a", "b", "c"])
    assert read["a"].error_us == pytest.approx(8.387)
    assert read["b"].error_us is None and "neither" in read["b"].reason
    assert read["c"].error_us is None and "no answer" in read["c"].reason


def test_clocks_are_not_read_after_participants_that_did_not_get_ready() -> None:
    cell = Cell(network="host", test="paced", payload_bytes=64)
    clocks_of = evidence.clocks("no-such-cluster", cell, {})
    assert clocks_of.after({}) == {}
    with pytest.raises(K8sddsError, match="no-such-cluster"):
        clocks_of.before()
