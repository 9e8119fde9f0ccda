"""Test campaigns over impaired links: each link does what is asked, and every attempt proves it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from k8sdds.model.link import Link
from k8sdds.results.run_folder import RunFolder
from tests.chaos import descendants
from tests.commands import K8SDDS, environment
from tests.conftest import Command
from tests.measuring import ENDS_S, attempts_over_links, is_valid_or_slow

pytestmark = pytest.mark.usefixtures("nothing_left")

EXPERIMENT = """\
name: impaired
baseline: host
repetitions: 1
duration_s: 6
warmup_s: 0.2
max_loss_percent: 90
link:
  nodes: subscribers
  engine: userspace
  down: {{loss: {{file: pattern}}, delay: {{mean_us: 3000}}}}
  outages: {{at_s: 1, for_s: 2}}
sweeps:
  - networks: [{networks}]
    test: paced
    rate: 500
    reliability: best-effort
"""


def started(folder: Path, networks: str) -> Path:
    """Write the experiment, whose link loses every fifth packet."""
    (folder / "pattern").write_text("00001\n")
    path = folder / "impaired.yaml"
    path.write_text(EXPERIMENT.format(networks=networks))
    return path


def test_packets_are_lost_delayed_and_interrupted_as_asked(k8sdds: Command, tmp_path: Path) -> None:
    k8sdds("run", str(started(tmp_path, "host, flannel-vxlan")), "-o", str(tmp_path / "out"))
    attempts = attempts_over_links(tmp_path / "out")
    assert {record["network"] for record in attempts} == {"host", "flannel-vxlan"}
    for record in attempts:
        link = Link.model_validate(record["link"])
        assert record["fingerprint"]["link"] == link.fingerprint and link.engine == "userspace"
        engine = record["link_engine"]
        assert engine["seed"] > 0 and engine["measured_core"] == (len(os.sched_getaffinity(0)) < 4)
        (conditions,) = record["link_conditions"].values()
        up, down = conditions["up"], conditions["down"]
        found = statistics(tmp_path / "out", record)["down"]
        # Every fifth packet is lost, before the outage and after it. Those that arrive in it have decisions, too.
        assert abs(down["lost"] - found["loss_decisions"] / 5) < 2
        assert (
            all(length == 1 for length, _ in found["loss_bursts"][:1]) and down["burst_mean_packets"] < 1.03
        )
        assert down["outage_drops"] > 0 and not up["lost"]
        # However busy the machine is: the forwarder knows the times of the outage in advance. The measured interval of
        # 6 s still contains an outage that begins up to 3 s late.
        assert down["outages"] == 1 and down["outage_s"] == 2
        assert down["delay_p50_us"] >= 3000
        # What the subscriber did not get was lost or dropped on its link; other packets are those of discovery. A busy
        # machine can also miss packets, and fill the buffer of a socket.
        missed = down["not_forwarded"] + record["drops"]["udp_receive_buffer_errors"]
        assert 0 < record["lost"] <= down["lost"] + down["outage_drops"] + missed
        series = found["series"]
        assert sum(series["outage"]) == down["outage_drops"] and sum(series["lost"]) == down["lost"]


def statistics(out: Path, record: dict[str, Any]) -> dict[str, Any]:
    (path,) = out.glob(f"raw/{record['trial_id']}*/{record['attempt']}/links.json")
    (link,) = json.loads(path.read_text())["links"].values()
    found: dict[str, Any] = link
    return found


def test_a_killed_forwarder_costs_no_attempt(tmp_path: Path) -> None:
    argv = [str(K8SDDS), "run", str(started(tmp_path, "host")), "-o", str(tmp_path / "out")]
    with subprocess.Popen(argv, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as command:
        try:
            assert command.stdout is not None
            # The line that announces the attempt.
            assert any(line.startswith("[1/1]") for line in command.stdout)
            (forwarder,) = forwarders(command.pid)
            os.kill(forwarder, signal.SIGKILL)
            command.communicate(timeout=ENDS_S)
        finally:
            command.kill()
    first, *others = RunFolder.open(tmp_path / "out").attempts()
    assert re.match("part-failed: host: k8sdds-link (has ended|was stopped)", first["reason"])
    assert others and all(map(is_valid_or_slow, others))


def forwarders(pid: int) -> list[int]:
    """Return the processes of k8sdds-link among those of a campaign."""
    return [
        each for each in descendants(pid) if Path(f"/proc/{each}/comm").read_text().strip() == "k8sdds-link"
    ]
