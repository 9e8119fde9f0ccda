"""A setting that nothing applies would be measured as its default, and stated in the record as if it were not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds import middleware
from k8sdds.campaign import contradictions
from k8sdds.middleware import MIDDLEWARES, Surroundings
from k8sdds.middleware.connext import command as connext
from k8sdds.middleware.connext.settings import Settings
from k8sdds.model.axis import DDS, MACHINE, NETWORK, PROCESS, WORKLOAD
from k8sdds.model.measurement import Inputs, ParticipantPaths
from k8sdds.model.trial import AXES, FIRST_PUBLISHER, FIRST_SUBSCRIBER, Cell, Endpoint, Trial
from k8sdds.system.errors import InputError
from k8sdds.testbeds.cluster.blocks import make_blocks
from k8sdds.testbeds.cluster.node_settings import NodeTuning
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.topology import key_of
from tests.unit.test_axes import OTHER_VALUE

OTHER: dict[str, Any] = OTHER_VALUE | {
    "network": "flannel-vxlan", "test": "latency", "payload_bytes": 64, "transport": "multicast", "publishers": 2,
    "reliability": "best-effort", "subscribers": 2, "middleware": "fastdds", "qos": "best-effort", "rate": 100,
    "batch_bytes": 8192, "message_bytes": "max", "receive_mode": "waitset", "tuning": "tcp-buffers",
    "cpu_quota": 1.0, "ip_families": ("ipv6",), "security": "SignRTPS", "schedule": "a.txt", "schedule_sha256": "cd" * 32,
    "graph": "graph 1\nflow a bytes 64 rate 1 reliable deadline_us 1\nnode x publishes a\nnode y subscribes a\n",
}  # fmt: skip
"""For each setting, a value of a cell other than its default."""
WITH: dict[str, dict[str, Any]] = {
    "flow_period_ms": {"flow_bytes": 65536},
    "discovery_servers": {"discovery": "server"},
}
"""Settings without which another one has no effect."""
NEEDED: list[dict[str, Any]] = [{}, {"reliability": "best-effort"}, {"security": "EncryptRTPS"}]
"""What a middleware can need of a cell. The first that it accepts is used."""
UNPLANNED = {
    "middleware": "it is what applies the others",
    "middleware_config_sha256": "it follows from the file",
    "schedule_sha256": "it follows from the file",
    "security": "its options name files that only a campaign has",
}
"""Settings that no command line shows, with the reason."""

OF_PROGRAMS = [
    name for name, axis in AXES.items() if axis.scope in (WORKLOAD, DDS, PROCESS) and name not in UNPLANNED
]
BUILT = [name for name, axis in AXES.items() if axis.scope in (NETWORK, MACHINE)]


def cells(name: str, **common: Any) -> tuple[Cell, Cell]:
    """Return a cell with the default of a setting, and one with another value."""
    usual = {
        "network": "kube-router",
        "test": "throughput",
        "payload_bytes": 1024,
        **common,
        **WITH.get(name, {}),
    }
    return Cell(**usual), Cell(**usual | {name: OTHER[name]})


def commands(cell: Cell) -> list[list[str]]:
    """Return the command lines of the first publisher and of the first subscriber; or why there are none."""
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=3, warmup_s=0.5)
    endpoints = {pod.name: Endpoint(f"10.0.0.{i}", "eth0", None, 1500) for i, pod in enumerate(cell.pods)}
    files, qos = Path("/raw"), Path(f"{cell.qos}.xml") if cell.qos else None
    both = (FIRST_PUBLISHER, FIRST_SUBSCRIBER)
    surroundings = Surroundings(endpoints, 7, ParticipantPaths("perftest", files, Inputs(qos)))
    if cell.middleware == "connext":
        perftest = Settings("perftest_cpp", (4, 1))
        try:
            return [connext.command_line(trial, one, surroundings, perftest) for one in both]
        except InputError as error:
            return [[error.message]]
    return [middleware.find(cell.middleware).command(trial, one, surroundings).argv for one in both]


def test_every_setting_has_another_value_here() -> None:
    assert set(AXES) <= set(OTHER)


@pytest.mark.parametrize("program", MIDDLEWARES)
def test_a_middleware_applies_each_setting_or_refuses_it(program: str) -> None:
    common = next(
        needs
        for needs in ({"middleware": program, **needed} for needed in NEEDED)
        if contradictions.unsupported(cells("rate", **needs)[0]) is None
    )
    # What others refuse for its combination with further settings is applied, too, if it is among the settings.
    own = middleware.find(program).settings
    ignored = [
        name
        for name in OF_PROGRAMS
        for usual, other in [cells(name, **common)]
        if usual != other
        and (name in own or not contradictions.unsupported(other))
        and commands(usual) == commands(other)
    ]
    assert ignored == []


@pytest.mark.parametrize("name", BUILT)
def test_trials_that_differ_in_network_or_machines_have_different_lab_networks(name: str) -> None:
    usual, other = cells(name)
    assert key_of(usual) != key_of(other)
    plan = make_plan(usual)
    assert replace(make_plan(other), cell=plan.cell) != plan
    # What is observed of a network once holds for the same packets over any link.
    assert usual.network_mode != other.network_mode or name == "link"


@pytest.mark.parametrize("network", ["host", "kube-router"])
@pytest.mark.parametrize("name", [name for name in BUILT if AXES[name].scope == MACHINE] + ["link"])
def test_trials_that_differ_in_machines_share_no_block_of_a_cluster(name: str, network: str) -> None:
    both = cells(name, network=network)
    trials = [Trial(cell=cell, testbed="cluster", repetition=0, duration_s=1, warmup_s=0) for cell in both]
    assert [len(block.trials) for block in make_blocks(trials, 1, one_network=False)] == [1, 1]


@pytest.mark.parametrize("name", [name for name in BUILT if AXES[name].scope == MACHINE])
def test_clusters_set_what_trials_need_of_machines(name: str) -> None:
    usual, other = cells(name)
    tuning = NodeTuning("c", [usual, other])
    assert tuning.of(other) and not tuning.of(usual)
