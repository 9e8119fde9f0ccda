"""ROS 2 over Fast DDS: rcl and rmw_fastrtps_cpp, as in a node, without an executor.

Whatever the layers of ROS 2 do not set is as with `fastdds`. ROS 2 brings another version of Fast DDS, which
`ros2-fastdds-plain` is without the layers: the difference of both is what the layers add.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from typing_extensions import override

from k8sdds.middleware.fastdds import FastDDS
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.ports import Ports
from k8sdds.model.message_size import USUAL_MESSAGE_BYTES
from k8sdds.model.settings import IMU, IMU_BYTES
from k8sdds.model.trial import Cell, Trial
from k8sdds.system.errors import Problem

BACKEND, PLAIN = "ros2-fastdds", "ros2-fastdds-plain"
ARCH = "amd64"
"""The only architecture that the wheels of ROS 2 are built for."""

_RATE = "rmw_fastrtps_cpp cannot limit the rate of a writer: leave out {}, or use fastdds"
REFUSALS = {
    "security": "the Fast DDS of ROS 2's wheels has no DDS Security: security must be none, or use fastdds",
    "instances": "topics of ROS 2 have no key here: leave out instances, or use fastdds",
    "batch_bytes": "rmw_fastrtps_cpp has no batches: leave out batch_bytes, or use cyclonedds",
    "fragment_bytes": "fragments of Fast DDS fill a message: leave out fragment_bytes, and give message_bytes",
    "flow_bytes": _RATE.format("flow_bytes"),
    "flow_period_ms": _RATE.format("flow_period_ms"),
}


class Ros2FastDDS(K8sddsPerftest):
    """ROS 2 with its default middleware. It is measured in the lab only."""

    settings = K8sddsPerftest.settings - REFUSALS.keys()
    starts_fleets = False
    refusals = MappingProxyType(REFUSALS)
    auto_message_bytes = USUAL_MESSAGE_BYTES
    setup = "k8sdds setup --for lab-ros2"
    build_option = "K8SDDS_ROS2"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if name == BACKEND:
            self.settings = self.settings | {"message_type"}

    @override
    def unsupported(self, cell: Cell) -> str | None:
        if reason := super().unsupported(cell):
            return reason
        if cell.message_type == IMU and (cell.payload_bytes != IMU_BYTES or cell.schedule):
            return f"a {IMU} has one length: payload_bytes must be {IMU_BYTES}, without a schedule"
        return None

    @override
    def ports(self, domain: int, processes: int, discovery: str) -> Ports:
        return FastDDS().ports(domain, processes, discovery)

    @override
    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        if testbed != "lab":
            what = f"{self.name} is measured in the lab only: images do not contain the libraries of ROS 2"
            return [Problem(what, "leave out --testbed, or use fastdds", input=True)]
        return super().problems(trials, testbed)
