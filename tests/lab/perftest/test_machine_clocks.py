"""Test one-way delays between machines whose clocks chrony synchronizes, as read over SSH.

Each machine has its own SSH server, chronyd, network, boot id and monotonic clock. chronyd runs with `-x`: it measures the
offset of the clock, but does not change it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from perftest_tools import Perftest, sh
from test_clocks import SHIFT_S, shifted

from k8sdds import workloads
from k8sdds.deploy import clocks
from k8sdds.model.measurement import ClockState, Measurement
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.paths import native_program
from k8sdds.system.ssh import Connections, Target
from k8sdds.testbeds.cluster.evidence import clock_error, machines
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.workloads.outputs import TrialOutputs
from tests.deploy.conftest import Farm, Server, farm  # noqa: F401 (a fixture)

pytestmark = pytest.mark.long

SOURCE, PORT = "127.0.2.1", 11123
SYNCHRONIZED_S = 60
RATE, SECONDS = 20, 3
PACED = workloads.find("paced")


@dataclass
class Machine:
    """A machine for SSH and for one participant."""

    server: Server
    target: Target
    netns: str
    address: str
    within: tuple[str, ...] = ()
    """The start of a command line that runs a program with this machine's boot id and monotonic clock."""

    def inside(self, *argv: object) -> list[str]:
        """Return a command line that runs a program in the mount namespace of the SSH server."""
        assert self.server.process is not None
        return ["nsenter", "--target", str(self.server.process.pid), "--mount", *map(str, argv)]

    def pod(self, participant: Participant) -> ReadyPod:
        """Return the pod of a participant, with the facts that the supervisor reports on this machine."""
        facts = json.loads(sh(" ".join((*self.within, native_program("k8sdds-supervisor"), "facts"))))
        return ReadyPod(participant.name, self.address, "eth0", 1500, self.target.name, facts)


class Chrony:
    """chrony's programs, unpacked and not installed because the package would start its service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, config: str, *within: str) -> None:
        file = self.folder / f"{name}.conf"
        file.write_text(config + "cmdport 0\n")
        argv = [*within, self.folder / "usr/sbin/chronyd", "-d", "-x", "-u", "root", "-f", file]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def follow(self, machine: Machine, config: str = "") -> None:
        """Let a machine follow the source. SSH sessions find chronyc in their path, and chronyd by its socket."""
        script = 'mount -t tmpfs tmpfs /run && mkdir -m 700 /run/chrony && mount --bind "$1" /usr/local/sbin'
        subprocess.run(machine.inside("sh", "-ec", script, "sh", self.folder / "usr/bin"), check=True)
        config += f"server {SOURCE} port {PORT} iburst minpoll -4 maxpoll -2\npidfile /run/chrony/chronyd.pid\nport 0\n"
        self.start(machine.target.name, config, *machine.inside())

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        process.wait(60)


@pytest.fixture
def chrony(tmp_path: Path) -> Iterator[Chrony]:
    """Provide chrony, with a source of time on the loopback interface."""
    folder = tmp_path / "chrony"
    folder.mkdir()
    fetched = subprocess.run(["apt-get", "download", "chrony"], cwd=folder, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"the Debian package chrony is not available: {fetched.stderr.strip()[-200:]}")
    (package,) = folder.glob("chrony_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    if "not found" in (libraries := sh(f"ldd {folder}/usr/sbin/chronyd")):
        pytest.skip(f"libraries of chrony are missing: {libraries}")
    made = Chrony(folder)
    made.start(
        "source",
        f"local stratum 5\nallow 127.0.0.0/8\nbindaddress {SOURCE}\nport {PORT}\nbindcmdaddress /\n"
        f"pidfile {folder}/source.pid\n",
    )
    yield made
    for name in list(made.processes):
        made.stop(name)


@pytest.fixture
def two(farm: Farm, link: tuple[str, str], tmp_path: Path) -> tuple[Machine, Machine]:  # noqa: F811
    """Provide the machines of a publisher and of a subscriber."""
    targets = farm.add("alpha", "beta")
    servers = list(farm.servers.values())
    boot_id, start = tmp_path / "boot_id", tmp_path / "start"
    boot_id.write_text("5c2f1a52-0000-4000-8000-000000000002\n")
    start.write_text(f'#!/bin/sh -e\nmount --bind {boot_id} /proc/sys/kernel/random/boot_id\nexec "$@"\n')
    start.chmod(0o755)
    other = (*shifted(SHIFT_S), "unshare", "--mount", str(start))
    return (
        Machine(servers[0], targets[0], link[0], "10.99.0.1"),
        Machine(servers[1], targets[1], link[1], "10.99.0.2", other),
    )


def states(*read: Machine) -> dict[str, ClockState]:
    """Read the clocks of machines over SSH, as a campaign does before and after a trial."""
    with Connections([machine.target for machine in read]) as connections:
        return clocks.read(connections, [machine.target.name for machine in read])


def await_synchronized(*followers: Machine) -> None:
    deadline = time.monotonic() + SYNCHRONIZED_S
    while any(state.error_us is None for state in states(*followers).values()):
        assert time.monotonic() < deadline, "chronyd has not synchronized the clocks"
        time.sleep(0.5)


@dataclass
class Trials:
    """Run paced trials between two machines, and measure their delays as a campaign on a cluster does."""

    perftest: Perftest
    folder: Path

    def run(
        self, publisher: Machine, subscriber: Machine, payload_bytes: int
    ) -> tuple[Metrics, TrialOutputs]:
        """Run one trial."""
        cell = Cell(network="host", test="paced", payload_bytes=payload_bytes, rate=RATE)
        folder = self.folder / f"trial-{len(list(self.folder.glob('trial-*')))}"
        places = dict(zip(cell.participants, (publisher, subscriber), strict=True))
        pods = {participant.name: machine.pod(participant) for participant, machine in places.items()}
        compares_clocks = len(machines(pods)) > 1
        readings = [states(publisher, subscriber)] if compares_clocks else []
        summaries = self._summaries(places, folder, payload_bytes)
        readings += [states(publisher, subscriber)] if compares_clocks else []
        error = clock_error(cell.pairs, pods, readings) if compares_clocks else None
        trial = Trial(cell=cell, testbed="cluster", repetition=0, duration_s=SECONDS, warmup_s=0.1)
        outputs = TrialOutputs(trial, Measurement({}, None, {}, clock_error=error), folder, summaries)
        record = Metrics()
        PACED.measure(record, outputs)
        return record, outputs

    def _summaries(self, places: dict[Participant, Machine], folder: Path, payload_bytes: int) -> dict:
        (pub, publisher), (sub, subscriber) = places.items()
        logs = {participant: folder / participant.name / histograms.LOG for participant in places}
        for log in logs.values():
            log.parent.mkdir(parents=True)
        receiving = self.perftest.sub(
            "-histogramFile", logs[sub], "-peer", publisher.address, nic="eth0", netns=subscriber.netns,
            within=subscriber.within,
        )  # fmt: skip
        sending = self.perftest.pub(
            "-histogramFile", logs[pub], "-peer", subscriber.address, "-pacedTest", "-pubRate", f"{RATE}:sleep",
            "-latencyCount", 2, "-dataLen", payload_bytes, nic="eth0", netns=publisher.netns,
            within=publisher.within, time=SECONDS,
        )  # fmt: skip
        assert (sending.end(), receiving.end()) == (0, 0), sending.err + receiving.err
        return {pub: Summary(sending.k8sdds), sub: Summary(receiving.k8sdds)}


def test_the_state_of_the_clocks_decides_how_delays_are_measured(
    perftest: Perftest, chrony: Chrony, two: tuple[Machine, Machine], tmp_path: Path
) -> None:
    alpha, beta = two
    trials = Trials(perftest, tmp_path)

    # Equal boot ids: one clock, which needs no bound.
    same, _ = trials.run(alpha, Machine(alpha.server, alpha.target, beta.netns, beta.address), 100)
    assert (same.delay_method, same.clock_error_us) == ("shared clock", None)

    # Only one of two machines is synchronized.
    chrony.follow(alpha)
    await_synchronized(alpha)
    half, outputs = trials.run(alpha, beta, 100)
    assert half.delay_method == "round trip / 2" and half.clock_error_us is None
    assert "because beta: " in PACED.warnings(outputs)[0]

    # Both are. The delay of the link is much longer than the bound, which is as good as that of the path to the source.
    chrony.follow(beta)
    await_synchronized(alpha, beta)
    sh(f"ip netns exec {alpha.netns} tc qdisc add dev eth0 root tbf rate 20mbit burst 16kb latency 1s")
    one_way, outputs = trials.run(alpha, beta, 65536)
    error = outputs.measurement.clock_error
    assert error is not None and error.bound_us is not None and error.source == "chrony"
    assert one_way.delay_method == "synchronized clocks", PACED.warnings(outputs)
    assert one_way.clock_error_us is not None and one_way.clock_error_us >= error.bound_us > 0
    expected_us = 65536 * 8 / 20
    assert one_way.delay_p50_us is not None and one_way.delay_p50_us > expected_us / 2

    # A machine whose chronyd has ended.
    sh(f"ip netns exec {alpha.netns} tc qdisc del dev eth0 root")
    chrony.stop("beta")
    half, outputs = trials.run(alpha, beta, 100)
    assert half.delay_method == "round trip / 2"
    assert "because beta: chrony: " in PACED.warnings(outputs)[0]

    # A machine with a clock that drifts by up to 0.1 s in each second, which widens the bound between two updates.
    chrony.follow(beta, "maxclockerror 100000\n")
    await_synchronized(beta)
    inexact, outputs = trials.run(alpha, beta, 100)
    assert inexact.delay_method == "round trip / 2"
    assert inexact.clock_error_us is not None and inexact.clock_error_us > one_way.clock_error_us
    assert "(chrony), more than 3% of the median delay" in PACED.warnings(outputs)[0]
