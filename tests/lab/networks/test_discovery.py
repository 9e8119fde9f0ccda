"""Test discovery in the lab: multicast, peers, and a discovery server that the lab runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.model.measurement import Launch, Listener
from k8sdds.model.trial import DISCOVERY_SERVER, FIRST_PUBLISHER, Trial
from k8sdds.results.run_folder import RunFolder
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.testbed import Lab
from tests.conftest import Command
from tests.lab.conftest import cell

KINDS = """\
name: kinds
baseline: host
repetitions: 1
duration_s: 0.3
warmup_s: 0.1
sweeps:
  - networks: [host, weavenet]
    middleware: fastdds
    discovery: [peers, multicast, server]
    subscribers: 2
  - networks: [baremetal, flannel-ipsec]
    middleware: fastdds
    discovery: server
    test: latency
  - networks: host
    discovery: multicast
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_all_discovery_mechanisms_in_a_campaign(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "kinds.yaml").write_text(KINDS)
    done = k8sdds("run", "kinds.yaml", "-o", "out")
    assert done.returncode == 0, done.stderr
    run = RunFolder.open(tmp_path / "out")
    last = {record["trial_id"]: record for record in run.attempts()}.values()
    assert len(last) == 9
    for record in last:
        assert record["valid"], record["reason"]
        assert record["handshake_s"] > 0
        folder = run.raw(record["trial_id"], record["attempt"])
        options = json.loads((folder / "pub0" / "stdout").read_text())["k8sdds"]["options"]
        server = folder / DISCOVERY_SERVER.name
        assert server.exists() == (record["discovery"] == "server")
        if record["discovery"] == "server":
            assert "Server is running" in (server / "stdout").read_text()
            assert (options["discovery"], options["peer"]) == ("server", [])
        else:
            kind = "peers" if record["discovery"] == "auto" else "multicast"
            assert options["discovery"] == kind
            assert bool(options["peer"]) == (kind == "peers")


def test_participants_do_not_start_without_their_server(lab: Lab, tmp_path: Path) -> None:
    server_cell = cell("host", subscribers=1, middleware="fastdds", discovery="server")
    lab.up([server_cell])
    launches = [
        Launch(FIRST_PUBLISHER, ("touch", str(tmp_path / "started")), tmp_path / "pub0"),
        Launch(
            DISCOVERY_SERVER,
            ("sh", "-c", "echo no license >&2; exit 1"),
            tmp_path / "ds",
            listens=Listener("udp", 11811),
        ),
    ]
    for launch in launches:
        launch.directory.mkdir()
    trial = Trial(cell=server_cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
    outcomes = LabSession(lab).run(trial, launches, 10).outcomes
    assert outcomes["pub0"].exit_code == 125
    assert outcomes["pub0"].message == "discovery does not listen on UDP port 11811: no license"
    assert not (tmp_path / "started").exists()


def test_a_server_that_exits_early_is_reported(lab: Lab, tmp_path: Path) -> None:
    server_cell = cell("host", subscribers=1, middleware="fastdds", discovery="server")
    lab.up([server_cell])
    script = (
        "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 11811));"
        " time.sleep(1); raise SystemExit(7)"
    )
    launches = [
        Launch(FIRST_PUBLISHER, ("sleep", "2"), tmp_path / "pub0"),
        Launch(
            DISCOVERY_SERVER,
            ("/usr/bin/python3", "-c", script),
            tmp_path / "ds",
            listens=Listener("udp", 11811),
        ),
    ]
    for launch in launches:
        launch.directory.mkdir()
    trial = Trial(cell=server_cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
    outcomes = LabSession(lab).run(trial, launches, 10).outcomes
    assert (outcomes["pub0"].exit_code, outcomes[DISCOVERY_SERVER.name].exit_code) == (0, 7)
