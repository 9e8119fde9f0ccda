"""Test the settings of processes and of their middleware: command lines, refusals, and the trials without network."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from k8sdds.campaign import contradictions
from k8sdds.campaign.expansion import expand
from k8sdds.model.experiment import Experiment, Sweep
from tests.unit.builders import cell
from tests.unit.test_command import line, value


def test_the_options_of_the_program() -> None:
    args = line(lock_memory=True, dscp=46, realtime_priority=50)
    assert "-lockMemory" in args and value(args, "-dscp") == "46"
    assert "50" not in args, "the supervisor sets the scheduler"
    args = line(middleware="fastdds", publish_mode="asynchronous", flow_bytes=65536, flow_period_ms=20)
    assert "-asynchronous" in args and value(args, "-flowController") == "65536:20"
    assert "-asynchronous" not in line("sub0", middleware="fastdds", publish_mode="asynchronous")
    assert value(line(middleware="fastdds", transport="shared-memory"), "-transport") == "SHMEM"
    assert value(line(), "-transport") == "UDPv4"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"middleware": "cyclonedds", "publish_mode": "asynchronous"}, "Cyclone DDS sends"),
        (
            {"middleware": "raw", "reliability": "best-effort", "publish_mode": "asynchronous"},
            "raw does not have the setting publish_mode",
        ),
        ({"cpu_quota": 0.5, "realtime_priority": 50}, "leave them out"),
        ({"middleware": "connext", "dscp": 46}, "leave out lock_memory and dscp"),
        ({"middleware": "connext", "lock_memory": True}, "leave out lock_memory and dscp"),
        ({"middleware": "connext", "publish_mode": "asynchronous", "flow_bytes": 65536}, "leave out flow_bytes"),
        ({"middleware": "cyclonedds", "transport": "shared-memory"}, "cyclonedds has no shared memory"),
        ({"middleware": "fastdds", "transport": "shared-memory", "network": "baremetal"}, "must be of pods"),
        ({"middleware": "fastdds", "transport": "shared-memory", "label": "mine"}, "without options"),
        ({"middleware": "fastdds", "dev_shm": "own"}, "needs `transport: shared-memory`"),
        ({"middleware": "fastdds", "users": "other"}, "users: other needs `transport: shared-memory`"),
        (
            {"middleware": "fastdds", "transport": "shared-memory", "users": "other", "security": "SignRTPS"},
            "leave out security",
        ),
        ({"middleware": "fastdds", "transport": "shared-memory", "dev_shm": "own", "test": "capacity"}, "dev_shm shared"),
        ({"middleware": "fastdds", "transport": "shared-memory", "users": "other", "test": "capacity"}, "users same"),
        ({"middleware": "fastdds", "transport": "shared-memory", "capture": True}, "leave out link and capture"),
        ({"middleware": "fastdds", "transport": "shared-memory", "dscp": 46}, "leave out dscp"),
        ({"middleware": "fastdds", "transport": "shared-memory", "placement": "packed"}, "leave out placement"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(values: dict[str, object], message: str) -> None:
    assert message in str(contradictions.unsupported(cell(**values)))


def test_supported_combinations() -> None:
    for values in (
        {"realtime_priority": 50, "lock_memory": True, "dscp": 46},
        {"middleware": "connext", "realtime_priority": 50},
        {"middleware": "connext", "publish_mode": "asynchronous"},
        {"middleware": "fastdds", "publish_mode": "asynchronous", "flow_bytes": 65536},
        {"middleware": "fastdds", "transport": "shared-memory", "subscribers": 3},
    ):
        assert contradictions.unsupported(cell(**values)) is None


def test_a_flow_controller_of_a_synchronous_writer_is_no_other_cell() -> None:
    flows = {"publish_mode": ["synchronous", "asynchronous"], "flow_bytes": [0, 65536], "flow_period_ms": 20}
    sweep = {"networks": "host", "middleware": "fastdds", **flows}
    experiment = Experiment.model_validate({"name": "e", "sweeps": [sweep]})
    cells = [(each.publish_mode, each.flow_bytes, each.flow_period_ms) for each in expand(experiment).cells]
    assert cells == [("synchronous", 0, 100), ("asynchronous", 0, 100), ("asynchronous", 65536, 20)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"flow_bytes": 65536}, "no effect without `publish_mode: asynchronous`"),
        ({"publish_mode": "asynchronous", "flow_period_ms": 20}, "no effect without `flow_bytes`"),
    ],
)
def test_a_flow_controller_that_never_has_an_effect_is_a_mistake(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Sweep.model_validate({"networks": "host", "middleware": "fastdds", **values})
