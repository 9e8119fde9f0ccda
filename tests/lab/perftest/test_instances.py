"""Test topics with a key: the samples of all instances arrive, with every middleware that has keys."""

from __future__ import annotations

import contextlib
import time

import pytest
from perftest_tools import REPOSITORY, BackendTool, end_all

MIDDLEWARES = ("cyclonedds", "fastdds")
KEEP_LAST_10 = ("-qosFile", REPOSITORY / "qos/ros2-default.xml")


@pytest.mark.parametrize("receive", ["listener", "waitset"])
@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_instances_are_written_in_turn(perftest, middleware: str, receive: str) -> None:
    # The history of the writer, 10 samples of each instance, holds all samples.
    publisher, subscriber = perftest.pair(
        *("-keyed", "-instances", 7, "-receive", receive, *KEEP_LAST_10),
        pub=("-numIter", 67, "-pubRate", "1000:sleep"),
        middleware=middleware,
        time=30,
        warm_up=0,
    )
    p, s = publisher.k8sdds, subscriber.k8sdds
    assert s["received"] == p["sent"] == 67 and p["warmup_s"] == 0
    assert s["instances"] == {"received": 7, "fewest_samples": 9, "most_samples": 10}
    assert p["subscribers"][0]["instances"] == 7
    assert s["lost"] == s["out_of_order"] == s["duplicates"] == 0


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_each_instance_has_a_history_of_its_own(perftest, middleware: str) -> None:
    both = (middleware, "-keyed", "-instances", 7, *KEEP_LAST_10)
    with (
        contextlib.closing(BackendTool(perftest.domain, "-sub", *both)) as subscriber,
        contextlib.closing(BackendTool(perftest.domain, "-pub", *both)) as publisher,
    ):
        # All samples arrive before the reader takes one.
        assert publisher.request("write", 67) == 67
        time.sleep(0.5)
        end = time.monotonic() + 60
        while (taken := subscriber.request("take")) < 67 and time.monotonic() < end:
            time.sleep(0.1)
        assert taken == 67


@pytest.mark.parametrize(
    ("middleware", "test"),
    [
        ("cyclonedds", ("-latencyTest",)),
        ("fastdds", ("-latencyTest",)),
        ("cyclonedds", ("-pacedTest", "-pubRate", "500:sleep")),
        ("cyclonedds", ()),
    ],
)
def test_all_tests_have_instances(perftest, middleware: str, test: tuple[str, ...]) -> None:
    both, pub = ("-keyed", "-instances", 4), (*test, "-numIter", 42)
    publisher, subscriber = perftest.pair(*both, pub=pub, middleware=middleware, time=30)
    counts = subscriber.k8sdds["instances"]
    assert counts["received"] == 4 and counts["most_samples"] - counts["fewest_samples"] <= 1
    assert publisher.k8sdds["lost"] == 0


@pytest.mark.parametrize(("writer", "reader"), [MIDDLEWARES, MIDDLEWARES[::-1]])
def test_keys_interoperate(perftest, writer: str, reader: str) -> None:
    both = ("-keyed", "-instances", 300, *KEEP_LAST_10)
    pub = ("-numIter", 900, "-pubRate", "5000:sleep")
    _, subscriber = perftest.pair(*both, pub=pub, time=30, warm_up=0, middleware=(writer, reader))
    assert subscriber.k8sdds["instances"] == {"received": 300, "fewest_samples": 3, "most_samples": 3}


def test_more_instances_than_the_queue_has_samples(perftest) -> None:
    both = ("-keyed", "-instances", 50, "-dataLen", 1000)
    pub = ("-sendQueueSize", 10, "-numIter", 200)
    publisher, subscriber = perftest.pair(*both, pub=pub, time=30)
    assert publisher.k8sdds["qos"]["send_queue"] == 10
    assert subscriber.k8sdds["instances"]["received"] == 50 and subscriber.k8sdds["lost"] == 0


def test_several_publishers_write_the_same_instances(perftest) -> None:
    both = ("-keyed", "-instances", 5)
    subscriber = perftest.sub(*both, "-numPublishers", 2)
    publishers = [perftest.pub(*both, "-pidMultiPubTest", i, "-numIter", 50, time=30) for i in range(2)]
    end_all(*publishers, subscriber)
    assert subscriber.k8sdds["instances"] == {"received": 5, "fewest_samples": 10, "most_samples": 10}
