"""Test samples that are serialized before the test."""

import pytest


@pytest.mark.parametrize("receive", ["listener", "waitset", "spin"])
@pytest.mark.parametrize(
    "test", [(), ("-latencyTest",), ("-dataLen", 40000), ("-batchSize", 8192), ("-bestEffort",)]
)
def test_serialized_samples_arrive(perftest, receive, test):
    both = [option for option in test if option == "-bestEffort"]
    only_pub = tuple(option for option in test if option != "-bestEffort")
    publisher, subscriber = perftest.pair("-serialized", "-receive", receive, *both, pub=only_pub)
    sent, result = publisher.k8sdds, subscriber.k8sdds
    assert sent["options"]["serialized"] is True and result["options"]["serialized"] is True
    assert 0 < result["received"] <= sent["sent"]
    assert (result["duplicates"], result["out_of_order"]) == (0, 0)
    if not both:
        assert result["received"] == sent["sent"]
    if "-latencyTest" in test:
        assert sent["pongs_received"] == sent["pings_sent"] > 0


@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_the_bytes_are_those_of_other_samples(perftest, publishes, middleware):
    serialized = {"args": ("-serialized",), "middleware": "cyclonedds"}
    other = {"args": (), "middleware": middleware}
    pub, sub = (serialized, other) if publishes else (other, serialized)
    subscriber = perftest.sub(*sub["args"], middleware=sub["middleware"])
    publisher = perftest.pub("-dataLen", 1001, *pub["args"], middleware=pub["middleware"])
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert subscriber.json["perftest"][0]["length"] == 1001
