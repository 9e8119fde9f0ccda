"""Conditions of experiments on a real cluster: pods on one node, a tuning set of the nodes, and CPU profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.analysis import profile
from k8sdds.system import perf
from k8sdds.testbeds.evidence import RECORDING
from tests.clusters import Deployed
from tests.measuring import experiment, measured, valid_attempts

pytestmark = pytest.mark.long

CONDITIONS = """\
  - networks: [host, flannel-vxlan]
    test: latency
  - networks: [host, flannel-vxlan]
    test: latency
    placement: same-node
  - networks: [host, flannel-vxlan]
    test: latency
    tuning: tcp-buffers
"""
TCP_RMEM = "/proc/sys/net/ipv4/tcp_rmem"


def test_placements_and_tuning_sets_are_axes(
    one_machine: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))

    def tcp_rmem() -> dict[str, str]:
        return {name: nodes.run(one_machine.name, name, ["cat", TCP_RMEM]) for name in one_machine.nodes}

    before = tcp_rmem()
    text = experiment(CONDITIONS, baseline="host", repetitions=2)
    valid = measured(one_machine.k8sdds, tmp_path, text, "--testbed", one_machine.name)
    assert tcp_rmem() == before
    assert len(valid) == 12
    for attempt in valid:
        if attempt["placement"] == "same-node":
            assert "on one node, not by eth0" in attempt["network_proof"]
            assert attempt["link_bytes"]["uplink"] is not None  # an attempt with too much is not valid
        else:
            assert "by eth0" in attempt["network_proof"] or "over eth0" in attempt["network_proof"]
            assert "uplink" not in attempt["link_bytes"]
        settings = {values["net.ipv4.tcp_rmem"] for values in (attempt.get("node_settings") or {}).values()}
        assert settings == ({"4096 131072 16777216"} if attempt["tuning"] != "none" else set())


LINKS = """\
  - networks: [host, flannel-vxlan]
    test: latency
    link: {mtu: [1500, MTU], offloads: [{}, {tso: false}]}
"""


def test_mtu_and_offloads_of_links_are_axes(
    one_machine: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))

    def links() -> dict[str, str]:
        script = ["sh", "-c", "cat /sys/class/net/eth0/mtu; ethtool -k eth0"]
        return {name: nodes.run(one_machine.name, name, script) for name in one_machine.nodes}

    before = links()
    on_cluster = ("--testbed", one_machine.name)
    text = experiment(LINKS.replace("MTU", "1400"), baseline="host")
    for attempt in measured(one_machine.k8sdds, tmp_path, text, *on_cluster):
        link, overhead = attempt["link"] or {}, 50 if attempt["network"] == "flannel-vxlan" else 0
        assert attempt["mtu_bytes"] == link.get("mtu", 1500) - overhead
        tso = {values["eth0 offload tso"] for values in attempt["node_settings"].values()}
        assert tso == {"off" if link.get("offloads") else "on"}
    # The switch between local nodes carries packets of 1500 bytes.
    assert links() == before
    (tmp_path / "jumbo.yaml").write_text(text.replace("1400", "9000"))
    jumbo = ("run", str(tmp_path / "jumbo.yaml"), *on_cluster, "-o", str(tmp_path / "jumbo"))
    done = one_machine.k8sdds(*jumbo)
    assert done.returncode == 3 and "do not pass between the nodes" in done.stderr, done.stderr
    assert links() == before


@pytest.mark.skipif(bool(perf.problems()), reason="this user cannot record all cores")
def test_a_campaign_with_profile(one_machine: Deployed, tmp_path: Path) -> None:
    options = ("--repeat", "1", "--duration", "2", "--set", "test=throughput", "--profile")
    where = ("--testbed", one_machine.name, "-o", str(tmp_path / "run"))
    done = one_machine.k8sdds("run", "quickstart", *options, *where)
    assert done.returncode == 0, done.stderr
    valid = valid_attempts(tmp_path / "run")
    profiled = {attempt["network"]: attempt for attempt in valid if attempt.get("profiled")}
    assert {"host", "flannel-vxlan"} <= set(profiled) and len(valid) == 2 * len(profiled)
    for attempt in profiled.values():
        assert attempt["throughput_mbps"] is None
        found = attempt["profile"]
        assert {"netfilter", "routing", "queues and devices", "application"} <= found["components"].keys()
        assert found["attributed_percent"] > profile.MIN_ATTRIBUTED_PERCENT
        assert sum(cost["percent"] for cost in found["components"].values()) == pytest.approx(100, abs=0.5)
    tunnel = {
        network: profiled[network]["profile"]["components"]["tunnel"]["percent"]
        for network in ("host", "flannel-vxlan")
        if "tunnel" in profiled[network]["profile"]["components"]
    }
    assert tunnel["flannel-vxlan"] > tunnel.get("host", 0)
    for raw in (tmp_path / "run" / "raw").rglob(profile.FILE):
        assert "k8sdds-perftest" in {stack.process for stack in profile.read(raw.parent).stacks}
    assert not list((tmp_path / "run").rglob(RECORDING))
    assert len(list((tmp_path / "run" / "report" / "figures").glob("flame-*.svg"))) == len(profiled)
