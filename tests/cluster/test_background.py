"""Busy cores on a real cluster: the load runs on the requested cores of the node, and other cores are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from k8sdds.testbeds import core_layout
from tests.cluster.conftest import Command, User
from tests.measuring import experiment, measured

SWEEP = """\
  - networks: flannel-vxlan
    test: latency
    payload_bytes: 64
    background: [{}, {cpus: [CORE]}, {flows: 20, kind: tcp, rate_mbit: 0.5, cpus: CORES}]
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_busy_processes_run_on_the_requested_cores(user: User, k8sdds: Command, tmp_path: Path) -> None:
    cores = list(core_layout.available())
    sweep = SWEEP.replace("CORES", str(cores)).replace("CORE", str(cores[-1]))
    text = experiment(sweep, baseline="flannel-vxlan")
    last = measured(k8sdds, tmp_path, text, *user.options)
    run = RunFolder.open(tmp_path / "out")
    plain, loaded, both = sorted(last, key=lambda record: len(json.dumps(record.get("background"))))
    assert not plain.get("background_load")
    assert loaded["background"]["cpus"] == [cores[-1]] and both["background"]["cpus"] == cores
    for record in (loaded, both):
        found = record["background_load"]
        busy = {name for name in found if name.startswith("cpu") and name != "cpu_percent"}
        assert busy == {f"cpu{core}_percent" for core in record["background"]["cpus"]}
        assert all(found[name] > 0 for name in busy), found
        assert found["cpu_percent"] > 0
        meters = run.raw(record["trial_id"], record["attempt"]) / "load0" / "meters.json"
        # The supervisor has stopped the load, with the processes that stress-ng had started.
        assert json.loads(meters.read_text())["ended_by"] == "signal"


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_a_core_that_the_node_does_not_have_is_refused(user: User, k8sdds: Command, tmp_path: Path) -> None:
    sweep = SWEEP.replace("CORES", "[4095]").replace("CORE", "0")
    (tmp_path / "busy.yaml").write_text(experiment(sweep, baseline="flannel-vxlan"))
    done = k8sdds("run", "busy.yaml", *user.options, "-o", "out")
    assert done.returncode == 3, done.stderr
    assert "background.cpus: pods on node" in done.stderr and "cannot use core 4095, only 0" in done.stderr
