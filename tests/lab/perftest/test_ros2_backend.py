"""Test ROS 2: what its layers deliver, what they set, with whom they exchange samples, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from perftest_tools import (
    FOLDERS,
    REPOSITORY,
    TIMEOUT_S,
    Perftest,
    end_all,
    packet_socket,
    rtps_messages,
    tool,
)
from security_files import Files

from tests.conftest import RCLPY_MISSING

ROS2, PLAIN = "ros2-fastdds", "ros2-fastdds-plain"
MODULE = f"libk8sdds-perftest-{ROS2}.so"
PACED = ("-pacedTest", "-pubRate", "500:sleep")
HIDE = '[ ! -e /etc/machine-id ] || mount --bind /dev/null /etc/machine-id; exec "$@"'
WITHOUT_MACHINE_ID = ("unshare", "--mount", "sh", "-ec", HIDE, "sh")
"""Runs a program that does not see the id of this machine."""

pytestmark = pytest.mark.skipif(
    not any((folder / MODULE).is_file() for folder in FOLDERS),
    reason="ROS 2 is not built: k8sdds setup --for tests",
)


def check_complete(publisher, subscriber) -> None:
    result = subscriber.k8sdds
    assert result["received"] == publisher.k8sdds["sent"] > 0
    assert {result[name] for name in ("lost", "duplicates", "foreign_samples", "foreign_messages")} == {0}


@pytest.mark.parametrize("length", [28, 1024, 65536, 1_000_000])
def test_samples_of_every_length(perftest, length):
    check_complete(*perftest.pair("-dataLen", length, pub=("-numIter", 20), time=20, middleware=ROS2))


def test_nodes_of_a_graph(perftest, tmp_path):
    graph = tmp_path / "graph.txt"
    graph.write_text(
        "graph 1\n"
        "flow front-camera bytes 200000 rate 50 reliable\n"
        "flow 2nd_imu bytes 40 rate 100 best-effort\n"
        "flow objects bytes 1000 after front-camera,2nd_imu reliable\n"
        "node sensors publishes front-camera,2nd_imu\n"
        "node detector subscribes front-camera,2nd_imu publishes objects\n"
        "node planner subscribes objects\n"
    )
    sensors, detector, planner = (
        perftest.node(graph, node, middleware=ROS2) for node in ("sensors", "detector", "planner")
    )
    end_all(sensors, detector, planner)
    received = [
        flow for node in (detector, planner) for flow in node.k8sdds["flows"] if flow["role"] == "subscriber"
    ]
    assert [flow["flow"] for flow in received] == ["front-camera", "2nd_imu", "objects"]
    for flow in received:
        assert flow["received"] + flow["lost"] == flow["sent"] > 0
        assert flow["lost"] == 0 or flow["flow"] == "2nd_imu"


@pytest.mark.parametrize(
    "both",
    [
        ("-topics", 2, "-writers", 2),
        ("-multicast",),
        ("-transport", "UDPv6"),
        ("-qosFile", REPOSITORY / "qos/ros2-default.xml"),
    ],
)
def test_what_rmw_states_and_what_fast_dds_states(perftest, both):
    # A writer that keeps 10 samples replaces those that a subscriber has not received yet.
    rate = ("-pubRate", "500:sleep") if "-qosFile" in both else ()
    publisher, subscriber = perftest.pair(*both, pub=rate, middleware=ROS2)
    check_complete(publisher, subscriber)
    expected = "keep_last_10" if "-qosFile" in both else "keep_all"
    assert publisher.k8sdds["qos"]["writer_history"] == expected


def test_best_effort_samples_are_sent_once(perftest):
    publisher, subscriber = perftest.pair("-bestEffort", middleware=ROS2)
    result = subscriber.k8sdds
    assert result["received"] + result["lost"] == publisher.k8sdds["sent"] and result["received"] > 0
    assert result["duplicates"] == 0


def test_rmw_creates_the_kind_of_writer_that_is_requested(perftest):
    for options, mode in (((), "synchronous"), (("-asynchronous",), "asynchronous")):
        publisher, subscriber = perftest.pair(pub=options, middleware=ROS2)
        check_complete(publisher, subscriber)
        assert publisher.k8sdds["qos"]["publish_mode"] == mode


def test_several_publishers_and_subscribers(perftest):
    publishers, subscribers = perftest.several(2, 2, ROS2)
    sent = sum(publisher.k8sdds["sent"] for publisher in publishers)
    assert [subscriber.k8sdds["received"] for subscriber in subscribers] == [sent] * 2


def test_results_contain_the_versions_of_all_layers(perftest):
    publisher, _ = perftest.pair(middleware=ROS2)
    requirements = (REPOSITORY / "perftest-images/perftest/middleware/ros2/requirements.txt").read_text()
    layers = dict(layer.rsplit(" ", 1) for layer in publisher.k8sdds["middleware"]["version"].split(", "))
    assert layers.keys() == {"rcl", "rmw_fastrtps_cpp", "Fast DDS"}
    for name in ("rcl", "rmw_fastrtps_cpp"):
        assert f"ros-{name.replace('_', '-')}=={layers[name]} " in requirements


def test_the_environment_of_a_ros_workspace_has_no_effect(perftest):
    environment = {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF",
        "ROS_DOMAIN_ID": "5",
        "ROS_SECURITY_ENABLE": "true",
        "FASTDDS_DEFAULT_PROFILES_FILE": "/nowhere.xml",
        "AMENT_PREFIX_PATH": "/opt/ros/other",
        "HOME": "/nowhere",
    }
    check_complete(*perftest.pair(middleware=ROS2, env=environment))


# -- other programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [(), ("-latencyTest",), PACED])
@pytest.mark.parametrize("middleware", [(ROS2, "fastdds"), ("fastdds", ROS2)])
def test_plain_fast_dds_exchanges_samples_with_ros2(perftest, middleware, test):
    """The bytes on the wire, the names of topics and types, and the QoS are those of a plain DDS application."""
    names = [("-ros2Names",) if name == "fastdds" else () for name in middleware]
    publisher, subscriber = perftest.pair(pub=(*names[0], *test), sub=names[1], middleware=middleware)
    check_complete(publisher, subscriber)


CYCLONE = """<CycloneDDS><Domain>
  <General><Interfaces><NetworkInterface name="lo"/></Interfaces><AllowMulticast>false</AllowMulticast></General>
  <Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers></Discovery>
</Domain></CycloneDDS>
"""


def test_cyclone_dds_receives_what_ros2_publishes(perftest):
    """Version 0.10 crashes if Fast DDS 3 propagates the type of a topic that it matches."""
    names = ("rt/k8sdds/throughput", "k8sdds_msgs::msg::dds_::Sample_")
    with subprocess.Popen(
        [tool("k8sdds-cyclonedds-reader"), str(perftest.domain), *names, "100"],
        env={**os.environ, "CYCLONEDDS_URI": CYCLONE},
        stdout=subprocess.PIPE,
    ) as reader:
        try:
            assert reader.stdout is not None and reader.stdout.readline() == b"ready\n"
            # It has no time limit in which it must be discovered.
            publisher, _ = perftest.begin(time=TIMEOUT_S, pub=("-pubRate", "1000:sleep"), middleware=ROS2)
            assert reader.wait(TIMEOUT_S) == 0
            assert publisher.popen.poll() is None, publisher.err
        finally:
            reader.kill()


def test_pods_of_one_machine_find_each_other_without_its_id(perftest: Perftest, link):
    """As in the lab: Fast DDS 3 takes processes of machines with the same id for processes of one host."""
    check_complete(*perftest.pair(link=link, within=WITHOUT_MACHINE_ID, middleware=ROS2))


@pytest.mark.parametrize("test", [(), ("-latencyTest",), PACED])
def test_the_same_fast_dds_without_the_layers_of_ros2(perftest, test):
    publisher, subscriber = perftest.pair(pub=test, middleware=PLAIN)
    check_complete(publisher, subscriber)
    ros2, _ = perftest.pair(pub=test, middleware=ROS2)
    assert ros2.k8sdds["middleware"]["version"].endswith(
        f", Fast DDS {publisher.k8sdds['middleware']['version']}"
    )
    assert ros2.k8sdds["qos"] == publisher.k8sdds["qos"]
    for size in ("max_message_bytes", "fragment_bytes", "socket_receive_buffer_bytes"):
        assert ros2.k8sdds["transport"][size] == publisher.k8sdds["transport"][size]


# -- types of messages -------------------------------------------------------------------------------

IMAGE, CLOUD, IMU = (f"sensor_msgs/msg/{name}" for name in ("Image", "PointCloud2", "Imu"))
BYTES = "std_msgs/msg/ByteMultiArray"
LENGTH = 320
MORE_BYTES = {"sample": 4, IMAGE: 52, CLOUD: 141, IMU: 4, BYTES: 16}
"""For each type of message, by how many bytes its serialized form is longer than a sample."""
ARRAYS = [IMAGE, CLOUD, BYTES]


def on_the_wire(kind: str) -> int:
    """Return the length of a message with a sample of LENGTH bytes: Fast DDS fills it up to a multiple of 4 bytes."""
    return -(-(LENGTH + MORE_BYTES[kind]) // 4) * 4


@pytest.mark.parametrize(
    ("receive", "kind", "test"),
    [
        *(("listener", kind, ("-latencyTest",)) for kind in MORE_BYTES),
        *(("waitset", kind, PACED) for kind in MORE_BYTES),
        *((receive, "sample", ()) for receive in ("listener", "waitset", "spin")),
        ("spin", "sample", ("-latencyTest",)),
    ],
)
def test_samples_travel_in_messages_of_each_type(perftest, receive, kind, test):
    """Receive each type in both ways, which have code for each type. The code of a test is the same for all types."""
    publisher, subscriber = perftest.pair(
        "-messageType", kind, "-dataLen", LENGTH, "-receive", receive, pub=test, middleware=ROS2
    )
    check_complete(publisher, subscriber)
    assert publisher.k8sdds["pongs_received"] == (publisher.k8sdds["sent"] if "-latencyTest" in test else 0)


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("length", [28, 1_000_000])
def test_arrays_have_every_length(perftest, kind, length):
    both = ("-messageType", kind, "-dataLen", length)
    check_complete(*perftest.pair(*both, pub=("-numIter", 20), time=20, middleware=ROS2))


@pytest.mark.parametrize("kind", ["sample", *ARRAYS])
def test_samples_of_varying_lengths(perftest, tmp_path, kind):
    schedule = tmp_path / "schedule.txt"
    schedule.write_text("period 10000\n0 62000\n2000 28\n4000 4100\n")
    both = ("-messageType", kind)
    publisher, subscriber = perftest.pair(*both, pub=("-pacedTest", "-schedule", schedule), middleware=ROS2)
    check_complete(publisher, subscriber)
    assert subscriber.k8sdds["delivered_bytes"] == publisher.k8sdds["sent_bytes"]


def test_messages_of_several_writers(perftest):
    both = ("-messageType", IMAGE, "-topics", 2, "-writers", 2)
    check_complete(*perftest.pair(*both, middleware=ROS2))


DATA, DATA_HEADER = 0x15, 24


@pytest.mark.parametrize("kind", MORE_BYTES)
def test_the_length_of_a_message_is_the_documented_one(perftest, link, kind):
    packets = packet_socket(link[1])
    both = ("-messageType", kind, "-dataLen", LENGTH)
    rate = ("-pubRate", "1000:sleep")
    check_complete(*perftest.pair(*both, pub=rate, link=link, within=WITHOUT_MACHINE_ID, middleware=ROS2))
    lengths: Counter[int] = Counter()
    for _, submessages in rtps_messages(packets):
        lengths.update(len(each) - DATA_HEADER for each in submessages if each[0] == DATA)
    packets.close()
    assert lengths.most_common(1)[0][0] == on_the_wire(kind)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-middleware", "fastdds", "-messageType", IMAGE), "-messageType: only ros2-fastdds"),
        (("-middleware", PLAIN, "-messageType", IMAGE), "-messageType: only ros2-fastdds"),
        (("-middleware", ROS2, "-messageType", "Image"), "-messageType: 'Image' is not a valid value"),
        (
            ("-middleware", ROS2, "-messageType", IMU),
            "-dataLen: a sensor_msgs/msg/Imu has one length; give 320",
        ),
    ],
)
def test_types_that_cannot_carry_the_samples_are_refused(perftest, options, message):
    done = perftest.run("-pub", "-nic", "lo", *options)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_an_imu_has_no_schedule(perftest, tmp_path):
    schedule = tmp_path / "schedule.txt"
    schedule.write_text("period 10000\n0 320\n")
    done = perftest.run(
        "-pub", "-middleware", ROS2, "-messageType", IMU, "-pacedTest", "-schedule", schedule, "-nic", "lo"
    )
    assert done.returncode == 2 and "-messageType: messages of this type have one length" in done.stderr


def test_participants_with_different_types_do_not_match(perftest):
    wait = ("-discoveryTimeout", 2)
    publisher, subscriber = perftest.begin(*wait, pub=("-messageType", IMAGE), middleware=ROS2)
    end_all(publisher, subscriber, codes=(3, 3))
    assert "-messageType" in publisher.err and "-messageType" in subscriber.err


RCLPY = os.environ.get("K8SDDS_TEST_RCLPY", "")
needs_rclpy = pytest.mark.skipif(not RCLPY, reason=RCLPY_MISSING)


def ros2_node(perftest: Perftest, home: Path, *args: object) -> subprocess.Popen[str]:
    """Start a node of rclpy that finds the participants of this host."""
    environment = {
        "ROS_DOMAIN_ID": str(perftest.domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        "PATH": os.environ["PATH"],
        "HOME": str(home),
    }
    command = [RCLPY, Path(__file__).with_name("ros2_node.py"), *map(str, args)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@needs_rclpy
@pytest.mark.parametrize("kind", [IMAGE, CLOUD, IMU, BYTES])
def test_a_node_of_rclpy_receives_the_messages(perftest, kind, tmp_path):
    expected = {
        IMAGE: {"frame_id": "camera", "encoding": "mono8", "height": 1, "width": LENGTH, "step": LENGTH},
        CLOUD: {
            "frame_id": "lidar",
            "fields": ["x", "y", "z", "intensity"],
            "height": 1,
            "width": LENGTH // 16,
            "point_step": 16,
            "row_step": LENGTH,
            "is_dense": True,
        },
        IMU: {"frame_id": "imu_link"},
        BYTES: {},
    }[kind] | {"serialized_bytes": on_the_wire(kind)}
    with ros2_node(perftest, tmp_path, "receive", kind, 100) as node:
        try:
            assert node.stdout is not None and node.stdout.readline() == "ready\n"
            options = ("-messageType", kind, "-dataLen", LENGTH)
            rate = ("-pubRate", "1000:sleep")
            publisher, _ = perftest.begin(*options, time=TIMEOUT_S, pub=rate, middleware=ROS2)
            message = json.loads(node.stdout.readline())
            assert publisher.popen.poll() is None, publisher.err
        finally:
            node.kill()
    assert expected.items() <= message.items()
    if kind == IMU:
        run, sequence, *_, rest = message["words"][:7]
        assert 0 < run < 2**32 and 0 <= sequence < 2**32 and rest == 0
    else:
        assert len(message["data"]) == LENGTH
        assert int.from_bytes(bytes(message["data"][24:28]), sys.byteorder) == LENGTH - 28
        assert set(message["data"][28:]) == {0xA5}


@needs_rclpy
@pytest.mark.parametrize("kind", [IMAGE, CLOUD, IMU, BYTES])
def test_messages_without_a_sample_are_ignored(perftest, kind, tmp_path):
    options = ("-messageType", kind, "-dataLen", LENGTH)
    publisher, subscriber = perftest.begin(
        *options, time=TIMEOUT_S, pub=("-pubRate", "1000:sleep"), middleware=ROS2
    )
    with ros2_node(perftest, tmp_path, "send", kind, 10) as node:
        try:
            assert node.stdout is not None and node.stdout.readline() == "sent\n"
        finally:
            node.kill()
    publisher.signal(signal.SIGINT)
    publisher.end()
    subscriber.end()
    assert subscriber.k8sdds["foreign_samples"] == 10
    assert subscriber.k8sdds["received"] > 0


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-keyed",), "-keyed: topics of ros2-fastdds have no key"),
        (("-serialized",), "-serialized: "),
        (("-batchSize", 8000), "-batchSize: "),
        (("-transport", "SHMEM"), "-transport: ros2-fastdds does not have SHMEM"),
        (("-scan", "100:200"), "-scan: a step is a number"),
        (("-asynchronous", "-flowController", "20000:10"), "-flowController: ros2-fastdds cannot limit"),
        (("-discovery", "server", "-discoveryServer", "127.0.0.1"), "-discovery server: ros2-fastdds has no"),
        (("-ros2Names",), "-ros2Names: only fastdds"),
    ],
)
def test_what_it_cannot_do_is_refused(perftest, options, message):
    done = perftest.run("-pub", "-nic", "lo", "-middleware", ROS2, *options)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "; " in done.stderr  # and the fix


PROFILES = """<dds xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"><profiles>
  <participant profile_name="p"><rtps><listenSocketBufferSize>300000</listenSocketBufferSize></rtps></participant>
  <data_writer profile_name="w">{}</data_writer>
</profiles></dds>
"""


def test_what_rmw_sets_itself_is_refused_in_a_configuration_file(perftest, tmp_path):
    config = tmp_path / "config.xml"
    config.write_text(PROFILES.format("<historyMemoryPolicy>DYNAMIC</historyMemoryPolicy>"))
    done = perftest.run("-pub", "-nic", "lo", "-middleware", ROS2, "-middlewareConfig", config)
    assert done.returncode == 2 and "historyMemoryPolicy: rmw_fastrtps_cpp sets" in done.stderr
    config.write_text(PROFILES.format(""))
    publisher, subscriber = perftest.pair("-middlewareConfig", config, middleware=ROS2)
    check_complete(publisher, subscriber)
    # The kernel doubles what is requested, and reports that.
    assert subscriber.k8sdds["transport"]["socket_receive_buffer_bytes"] in (300_000, 600_000)


@pytest.mark.parametrize("middleware", [ROS2, PLAIN])
def test_no_run_is_without_the_security_that_was_requested(perftest, tmp_path, middleware):
    credentials = Files(tmp_path, rtps="ENCRYPT").options("pub")
    done = perftest.run("-pub", "-nic", "lo", "-middleware", middleware, *credentials)
    assert done.returncode == 2 and "built without DDS Security" in done.stderr, done.stderr


def test_missing_libraries_are_named(tmp_path):
    """Of a module that was copied without its folder."""
    for name in ("k8sdds-perftest", MODULE):
        shutil.copy(tool(name), tmp_path)
    done = subprocess.run(
        [tmp_path / "k8sdds-perftest", "-pub", "-nic", "lo", "-middleware", ROS2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"{ROS2} cannot be loaded (libfastdds.so" in done.stderr and "install its libraries" in done.stderr
