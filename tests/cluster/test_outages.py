"""Let pods, the link of a node, the network's agent and the discovery server fail in trials on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.results import arrivals
from k8sdds.results.run_folder import RunFolder
from tests.clusters import Deployed
from tests.measuring import experiment, measured_over_links

OUTAGES = """\
  # The trial after the first one of these begins with the pod that replaced another one.
  - networks: flannel-vxlan
    test: {name: outage, after_s: 1, for_s: 1, what: pod}
    reliability: best-effort
    payload_bytes: [128, 256]
    rate: 100
  - networks: flannel-vxlan
    test:
      - {name: outage, after_s: 1, for_s: 1, what: link}
      - {name: outage, after_s: 1, for_s: 1, what: agent}
    reliability: best-effort
    payload_bytes: 256
    rate: 100
  - networks: flannel-vxlan
    test: {name: outage, after_s: 1, for_s: 1, what: server}
    reliability: best-effort
    payload_bytes: 256
    rate: 100
    middleware: fastdds
    discovery: server
"""
SENT = 15 * 100


@pytest.mark.long
def test_what_subscribers_get_when_parts_of_a_cluster_fail(one_machine: Deployed, tmp_path: Path) -> None:
    text = experiment(OUTAGES, baseline="flannel-vxlan", duration_s=15)
    found = measured_over_links(one_machine.k8sdds, tmp_path, text, "--testbed", one_machine.name)
    run = RunFolder.open(tmp_path / "out")
    records: dict[str, list[dict[str, Any]]] = {}
    for record in found:
        records.setdefault(record["outage_what"], []).append(record)
        outage = arrivals.interruption(run.raw(record["trial_id"], record["attempt"]))
        assert outage is not None and outage.length_s > 0.9
        # Samples pass without the agent, and between participants that have found each other.
        assert record["recovery_first_ms"] > 0
        if record["outage_what"] in ("pod", "link"):
            assert record["outage_blind_ms"] > 900
    counts = {what: len(each) for what, each in records.items()}
    assert counts == {"pod": 2, "link": 1, "agent": 1, "server": 1}

    for record in records["pod"]:
        assert record["sent"] == record["received"] + record["lost"] == SENT
        assert record["lost"] > 0
    (link,) = records["link"]
    drops = [sum(ways[way]["outage_drops"] for way in ways) for ways in link["link_conditions"].values()]
    assert sorted(bool(dropped) for dropped in drops) == [False, True]
