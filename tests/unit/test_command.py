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
from k8sdds.model.trial import Endpoint
from k8sdds.perftest import command
from k8sdds.system.errors import InputError
from tests.unit.builders import cell, named, trial


def line(participant: str = "pub0", records_stops: bool = False, **changes: object) -> list[str]:
    run = trial(cell(**changes), duration_s=3, warmup_s=0.5)
    endpoints = {item.name: Endpoint(f"10.0.0.{i}", "eth0", None) for i, item in enumerate(run.cell.pods)}
    paths = ParticipantPaths("perftest", Path("/raw"))
    surroundings = Surroundings(endpoints, 7, paths, records_stops=records_stops)
    return middleware.find(run.cell.middleware).command(run, named(participant), surroundings).argv


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


def test_a_subscriber_has_no_option_of_a_publisher() -> None:
    args = line("sub1", subscribers=2, publishers=3)
    assert value(args, "-sidMultiSubTest") == "1"
    assert value(args, "-numPublishers") == "3"
    assert len(values(args, "-peer")) == 4
    assert not {"-numSubscribers", "-executionTime", "-warmUp", "-pidMultiPubTest", "-histogramFile"} & set(
        args
    )


def test_peers_await_the_longest_outage_of_their_link() -> None:
    assert value(line(), "-peerTimeout") == "10" and "-awaitPeers" not in line()
    link = {"outages": [{"at_s": 1, "for_s": 1}, {"at_s": 20, "for_s": 24.5}]}
    for participant in ("pub0", "sub0"):
        args = line(participant, link=link)
        assert value(args, "-peerTimeout") == "35" and "-awaitPeers" in args
        assert "-arrivalsFile" not in args


def test_what_arrives_over_impaired_links_is_logged() -> None:
    paced = {"test": "paced", "rate": 100, "link": {"loss": {"percent": 1}, "engine": "userspace"}}
    assert value(line("sub0", **paced), "-arrivalsFile") == "/raw/arrivals.csv"
    others: list[dict[str, object]] = [
        {"link": {"rate_mbit": 54}},
        {"test": "throughput"},
        {"publishers": 200},
    ]
    for other in others:
        assert "-arrivalsFile" not in line("sub0", **paced | other)
    assert "-arrivalsFile" not in line("pub0", **paced)


def test_slow_samples_are_logged_where_stops_are_recorded() -> None:
    paced = {"test": "paced", "rate": 100, "cpu_quota": 0.3}
    assert value(line("sub0", records_stops=True, **paced), "-slowFile") == "/raw/slow.csv"
    assert "-slowFile" not in line("sub0", **paced)
    assert "-slowFile" not in line("pub0", records_stops=True, **paced)


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


@pytest.mark.parametrize(("number", "port"), [(0, "11811"), (1, "11812")])
def test_command_line_of_the_discovery_server(number: int, port: str) -> None:
    assert middleware.find("fastdds").service_command("10.0.0.9", number) == [
        "fast-discovery-server", "-i", str(number), "-l", "10.0.0.9", "-p", port,
    ]  # fmt: skip


def test_participants_know_all_servers() -> None:
    arguments = line(middleware="fastdds", discovery="server", discovery_servers=2)
    assert values(arguments, "-discoveryServer") == ["10.0.0.2:11811", "10.0.0.3:11812"]


BEST_EFFORT = {"reliability": "best-effort"}
RAW = {"middleware": "raw", **BEST_EFFORT}


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"test": "latency", "layout": "same"}, "-latencyTest"),
        ({"transport": "multicast"}, "-multicast"),
        ({"rate": 30}, "-pubRate 30:sleep"),
        ({"rate": 1234567}, "-pubRate 1234567:sleep"),
        ({"rate": 0.5}, "-pubRate 0.5:sleep"),
        ({"batch_bytes": 8192}, "-batchSize 8192"),
        ({"receive_mode": "spin"}, "-receive spin"),
        ({"message_bytes": "mtu", "fragment_bytes": 1000}, "-messageSizeMax mtu -fragmentSize 1000"),
        ({"instances": 8}, "-keyed -instances 8"),
        ({"topics": 3, "writers": 2}, "-topics 3 -writers 2"),
        ({"test": "paced", "rate": 100, "rate_profile": "burst:10"}, "-rateProfile burst:10"),
        (BEST_EFFORT, "-bestEffort"),
        (RAW, "-middleware raw"),
        (RAW | {"middleware": "raw-gso"}, "-middleware raw -rawMode gso"),
        ({"test_options": {"loaded_latency": True}}, "-loadedLatency"),
    ],
)
def test_options_of_a_cell(changes: dict[str, object], options: str) -> None:
    names = {word for word in options.split() if word.startswith("-")} - {"-middleware", "-receive"}
    assert not names & set(line()) and not names & set(line("sub0"))
    text = " ".join(line(**changes))
    for option in options.replace(" -", "|-").split("|"):
        assert f"{option} " in f"{text} "
    of_both = names & {"-instances", "-keyed", "-topics", "-writers", "-rawMode"}
    of_subscriber = " ".join(line("sub0", **changes))
    assert all(name in of_subscriber for name in of_both)


def test_files_of_a_cell() -> None:
    assert value(line(**BEST_EFFORT), "-qosFile").endswith("best-effort.xml")
    assert not {"-qosFile", "-rawMode"} & set(line(**RAW))
    assert "-rateProfile" not in line(test="paced", rate=100)
    timed = line(test_options={"loaded_latency": True})
    assert value(timed, "-histogramFile").endswith("latency.hlog")
    assert "-loadedLatency" not in line("sub0", test_options={"loaded_latency": True})


def test_a_qos_file_of_the_user(tmp_path: Path) -> None:
    mine = tmp_path / "mine.xml"
    mine.write_text("<dds/>")
    assert value(line(qos=str(mine)), "-qosFile") == str(mine)
    with pytest.raises(InputError, match="no QoS profile 'mine'"):
        line(qos="mine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": "latency", "batch_bytes": 8192}, "never batches"),
        ({"test": "latency", "publishers": 2}, "one publisher"),
        ({"middleware": "raw"}, "best-effort"),
        ({}, "None"),
        (RAW | {"payload_bytes": 65507}, "None"),
        (RAW | {"message_bytes": "max", "payload_bytes": 65500}, "None"),
        ({"middleware": "fastdds", "message_bytes": "mtu", "fragment_bytes": "mtu"}, "None"),
        (RAW | {"payload_bytes": 65508}, "at most 65507"),
        (RAW | {"batch_bytes": 8192}, "does not have the setting batch_bytes"),
        (RAW | {"qos": "batched"}, "setting qos: leave it out"),
        ({"middleware": "raw-mmsg"}, "raw-mmsg sends plain UDP"),
        ({"middleware": "raw-mmsg", "reliability": "best-effort", "test": "latency"}, "collects samples"),
        ({"middleware": "raw-gso", "reliability": "best-effort", "rate": 30}, "collects samples"),
        ({"batch_bytes": 1500}, "less than two samples"),
        ({"message_bytes": 1400, "fragment_bytes": 1401}, "fragment_bytes 1401 does not fit in message_bytes 1400"),
        ({"middleware": "fastdds", "fragment_bytes": 1344}, "fragment_bytes must be default, not 1344"),
        ({"middleware": "fastdds", "security": "SignRTPS", "message_bytes": "mtu"}, "message_bytes mtu is too short"),
        ({"middleware": "fastdds", "security": "SignRTPS", "message_bytes": 4096}, "give at least 8192"),
        ({"middleware": "fastdds", "message_bytes": 1400, "fragment_bytes": 1400}, "must be default, not 1400"),
        ({"middleware": "fastdds", "fragment_bytes": "mtu"}, "fragment_bytes must be default, not mtu"),
        (RAW | {"fragment_bytes": "max"}, "setting fragment_bytes"),
        (RAW | {"message_bytes": 600}, "message_bytes 600 is too short"),
        (RAW | {"instances": 4}, "setting instances"),
        (RAW | {"topics": 2}, "setting topics"),
        ({"middleware": "connext", "writers": 2}, "topics and writers must be 1"),
        ({"test": "latency", "writers": 2}, "one sample under way"),
        ({"topics": 2, "security": "SignRTPS"}, "topics must be 1 with DDS Security"),
        ({"topics": 100, "writers": 100}, "at most 2048 writers"),
        ({"rate": 100, "rate_profile": "burst:10"}, "set `test: paced`"),
        ({"test": "paced", "rate": 100, "rate_profile": "ramp:100"}, "begins with the rate"),
        ({"test": "paced", "rate": 1, "rate_profile": "on-off:0.5:1"}, "has no sample in 0.5 s"),
    ],
)  # fmt: skip
def test_unsupported_cells(changes: dict[str, object], message: str) -> None:
    assert message in str(contradictions.unsupported(cell(**changes)))


def test_no_domain_reaches_the_ephemeral_ports() -> None:
    assert max(command.DOMAINS) * 250 + 7400 + 250 < 32768


@given(st.floats(0.1, 1000), st.floats(0, 100))
def test_the_deadline_leaves_room_for_the_trial(duration: float, warmup: float) -> None:
    deadline_s = command.deadline_s(trial(cell(), duration_s=duration, warmup_s=warmup))
    assert deadline_s > duration + warmup + command.DISCOVERY_TIMEOUT_S + command.PEER_TIMEOUT_S
