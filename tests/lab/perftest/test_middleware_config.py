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


@pytest.mark.parametrize(
    ("middleware", "text"),
    [
        # The kernel grants less than 8 MiB only if the file's limit replaces that of the program.
        ("cyclonedds", CYCLONE.format('<Internal><SocketReceiveBufferSize max="64 KiB"/></Internal>')),
        ("fastdds", PARTICIPANT.format("<listenSocketBufferSize>65536</listenSocketBufferSize>")),
    ],
)
def test_the_file_is_applied(perftest, config, middleware, text):
    small = config(text)
    publisher, subscriber = perftest.pair(sub=("-middlewareConfig", small), middleware=middleware)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert subscriber.k8sdds["options"]["middlewareConfig"] == small
    name = "socket_receive_buffer_bytes"
    assert subscriber.k8sdds["transport"][name] < publisher.k8sdds["transport"][name]


def test_a_campaign_checks_the_file_with_the_publish_mode(perftest, config):
    text = WRITER.format("<qos><publishMode><kind>ASYNCHRONOUS</kind></publishMode></qos>")
    cell = Cell(
        network="host",
        test="throughput",
        payload_bytes=1024,
        middleware="fastdds",
        middleware_config=config(text),
    )
    fastdds = middleware.find(cell.middleware)
    assert fastdds.refused_files(cell) is None
    contradiction = cell.model_copy(update={"publish_mode": "asynchronous"})
    assert "-asynchronous sets this" in str(fastdds.refused_files(contradiction))


REFUSED = {
    CYCLONE: [
        ("<General><AllowMulticast>false</AllowMulticast></General>", "<AllowMulticast>"),
        ("<Discovery><Peers/></Discovery>", "<Peers>"),
        ("<Tracing><OutputFile>/tmp/x</OutputFile></Tracing>", "<Tracing>"),
        ("<Security/>", "<Security>"),
        ("<Internal><MonitorPort>0</MonitorPort></Internal>", "<MonitorPort>"),
        ("<Internal><FragmentSize>1 kB</FragmentSize></Internal>", "<FragmentSize>"),
        ("<Internal><Nonsense>1</Nonsense></Internal>", "Nonsense"),
        ("<Internal><HeartbeatInterval>soon</HeartbeatInterval></Internal>", "soon"),
        ("</Domain><Domain><Sizing/>", "twice"),
        ("<Sizing>${HOME}</Sizing>", "variables"),
        ("<Sizing>", "not well-formed"),
        (f"<!--{'x' * 70_000}-->", "longer than"),
    ],
    FAST: [
        ("<transport_descriptors/>", "<transport_descriptors>"),
        ("<data_writer><times/></data_writer>", "profile_name"),
    ],
    WRITER: [
        ("<qos><data_sharing/></qos>", "<data_sharing>"),
        ("<times><nonsense/></times>", "nonsense"),
    ],
    PARTICIPANT: [
        ("<useBuiltinTransports>true</useBuiltinTransports>", "<useBuiltinTransports>"),
        (
            "<propertiesPolicy><properties><property><name>dds.sec.auth.plugin</name>"
            "<value>x</value></property></properties></propertiesPolicy>",
            "only properties named fastdds",
        ),
    ],
}
"""Elements in a file and a part of the message."""
OTHER = [
    ("cyclonedds", "<CycloneDDS><Domain Id='3'/></CycloneDDS>", "remove Id"),
    ("cyclonedds", FAST.format(""), "must be <CycloneDDS>"),
    ("cyclonedds", "<!DOCTYPE x [<!ENTITY a 'b'>]>" + CYCLONE.format(""), "document type"),
    ("cyclonedds", "<a>" * 600 + "</a>" * 600, "not well-formed"),
    ("cyclonedds", "", "not well-formed"),
    ("fastdds", CYCLONE.format(""), "must be <dds>"),
    ("raw", CYCLONE.format(""), "raw has no configuration file"),
]


@pytest.mark.parametrize(
    ("middleware", "text", "message"),
    [
        *(("cyclonedds" if file is CYCLONE else "fastdds", file.format(element), message)
          for file, cases in REFUSED.items() for element, message in cases),
        *OTHER,
    ],
)  # fmt: skip
def test_refused_files(perftest, config, middleware, text, message):
    both = ("-nic", "lo", "-middleware", middleware, *(["-bestEffort"] if middleware == "raw" else []))
    done = perftest.run("-pub", "-check", *both, "-middlewareConfig", config(text))
    assert done.returncode == 2
    assert "-middlewareConfig: " in done.stderr and message in done.stderr


def test_watermarks_and_send_queue_exclude_each_other(perftest, config):
    marks = config(CYCLONE.format("<Internal><Watermarks><WhcHigh>1 MB</WhcHigh></Watermarks></Internal>"))
    arguments = ("-pub", "-check", "-nic", "lo", "-middlewareConfig", marks)
    assert perftest.run(*arguments).returncode == 0
    done = perftest.run(*arguments, "-sendQueueSize", 10)
    assert (done.returncode, "-sendQueueSize" in done.stderr) == (2, True)
