"""Test the command lines of RTI PerfTest, its settings and its limits."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from k8sdds.campaign import contradictions
from k8sdds.middleware.connext import SERVICE, command, options, settings
from k8sdds.middleware.connext.options import Version
from k8sdds.middleware.connext.settings import Settings
from k8sdds.model.measurement import ParticipantPaths
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.workloads.program import Surroundings


def line(
    participant: str = "pub0", version: Version = (4, 1), more: tuple[str, ...] = (),
    shared: bool = False, mtu: int | None = None, **changes: object,
) -> list[str]:  # fmt: skip
    known = {"network": "host", "test": "throughput", "payload_bytes": 1024, "middleware": "connext"}
    cell = Cell(**{**known, "discovery": "peers", **changes})
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=3, warmup_s=0)
    endpoints = {
        item.name: Endpoint("10.0.0.9" if shared else f"10.0.0.{i}", "eth0", None, mtu)
        for i, item in enumerate(cell.participants)
    }
    selected = Settings("/opt/rti/perftest_cpp", version, user_options=more)
    member = Participant.named(participant)
    surroundings = Surroundings(endpoints, 7, ParticipantPaths("", Path("/raw/pub0")))
    return command.command_line(trial, member, surroundings, selected)


@pytest.mark.parametrize("version", options.VERSIONS, ids=options.version_text)
def test_every_release_accepts_its_command_lines(version: Version) -> None:
    for changes in (
        {}, {"test": "latency"}, {"reliability": "best-effort", "rate": 30}, {"batch_bytes": 8192},
        {"transport": "multicast", "subscribers": 12}, {"receive_mode": "waitset"}, {"payload_bytes": 200_000},
        {"publishers": 3, "subscribers": 4}, {"instances": 100},
    ):  # fmt: skip
        for participant, role in (("pub0", "publisher"), ("sub0", "subscriber")):
            args = line(participant, version, **changes)  # type: ignore[arg-type]
            assert args[0] == "/opt/rti/perftest_cpp"
            assert options.refusal(args[1:], version, role) is None


def test_a_publisher_of_throughput() -> None:
    assert " ".join(line()) == (
        "/opt/rti/perftest_cpp -pub -domain 7 -transport UDPv4 -nic eth0 -dataLen 1024 -noXmlQos"
        " -peer 10.0.0.1 -pidMultiPubTest 0 -numSubscribers 1 -executionTime 3"
        " -batchSize 0 -outputFormat csv -noPrintIntervals"
    )


def test_a_subscriber() -> None:
    assert " ".join(line("sub1", subscribers=2)) == (
        "/opt/rti/perftest_cpp -sub -domain 7 -transport UDPv4 -nic eth0 -dataLen 1024 -noXmlQos"
        " -peer 10.0.0.0 -peer 10.0.0.1 -sidMultiSubTest 1 -numPublishers 1 -outputFormat csv -noPrintIntervals"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"test_options": {"loaded_latency": True}}, "-latencyCount 1000"),
        ({"instances": 8}, "-keyed -instances 8"),
        ({"participant": "sub0", "instances": 8}, "-keyed -instances 8"),
        ({"test": "latency", "version": (4, 1)}, "-latencyFile"),
        # PerfTest would collect 8192 bytes; where that is less than two samples it does not, by itself.
        ({"payload_bytes": 4096}, "-batchSize 0"),
        ({"batch_bytes": 8192}, "-batchSize 8192"),
        ({"shared": True, "subscribers": 8}, "-peer 8@10.0.0.9"),
        ({"more": ("-flowController", "1Gbps")}, "-flowController 1Gbps"),
    ],
)
def test_options(changes: dict[str, Any], expected: str) -> None:
    words = f"{' '.join(line(**changes))} "
    assert words.count(f"{expected} ") == 1 == words.count(f" {expected.split()[0]} ")


def test_options_that_a_trial_does_not_have() -> None:
    latency = line(test="latency", version=(4, 0))
    assert "-latencyTest" in latency and not {"-batchSize", "-latencyFile"} & set(latency)
    assert "-batchSize" not in line(payload_bytes=4097)
    with pytest.raises(InputError, match="-nic: given twice"):
        line(more=("-nic", "eth1"))


def test_sizes_of_messages() -> None:
    def size(**changes: object) -> str:
        args = line(version=(4, 2), **changes)  # type: ignore[arg-type]
        return args[args.index("-messageSizeMax") + 1]

    assert "-messageSizeMax" not in line(message_bytes="default")
    assert (size(message_bytes=1400), size(message_bytes="max")) == ("1400", "65500")
    assert size(message_bytes="mtu", mtu=1450) == "1422"
    with pytest.raises(InputError, match=r"message_bytes mtu: the MTU .* is unknown"):
        size(message_bytes="mtu")
    with pytest.raises(
        InputError, match=r"-messageSizeMax: RTI PerfTest 4.1 does not have it.*message_bytes"
    ):
        line(version=(4, 1), message_bytes="max")


def test_discovery() -> None:
    assert "-peer" not in line(discovery="multicast")
    # With a list of peers it would not listen to multicast.
    assert "-peer" not in line(discovery="multicast", transport="multicast")
    assert "-peer" not in line(discovery="server")
    given = Settings("/p", (4, 1), "/opt/lib", "/run/license")
    assert command.environment(given, ("a-0.a.ns.svc:7400", "a-1.a.ns.svc:7400")) == {
        "LD_LIBRARY_PATH": "/opt/lib",
        "RTI_LICENSE_FILE": "/run/license",
        "NDDS_DISCOVERY_PEERS": "rtps@udpv4://a-0.a.ns.svc:7400,rtps@udpv4://a-1.a.ns.svc:7400",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"receive_mode": "spin"}, "listener or waitset"),
        ({"security": "SignRTPS"}, "security must be none"),
        ({"rate": 0.5}, "whole samples"),
        ({"batch_bytes": 400_000, "payload_bytes": 70_000}, "does not batch"),
        ({"fragment_bytes": "mtu"}, "fragment_bytes must be default"),
    ],
)
def test_unsupported_cells(changes: dict[str, object], message: str) -> None:
    known = {"network": "host", "test": "throughput", "payload_bytes": 1024, "middleware": "connext"}
    assert message in str(contradictions.unsupported(Cell(**{**known, **changes})))


@pytest.mark.parametrize(
    ("args", "version", "role", "message"),
    [
        ("-latencyFile f", (4, 0), "publisher", "4.0 does not have it, it came with 4.1: percentiles only"),
        ("-latencyFile f", (4, 1), "publisher", None),
        ("-latencyFile f", (4, 1), "subscriber", "only for the publisher"),
        ("-numPublishers 2", (4, 1), None, "only for the subscriber"),
        ("-secureSign", (3, 3), "publisher", None),
        ("-secureSign", (4, 0), "publisher", "ended with 3.3: give a -secureGovernanceFile"),
        ("-scan 64:128", (4, 1), "publisher", None),
        ("-scan 64:128", (4, 2), "publisher", "ended with 4.1"),
        ("-threadCPUAffinity 0:1:2:3", (4, 2), None, "came with 4.3"),
        ("-outputFile x", (3, 3), None, "came with 4.0"),
        ("-networkCapture", (3, 1), None, "came with 3.2"),
        ("-qosProfile x", (4, 3), None, "has no such option"),
        ("-peer a -peer b", (3, 1), None, None),
        ("-nic a -nic b", (3, 1), None, "given twice"),
        ("-nic", (3, 1), None, "it needs a value (NAME)"),
        ("-nic -multicast", (3, 1), None, "it needs a value (NAME)"),
        ("", (3, 0), None, "does not know RTI PerfTest 3.0"),
        ("", (4, 4), None, "does not know RTI PerfTest 4.4"),
    ],
)
def test_refusals(args: str, version: options.Version, role: str | None, message: str | None) -> None:
    result = options.refusal(args.split(), version, role)
    assert result is None if message is None else message in result


def test_no_option_is_a_prefix_of_another_option() -> None:
    # PerfTest takes the first that fits a beginning, so an exact name must be given; ours are exact.
    names = list(options.OPTIONS)
    assert len(names) == len({name.lower() for name in names})


# -- the user's program -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "error", "message"),
    [
        ({}, PrerequisiteError, "RTI's PerfTest"),
        ({settings.PROGRAM: "/none"}, InputError, "not a program"),
        ({settings.PROGRAM: "/bin/true"}, InputError, "does not print its release"),
        ({settings.PROGRAM: "/bin/true", settings.VERSION: "9.9"}, InputError, "does not support"),
        ({settings.PROGRAM: "/bin/true", settings.VERSION: "new"}, InputError, "does not support"),
        ({settings.PROGRAM: "/bin/true", settings.VERSION: "4.1", settings.LICENSE: "/none"}, InputError, "license"),
        ({settings.PROGRAM: "/bin/true", settings.VERSION: "4.1", settings.MORE: "-scan"}, InputError, "only for the publisher"),
        ({settings.PROGRAM: "/bin/true", settings.VERSION: "4.1", settings.MORE: "'"}, InputError, "quotation"),
    ],
)  # fmt: skip
def test_invalid_settings(environment: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        settings.on_this_machine(environment)


def test_pods_get_the_license_from_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "rti_license.dat"
    path.write_bytes(b"one\xff")
    assert settings.license_file({}) is None and settings.license_file({settings.LICENSE: str(path)}) == path
    secret = settings.license_secret("there", path.read_bytes())
    assert secret["metadata"]["namespace"] == "there"
    assert base64.b64decode(secret["data"][settings.LICENSE_KEY]) == b"one\xff"
    slot = pods.Slot("pub0", "pub", "n1", False)
    pod = pods.pod("x", slot, "image", "c", (1, 1), extra_volumes=settings.license_parts())["spec"]
    volumes = {item["name"]: item for item in pod["volumes"]}
    mounts = {item["name"]: item["mountPath"] for item in pod["containers"][0]["volumeMounts"]}
    assert volumes.keys() == mounts.keys() and len(volumes) == 3
    assert volumes["license"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert f"{mounts['license']}/{settings.LICENSE_KEY}" == settings.LICENSE_IN_POD
    (discovery,) = (item for item in SERVICE.objects("there", image="i") if item["kind"] == "StatefulSet")
    spec = discovery["spec"]["template"]["spec"]
    assert spec["volumes"][0]["secret"]["secretName"] == settings.SECRET
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == settings.LICENSE_FOLDER


def test_the_release_is_that_of_the_banner_unless_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "perftest_cpp"
    path.write_text("#!/bin/sh\necho 'RTI Perftest 3.3.1 (RTI Connext DDS 6.1.2)' >&2\n")
    path.chmod(0o755)
    assert settings.on_this_machine({settings.PROGRAM: str(path)}).version == (3, 3)
    given = {settings.PROGRAM: str(path), settings.VERSION: "4.2.0"}
    assert settings.on_this_machine(given).version == (4, 2)


def test_an_image_and_its_release(tmp_path: Path) -> None:
    image, result = settings.in_image({settings.IMAGE: "r.example/p:1", settings.VERSION: "4.3"})
    assert (image, result.version) == ("r.example/p:1", (4, 3))
    assert result.environment()[settings.LICENSE] == settings.LICENSE_IN_POD
    wrong = {settings.IMAGE: "i", settings.VERSION: "4.1", settings.LICENSE: str(tmp_path / "none")}
    for environment, error, message in (
        (wrong, InputError, "no file"), ({}, PrerequisiteError, "an image"), ({settings.IMAGE: "i"}, InputError, "not set"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            settings.in_image(environment)
