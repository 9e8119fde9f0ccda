"""Test the user's own configuration files of Cyclone DDS and Fast DDS: applied, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds import middleware
from k8sdds.model.trial import Cell

CYCLONE = "<CycloneDDS><Domain>{}</Domain></CycloneDDS>"
FAST = '<dds xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"><profiles>{}</profiles></dds>'
WRITER = FAST.format('<data_writer profile_name="w">{}</data_writer>')
PARTICIPANT = FAST.format('<participant profile_name="p"><rtps>{}</rtps></participant>')


@pytest.fixture
def config(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "config.xml"
        path.write_text(text)
        return str(path)

    return write


def test_cyclonedds_applies_the_file(perftest, config):
    # The kernel grants less than 8 MiB only if the file's limit replaces that of the program.
    small = config(CYCLONE.format('<Internal><SocketReceiveBufferSize max="64 KiB"/></Internal>'))
    publisher, subscriber = perftest.pair(sub=("-middlewareConfig", small))
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert subscriber.k8sdds["options"]["middlewareConfig"] == small
    buffers = [
        process.k8sdds["transport"]["socket_receive_buffer_bytes"] for process in (publisher, subscriber)
    ]
    assert buffers[1] < buffers[0]


def test_fastdds_applies_the_file(perftest, config):
    small = config(PARTICIPANT.format("<listenSocketBufferSize>65536</listenSocketBufferSize>"))
    publisher, subscriber = perftest.pair(sub=("-middlewareConfig", small), middleware="fastdds")
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    buffers = [
        process.k8sdds["transport"]["socket_receive_buffer_bytes"] for process in (publisher, subscriber)
    ]
    assert buffers[1] < buffers[0]


def test_fastdds_publishes_asynchronously_on_request(perftest, config):
    text = (
        "<qos><publishMode><kind>ASYNCHRONOUS</kind></publishMode></qos>"
        "<times><heartbeatPeriod><nanosec>50000000</nanosec></heartbeatPeriod></times>"
    )
    asynchronous = config(WRITER.format(text))
    publisher, subscriber = perftest.pair(pub=("-middlewareConfig", asynchronous), middleware="fastdds")
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0


def test_a_campaign_checks_the_file_with_the_publish_mode(perftest, config):
    text = "<qos><publishMode><kind>ASYNCHRONOUS</kind></publishMode></qos>"
    cell = Cell(
        network="host",
        test="throughput",
        payload_bytes=1024,
        middleware="fastdds",
        middleware_config=config(WRITER.format(text)),
    )
    fastdds = middleware.find(cell.middleware)
    assert fastdds.refused_files(cell) is None
    contradiction = cell.model_copy(update={"publish_mode": "asynchronous"})
    assert "-asynchronous sets this" in str(fastdds.refused_files(contradiction))


@pytest.mark.parametrize(
    ("middleware", "text", "message"),
    [
        (
            "cyclonedds",
            CYCLONE.format("<General><AllowMulticast>false</AllowMulticast></General>"),
            "<AllowMulticast>",
        ),
        ("cyclonedds", CYCLONE.format("<Discovery><Peers/></Discovery>"), "<Peers>"),
        ("cyclonedds", CYCLONE.format("<Tracing><OutputFile>/tmp/x</OutputFile></Tracing>"), "<Tracing>"),
        ("cyclonedds", CYCLONE.format("<Security/>"), "<Security>"),
        ("cyclonedds", CYCLONE.format("<Internal><MonitorPort>0</MonitorPort></Internal>"), "<MonitorPort>"),
        (
            "cyclonedds",
            CYCLONE.format("<Internal><FragmentSize>1 kB</FragmentSize></Internal>"),
            "<FragmentSize>",
        ),
        ("cyclonedds", CYCLONE.format("<Internal><Nonsense>1</Nonsense></Internal>"), "Nonsense"),
        (
            "cyclonedds",
            CYCLONE.format("<Internal><HeartbeatInterval>soon</HeartbeatInterval></Internal>"),
            "soon",
        ),
        (
            "cyclonedds",
            CYCLONE.format("<Sizing/><Sizing/>").replace("<Sizing/>", "</Domain><Domain>", 1),
            "twice",
        ),
        ("cyclonedds", "<CycloneDDS><Domain Id='3'/></CycloneDDS>", "remove Id"),
        ("cyclonedds", FAST.format(""), "must be <CycloneDDS>"),
        ("cyclonedds", "<!DOCTYPE x [<!ENTITY a 'b'>]>" + CYCLONE.format(""), "document type"),
        ("cyclonedds", CYCLONE.format("<Sizing>${HOME}</Sizing>"), "variables"),
        ("cyclonedds", CYCLONE.format("<Sizing>"), "not well-formed"),
        ("cyclonedds", "<a>" * 600 + "</a>" * 600, "not well-formed"),
        ("cyclonedds", CYCLONE.format("<!--" + "x" * 70_000 + "-->"), "longer than"),
        ("cyclonedds", "", "not well-formed"),
        ("fastdds", CYCLONE.format(""), "must be <dds>"),
        (
            "fastdds",
            PARTICIPANT.format("<useBuiltinTransports>true</useBuiltinTransports>"),
            "<useBuiltinTransports>",
        ),
        ("fastdds", FAST.format("<transport_descriptors/>"), "<transport_descriptors>"),
        ("fastdds", WRITER.format("<qos><data_sharing/></qos>"), "<data_sharing>"),
        ("fastdds", WRITER.format("<times><nonsense/></times>"), "nonsense"),
        ("fastdds", FAST.format("<data_writer><times/></data_writer>"), "profile_name"),
        (
            "fastdds",
            PARTICIPANT.format(
                "<propertiesPolicy><properties><property><name>dds.sec.auth.plugin</name>"
                "<value>x</value></property></properties></propertiesPolicy>"
            ),
            "only properties named fastdds",
        ),
        ("raw", CYCLONE.format(""), "raw has no configuration file"),
    ],
)
def test_refused_files(perftest, config, middleware, text, message):
    reliability = ["-bestEffort"] if middleware == "raw" else []
    done = perftest.run(
        "-pub",
        "-check",
        "-nic",
        "lo",
        "-middleware",
        middleware,
        *reliability,
        "-middlewareConfig",
        config(text),
    )
    assert done.returncode == 2
    assert "-middlewareConfig: " in done.stderr
    assert message in done.stderr


def test_watermarks_and_send_queue_exclude_each_other(perftest, config):
    marks = config(CYCLONE.format("<Internal><Watermarks><WhcHigh>1 MB</WhcHigh></Watermarks></Internal>"))
    arguments = ("-pub", "-check", "-nic", "lo", "-middlewareConfig", marks)
    assert perftest.run(*arguments).returncode == 0
    done = perftest.run(*arguments, "-sendQueueSize", 10)
    assert (done.returncode, "-sendQueueSize" in done.stderr) == (2, True)
