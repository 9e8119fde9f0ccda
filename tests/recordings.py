"""Write recordings of ROS 2 with the libraries that users have: rosbags (SQLite and MCAP), and mcap."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from k8sdds.system import yaml_text

START_NS = 1_700_000_000 * 10**9
CDR = b"\x00\x01\x00\x00"
"""Begin of each message of ROS 2."""
ROSBAG2 = {
    "sqlite": (StoragePlugin.SQLITE3, CompressionMode.NONE),
    "sqlite-files": (StoragePlugin.SQLITE3, CompressionMode.FILE),
    "sqlite-messages": (StoragePlugin.SQLITE3, CompressionMode.MESSAGE),
    "mcap": (StoragePlugin.MCAP, CompressionMode.NONE),
    "mcap-files": (StoragePlugin.MCAP, CompressionMode.FILE),
    "mcap-messages": (StoragePlugin.MCAP, CompressionMode.MESSAGE),
    "mcap-chunks": (StoragePlugin.MCAP, CompressionMode.STORAGE),
}
"""Folders of rosbag2: storage and compression."""
MCAP = {
    "none": {"compression": CompressionType.NONE},
    "lz4": {"compression": CompressionType.LZ4},
    "zstd": {"compression": CompressionType.ZSTD},
    "unchunked": {"use_chunking": False},
}
"""MCAP files of other writers: options of the library."""

_NO_TIME = QosTime(0, 0)


def qos(reliable: bool = True, latched: bool = False, depth: int = 10) -> Qos:
    return Qos(
        QosHistory.KEEP_LAST, depth,
        QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
        _NO_TIME, _NO_TIME, QosLiveliness.AUTOMATIC, _NO_TIME, False,
    )  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """The messages of a topic: a time in ns since the start, and a size, for each one."""

    messages: Sequence[tuple[int, int]]
    qos: Sequence[Qos] = (qos(),)
    type: str = "std_msgs/msg/String"


Topics = Mapping[str, Recorded]


def periodic(rate: float, size: int, seconds: float = 3, jitter: float = 0, **settings: object) -> Recorded:
    """Return a topic with messages of one size at a rate."""
    random_ = random.Random(f"{rate} {size}")
    period_ns = 1e9 / rate
    times = [round((i + jitter * random_.random()) * period_ns) for i in range(round(rate * seconds))]
    return Recorded([(time, size) for time in times], **settings)  # type: ignore[arg-type]


def bursts(size: int, number: int, every_ms: int, count: int = 20) -> Recorded:
    """Return a topic with messages in bursts."""
    return Recorded([(i * every_ms * 10**6 + k * 10**5, size) for i in range(count) for k in range(number)])


def in_order(topics: Topics) -> Iterator[tuple[str, int, bytes]]:
    messages = [(time, name, size) for name, topic in topics.items() for time, size in topic.messages]
    for time, name, size in sorted(messages, key=lambda message: message[0]):
        yield name, START_NS + time, (CDR + bytes(max(0, size - len(CDR))))[:size]


def rosbag2(path: Path, topics: Topics, kind: str = "sqlite", version: int = 9) -> Path:
    """Write a folder of rosbag2."""
    storage, compression = ROSBAG2[kind]
    writer = Writer(path, version=version, storage_plugin=storage)  # type: ignore[arg-type]
    writer.set_compression(compression, CompressionFormat.ZSTD)
    with writer:
        connections = {
            name: writer.add_connection(
                name, topic.type, msgdef="string data", rihs01="RIHS01_00", offered_qos_profiles=topic.qos
            )
            for name, topic in topics.items()
        }
        for name, time_ns, data in in_order(topics):
            writer.write(connections[name], time_ns, data)
    return path


def mcap(path: Path, topics: Topics, kind: str = "zstd") -> Path:
    """Write an MCAP file as a program other than rosbag2 does."""
    with path.open("wb") as file:
        writer = McapWriter(file, chunk_size=1 << 16, **MCAP[kind])  # type: ignore[arg-type]
        writer.start("ros2", "test")
        channels = {}
        for name, topic in topics.items():
            schema = writer.register_schema(topic.type, "ros2msg", b"string data")
            offered = yaml_text.dump(
                [
                    {"history": q.history.value, "depth": q.depth, "reliability": q.reliability.value,
                     "durability": q.durability.value}
                    for q in topic.qos
                ]
            )  # fmt: skip
            channels[name] = writer.register_channel(name, "cdr", schema, {"offered_qos_profiles": offered})
        for name, time_ns, data in in_order(topics):
            writer.add_message(channels[name], time_ns, data, time_ns)
        writer.finish()
    return path


def robot() -> dict[str, Recorded]:
    """Return the topics of a robot: 30 that are flows, and 6 that are not."""
    sensor = {"qos": [qos(reliable=False, depth=5)]}
    topics = {f"/camera_{i}/image": periodic(15, 40_000 + 400 * i, jitter=0.1, **sensor) for i in range(4)}
    topics |= {f"/camera_{i}/camera_info": periodic(15, 400, jitter=0.1, **sensor) for i in range(4)}
    topics |= {f"/lidar_{i}/points": periodic(10, 60_000, jitter=0.1, **sensor) for i in range(2)}
    topics |= {f"/wheel_{i}/state": periodic(50, 96 + i) for i in range(4)}
    topics |= {f"/joint_{i}/command": periodic(100, 64) for i in range(6)}
    topics |= {f"/status_{i}": periodic(1 + i, 200 + 50 * i, seconds=12) for i in range(6)}
    topics |= {"/imu": periodic(200, 320, **sensor), "/odom": periodic(50, 720), "/cmd_vel": periodic(20, 52)}
    topics["/tf"] = periodic(120, 300, qos=[qos()] * 3)
    latched = {"qos": [qos(latched=True, depth=1)]}
    topics["/tf_static"] = Recorded([(0, 900)], **latched)  # type: ignore[arg-type]
    topics["/map"] = Recorded([(5, 30_000)], **latched)  # type: ignore[arg-type]
    topics["/rosout"] = periodic(5, 150)
    topics["/parameter_events"] = periodic(4, 250)
    topics["/battery"] = periodic(0.5, 120, seconds=30)
    topics["/never"] = Recorded([])
    return topics
