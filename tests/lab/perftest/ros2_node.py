"""A node of rclpy for tests, run by an interpreter with the wheels of ROS 2: ros2_node.py receive|send TYPE COUNT

`receive` prints `ready`, receives messages of perftest, and prints the last one as JSON. `send` sends messages that contain no sample
when a subscription is there, and prints `sent` when all are acknowledged.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message

TOPIC = "k8sdds/throughput"
QOS = QoSProfile(depth=1000)
WITHOUT_ESTIMATE = -1.0
"""The first element of a covariance that a sensor does not estimate."""


def find(name: str) -> Any:
    """Return the class of a type, such as `sensor_msgs/msg/Image`."""
    package, _, message = name.replace("/", ".").rpartition(".")
    return getattr(importlib.import_module(package), message)


def described(serialized: bytes, kind: Any) -> dict[str, Any]:
    """Return the length of a message, its members that are numbers or text, its data and the names of its fields."""
    message = deserialize_message(serialized, kind)
    members = {name: getattr(message, name) for name in message.get_fields_and_field_types()}
    found = {name: value for name, value in members.items() if isinstance(value, int | str)}
    if "header" in members:
        found["frame_id"] = message.header.frame_id
    if "fields" in members:
        found["fields"] = [field.name for field in message.fields]
    if "data" in members:
        data = message.data
        found["data"] = list(b"".join(data) if data and isinstance(data[0], bytes) else bytes(data))
    else:
        found["words"] = list(message.orientation_covariance)
    return found | {"serialized_bytes": len(serialized)}


def receive(node: Node, kind: Any, count: int) -> None:
    received: list[bytes] = []
    node.create_subscription(kind, TOPIC, received.append, QOS, raw=True)
    print("ready", flush=True)
    while len(received) < count:
        rclpy.spin_once(node)
    print(json.dumps(described(received[-1], kind)), flush=True)


def send(node: Node, kind: Any, count: int) -> None:
    publisher = node.create_publisher(kind, TOPIC, QOS)
    message = kind()
    if hasattr(message, "orientation_covariance"):
        message.orientation_covariance[0] = WITHOUT_ESTIMATE
    while publisher.get_subscription_count() == 0:
        rclpy.spin_once(node, timeout_sec=0.01)
    for _ in range(count):
        publisher.publish(message)
    assert publisher.wait_for_all_acked()
    print("sent", flush=True)


if __name__ == "__main__":
    job, type_name, number = sys.argv[1:]
    rclpy.init()
    {"receive": receive, "send": send}[job](rclpy.create_node("test"), find(type_name), int(number))
