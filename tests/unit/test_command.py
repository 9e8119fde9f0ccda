"""Test the command lines of k8sdds-perftest and what workloads and middlewares reject."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds import middleware
from k8sdds.campaign import contradictions
from k8sdds.middleware import Surroundings
from k8sdds.model.measurement import ParticipantPaths
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.perftest import command
from k8sdds.system.errors import InputError


def line(participant: str = "pub0", **changes: object) -> list[str]:
    cell = Cell(**{"network": "host", "test": "throughput", "payload_bytes": 1024, **changes})
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=3, warmup_s=0.5)
    endpoints = {item.name: Endpoint(f"10.0.0.{i}", "eth0", None) for i, item in enumerate(cell.pods)}
    surroundings = Surroundings(endpoints, 7, ParticipantPaths("perftest", Path("/raw"), None))
    return middleware.find(cell.middleware).command(trial, Participant.named(participant), surroundings).argv


def value(args: list[str], option: str) -> str:
    return args[args.index(option) + 1]


def values(args: list[str], option: str) -> list[str]:
    return [args[i + 1] for i, word in enumerate(args) if word == option]


def test_a_publisher() -> None:
    args = line(subscribers=2)
    assert args[:2] == ["perftest", "-pub"]
    assert value(args, "-numSubscribers") == "2"
    assert value(args, "-dataLen") == "1024"
    assert value(args, "-executionTime") == "3"
    assert value(args, "-warmUp") == "0.5"
    assert value(args, "-domain") == "7"
    assert values(args, "-peer") == ["10.0.0.1", "10.0.0.2"]
    assert value(args, "-qosFile").endswith("strict-reliable.xml")
    assert not {"-multicast", "-bestEffort", "-latencyTest", "-batchSize", "-pubRate"} & set(args)
    assert not {"-latencyCount", "-loadedLatency", "-histogramFile"} & set(args)


def test_a_throughput_test_times_samples_on_request() -> None:
    args = line(test_options={"loaded_latency": True})
    assert "-loadedLatency" in args and value(args, "-histogramFile").endswith("latency.hlog")
    assert "-loadedLatency" not in line("sub0", test_options={"loaded_latency": True})


def test_a_subscriber_has_no_option_of_a_publisher() -> None:
    args = line("sub1", subscribers=2, publishers=3)
    assert value(args, "-sidMultiSubTest") == "1"
    assert value(args, "-numPublishers") == "3"
    assert len(values(args, "-peer")) == 4
    assert not {"-numSubscribers", "-executionTime", "-warmUp", "-pidMultiPubTest", "-histogramFile"} & set(
        args
    )


def test_discovery_options() -> None:
    arguments = line(middleware="fastdds", discovery="server", subscribers=2)
    assert value(arguments, "-discovery") == "server"
    assert value(arguments, "-discoveryServer") == "10.0.0.3:11811"
    assert "-peer" not in arguments
    arguments = line(discovery="multicast")
    assert value(arguments, "-discovery") == "multicast"
    assert "-peer" not in arguments
    arguments = line(transport="multicast", discovery="peers")
    assert value(arguments, "-discovery") == "peers"
    assert values(arguments, "-peer") == ["10.0.0.1"]
    assert "-peer" not in line(transport="multicast")
    # raw has no discovery: it sends to the given addresses.
    assert "-peer" in line(transport="multicast", middleware="raw", reliability="best-effort")


def test_command_line_of_the_discovery_server() -> None:
    assert middleware.find("fastdds").service_command("10.0.0.9") == [
        "fast-discovery-server", "-i", "0", "-l", "10.0.0.9", "-p", "11811",
    ]  # fmt: skip


def test_options_of_a_cell() -> None:
    assert "-latencyTest" in line(test="latency", layout="same")
    assert "-multicast" in line(transport="multicast")
    assert value(line(rate=30), "-pubRate") == "30:sleep"
    assert value(line(rate=1234567), "-pubRate") == "1234567:sleep"
    assert value(line(rate=0.5), "-pubRate") == "0.5:sleep"
    assert value(line(batch_bytes=8192), "-batchSize") == "8192"
    assert value(line(receive_mode="spin"), "-receive") == "spin"
    assert not {"-messageSizeMax", "-fragmentSize"} & set(line())
    sized = line(message_bytes="mtu", fragment_bytes=1000)
    assert (value(sized, "-messageSizeMax"), value(sized, "-fragmentSize")) == ("mtu", "1000")
    keyed = {"instances": 8}
    assert value(line(**keyed), "-instances") == value(line("sub0", **keyed), "-instances") == "8"
    assert "-keyed" in line(**keyed) and "-keyed" in line("sub0", **keyed)
    assert "-keyed" not in line()
    several = {"topics": 3, "writers": 2}
    for participant in ("pub0", "sub0"):
        assert value(line(participant, **several), "-topics") == "3"
        assert value(line(participant, **several), "-writers") == "2"
    assert not {"-topics", "-writers"} & set(line())
    paced = line(test="paced", rate=100, rate_profile="burst:10")
    assert value(paced, "-rateProfile") == "burst:10"
    assert "-rateProfile" not in line(test="paced", rate=100)
    best_effort = line(reliability="best-effort")
    assert "-bestEffort" in best_effort
    assert value(best_effort, "-qosFile").endswith("best-effort.xml")
    raw = line(middleware="raw", reliability="best-effort")
    assert value(raw, "-middleware") == "raw"
    assert not {"-qosFile", "-rawMode"} & set(raw)
    for participant in ("pub0", "sub0"):
        gso = line(participant, middleware="raw-gso", reliability="best-effort")
        assert (value(gso, "-middleware"), value(gso, "-rawMode")) == ("raw", "gso")


def test_a_qos_file_of_the_user(tmp_path: Path) -> None:
    mine = tmp_path / "mine.xml"
    mine.write_text("<dds/>")
    assert value(line(qos=str(mine)), "-qosFile") == str(mine)
    with pytest.raises(InputError, match="no QoS profile 'mine'"):
        line(qos="mine")


def cell(**changes: object) -> Cell:
    return Cell(**{"network": "host", "test": "throughput", "payload_bytes": 1024, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": "latency", "batch_bytes": 8192}, "never batches"),
        ({"test": "latency", "publishers": 2}, "one publisher"),
        ({"middleware": "raw"}, "best-effort"),
        ({"middleware": "raw", "reliability": "best-effort", "payload_bytes": 65508}, "at most 65507"),
        (
            {"middleware": "raw", "reliability": "best-effort", "batch_bytes": 8192},
            "does not have the setting batch_bytes",
        ),
        ({"middleware": "raw", "reliability": "best-effort", "qos": "batched"}, "setting qos: leave it out"),
        ({"middleware": "raw-mmsg"}, "raw-mmsg sends plain UDP"),
        ({"middleware": "raw-mmsg", "reliability": "best-effort", "test": "latency"}, "collects samples"),
        ({"middleware": "raw-gso", "reliability": "best-effort", "rate": 30}, "collects samples"),
        ({"batch_bytes": 1500}, "less than two samples"),
        (
            {"message_bytes": 1400, "fragment_bytes": 1401},
            "fragment_bytes 1401 does not fit in message_bytes 1400",
        ),
        ({"middleware": "fastdds", "fragment_bytes": 1344}, "fragment_bytes must be default, not 1344"),
        (
            {"middleware": "fastdds", "security": "SignRTPS", "message_bytes": "mtu"},
            "message_bytes mtu is too short",
        ),
        ({"middleware": "fastdds", "security": "SignRTPS", "message_bytes": 4096}, "give at least 8192"),
        (
            {"middleware": "fastdds", "message_bytes": 1400, "fragment_bytes": 1400},
            "must be default, not 1400",
        ),
        ({"middleware": "fastdds", "fragment_bytes": "mtu"}, "fragment_bytes must be default, not mtu"),
        (
            {"middleware": "raw", "reliability": "best-effort", "fragment_bytes": "max"},
            "setting fragment_bytes",
        ),
        (
            {"middleware": "raw", "reliability": "best-effort", "message_bytes": 600},
            "message_bytes 600 is too short",
        ),
        ({"middleware": "raw", "reliability": "best-effort", "instances": 4}, "setting instances"),
        ({"middleware": "raw", "reliability": "best-effort", "topics": 2}, "setting topics"),
        ({"middleware": "connext", "writers": 2}, "topics and writers must be 1"),
        ({"test": "latency", "writers": 2}, "one sample under way"),
        ({"topics": 2, "security": "SignRTPS"}, "topics must be 1 with DDS Security"),
        ({"topics": 100, "writers": 100}, "at most 2048 writers"),
        ({"rate": 100, "rate_profile": "burst:10"}, "set `test: paced`"),
        ({"test": "paced", "rate": 100, "rate_profile": "ramp:100"}, "begins with the rate"),
        ({"test": "paced", "rate": 1, "rate_profile": "on-off:0.5:1"}, "has no sample in 0.5 s"),
    ],
)
def test_unsupported_cells(changes: dict[str, object], message: str) -> None:
    assert message in str(contradictions.unsupported(cell(**changes)))


def test_supported_cells() -> None:
    assert contradictions.unsupported(cell()) is None
    assert (
        contradictions.unsupported(cell(middleware="raw", reliability="best-effort", payload_bytes=65507))
        is None
    )
    assert (
        contradictions.unsupported(cell(middleware="fastdds", message_bytes="mtu", fragment_bytes="mtu"))
        is None
    )
    raw = cell(middleware="raw", reliability="best-effort", message_bytes="max", payload_bytes=65500)
    assert contradictions.unsupported(raw) is None


def test_the_names_of_cells_contain_their_sizes() -> None:
    assert (
        cell(message_bytes="mtu", fragment_bytes=1000)
        .describe()
        .endswith("messages that fit the MTU, fragments of up to 1000 B")
    )
    assert "messages" not in cell().describe()


def test_no_domain_reaches_the_ephemeral_ports() -> None:
    assert max(command.DOMAINS) * 250 + 7400 + 250 < 32768


@given(st.floats(0.1, 1000), st.floats(0, 100))
def test_the_deadline_leaves_room_for_the_trial(duration: float, warmup: float) -> None:
    trial = Trial(cell=cell(), testbed="lab", repetition=0, duration_s=duration, warmup_s=warmup)
    assert (
        command.deadline_s(trial) > duration + warmup + command.DISCOVERY_TIMEOUT_S + command.PEER_TIMEOUT_S
    )
