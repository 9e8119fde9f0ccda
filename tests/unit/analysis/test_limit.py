"""Share of the machine's limit, on generated trials with known ratios."""

import pytest

from k8sdds.analysis import limit
from k8sdds.analysis.conditions import CONDITION

USUAL = dict.fromkeys(CONDITION) | {"test": "throughput", "payload_bytes": 64, "middleware": "cyclonedds"}


def trial(label, middleware, value, repetition=0, quantity="throughput_mbps", **more):
    empty = dict.fromkeys(limit.QUANTITIES)
    cell = {"network_label": label, "middleware": middleware, "repetition": repetition}
    return USUAL | empty | cell | {quantity: value} | more


def shares(*trials, baseline="host", of=limit.MACHINE):
    rows = [row for row in limit.shares(list(trials), baseline) if row["limit"] == of]
    return {(row["network_label"], row["middleware"], row["receive_mode"]): row for row in rows}


def test_dds_is_compared_with_the_fastest_mode_on_its_network():
    rows = shares(
        trial("host", "cyclonedds", 50), trial("host", "raw", 80), trial("host", "raw-gso", 200),
        trial("flannel", "cyclonedds", 30), trial("flannel", "raw", 60), trial("flannel", "raw-gso", 40),
    )  # fmt: skip
    found = {key: (row["ratio"], row["limit_network"], row["limit_middleware"]) for key, row in rows.items()}
    assert found == {
        ("host", "cyclonedds", None): (pytest.approx(0.25), "host", "raw-gso"),
        ("flannel", "cyclonedds", None): (pytest.approx(0.5), "flannel", "raw"),
        # The limit of the network relative to that of the baseline; slower modes have no row.
        ("flannel", "raw", None): (pytest.approx(0.3), "host", "raw-gso"),
    }
    assert [row["raw"] for row in rows.values()] == [False, False, True]


def test_the_limit_of_packets_leaves_out_gso():
    trials = [
        trial("host", "cyclonedds", 50), trial("host", "raw", 80), trial("host", "raw-gso", 200),
        trial("flannel", "cyclonedds", 30), trial("flannel", "raw", 60),
    ]  # fmt: skip
    packets = shares(*trials, of=limit.PACKETS)
    assert {key[:2]: (row["ratio"], row["limit_middleware"]) for key, row in packets.items()} == {
        ("host", "cyclonedds"): (pytest.approx(0.625), "raw"),
        ("flannel", "raw"): (pytest.approx(0.75), "raw"),
    }
    # Without GSO both limits are the same, and there is one row.
    assert shares(*trials)["flannel", "cyclonedds", None]["ratio"] == pytest.approx(0.5)


def test_latency_is_a_multiple_of_the_smallest():
    rows = shares(
        trial("host", "cyclonedds", 30, quantity="latency_p50_us"),
        trial("host", "raw", 20, quantity="latency_p50_us"),
        trial("host", "raw-connected", 10, quantity="latency_p50_us", receive_mode="spin"),
    )
    (row,) = rows.values()
    assert (row["ratio"], row["limit_middleware"]) == (pytest.approx(3), "raw-connected")


def test_a_network_without_raw_trials_is_compared_with_the_baseline():
    (row,) = shares(trial("weavenet", "fastdds", 20), trial("host", "raw-mmsg", 100)).values()
    assert (row["network_label"], row["ratio"], row["limit_network"]) == (
        "weavenet",
        pytest.approx(0.2),
        "host",
    )


def test_only_equal_machine_settings_and_repetitions_are_compared():
    rows = shares(
        *(trial("host", "cyclonedds", 50 + r, r, reliability="reliable") for r in range(3)),
        *(trial("host", "raw", 100 + 2 * r, r, reliability="best-effort") for r in range(2)),
        trial("host", "raw", 900, 0, payload_bytes=1024),
        trial("host", "raw", 900, 0, layout="same"),
        trial("host", "raw", 900, 0, subscribers=2),
        trial("host", "raw", 900, 0, ip_families="ipv6"),
    )
    (row,) = rows.values()
    assert (row["n"], row["ratio"]) == (2, pytest.approx(0.5))


def test_the_limit_is_chosen_among_delays_of_the_same_method():
    shared = {"quantity": "delay_p50_us", "delay_method": "shared clock"}
    (row,) = shares(
        *(trial("host", "cyclonedds", 30, r, **shared) for r in range(2)),
        *(trial("host", "raw", 20, r, **shared) for r in range(2)),
        trial("host", "raw-connected", 5, quantity="delay_p50_us", delay_method="round trip / 2"),
    ).values()
    assert (row["limit_middleware"], row["n"]) == ("raw", 2)


def test_names_of_plain_udp():
    assert limit.is_raw("raw") and limit.is_raw("raw-gso")
    assert not any(map(limit.is_raw, ("cyclonedds", "rawhide", None)))
