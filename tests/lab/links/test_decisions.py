"""Test what k8sdds-link does to packets against theory. The seeds are fixed, so that the results are always the same."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from link_tools import Values, config, decide, evenly
from scipy import stats

SIGNIFICANT = 0.001
"""A correct program fails with about one of a thousand seeds."""
MS = 1_000_000
COUNT = 100_000


def losses(folder: Path, loss: Values, count: int = COUNT, **more: object) -> list[bool]:
    """Return whether each packet is lost."""
    fates, _ = decide(folder, config({"loss": loss, **more}), evenly(count))
    return [fate == "loss" for fate in fates]


def runs(lost: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Return the lengths of the bursts of losses, and those of the gaps between them."""
    lengths: dict[bool, list[int]] = {True: [], False: []}
    groups = [(value, len(list(items))) for value, items in itertools.groupby(lost)]
    for value, length in groups[1:-1]:
        lengths[value].append(length)
    return lengths[True], lengths[False]


def chi_square(lengths: Sequence[int], probability: Sequence[float]) -> float:
    """Return the p-value of lengths 1, 2, … with these probabilities, in at most 25 classes of several lengths."""
    total = len(lengths)
    ends, expected, sum_of_class = [], [], 0.0
    for length, p in enumerate(probability, 1):
        sum_of_class += p * total
        if sum_of_class >= max(5, total / 25):
            ends.append(length)
            expected.append(sum_of_class)
            sum_of_class = 0
    ends[-1] = max(lengths) + len(probability)  # the last class has all longer ones
    expected[-1] += total - sum(expected)
    observed = np.histogram(lengths, [0.5, *(end + 0.5 for end in ends)])[0]
    return float(stats.chisquare(observed, expected).pvalue)


def geometric(end: float, count: int = 400) -> list[float]:
    return [end * (1 - end) ** number for number in range(count)]


def gilbert_elliott(
    p: float, r: float, h: float, k: float, count: int = 400
) -> tuple[list[float], list[float]]:
    """Return the probabilities of bursts and of gaps of 1, 2, … packets.

    A packet is lost by the state before its transition, as in Linux' sch_netem.c.
    """
    change = np.array([[1 - p, p], [r, 1 - r]])
    lose = np.diag([1 - k, 1 - h]) @ change
    keep = np.diag([k, h]) @ change
    stationary = np.array([r, p]) / (p + r)

    def lengths(stay: np.ndarray, leave: np.ndarray) -> list[float]:
        state = stationary @ leave @ stay  # after the first packet of a run
        state /= state.sum() or 1
        found = []
        for _ in range(count):
            found.append(float((state @ leave).sum()))
            state = state @ stay
        return found

    return lengths(lose, keep), lengths(keep, lose)


def test_independent_losses(tmp_path: Path) -> None:
    lost = losses(tmp_path, {"percent": 5})
    assert stats.binomtest(sum(lost), COUNT, 0.05).pvalue > SIGNIFICANT
    bursts, gaps = runs(lost)
    assert chi_square(bursts, geometric(0.95)) > SIGNIFICANT
    assert chi_square(gaps, geometric(0.05)) > SIGNIFICANT


@pytest.mark.parametrize(
    ("p", "r", "h", "k"),
    [(1, 20, 0, 100), (2, 30, 40, 100), (0.5, 10, 20, 99), (10, 90, 0, 100)],
    ids=["simple Gilbert", "Gilbert", "Gilbert-Elliott", "almost independent"],
)
def test_bursts_of_losses(tmp_path: Path, p: float, r: float, h: float, k: float) -> None:
    loss = {"p_percent": p, "r_percent": r, "h_percent": h, "k_percent": k}
    bursts, gaps = runs(losses(tmp_path, loss, count=2 * COUNT))
    theory = gilbert_elliott(p / 100, r / 100, h / 100, k / 100)
    assert chi_square(bursts, theory[0]) > SIGNIFICANT
    assert chi_square(gaps, theory[1]) > SIGNIFICANT


def test_the_chi_square_test_finds_another_model(tmp_path: Path) -> None:
    bursts, gaps = runs(losses(tmp_path, {"p_percent": 1, "r_percent": 20}))
    assert chi_square(bursts, geometric(0.25)) < SIGNIFICANT
    assert chi_square(gaps, geometric(0.013)) < SIGNIFICANT


def test_without_r_losses_are_independent_as_with_tc(tmp_path: Path) -> None:
    lost = losses(tmp_path, {"p_percent": 4})
    assert stats.binomtest(sum(lost), COUNT, 0.04).pvalue > SIGNIFICANT
    assert chi_square(runs(lost)[0], geometric(0.96)) > SIGNIFICANT


def test_a_recorded_pattern_is_repeated(tmp_path: Path) -> None:
    assert losses(tmp_path, {"pattern": "0010110"}, count=21) == [c == "1" for c in "0010110" * 3]


def test_only_udp_is_lost(tmp_path: Path) -> None:
    values = config({"loss": {"pattern": "10", "udp_only": True}})
    kinds = ["udp", "other", "other", "udp", "other", "udp"]
    fates, counted = decide(tmp_path, values, [(number, 100, kind) for number, kind in enumerate(kinds)])
    assert counted["loss_decisions"] == 3
    assert [fate == "loss" for fate in fates] == [True, False, False, False, False, True]


def test_decisions_depend_on_seed_link_and_direction_only(tmp_path: Path) -> None:
    loss = {"percent": 10}
    lost = losses(tmp_path, loss, count=2000)
    more = {
        "delay": {"mean_us": 100, "jitter_us": 50, "correlation_percent": 30, "reorder_percent": 5},
        "duplicate_percent": 3,
        "rate": {"mbit": 100},
    }
    assert losses(tmp_path, loss, count=2000, **more) == lost
    others = [
        decide(tmp_path, config({"loss": loss}, seed=8), evenly(2000))[0],
        decide(tmp_path, config(down={"loss": loss}), evenly(2000), "down")[0],
    ]
    for fates in others:
        other = [fate == "loss" for fate in fates]
        both = sum(a and b for a, b in zip(lost, other, strict=True))
        assert other != lost and stats.binomtest(both, 2000, 0.01).pvalue > SIGNIFICANT


def test_the_statistics_count_runs(tmp_path: Path) -> None:
    fates, counted = decide(tmp_path, config({"loss": {"p_percent": 3, "r_percent": 30}}), evenly(5000))
    bursts, gaps = runs([True, *(fate == "loss" for fate in fates)])  # the first gap is complete
    assert counted["loss_bursts"] == sorted([length, count] for length, count in Counter(bursts).items())
    exact = {length: count for length, count in counted["loss_gaps"] if length < 256}
    assert exact == {length: count for length, count in Counter(gaps).items() if length < 256}
    assert sum(count for _, count in counted["loss_gaps"]) == len(gaps)


# -- delays -------------------------------------------------------------------------------------------------


def delays(folder: Path, delay: Values, count: int = COUNT) -> np.ndarray:
    """Return the delays of packets in µs."""
    packets = evenly(count)
    fates, _ = decide(folder, config({"delay": delay}), packets)
    return np.array([fate[0] / 1e3 - packet[0] for fate, packet in zip(fates, packets, strict=True)])


def pareto(u: np.ndarray) -> np.ndarray:
    """Return netem's pareto distribution: iproute2, netem/pareto.c."""
    return np.minimum((u ** (-1 / 3) - 1.5) * 4 / 3, 4)


DISTRIBUTIONS = {"normal": stats.norm.ppf, "uniform": lambda u: 2 * u - 1, "pareto": lambda u: pareto(1 - u)}


@pytest.mark.parametrize("correlation", [0, 40])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_quantiles_of_the_delay(tmp_path: Path, distribution: str, correlation: float) -> None:
    delay = {
        "mean_us": 5000,
        "jitter_us": 800,
        "distribution": distribution,
        "correlation_percent": correlation,
    }
    found = delays(tmp_path, delay)
    if correlation:
        found = found[::20]  # 0.4^20: independent
    edges = 5000 + 800 * DISTRIBUTIONS[distribution](np.arange(1, 50) / 50)
    observed = np.histogram(found, [-np.inf, *edges, np.inf])[0]
    assert stats.chisquare(observed).pvalue > SIGNIFICANT
    assert found.min() >= 5000 - 800 * 4 - 1 and found.max() <= 5000 + 800 * 4 + 1


@pytest.mark.parametrize("percent", [0, 25, 90])
def test_correlation_of_delays(tmp_path: Path, percent: float) -> None:
    found = delays(tmp_path, {"mean_us": 5000, "jitter_us": 800, "correlation_percent": percent})
    assert np.corrcoef(found[1:], found[:-1])[0, 1] == pytest.approx(percent / 100, abs=4 / math.sqrt(COUNT))


def test_constant_delays_and_lists_of_values(tmp_path: Path) -> None:
    assert set(delays(tmp_path, {"mean_us": 123.5}, count=100)) == {123.5}
    assert list(delays(tmp_path, {"values_us": [1, 20, 300.25]}, count=7)) == [
        1,
        20,
        300.25,
        1,
        20,
        300.25,
        1,
    ]


def test_no_packet_leaves_before_it_arrives(tmp_path: Path) -> None:
    found = delays(tmp_path, {"mean_us": 100, "jitter_us": 500})
    assert (
        found.min() == 0
        and stats.binomtest(sum(found == 0), COUNT, stats.norm.cdf(-0.2)).pvalue > SIGNIFICANT
    )


def test_a_share_is_sent_at_once(tmp_path: Path) -> None:
    found = delays(tmp_path, {"mean_us": 1000, "reorder_percent": 10})
    assert set(found) == {0, 1000}
    assert stats.binomtest(sum(found == 0), COUNT, 0.1).pvalue > SIGNIFICANT


def test_jitter_reorders_only_links_without_a_rate(tmp_path: Path) -> None:
    delay = {"mean_us": 5000, "jitter_us": 1000}
    free, counted = decide(tmp_path, config({"delay": delay}), evenly(5000, 100))
    times = [fate[0] for fate in free]
    left = sorted(range(5000), key=lambda n: (times[n], n))
    late = sum(n < latest for n, latest in zip(left[1:], itertools.accumulate(left, max), strict=False))
    assert counted["reordered"] == late > 1000
    limited, counted = decide(tmp_path, config({"delay": delay, "rate": {"mbit": 1000}}), evenly(5000, 100))
    times = [fate[0] for fate in limited]
    assert times == sorted(times) and counted["reordered"] == 0


def test_duplicates(tmp_path: Path) -> None:
    values = config({"duplicate_percent": 2, "delay": {"mean_us": 50, "jitter_us": 10}})
    fates, counted = decide(tmp_path, values, evenly(COUNT))
    twice = [fate for fate in fates if len(fate) == 2]
    assert counted["duplicated"] == len(twice) and all(first == second for first, second in twice)
    assert stats.binomtest(len(twice), COUNT, 0.02).pvalue > SIGNIFICANT
    assert counted["packets_out"] == COUNT + len(twice) and counted["in_flight"] == 0


# -- rates and queues ---------------------------------------------------------------------------------------


def test_a_constant_rate(tmp_path: Path) -> None:
    fates, counted = decide(
        tmp_path, config({"rate": {"mbit": 12}, "delay": {"mean_us": 500}}), evenly(100, 1, 1500)
    )
    # 1 ms for 1500 bytes.
    assert [fate[0] for fate in fates] == [number * MS + 500_000 for number in range(1, 101)]
    assert counted["rate"] == {"bytes": 150_000, "busy_us": 100_000, "mbit": 12}


def opportunities(trace: list[int], packets: list[tuple[float, int, str]]) -> list[int]:
    """Return when packets leave by Mahimahi's rules, in ns: an opportunity carries 1504 bytes of those that wait."""
    waiting = [[round(us * 1000), max(1, size - 10)] for us, size, _ in packets]
    left: list[int] = []
    for cycle in itertools.count():
        for ms in trace:
            time, room = (cycle * trace[-1] + ms) * MS, 1504
            while room and len(left) < len(waiting) and waiting[len(left)][0] <= time:
                used = min(room, waiting[len(left)][1])
                room -= used
                waiting[len(left)][1] -= used
                if not waiting[len(left)][1]:
                    left.append(time)
            if len(left) == len(waiting):
                return left
    raise AssertionError


@pytest.mark.parametrize("every_us", [200, 1000, 30_000])
def test_a_trace_of_opportunities(tmp_path: Path, every_us: int) -> None:
    trace = [0, 1, 1, 3, 7, 7, 7, 12, 20, 40]
    random = np.random.default_rng(1)
    packets = [
        (number * every_us + int(random.integers(every_us)), int(size), "udp")
        for number, size in enumerate(random.integers(60, 1515, 500))
    ]
    fates, counted = decide(tmp_path, config({"rate": {"trace_ms": trace}}), packets)
    expected = opportunities(trace, packets)
    assert [fate[0] for fate in fates] == expected
    sizes = Counter[int]()
    for time, (_, size, _) in zip(expected, packets, strict=True):
        sizes[time // (100 * MS)] += size
    assert counted["series"]["bytes_out"] == [sizes[number] for number in range(max(sizes) + 1)]


@pytest.mark.parametrize(
    ("queue", "waiting"),
    [({"packets": 5}, 5), ({"bytes": 4000}, 4), ({"ms": 7}, 7)],
    ids=lambda value: str(value),
)
def test_a_full_queue_drops_its_tail(tmp_path: Path, queue: Values, waiting: int) -> None:
    # 8 Mbit/s: 1 ms for each packet. One is sent while others wait.
    fates, counted = decide(tmp_path, config({"rate": {"mbit": 8}, "queue": queue}), evenly(20, 0.001, 1000))
    assert [fate if fate == "queue" else "passes" for fate in fates] == ["passes"] * (1 + waiting) + [
        "queue"
    ] * (19 - waiting)
    assert counted["dropped"]["queue"] == 19 - waiting
    # A place is free again when the next packet begins to be sent.
    packets = [*evenly(20, 0.001, 1000), (1500, 1000, "udp"), (1600, 1000, "udp")]
    fates, _ = decide(tmp_path, config({"rate": {"mbit": 8}, "queue": queue}), packets)
    assert fates[20] == [(waiting + 2) * MS] and fates[21] == "queue"


class Codel:
    """The pseudocode of RFC 8289, section 5, for a link that takes the next packet when one has been sent."""

    TARGET, INTERVAL, MAXPACKET = 5 * MS, 100 * MS, 1514

    def __init__(self, packets: list[tuple[float, int, str]], mbit: float) -> None:
        self.arrivals = [(round(us * 1000), size, number) for number, (us, size, _) in enumerate(packets)]
        self.queue: list[tuple[int, int, int]] = []
        self.mbit = mbit
        self.first_above_time = self.drop_next = self.count = self.lastcount = 0
        self.dropping = False
        self.dropped: list[int] = []

    def control_law(self, time: int) -> int:
        return time + round(self.INTERVAL / math.sqrt(self.count))

    def dodequeue(self, now: int) -> tuple[tuple[int, int, int] | None, bool]:
        if not self.queue:
            self.first_above_time = 0
            return None, False
        packet = self.queue.pop(0)
        if now - packet[0] < self.TARGET or sum(size for _, size, _ in self.queue) <= self.MAXPACKET:
            self.first_above_time = 0
            return packet, False
        if self.first_above_time == 0:
            self.first_above_time = now + self.INTERVAL
            return packet, False
        return packet, now >= self.first_above_time

    def dequeue(self, now: int) -> tuple[int, int, int] | None:
        packet, ok = self.dodequeue(now)
        if self.dropping:
            if not ok:
                self.dropping = False
            while packet and self.dropping and now >= self.drop_next:
                self.dropped.append(packet[2])
                self.count += 1
                packet, ok = self.dodequeue(now)
                if not ok:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next)
        elif packet and ok:
            self.dropped.append(packet[2])
            packet, _ = self.dodequeue(now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = delta if delta > 1 and now - self.drop_next < 16 * self.INTERVAL else 1
            self.drop_next = self.control_law(now)
            self.lastcount = self.count
        return packet

    def run(self) -> list[int]:
        """Return the numbers of the packets that are dropped."""
        free = 0
        while self.arrivals or self.queue:
            now = free if self.queue else max(free, self.arrivals[0][0])
            while self.arrivals and self.arrivals[0][0] <= now:
                self.queue.append(self.arrivals.pop(0))
            packet = self.dequeue(now)
            free = now + round(packet[1] * 8000 / self.mbit) if packet else now
        return sorted(self.dropped)


@pytest.mark.parametrize("mbit", [5, 9, 11.5])
def test_codel(tmp_path: Path, mbit: float) -> None:
    # Three seconds of 12 Mbit/s, with a pause, over a slower link.
    packets = [
        *evenly(2000, 1000, 1500),
        *((us + 2_500_000, size, kind) for us, size, kind in evenly(1000, 1000, 1500)),
    ]
    values = config({"rate": {"mbit": mbit}, "queue": {"discipline": "codel"}})
    fates, counted = decide(tmp_path, values, packets)
    expected = Codel(packets, mbit).run()
    assert [number for number, fate in enumerate(fates) if fate == "queue"] == expected
    assert counted["dropped"]["queue"] == len(expected) > 10


# -- outages ------------------------------------------------------------------------------------------------


def interrupted(
    packets: list[tuple[float, int, str]], at_us: float, for_us: float, state: str = "100"
) -> list[tuple[float, int, str]]:
    """Return packets with the commands of an outage between them."""
    commands = [(at_us, 0, f"outage {state}"), (at_us + for_us, 0, "outage off")]
    return sorted([*packets, *commands], key=lambda line: (line[0], not line[2].startswith("outage")))


def test_an_outage_drops_what_arrives_and_what_would_leave(tmp_path: Path) -> None:
    values = config({"delay": {"mean_us": 2500}})
    fates, counted = decide(tmp_path, values, interrupted(evenly(60, 1000), 10_000, 5000))
    assert [number for number, fate in enumerate(fates) if fate == "outage"] == list(range(8, 15))
    assert counted["dropped"]["outage"] == 7 and counted["packets_out"] == 53


def test_a_share_is_dropped_in_a_lossy_outage(tmp_path: Path) -> None:
    fates, counted = decide(tmp_path, config(), interrupted(evenly(COUNT), 0, 1e9, "30"))
    dropped = sum(fate == "outage" for fate in fates)
    assert counted["dropped"]["outage"] == dropped and counted["loss_decisions"] == COUNT - dropped
    assert stats.binomtest(dropped, COUNT, 0.3).pvalue > SIGNIFICANT


def test_an_outage_does_not_change_the_decisions_after_it(tmp_path: Path) -> None:
    up = {"loss": {"p_percent": 5, "r_percent": 20}, "delay": {"mean_us": 10, "jitter_us": 3}}
    without, _ = decide(tmp_path, config(up), evenly(3000))
    fates, _ = decide(tmp_path, config(up), interrupted(evenly(3000), 5000, 10_000))
    assert fates[1600:] == without[1600:] and fates != without


def test_an_outage_may_slow_the_link(tmp_path: Path) -> None:
    packets = [(us, 1000, "udp") for us in (500.0, 2000.0, 2000.0, 5900.0, 7000.0)]
    fates, _ = decide(tmp_path, config(), interrupted(packets, 1000, 5000, "rate 8"))
    assert fates == [[500_000], [3 * MS], [4 * MS], [6_900_000], [7 * MS]]
