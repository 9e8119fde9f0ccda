"""ROS 2 as a middleware: what experiments can set, where it is measured, and what is said if it is not built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds import middleware
from k8sdds.campaign import contradictions
from k8sdds.middleware import Surroundings
from k8sdds.model.measurement import Inputs, ParticipantPaths
from k8sdds.model.trial import Endpoint
from k8sdds.setup import native
from tests.unit import builders

ROS2, PLAIN = "ros2-fastdds", "ros2-fastdds-plain"


def arguments(participant: str, **changes: Any) -> list[str]:
    """Return the command line of a participant."""
    trial = builders.trial(builders.cell(middleware=ROS2, **changes))
    endpoints = {pod.name: Endpoint("10.0.0.1", "eth0", None, 1500) for pod in trial.cell.pods}
    surroundings = Surroundings(endpoints, 7, ParticipantPaths("perftest", Path("/raw"), Inputs()))
    return middleware.find(ROS2).command(trial, builders.named(participant), surroundings).argv


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"security": "EncryptRTPS"}, "no DDS Security"),
        ({"instances": 5}, "no key"),
        ({"batch_bytes": 8192}, "no batches"),
        ({"fragment_bytes": "max"}, "fill a message"),
        (
            {"publish_mode": "asynchronous", "flow_bytes": 20_000, "flow_period_ms": 10},
            "cannot limit the rate",
        ),
        ({"discovery": "server"}, "no discovery server"),
        ({"transport": "shared-memory"}, "no shared memory"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(setting: dict[str, Any], reason: str) -> None:
    for name in (ROS2, PLAIN):
        why = contradictions.unsupported(builders.cell(middleware=name, **setting))
        assert why is not None and reason in why


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"test": "latency"},
        {"test": "paced", "rate": 100},
        {"reliability": "best-effort"},
        {"receive_mode": "waitset"},
        {"publish_mode": "asynchronous"},
        {"transport": "multicast"},
        {"message_bytes": "mtu"},
        {"qos": "ros2-default"},
    ],
)
def test_what_it_has_is_accepted(setting: dict[str, Any]) -> None:
    assert contradictions.unsupported(builders.cell(middleware=ROS2, **setting)) is None


IMAGE, IMU = "sensor_msgs/msg/Image", "sensor_msgs/msg/Imu"


def test_only_ros2_has_types_of_messages() -> None:
    have = [name for name, each in middleware.MIDDLEWARES.items() if "message_type" in each.settings]
    assert have == [ROS2]
    why = contradictions.unsupported(builders.cell(middleware=PLAIN, message_type=IMAGE))
    assert why is not None and why.startswith(f"{PLAIN} does not have the setting message_type")


def test_an_imu_has_one_length() -> None:
    assert (
        contradictions.unsupported(builders.cell(middleware=ROS2, message_type=IMU, payload_bytes=320))
        is None
    )
    assert contradictions.unsupported(builders.cell(middleware=ROS2, message_type=IMAGE)) is None
    why = contradictions.unsupported(builders.cell(middleware=ROS2, message_type=IMU))
    assert why is not None and "payload_bytes must be 320" in why


def test_both_sides_have_the_type_of_messages() -> None:
    for name in ("pub0", "sub0"):
        argv = arguments(name, message_type=IMAGE)
        assert argv[argv.index("-messageType") + 1] == IMAGE
        assert "-messageType" not in arguments(name)


@pytest.mark.parametrize("name", [ROS2, PLAIN])
def test_it_is_measured_in_the_lab_only(name: str) -> None:
    trial = builders.trial(builders.cell(middleware=name), "cluster")
    (problem,) = middleware.find(name).problems([trial], "cluster")
    assert "measured in the lab only" in problem.what and "fastdds" in problem.remedy and problem.input


def test_a_build_without_it_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in native.PROGRAMS:
        (tmp_path / name).touch(0o755)
    reason = "not built: it was not requested (CMake: -DK8SDDS_ROS2=ON)"
    (tmp_path / "middlewares.json").write_text(json.dumps({ROS2: reason}))
    monkeypatch.setenv("K8SDDS_LIBEXEC", str(tmp_path))
    (problem,) = middleware.find(ROS2).problems([], "lab")
    assert problem.what == f"middleware '{ROS2}' is {reason}"
    assert problem.remedy == "run: k8sdds setup --for lab-ros2"
    assert native.missing_middlewares([ROS2])[-1] == ROS2


def test_applications_do_not_choose_it() -> None:
    """What a node of ROS 2 needs is in the files for Fast DDS."""
    assert not {ROS2, PLAIN} & set(middleware.OFFERED)
