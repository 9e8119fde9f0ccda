"""Test discovery in the lab: multicast, peers, and a discovery server that the lab runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.model.measurement import Launch, Listener, Outcome
from k8sdds.model.trial import DISCOVERY_SERVER, FIRST_PUBLISHER, Trial
from k8sdds.results.run_folder import RunFolder
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.testbed import Lab
from tests.conftest import Command
from tests.lab.conftest import cell
from tests.measuring import experiment, measured

KINDS = """\
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
    last = measured(k8sdds, tmp_path, experiment(KINDS, baseline="host", duration_s=0.3))
    run = RunFolder.open(tmp_path / "out")
    assert len(last) == 9
    for record in last:
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


def run_with_server(
    lab: Lab, folder: Path, participant: tuple[str, ...], server: tuple[str, ...]
) -> dict[str, Outcome]:
    """Run a trial of these two programs, and return how they ended."""
    server_cell = cell("host", subscribers=1, middleware="fastdds", discovery="server")
    lab.up([server_cell])
    launches = [
        Launch(FIRST_PUBLISHER, participant, folder / "pub0"),
        Launch(DISCOVERY_SERVER, server, folder / "ds", listens=Listener("udp", 11811)),
    ]
    for launch in launches:
        launch.directory.mkdir()
    trial = Trial(cell=server_cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
    return LabSession(lab).run(trial, launches, 10).outcomes


def test_participants_do_not_start_without_their_server(lab: Lab, tmp_path: Path) -> None:
    server = ("sh", "-c", "echo no license >&2; exit 1")
    outcomes = run_with_server(lab, tmp_path, ("touch", str(tmp_path / "started")), server)
    assert outcomes["pub0"].exit_code == 125
    assert outcomes["pub0"].message == "discovery does not listen on UDP port 11811: no license"
    assert not (tmp_path / "started").exists()


def test_a_server_that_exits_early_is_reported(lab: Lab, tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ds" / "meters.json"
    script = (
        "import os, socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 11811))\n"
        f"while not os.path.exists('{started}'): time.sleep(0.02)\n"
        "raise SystemExit(7)"
    )
    # The supervisor of the server writes its file before it ends.
    participant = f"touch {started}; until [ -s {ended} ]; do sleep 0.02; done; sleep 2"
    outcomes = run_with_server(lab, tmp_path, ("sh", "-c", participant), ("/usr/bin/python3", "-c", script))
    assert (outcomes["pub0"].exit_code, outcomes[DISCOVERY_SERVER.name].exit_code) == (0, 7)
