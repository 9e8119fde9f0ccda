"""Test samples that are serialized before the test."""

import pytest


@pytest.mark.parametrize("receive", ["listener", "waitset", "spin"])
@pytest.mark.parametrize(
    "test", [(), ("-latencyTest",), ("-dataLen", 40000), ("-batchSize", 8192), ("-bestEffort",)]
)
def test_serialized_samples_arrive(perftest, receive, test):
    both = ("-serialized", "-receive", receive)
    best_effort = "-bestEffort" in test
    publisher, subscriber = perftest.pair(*both, pub=test, sub=test if best_effort else ())
    sent, result = publisher.k8sdds, subscriber.k8sdds
    assert sent["options"]["serialized"] is True and result["options"]["serialized"] is True
    assert 0 < result["received"] <= sent["sent"]
    assert (result["duplicates"], result["out_of_order"]) == (0, 0)
    if not best_effort:
        assert result["received"] == sent["sent"]
    if "-latencyTest" in test:
        assert sent["pongs_received"] == sent["pings_sent"] > 0


@pytest.mark.parametrize("role", ["pub", "sub"])
@pytest.mark.parametrize("other", ["cyclonedds", "fastdds"])
def test_the_bytes_are_those_of_other_samples(perftest, role, other):
    middleware = ("cyclonedds", other) if role == "pub" else (other, "cyclonedds")
    serialized = {role: ("-serialized",)}
    publisher, subscriber = perftest.pair("-dataLen", 1001, **serialized, middleware=middleware)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert subscriber.json["perftest"][0]["length"] == 1001
