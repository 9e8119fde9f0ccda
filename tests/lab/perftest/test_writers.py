"""Test several topics, and several writers on each, in one publisher: the samples of each writer are counted."""

from __future__ import annotations

import pytest
from perftest_tools import end_all

SEVERAL = ("-topics", 3, "-writers", 2)


@pytest.mark.parametrize("receive", ["listener", "waitset", "spin"])
@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "zenoh"])
def test_each_writer_is_counted(perftest, middleware: str, receive: str) -> None:
    publisher, subscriber = perftest.pair(
        *(*SEVERAL, "-receive", receive),
        pub=("-numIter", 100, "-pubRate", "2000:sleep"),
        middleware=middleware,
        time=30,
    )
    p, s = publisher.k8sdds, subscriber.k8sdds
    assert s["received"] == p["sent"] == 100
    assert s["lost"] == s["duplicates"] == s["out_of_order"] == 0
    # 100 samples, in turn by 6 writers; writer n writes topic n mod 3.
    assert [(w["topic"], w["received"], w["lost"]) for w in s["writers"]] == [
        (writer % 3, 17 if writer < 4 else 16, 0) for writer in range(6)
    ]


@pytest.mark.parametrize("test", [(), ("-pacedTest", "-pubRate", "600:sleep"), ("-batchSize", 4000)])
def test_several_participants(perftest, test: tuple[object, ...]) -> None:
    subscribers = [perftest.sub(*SEVERAL, "-numPublishers", 2, "-sidMultiSubTest", i) for i in range(2)]
    publishers = [
        perftest.pub(*SEVERAL, *test, "-numSubscribers", 2, "-pidMultiPubTest", i, "-latencyCount", 7)
        for i in range(2)
    ]
    end_all(*publishers, *subscribers)
    sent = sum(publisher.k8sdds["sent"] for publisher in publishers)
    for subscriber in subscribers:
        s = subscriber.k8sdds
        assert s["received"] == s["sent"] == sent
        assert sum(writer["received"] for writer in s["writers"]) == sent and len(s["writers"]) == 12
    if "-pacedTest" not in test:
        assert all(publisher.k8sdds["pongs_received"] > 0 for publisher in publishers)


def test_instances_of_several_writers(perftest) -> None:
    _, subscriber = perftest.pair(*SEVERAL, "-keyed", "-instances", 4, pub=("-numIter", 120), time=30)
    assert subscriber.k8sdds["instances"] == {"received": 4, "fewest_samples": 5, "most_samples": 5}
