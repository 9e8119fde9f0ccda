"""Test when the samples of a schedule are due, against exact arithmetic, and the paced test that follows it."""

from __future__ import annotations

import itertools
import math
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perftest_tools import end_all, tool

from k8sdds.model import schedule_file

NS = 1_000_000_000


def lines_of(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("k8sdds-schedule-tool"), *map(str, args)], capture_output=True, text=True, check=False
    )


def schedule(profile: str, rate: float, seconds: float) -> list[int]:
    done = lines_of(profile, f"{rate:f}", f"{seconds:f}")
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def are_nearest(due: list[int], exact: list[Fraction]) -> bool:
    """Return whether all are rounded to whole ns; the program's floating-point numbers round halves in either way."""
    return all(
        abs(ns - each) <= Fraction(1, 2) + Fraction(1, 10**6) for ns, each in zip(due, exact, strict=True)
    )


rates = st.integers(1, 20_000)
milliseconds = st.integers(1, 300)


@given(rates, milliseconds)
def test_a_constant_rate(rate: int, ms: int) -> None:
    due = schedule("constant", rate, ms / 1000)
    expected = math.ceil(Fraction(rate * ms, 1000))
    assert are_nearest(due, [Fraction(number * NS, rate) for number in range(expected)])


@given(rates, st.integers(0, 20_000), milliseconds)
def test_a_ramp(rate: int, start: int, ms: int) -> None:
    if rate == start:
        return
    seconds = Fraction(ms, 1000)
    due = schedule(f"ramp:{start}", rate, ms / 1000)
    assert len(due) == math.ceil(Fraction(rate + start, 2) * seconds)
    assert due[0] == 0 and due == sorted(due)
    for number, ns in enumerate(due):
        t = Fraction(ns, NS)
        # As many samples are due until then as the area under the rate.
        until = start * t + Fraction(rate - start) / seconds * t * t / 2
        assert abs(until - number) < 1e-4


@given(rates, st.integers(1, 100), milliseconds)
def test_bursts(rate: int, samples: int, ms: int) -> None:
    due = schedule(f"burst:{samples}", rate, ms / 1000)
    bursts = math.ceil(Fraction(rate * ms, 1000 * samples))
    expected = [Fraction(burst * samples * NS, rate) for burst in range(bursts)]
    assert are_nearest(due, [ns for ns in expected for _ in range(samples)])


def test_on_off() -> None:
    due = schedule("on-off:0.1:0.3", 50, 1)
    assert due == [NS * ms // 1000 for start in (0, 400, 800) for ms in range(start, start + 100, 20)]
    # The end cuts a phase.
    assert len(schedule("on-off:0.1:0.3", 50, 0.45)) == 8


@pytest.mark.parametrize(
    ("profile", "samples"),
    [("constant", 300), ("ramp:0", 150), ("burst:50", 300), ("on-off:0.1:0.2", 100)],
)
def test_a_paced_test_sends_what_is_due(perftest, profile: str, samples: int) -> None:
    options = ("-pacedTest", "-pubRate", "500:sleep", "-rateProfile", profile)
    publisher, subscriber = perftest.pair(pub=options, time=0.6)
    p = publisher.k8sdds
    assert p["schedule"]["samples"] == p["sent"] + p["schedule"]["not_sent"] == samples
    assert p["sent"] == subscriber.k8sdds["received"] > 0
    assert p["options"]["rateProfile"] == profile


def test_the_deadline_of_a_burst_is_the_next_burst(perftest) -> None:
    options = ("-pacedTest", "-pubRate", "500:sleep", "-rateProfile", "burst:100")
    _, subscriber = perftest.pair(pub=options, time=0.6)
    assert subscriber.k8sdds["arrivals"]["deadline_ns"] == 200_000_000


# -- recorded schedules -----------------------------------------------------------------------------------

SMALL, LARGE = 1000, 60_000
PERIOD_US = 300_000
SAMPLES = ((0, SMALL), (10_000, LARGE), (10_000, SMALL), (20_000, LARGE))
"""Two sizes, two samples at one time, and a pause of 280 ms."""
SECONDS = 0.7
SENT = 12
"""The last pause is not over: three periods have begun."""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.txt"
    path.write_text(schedule_file.text(PERIOD_US, SAMPLES, ["/camera"]))
    return path


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(28, 1 << 26)), min_size=1, max_size=30),
    st.integers(1, 5000),
    st.integers(0, 30_000),
)
def test_samples_of_a_file_are_due_again_after_its_period(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], rest_us: int, until_us: int
) -> None:
    times = list(itertools.accumulate((step for step, _ in steps[1:]), initial=0))
    samples = [(time, size) for time, (_, size) in zip(times, steps, strict=True)]
    period_us = times[-1] + rest_us
    if len(samples) / period_us > 10:
        return
    path = tmp_path_factory.mktemp("schedule") / "recorded.txt"
    path.write_text(schedule_file.text(period_us, samples, []))
    done = lines_of("-schedule", path, f"{until_us / 1e6:.6f}")
    assert done.returncode == 0, done.stderr
    expected = [
        ((period * period_us + time) * 1000, size)
        for period in range(until_us // period_us + 1)
        for time, size in samples
        if period * period_us + time < until_us
    ]
    assert [tuple(map(int, line.split())) for line in done.stdout.splitlines()] == expected


WORDS = st.sampled_from(
    [
        "period",
        "0",
        "1",
        "28",
        "100",
        "5000",
        "1000000",
        "67108864",
        "9" * 12,
        "9" * 13,
        "-1",
        "x",
        "#",
        "\t",
        "\r",
        "\x0b",
    ]
)
HOSTILE = st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=6).map("\n".join)


@given(HOSTILE | HOSTILE.map(lambda text: f"period 100000\n0 28\n{text}"))
def test_both_readers_accept_the_same_files(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("schedule") / "recorded.txt"
    path.write_text(text, newline="")
    try:
        accepted = schedule_file.parse(text) is not None
    except ValueError:
        accepted = False
    done = lines_of("-schedule", path, "0.000001")
    assert (done.returncode, bool(done.stderr)) == ((0, False) if accepted else (2, True)), done.stderr


MIDDLEWARES = {
    "cyclonedds": (), "fastdds": (), "raw": (), "zenoh": (), "zenoh SHMEM": ("-transport", "SHMEM", "-dataLen", LARGE),
    "fastdds SHMEM": ("-transport", "SHMEM", "-dataLen", LARGE),
}  # fmt: skip


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_samples_arrive_with_their_recorded_sizes(
    perftest, recorded: Path, tmp_path: Path, middleware: str
) -> None:
    timeline = tmp_path / "timeline.csv"
    publisher, subscriber = perftest.pair(
        *MIDDLEWARES[middleware], pub=("-pacedTest", "-schedule", recorded), sub=("-timelineFile", timeline),
        time=SECONDS, middleware=middleware.split()[0],
    )  # fmt: skip
    p, s = publisher.k8sdds, subscriber.k8sdds
    assert p["schedule"]["samples"] == p["sent"] + p["schedule"]["not_sent"] == SENT
    assert p["sent"] == s["received"] == SENT and s["foreign_samples"] == 0
    # With so many samples of two sizes, no other number of each has so many bytes.
    assert p["sent_bytes"] == s["delivered_bytes"] == SENT // 2 * (SMALL + LARGE)
    rows = [line.split(",") for line in timeline.read_text().splitlines()[1:]]
    assert sum(int(row[2]) for row in rows) == s["delivered_bytes"]
    assert s["warmup_delivered_bytes"] >= s["warmup_received"] * SMALL > 0
    common = s["common_interval"]
    per_s = (common["samples"] - 1) * 1e9 / (common["last_ns"] - common["first_ns"])
    assert s["throughput_mbps"] == pytest.approx(per_s * (SMALL + LARGE) / 2 * 8e-6, rel=1e-4)
    assert p["options"]["schedule"] == str(recorded)
    # The mean time between samples.
    assert s["arrivals"]["deadline_ns"] == PERIOD_US * 1000 // len(SAMPLES)
    assert [p["delivered_bytes"], s["sent_bytes"]] == [None, None]


def test_each_publisher_follows_the_schedule(perftest, recorded: Path) -> None:
    subscriber = perftest.sub("-numPublishers", 2)
    options = ("-pacedTest", "-schedule", recorded)
    publishers = [perftest.pub(*options, "-pidMultiPubTest", index, time=SECONDS) for index in range(2)]
    end_all(*publishers, subscriber)
    assert [each.k8sdds["sent"] for each in publishers] == [SENT, SENT]
    assert subscriber.k8sdds["delivered_bytes"] == SENT * (SMALL + LARGE)


def test_samples_of_one_size_have_no_numbers_of_bytes(perftest) -> None:
    publisher, subscriber = perftest.pair(pub=("-pacedTest", "-pubRate", "500:sleep"))
    for each in (publisher, subscriber):
        assert [
            each.k8sdds[name] for name in ("sent_bytes", "delivered_bytes", "warmup_delivered_bytes")
        ] == [None] * 3


REFUSED = {
    "-executionTime 1 -schedule {file}": "-schedule: has an effect only with -pacedTest",
    "-pacedTest -schedule {file}": "-pacedTest: requires the length of the schedule; add -executionTime",
    "{paced} -pubRate 5:sleep -schedule {file}": "-schedule: replaces -pubRate",
    "{paced} -rateProfile burst:2 -schedule {file}": "-schedule: replaces -rateProfile",
    "{paced} -scan 64:128 -schedule {file}": "-schedule: replaces -scan",
    "{paced} -serialized -schedule {file}": "-serialized: keeps samples of one length",
    "{paced} -dataLen 64 -schedule {file}": "-dataLen: the longest sample of -schedule has 60000 bytes",
    "{paced} -schedule {folder}": "not a regular file",
    "{paced} -schedule {folder}/none": "No such file",
    "{paced} -schedule {folder}/wrong.txt": "wrong.txt: line 3: 27 is not a length",
    "{paced} -middleware raw -bestEffort -peer 127.0.0.1 -schedule {folder}/large.txt": "give at most 65507",
}


@pytest.mark.parametrize("command", REFUSED)
def test_wrong_files_and_options(perftest, recorded: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "wrong.txt").write_text("period 10\n0 28\n5 27\n")
    (tmp_path / "large.txt").write_text("period 10\n0 28\n5 65508\n")
    words = command.format(file=recorded, folder=tmp_path, paced="-pacedTest -executionTime 1").split()
    done = perftest.run("-pub", *words)
    assert done.returncode == 2 and REFUSED[command] in done.stderr and done.stderr.count("\n") == 1
