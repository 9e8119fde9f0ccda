"""Test the command line: every error has exit code 2 and one line that names the option and the fix."""

import re
import shlex
from pathlib import Path

import pytest

QOS = Path(__file__).resolve().parents[3] / "qos"
RAW = "-pub -middleware raw -bestEffort -peer 127.0.0.1"
FAST = "-pub -middleware fastdds"
ZENOH = "-pub -nic lo -middleware zenoh -transport TCPv4"
PACED = "-pub -pacedTest -pubRate 500:sleep -executionTime 1"


REFUSED = f"""
| -pub or -sub
-pub -sub | -pub and -sub
-pub -nonsense | -nonsense
-pub -dataLenn 5 | did you mean -dataLen?
-pub -data 100 | -data
-pub stray | stray
-pub -dataLen | -dataLen
-pub -dataLen -bestEffort | -dataLen
-pub -dataLen 27 | -dataLen
-pub -dataLen 1e3 | -dataLen
-pub -dataLen 100x | -dataLen
-pub -dataLen 99999999999999999999 | -dataLen
-pub -dataLen "" | -dataLen
-pub -dataLen 100 -DATALEN 100 | -dataLen: given twice
-pub -executionTime 1.2.3 | -executionTime
-pub -executionTime nan | -executionTime
-pub -domain 300 | -domain
-pub -transport SHMEM | -transport
-pub -receive poll | -receive
-pub -outputFormat xml | -outputFormat
-pub -verbosity 4 | -verbosity
-pub -sidMultiSubTest 0 | -sidMultiSubTest
-pub -numPublishers 1 | -numPublishers
-sub -pidMultiPubTest 0 | -pidMultiPubTest
-sub -latencyTest | -latencyTest
-sub -pubRate 5:spin | -pubRate
-sub -batchSize 5 | -batchSize
-pub -pubRate 100 | -pubRate
-pub -pubRate 0:spin | -pubRate
-pub -pubRate 0.0001:spin -pacedTest -executionTime 1 | from 0.001
-pub -pubRate x:spin | -pubRate
-pub -pubRate 5:walk | -pubRate
-pub -latencyTest -batchSize 8192 | -batchSize
-pub -latencyTest -latencyCount 5 | -latencyCount
-pub -latencyCount -1 | -latencyCount
-pub -latencyTest -loadedLatency | -loadedLatency
-pub -loadedLatency -latencyCount 5 | -loadedLatency
-sub -loadedLatency | -loadedLatency
-pub -multicastAddr 239.1.1.1 | -multicast
-pub -multicast -multicastAddr 10.0.0.1 | -multicastAddr
-pub -bestEffort -sendQueueSize 5 | -sendQueueSize
-pub -middleware nonsense | available: cyclonedds
-pub -nic nonsense | -nic
-pub -peer <bad> | -peer
-pub -histogramFile /nonexistent/x | -histogramFile
-pub -timelineFile /nonexistent/x | -timelineFile
-pub -qosFile /nonexistent/x | -qosFile
-pub -bestEffort -qosFile {QOS}/strict-reliable.xml | -bestEffort
-pub -check -bestEffort -qosFile {QOS}/strict-reliable.xml | -bestEffort
-pub -batchSize 100 -qosFile {QOS}/batched.xml | -batchSize
-pub -latencyTest -qosFile {QOS}/batched.xml | batched.xml:
-pub -middlewareConfig /nowhere.xml | /nowhere.xml: No such file

-pub -middleware raw -peer 127.0.0.1 | -bestEffort
-sub -middleware raw -bestEffort | -peer ADDR for each, or -multicast
-pub -middleware raw -bestEffort | -peer ADDR
{RAW} -batchSize 8192 | -batchSize
{RAW} -dataLen 65508 | 65507
{RAW} -nic nonsense | -nic
{RAW} -rawMode fast | datagram|single|connected|mmsg|gso
{RAW} -rawMode mmsg -latencyTest | -latencyTest
{RAW} -rawMode gso -pubRate 5:sleep | -pubRate
-pub -rawMode gso | -middleware raw
{RAW} -asynchronous | -asynchronous: raw
{RAW} -transport SHMEM | -transport: raw
-pub -asynchronous | -asynchronous: cyclonedds

{FAST} -batchSize 8192 | -batchSize
{FAST} -qosFile {QOS}/batched.xml | batched.xml
{FAST} -nic nowhere0 | -nic
{FAST} -peer no.such.host.invalid | -peer
{FAST} -asynchronous -flowController 1024 | give BYTES:MS
{FAST} -asynchronous -flowController 100:10 | give BYTES:MS
{FAST} -asynchronous -flowController 65536:0 | give BYTES:MS
{FAST} -asynchronous -flowController 65536:10x | give BYTES:MS
{FAST} -asynchronous -flowController 99999999999:10 | give BYTES:MS
{FAST} -discovery server | -discoveryServer
{FAST} -discoveryServer 10.99.0.1 | -discovery server
{FAST} -discovery server -discoveryServer 10.0.0.1:x | ADDRESS:PORT
{FAST} -discovery server -discoveryServer [fd00::1]:x -transport UDPv6 | ADDRESS:PORT
{FAST} -discovery server -discoveryServer [10.0.0.1] -transport UDPv6 | cannot be resolved
{FAST} -discovery server -discoveryServer 10.99.0.1 -peer 10.99.0.2 | -peer
-pub -discovery server -discoveryServer 10.99.0.1 | fastdds

-pub -middleware zenoh | does not repeat lost UDP datagrams; give TCPv4
-pub -transport TCPv4 | -transport: cyclonedds does not have TCPv4; give UDPv4
{ZENOH} -qosFile {QOS}/strict-reliable.xml | -qosFile: zenoh has no DDS QoS
{ZENOH} -multicast | -multicast: zenoh sends samples to each peer
{ZENOH} -asynchronous | -asynchronous: zenoh always sends
{ZENOH} -sendQueueSize 5 | -sendQueueSize: zenoh
{ZENOH} -fragmentSize mtu | -fragmentSize: fragments of zenoh fill a message
{ZENOH} -pidMultiPubTest 100 | -pidMultiPubTest
{ZENOH} -keyed -instances 20000 | -instances
{ZENOH} -middlewareConfig /nowhere.json5 | /nowhere.json5: No such file
-pub -nic lo -middleware zenoh -transport QUICv4 | QUIC is always encrypted

-pub -pacedTest -executionTime 1 | -pubRate N:sleep or N:spin, or -schedule FILE
-pub -pacedTest -pubRate 5:sleep | -executionTime
{PACED} -latencyTest | -latencyTest
-pub -deadline 1 | -pacedTest
{PACED} -rateProfile sine | is not a profile
{PACED} -rateProfile ramp | is not a profile
{PACED} -rateProfile ramp:1:2 | is not a profile
{PACED} -rateProfile burst:x | is not a profile
{PACED} -rateProfile burst:0 | from 1 to 1000000
{PACED} -rateProfile burst:1.5 | from 1 to 1000000
{PACED} -rateProfile ramp:500 | other than that of -pubRate
{PACED} -rateProfile on-off:0.001:1 | at least one sample
{PACED} -rateProfile on-off:1:0 | seconds above 0
-pub -pubRate 500:sleep -rateProfile burst:10 | add it

-pub -instances 3 | -instances: has an effect only with -keyed
{RAW} -keyed | -keyed: plain UDP has no keys
-pub -keyed -instances 0 | -instances: 0 is out of range
{FAST} -keyed -instances 2 | add a -qosFile with KEEP_LAST
-pub -topics 100 -writers 100 | at most 2048 writers
-pub -writers 2 -latencyTest | a latency test has one sample under way
{RAW} -topics 2 | plain UDP has no topics

-pub -scan 64:12 | '12' is not a length
-pub -scan 64: | '' is not a length
-pub -scan 64,128 | '64,128' is not a length
-pub -scan 64:1000 -dataLen 64 | replaces -dataLen
{RAW} -scan 64:65508 | at most 65507

-pub -serialized -keyed | -serialized
{FAST} -serialized | -serialized
{RAW} -serialized | -serialized

-pub -nic lo -messageSizeMax big | 'big' is not a size; give auto, default, mtu
-pub -nic lo -messageSizeMax 65501 | a number from 512 to 65500
-pub -nic lo -fragmentSize auto | -fragmentSize: 'auto' is not a size; give default, mtu, max
{FAST} -nic lo -fragmentSize 1344 | each fragment of fastdds fills a message
{RAW} -nic lo -fragmentSize max | raw does not fragment samples
{RAW} -nic lo -messageSizeMax 600 -dataLen 601 | give at most 600
-pub -messageSizeMax mtu | give its name or address with -nic
"""
"""Arguments and a part of the message, by what they are about."""


@pytest.mark.parametrize(
    ("args", "expected"), [line.split(" | ", 1) for line in f" {REFUSED.strip()}".splitlines() if line]
)
def test_errors(perftest, args, expected):
    completed = perftest.run(*shlex.split(args))
    assert completed.returncode == 2, completed.stderr
    assert completed.stdout == ""
    assert len(completed.stderr.splitlines()) == 1
    assert expected in completed.stderr


def test_check_starts_nothing(perftest):
    valid = perftest.run("-pub", "-check", "-qosFile", QOS / "strict-reliable.xml")
    assert (valid.returncode, valid.stdout, valid.stderr) == (0, "", "")


def test_version(perftest):
    expected = r"k8sdds-perftest \d+\.\d+\.\d+\nbackends:.* cyclonedds.* raw"
    assert re.match(expected, perftest.run("-version").stdout)


def test_names_are_case_insensitive(perftest):
    args = ("-PUB", "-NIC", "lo", "-discoverytimeout", "0.1", "-DOMAIN", perftest.domain)
    assert perftest.run(*args).returncode == 3


def test_every_option_is_in_the_json(perftest):
    publisher, subscriber = perftest.pair("-cpu", "-transport", "udpv4", "-verbosity", 0, "-noPrintIntervals")
    listed = set(re.findall(r"^  -(\w+)", perftest.run("-help").stdout, re.M))
    for process in (publisher, subscriber):
        options = process.k8sdds["options"]
        assert (options["transport"], options["cpu"], options["domain"]) == ("UDPv4", True, perftest.domain)
        assert set(options) == listed - {"check", "help", "version"}
        assert process.err == ""


ELEMENT = "<property><value><element><name>x.y</name><value>1</value></element></value></property>"
PROFILE = """<dds><qos_library name="l"><qos_profile name="p">
<datawriter_qos>{writer}</datawriter_qos>
<datareader_qos>{reader}</datareader_qos></qos_profile></qos_library></dds>"""


@pytest.mark.parametrize(
    ("writer", "reader", "line", "element"),
    [
        ("<nonsense/>", "", 2, "nonsense"),
        ("<reliability><kind>MAYBE</kind></reliability>", "", 2, "kind"),
        ("<reliability><speed>1</speed></reliability>", "", 2, "speed"),
        ("<ownership><kind>EXCLUSIVE_OWNERSHIP_QOS</kind></ownership>", "", 2, "kind"),
        ("<durability><kind>PERSISTENT_DURABILITY_QOS</kind></durability>", "", 2, "durability"),
        ("<transport_priority><value>3</value></transport_priority>", "", 2, "transport_priority"),
        ("<resource_limits><max_samples>5</max_samples></resource_limits>", "", 2, "resource_limits"),
        ("", "<history><depth>0</depth></history>", 3, "depth"),
        ("", "<deadline><period><sec>1</sec><nanosec>2000000000</nanosec></period></deadline>", 3, "period"),
        ("", "<deadline><period><sec>1</sec></period></deadline>", 1, "deadline"),
        ("<history/>", "", 2, "history"),
        ("<reliability><kind>BEST_EFFORT_RELIABILITY_QOS</kind></reliability>", "", 1, "RELIABLE"),
        (ELEMENT, "", 2, "x.y"),
    ],
)
def test_unsupported_qos(perftest, tmp_path, writer, reader, line, element):
    file = tmp_path / "q.xml"
    file.write_text(PROFILE.format(writer=writer, reader=reader))
    completed = perftest.run("-pub", "-qosFile", file)
    assert completed.returncode == 2
    assert f"{file}:{line}:" in completed.stderr and element in completed.stderr


@pytest.mark.parametrize("text", ["", "<dds>", "<other/>", "<dds></dds>", "plain"])
def test_invalid_qos_files(perftest, tmp_path, text):
    file = tmp_path / "q.xml"
    file.write_text(text)
    assert perftest.run("-pub", "-qosFile", file).returncode == 2


@pytest.mark.parametrize("profile", ["strict-reliable", "best-effort", "batched"])
def test_shipped_qos_files(perftest, profile):
    publisher, _ = perftest.pair("-qosFile", QOS / f"{profile}.xml", time=0.1)
    qos = publisher.k8sdds["qos"]
    assert qos["profile"] == profile and qos["file"].endswith(f"{profile}.xml")
    assert qos["reliability"] == ("best_effort" if profile == "best-effort" else "reliable")
    assert qos["batch_bytes"] == (8192 if profile == "batched" else 0)


def test_best_effort_profile_works_with_raw(perftest):
    perftest.pair("-qosFile", QOS / "best-effort.xml", middleware="raw", time=0.1)


def test_qos_policies_are_applied(perftest, tmp_path):
    file = tmp_path / "q.xml"
    duration = "<sec>0</sec><nanosec>500000000</nanosec>"
    file.write_text(
        PROFILE.format(
            writer=f"<durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>"
            f"<deadline><period>{duration}</period></deadline><lifespan><duration>{duration}</duration></lifespan>"
            "<history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>7</depth></history>",
            reader="<resource_limits><max_samples>300</max_samples></resource_limits>",
        )
    )
    publisher, subscriber = perftest.pair("-qosFile", file, time=0.1)
    qos = publisher.k8sdds["qos"]
    assert (qos["writer_durability"], qos["writer_history"]) == ("transient_local", "keep_last_7")
    assert (qos["deadline_ns"], qos["lifespan_ns"]) == (500_000_000, 500_000_000)
    assert subscriber.k8sdds["qos"]["reader_max_samples"] == 300
