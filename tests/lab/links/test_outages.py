"""Test outages of links in the lab with real DDS. The verdicts rest on counts and on the order of events of one clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds.results import arrivals
from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command
from tests.measuring import experiment, measured_over_links

pytestmark = pytest.mark.usefixtures("nothing_left")

SWEEPS = """\
  - networks: [host]
    test:
      - {name: outage, after_s: 2, for_s: 1}
      - {name: outage, after_s: 2, for_s: 1, where: publisher}
      - {name: outage, after_s: 2, for_s: 1, what: lossy, drop_percent: 60}
    middleware: [cyclonedds, fastdds]
    payload_bytes: 256
    rate: 100
  - networks: [flannel-vxlan]
    test: {name: outage, after_s: 2, for_s: 1}
    reliability: best-effort
    payload_bytes: 256
    rate: 100
"""
RATE, LENGTH_S = 100, 1
"""A busy machine can stop a process for a second. Outages begin 2 s after the start and end at least 3 s before the trial
ends, so that such a pause does not hide all samples before an outage or all those after it."""


def dropped(record: dict[str, Any]) -> dict[str, int]:
    return {
        node: sum(directions[way]["outage_drops"] for way in ("up", "down"))
        for node, directions in record["link_conditions"].items()
    }


def missed(record: dict[str, Any]) -> int:
    ways = [way for directions in record["link_conditions"].values() for way in directions.values()]
    return sum(way["not_forwarded"] for way in ways)


def test_what_subscribers_get_around_outages(k8sdds: Command, tmp_path: Path) -> None:
    records = measured_over_links(k8sdds, tmp_path, experiment(SWEEPS, baseline="host", duration_s=6))
    run = RunFolder.open(tmp_path / "out")
    assert len(records) == 7
    for record in records:
        outage = arrivals.interruption(run.raw(record["trial_id"], record["attempt"]))
        assert outage is not None and outage.length_s == pytest.approx(LENGTH_S)
        assert record["outage_s"] == pytest.approx(outage.length_s)
        failed, other = ("node0", "node1") if record["outage_where"] == "publisher" else ("node1", "node0")
        assert outage.node == failed
        assert dropped(record)[failed] > 0 and dropped(record)[other] == 0
        assert record["recovery_first_ms"] > 0
        # On a busy machine, delays can stay long until the end.
        full_ms = record["recovery_full_ms"]
        assert record["recovered_percent"] == (0 if full_ms is None else 100)
        assert full_ms is None or full_ms >= record["recovery_first_ms"]
        if record["outage_what"] == "link":
            assert record["outage_blind_ms"] >= 1000 * outage.length_s
            assert record["outage_blind_ms"] >= 1000 * outage.length_s + record["recovery_first_ms"] - 0.001
        if record["reliability"] == "reliable":
            # A publisher that a busy machine stops for a second sends fewer samples.
            assert record["scheduled"] == 6 * RATE >= record["sent"] == record["received"] > 0
        else:
            # Samples are packets of the link that failed; others that it dropped are those of discovery. A busy machine
            # can also miss packets.
            assert 0 < record["lost"] <= dropped(record)[failed] + missed(record)


PARTS = """\
  - networks: [host, flannel-vxlan]
    test: {name: outage, after_s: 2, for_s: 1, what: pod}
    middleware: [cyclonedds, fastdds]
    reliability: best-effort
    payload_bytes: 256
    rate: 100
  - networks: [flannel-vxlan]
    test: {name: outage, after_s: 2, for_s: 1, what: server}
    middleware: fastdds
    discovery: server
    payload_bytes: 256
    rate: 100
  - networks: [{name: flannel-wireguard, engine: userspace}]
    test: {name: outage, after_s: 2, for_s: 1, what: agent}
    payload_bytes: 256
    rate: 100
  - networks: [host]
    test: {name: outage, after_s: 2, for_s: 1, what: address}
    payload_bytes: 256
    rate: 100
"""
DUE = 7 * RATE


@pytest.mark.long
def test_what_subscribers_get_when_other_parts_fail(k8sdds: Command, tmp_path: Path) -> None:
    found = measured_over_links(k8sdds, tmp_path, experiment(PARTS, baseline="host", duration_s=7))
    run = RunFolder.open(tmp_path / "out")
    records: dict[str, list[dict[str, Any]]] = {}
    for record in found:
        records.setdefault(record["outage_what"], []).append(record)
        outage = arrivals.interruption(run.raw(record["trial_id"], record["attempt"]))
        assert outage is not None and outage.length_s > 0.9 * LENGTH_S
        # The parts are of the same lab network again, and its links were not touched.
        assert not any(dropped(record).values())
    assert {what: len(found) for what, found in records.items()} == {
        "pod": 4, "server": 1, "agent": 1, "address": 1
    }  # fmt: skip

    for record in records["pod"]:
        folder = run.raw(record["trial_id"], record["attempt"])
        first, second = (
            json.loads((folder / name / "meters.json").read_text()) for name in ("killed/sub0", "sub0")
        )
        assert first["signal"] == "SIGKILL" and second["exit_code"] == 0
        assert record["recovery_first_ms"] > 0
        assert record["outage_blind_ms"] >= 1000 * LENGTH_S
        # The publisher has not begun again, and what neither process received was due while there was none.
        assert DUE >= record["sent"] == record["received"] + record["lost"] > record["received"] > 0
    (server,) = records["server"]
    assert server["scheduled"] == DUE
    assert server["received"] == server["sent"] > 0, "participants that have found each other need no server"
    (agent,) = records["agent"]
    assert agent["outage_blind_ms"] >= 1000 * LENGTH_S and agent["received"] == agent["sent"] > 0
    (address,) = records["address"]
    assert address["recovered_percent"] == 0 and address["recovery_full_ms"] is None
