"""Let the pod of a subscriber, and the link of its node, fail in trials on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.results import arrivals
from k8sdds.results.run_folder import RunFolder
from tests.clusters import Deployed
from tests.measuring import attempts_over_links

EXPERIMENT = """\
name: outages
baseline: flannel-vxlan
repetitions: REPETITIONS
duration_s: 15
warmup_s: 0.2
sweeps:
  - networks: [flannel-vxlan]
    test: {name: outage, after_s: 1, for_s: 1, what: WHAT}
    reliability: best-effort
    payload_bytes: 256
    rate: 100
"""
SENT = 15 * 100


def measured(
    one_machine: Deployed, folder: Path, what: str, more: str = "", repetitions: int = 1
) -> list[tuple[dict[str, Any], Path]]:
    """Measure trials in which something fails; return the last attempts and their raw folders."""
    (folder / "outages.yaml").write_text(
        EXPERIMENT.replace("WHAT", what).replace("REPETITIONS", str(repetitions)) + more
    )
    arguments = ("--testbed", "one-machine", "-o", str(folder / "out"))
    one_machine.k8sdds("run", str(folder / "outages.yaml"), *arguments)
    run = RunFolder.open(folder / "out")
    found = [
        (record, run.raw(record["trial_id"], record["attempt"]))
        for record in attempts_over_links(folder / "out")
    ]
    assert len(found) == repetitions
    return found


def test_a_killed_pod_is_replaced_by_one_with_another_address(one_machine: Deployed, tmp_path: Path) -> None:
    # The second trial begins with the pod that replaced the other one.
    for record, folder in measured(one_machine, tmp_path, "pod", repetitions=2):
        outage = arrivals.interruption(folder)
        assert outage is not None and outage.length_s >= 1
        assert record["recovered_percent"] == 100
        assert record["outage_blind_ms"] >= 1000 * outage.length_s
        assert record["sent"] == record["received"] + record["lost"] == SENT
        assert record["lost"] == pytest.approx(record["outage_blind_ms"] / 10, abs=5)


def test_the_link_of_a_node_is_interrupted(one_machine: Deployed, tmp_path: Path) -> None:
    for record, folder in measured(one_machine, tmp_path, "link"):
        outage = arrivals.interruption(folder)
        assert outage is not None and outage.length_s == pytest.approx(1, abs=0.2)
        assert record["recovered_percent"] == 100
        assert record["outage_blind_ms"] >= 1000 * outage.length_s
        drops = [
            sum(ways[way]["outage_drops"] for way in ways) for ways in record["link_conditions"].values()
        ]
        assert sorted(bool(dropped) for dropped in drops) == [False, True]


@pytest.mark.parametrize(
    ("what", "more"), [("agent", ""), ("server", "    middleware: fastdds\n    discovery: server\n")]
)
def test_pods_that_kubernetes_replaces_fail(
    one_machine: Deployed, tmp_path: Path, what: str, more: str
) -> None:
    for record, folder in measured(one_machine, tmp_path, what, more):
        outage = arrivals.interruption(folder)
        assert outage is not None and outage.length_s >= 1
        # Samples pass without the agent, and between participants that have found each other.
        assert record["recovered_percent"] == 100
