"""Test links whose engine is the kernel, with Debian's kernel in a virtual machine, next to the engine of k8sdds.

Counts of packets and the order of their delays decide, never how fast the machine is: a slow machine only adds to a delay.
"""

from __future__ import annotations

import json
import platform
from typing import Any

import pytest
from scipy import stats

from k8sdds.analysis import link_conditions
from k8sdds.model.link import KERNEL, USERSPACE, Link
from tests.lab.vm import machine
from tests.measuring import is_valid_or_slow

pytestmark = [
    # Booting the emulated machine takes two to four minutes, and no part of the tests can do without it.
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is an amd64 one"),
]
SIGNIFICANT = 1e-6
"""Probability that a test finds a difference where there is none."""
MEAN_US, JITTER_US = 200_000, 40_000
DELAY = {"mean_us": MEAN_US, "jitter_us": JITTER_US}
GILBERT_ELLIOTT = {"p_percent": 5, "r_percent": 40, "h_percent": 20, "k_percent": 99}
LINKS: dict[str, dict[str, Any]] = {
    "normal": {"up": {"loss": {"p_percent": 5, "r_percent": 25}}, "down": {"delay": DELAY}},
    "uniform": {"up": {"delay": DELAY | {"distribution": "uniform"}}, "down": {"loss": {"percent": 30}}},
    "pareto": {"up": {"loss": GILBERT_ELLIOTT}, "down": {"delay": DELAY | {"distribution": "pareto"}}},
    "duplicates": {
        "up": {"duplicate_percent": 10},
        "down": {"delay": {"mean_us": MEAN_US, "reorder_percent": 5}},
    },
    "rate": {
        "up": {"delay": {"mean_us": 50_000, "jitter_us": 20_000}, "rate": {"mbit": 0.8}, "queue": {"packets": 50}},
        "down": {"rate": {"mbit": 0.7}, "queue": {"ms": 500, "discipline": "codel"}},
    },
    "sizes": {
        "up": {"rate": {"mbit": 54}, "queue": {"bytes": 100_000}},
        "down": {"rate": {"mbit": 1000}, "queue": {"ms": 20}},
    },
}  # fmt: skip
PACKETS = dict.fromkeys(LINKS, 4000) | {"rate": 600, "sizes": 10}
EVERY_US = 1000
CAMPAIGN = {
    "name": "engines", "baseline": "host", "repetitions": 4, "duration_s": 20, "warmup_s": 1, "max_loss_percent": 90,
    "link": [
        {
            "up": {"delay": {"mean_us": 100_000, "jitter_us": 20_000}, "rate": {"mbit": 10}},
            "down": {"loss": {"p_percent": 5, "r_percent": 25}},
            "engine": engine,
        }
        for engine in (KERNEL, USERSPACE)
    ],
    "sweeps": [
        {"networks": "host", "test": "paced", "rate": 50, "payload_bytes": 64, "reliability": "best-effort"}
    ],
}  # fmt: skip
"""Cyclone DDS, which the lab has by default, over the same link with both engines, in random order in each block."""

LARGE = {
    "name": "large", "baseline": "host", "repetitions": 1, "duration_s": 3, "warmup_s": 1, "max_loss_percent": 100,
    "link": {"up": {"delay": {"mean_us": 2000}}, "down": {"loss": {"percent": 1}}, "engine": KERNEL},
    "sweeps": [
        {"networks": "host", "test": "tcp-stream"},
        {
            "networks": "host", "test": "throughput", "middleware": "raw-gso", "payload_bytes": 1024,
            "reliability": "best-effort",
        },
    ],
}  # fmt: skip
"""Tests that send packets which are larger than those of the wire."""


def asked() -> list[dict[str, Any]]:
    """Return what tests/lab/vm/link_guest.py measures."""
    return [
        {"name": f"{name} {engine}", "packets": PACKETS[name], "every_us": EVERY_US, "link": link | {"engine": engine}}
        for name, link in LINKS.items()
        for engine in (KERNEL, USERSPACE)
    ]  # fmt: skip


def run(cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    results, output = machine.run(machine.python("-m", "tests.lab.vm.link_guest", json.dumps(cases)))
    assert len(results) == len(cases), output
    assert not any("failed" in found for found in results), results
    return {found["case"]: found for found in results}


@pytest.fixture(scope="module")
def cases() -> dict[str, dict[str, Any]]:
    """Return what happened on each link with each engine."""
    return run(asked())


@pytest.fixture(scope="module")
def campaign() -> list[dict[str, Any]]:
    """Return the attempts of a campaign."""
    attempts: list[dict[str, Any]] = run([{"name": "campaign", "experiment": CAMPAIGN}])["campaign"][
        "attempts"
    ]
    return attempts


def options(cases: dict[str, dict[str, Any]], name: str, device: str) -> dict[str, dict[str, Any]]:
    """Return what the kernel states about the queues of a device, by kind."""
    return {queue["kind"]: queue["options"] for queue in cases[f"{name} {KERNEL}"]["queues"][device]}


UP, DOWN = "node0 eth0", "switch to-node1"
TAKEN: list[tuple[str, str, str, dict[str, Any]]] = [
    ("normal", DOWN, "netem", {"delay": {"delay": 0.2, "jitter": 0.04, "correlation": 0}}),
    ("normal", UP, "tbf", {"rate": 50_000_000_000}),
    ("normal", UP, "netem", {"loss-gemodel": {"p": 0.05, "r": 0.25, "1-h": 1, "1-k": 0}}),
    ("uniform", UP, "netem", {"delay": {"delay": 0.2, "jitter": 0.069281, "correlation": 0}}),
    ("uniform", DOWN, "netem", {"loss-random": {"loss": 0.3, "correlation": 0}}),
    ("pareto", UP, "netem", {"loss-gemodel": {"p": 0.05, "r": 0.4, "1-h": 0.8, "1-k": 0.01}}),
    ("pareto", DOWN, "netem", {"delay": {"delay": 0.201634, "jitter": 0.048797, "correlation": 0}}),
    ("duplicates", UP, "netem", {"duplicate": {"duplicate": 0.1, "correlation": 0}}),
    ("duplicates", DOWN, "netem", {"reorder": {"reorder": 0.05, "correlation": 0}, "gap": 1}),
    ("rate", UP, "tbf", {"rate": 100_000}),
    ("rate", UP, "pfifo", {"limit": 50}),
    ("rate", DOWN, "tbf", {"rate": 87_500}),
    ("rate", DOWN, "codel", {"limit": 29}),
    ("sizes", UP, "tbf", {"rate": 6_750_000}),
    ("sizes", DOWN, "tbf", {"rate": 125_000_000}),
]


@pytest.mark.parametrize(("name", "device", "kind", "values"), TAKEN)
def test_the_kernel_has_what_is_asked(
    cases: dict[str, dict[str, Any]], name: str, device: str, kind: str, values: dict[str, Any]
) -> None:
    found = options(cases, name, device)[kind]
    assert {key: found.get(key) for key in values} == values, found


@pytest.mark.parametrize(("device", "limit_bytes"), [(UP, 100_000), (DOWN, 2_500_000)])
def test_the_kernel_has_queues_of_the_size_that_is_asked(
    cases: dict[str, dict[str, Any]], device: str, limit_bytes: int
) -> None:
    """`tc` states the limit as the time in which the rate empties what the bucket has no tokens for."""
    tbf = options(cases, "sizes", device)["tbf"]
    assert tbf["lat"] * 1e-6 * tbf["rate"] + tbf["burst"] == pytest.approx(limit_bytes, rel=1e-3)


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
@pytest.mark.parametrize("name", LINKS)
def test_every_packet_is_accounted_for(cases: dict[str, dict[str, Any]], name: str, engine: str) -> None:
    """What passed the link of the sender, then that of the receiver, is what was sent and what arrived."""
    found = cases[f"{name} {engine}"]
    up, down = found["conditions"]["node0"]["up"], found["conditions"]["node1"]["down"]
    arrived = [number for number, _ in found["arrived"]]
    # A few more than those of the test, such as requests for addresses, may have been lost.
    copies = len(arrived) - len(set(arrived))
    others = up["packets"] + (up["duplicated"] or 0) - PACKETS[name] - copies
    assert 0 <= others < 50, found["conditions"]
    gone = sum(side[key] or 0 for side in (up, down) for key in ("lost", "queue_drops", "not_forwarded"))
    assert gone - others <= PACKETS[name] - len(set(arrived)) <= gone


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
@pytest.mark.parametrize("name", LINKS)
def test_losses_are_as_asked(cases: dict[str, dict[str, Any]], name: str, engine: str) -> None:
    conditions = cases[f"{name} {engine}"]["conditions"]
    # Whether packets were late or forgotten is up to the machine.
    counted = {
        node: {way: side | {"not_forwarded": 0, "delay_error_p99_us": None} for way, side in sides.items()}
        for node, sides in conditions.items()
    }
    assert link_conditions.differing(Link.model_validate(LINKS[name]), counted, 0) == ""
    if any("loss" in LINKS[name][way] for way in ("up", "down")):
        other = Link.model_validate({way: {"loss": {"percent": 40}} for way in ("up", "down")})
        assert "packets were lost, not 40 %" in link_conditions.differing(other, counted, 0)


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
def test_bursts_are_as_asked(cases: dict[str, dict[str, Any]], engine: str) -> None:
    """After a lost packet, the next one is lost, too, if the link stays bad."""
    missing = set(range(PACKETS["normal"])) - {number for number, _ in cases[f"normal {engine}"]["arrived"]}
    successive = len(missing & {number + 1 for number in missing})
    assert stats.binomtest(successive, len(missing), 0.75).pvalue > SIGNIFICANT
    assert stats.binomtest(successive, len(missing), 5 / 30).pvalue < SIGNIFICANT


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
def test_duplicates_are_as_many_as_asked(cases: dict[str, dict[str, Any]], engine: str) -> None:
    arrived = [number for number, _ in cases[f"duplicates {engine}"]["arrived"]]
    twice = len(arrived) - len(set(arrived))
    assert stats.binomtest(twice, PACKETS["duplicates"], 0.1).pvalue > SIGNIFICANT


LOWEST = {"normal": stats.norm, "uniform": stats.uniform(-(3**0.5), 2 * 3**0.5)}


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
@pytest.mark.parametrize("name", LOWEST)
@pytest.mark.parametrize("deviations", [-1.5, -1, 0, 1, 1.5])
def test_delays_are_at_least_as_asked(
    cases: dict[str, dict[str, Any]], name: str, engine: str, deviations: float
) -> None:
    """No more packets than in theory have less than a delay."""
    delays = [us for _, us in cases[f"{name} {engine}"]["arrived"]]
    below = sum(us < MEAN_US + deviations * JITTER_US for us in delays)
    expected = LOWEST[name].cdf(deviations)
    assert stats.binomtest(below, len(delays), expected, alternative="greater").pvalue > SIGNIFICANT


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
def test_a_share_of_the_packets_is_not_delayed(cases: dict[str, dict[str, Any]], engine: str) -> None:
    arrived = cases[f"duplicates {engine}"]["arrived"]
    early = sum(us < MEAN_US for _, us in arrived)
    assert stats.binomtest(early, len(arrived), 0.05, alternative="greater").pvalue > SIGNIFICANT


@pytest.mark.parametrize("engine", [KERNEL, USERSPACE])
def test_packets_wait_for_a_rate_in_order(cases: dict[str, dict[str, Any]], engine: str) -> None:
    """Without a rate, jitter reorders them."""
    with_rate, without = (
        [number for number, _ in cases[f"{name} {engine}"]["arrived"]] for name in ("rate", "normal")
    )
    assert with_rate == sorted(with_rate) and without != sorted(without)


def test_both_engines_carry_the_same_trials(campaign: list[dict[str, Any]]) -> None:
    """Every attempt of both lost and delayed packets as asked, and its own evidence states so.

    Its numbers are printed for a comparison of the engines: a slow machine delays each of them differently.
    """
    for attempt in campaign:
        print(json.dumps({key: value for key, value in attempt.items() if key != "link_conditions"}))
        assert is_valid_or_slow(attempt), attempt["reason"]
        assert attempt["received"] and attempt["lost"], attempt
        # Of 800 samples, half have 100 ms or more; the standard error of their median is 0.9 ms.
        assert attempt["delay_p50_us"] > 95_000, attempt
    used = {attempt["link"]["engine"] for attempt in campaign}
    assert used == {KERNEL, USERSPACE}


def test_the_kernel_impairs_each_packet_of_the_wire() -> None:
    """Otherwise, it would count several of them as one, and lose and delay them together."""
    attempts = run([{"name": "large", "experiment": LARGE}])["large"]["attempts"]
    for attempt in attempts:
        print(json.dumps(attempt))
        assert attempt["valid"], attempt["reason"]
        sent = attempt["link_conditions"]["node0"]["up"]["packets"]
        assert sent > 1000 and attempt["link_bytes"]["sent"] / sent < 1514 + 18
    assert {attempt["test"] for attempt in attempts} == {"tcp-stream", "throughput"}
