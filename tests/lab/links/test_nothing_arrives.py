"""Test links over which no sample of real DDS arrives: that is a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.measuring import experiment, measured_over_links

pytestmark = pytest.mark.usefixtures("nothing_left")

LINK = "{nodes: subscribers, rate_mbit: 300, loss: {percent: 40}}"
SWEEP = """\
  - networks: [baremetal]
    test: paced
    rate: 30
    payload_bytes: 524288
    reliability: best-effort
    middleware: [cyclonedds, fastdds]
"""


def test_large_samples_over_a_lossy_link_are_all_lost(k8sdds: Command, tmp_path: Path) -> None:
    """A sample of 512 KiB has some 350 packets, of which 40 % are lost."""
    text = experiment(SWEEP, baseline="baremetal", duration_s=2, link=LINK)
    records = measured_over_links(k8sdds, tmp_path, text)
    assert {record["middleware"] for record in records} == {"cyclonedds", "fastdds"}
    assert (tmp_path / "out/report/report.html").exists()
    for record in records:
        # A publisher that a busy machine stops for a second sends fewer samples.
        assert record["scheduled"] == 60 >= record["sent"] > 0
        assert record["received"] == 0 and record["lost_percent"] == 100
        assert (
            record["blind_ms"] == pytest.approx(2000, rel=1e-3) and record["deadline_missed_percent"] == 100
        )
        assert record["delay_mean_us"] is None and record["missing"]["delay_p90_us"] == "no sample arrived"
        assert any(text.startswith("no-samples: ") for text in record["warnings"])
        assert all(node["down"]["lost"] for node in record["link_conditions"].values())
