"""Emulated links of a real cluster: packets are lost, delayed and interrupted, and every node is restored."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from k8sdds import nodes, versions
from k8sdds.deploy import node_links
from k8sdds.deploy.node_link_scripts import FAR, FOLDER, NEAR, UNIT
from k8sdds.model.link import Link
from k8sdds.system.errors import PartFailed
from k8sdds.testbeds.link_emulation import Port, configuration
from tests.cluster.conftest import ENDS_S, running, wait
from tests.clusters import Deployed
from tests.measuring import experiment, last_attempts, measured_over_links

pytestmark = pytest.mark.long

KEYS = {"baseline": "host", "warmup_s": 0.5, "max_loss_percent": 100}
SWEEP = """\
  - networks: [host, flannel-vxlan]
    test: paced
    reliability: best-effort
    payload_bytes: 256
    rate: 200
    link:
      delay: {mean_us: 50 ms}
      up: {loss: {percent: 10}}
      # The second one reaches the end of the measured interval.
      outages: [{at_s: 1, for_s: 0.5}, {at_s: 2.75, for_s: 0.25}]
"""


@pytest.fixture
def states(one_machine: Deployed, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, str]]:
    """What emulated links could leave on each node: interfaces, rules, units, mounts, snapshots, files."""
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
    script = (
        "ip -oneline link show dev eth0; ls -d /sys/class/net/k8sdds*; nft list tables netdev;"
        f" systemctl list-units --all --plain --no-legend 'k8sdds-link*'; grep {FOLDER} /proc/self/mountinfo;"
        f" ctr --namespace k8s.io snapshots ls | grep {FOLDER}; ls -d {FOLDER}; tc qdisc show dev eth0; :"
    )

    def read() -> dict[str, str]:
        return {name: nodes.run(one_machine.name, name, ["sh", "-c", script]) for name in one_machine.nodes}

    return read


def is_emulated(cluster: Deployed) -> bool:
    """Return whether the link of a node is emulated now."""
    return bool(nodes.run(cluster.name, cluster.nodes[-1], ["sh", "-c", f"ls {FOLDER}/ready || :"]))


def test_links_lose_delay_and_interrupt_packets(
    one_machine: Deployed, states: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    before = states()
    text = experiment(SWEEP, duration_s=3, **KEYS)
    attempts = measured_over_links(one_machine.k8sdds, tmp_path, text, "--testbed", one_machine.name)
    assert states() == before
    assert {attempt["network"] for attempt in attempts} == {"host", "flannel-vxlan"}
    for attempt in attempts:
        assert attempt["link"]["engine"] == "userspace" and attempt["link_engine"]["seed"]
        assert len(attempt["link_conditions"]) == 2
        # Each packet passes two links, and is delayed by both.
        assert 100_000 < attempt["delay_p50_us"] < 200_000
        assert attempt["blind_ms"] > 500
        for directions in attempt["link_conditions"].values():
            up, down = directions["up"], directions["down"]
            assert up["packets"] and down["packets"] and down["lost"] == 0
            assert up["outages"] == down["outages"] == 2
            assert all(49_500 < way["delay_p50_us"] < 100_000 for way in (up, down))
        sent = max(
            (ways["up"] for ways in attempt["link_conditions"].values()), key=lambda way: way["packets"]
        )
        assert sent["packets"] > 600 and sent["outage_drops"] > 80
        assert 0.05 < sent["lost"] / sent["decided"] < 0.15


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_program_costs_an_attempt_and_a_killed_command_leaves_nothing(
    ending: signal.Signals,
    one_machine: Deployed,
    states: Callable[[], dict[str, str]],
    tmp_path: Path,
) -> None:
    before = states()
    (tmp_path / "experiment.yaml").write_text(experiment(SWEEP, duration_s=60, **KEYS))
    on_cluster = ("./experiment.yaml", "--testbed", one_machine.name, "-o", "run")
    with running(tmp_path, *on_cluster, K8SDDS_STATE_DIR=str(one_machine.state)) as process:
        wait(lambda: is_emulated(one_machine), process, "an emulated link")
        kill = ["systemctl", "kill", "--signal=KILL", UNIT]
        nodes.run(one_machine.name, one_machine.nodes[-1], kill)
        wait(lambda: (tmp_path / "run/trials.jsonl").exists(), process, "the failed attempt")
        (failed,) = last_attempts(tmp_path / "run")
        assert failed["reason"].startswith("part-failed"), failed["reason"]
        wait(lambda: is_emulated(one_machine), process, "the emulated link of the next attempt")
        process.send_signal(ending)
        process.communicate(timeout=ENDS_S)
    if ending == signal.SIGKILL:
        cleaned = one_machine.k8sdds("clean", "--testbed", one_machine.name)
        assert cleaned.stdout.count("the emulated link of") == 2, cleaned.stdout + cleaned.stderr
    assert states() == before


def test_a_node_that_would_not_impair_its_packets_is_refused_before_the_first_trial(
    one_machine: Deployed, states: Callable[[], dict[str, str]]
) -> None:
    before = states()
    assert node_links.unsupported(one_machine.name, {}) == {}
    # Packets to this address leave by the loopback interface.
    refused = node_links.unsupported(one_machine.name, dict.fromkeys(one_machine.nodes, "127.0.0.1"))
    assert list(refused) == list(one_machine.nodes)
    for reason in refused.values():
        assert reason.startswith("packets to 127.0.0.1 do not leave by eth0: set network.interface")
    assert states() == before


def test_nodes_restore_their_link_after_a_deadline(
    one_machine: Deployed, states: Callable[[], dict[str, str]]
) -> None:
    """What a killed command and a node that cannot be reached have in common: nothing else ends the emulation."""
    before, node = states(), one_machine.nodes[-1]
    link = configuration(Link(), [Port(node, NEAR, FAR)], 1, None)
    emulation = {node: node_links.Emulation(link)}
    with (
        pytest.raises(PartFailed, match=rf"{node}: k8sdds-link has ended"),
        node_links.emulated(one_machine.name, emulation, versions.PERFTEST_IMAGE, at_most_s=30) as links,
    ):
        links.start()
        assert states() != before
        deadline = time.monotonic() + 180
        while states() != before:
            assert time.monotonic() < deadline, "a node has not restored its link"
            time.sleep(1)
        links.stop()
