"""A search for the number of subscribers on a real cluster: each number has pods of its own, made when it is probed."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.report import content
from k8sdds.results.run_folder import RunFolder
from tests.cluster.conftest import Command, User
from tests.measuring import experiment, valid_attempts

SWEEP = """\
  - networks: flannel-vxlan
    test: {name: capacity, max_subscribers: 5, loss_percent: 99, p99_ms: null, latency_at_percent: 60}
    rate: 20
    payload_bytes: 64
    reliability: best-effort
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_the_number_of_subscribers_grows_until_the_largest(
    user: User, k8sdds: Command, tmp_path: Path
) -> None:
    (tmp_path / "fan-out.yaml").write_text(experiment(SWEEP, baseline="flannel-vxlan"))
    done = k8sdds("run", "fan-out.yaml", *user.options, "-o", "out")
    assert done.returncode == 0, done.stderr
    run = RunFolder.open(tmp_path / "out")
    valid = valid_attempts(run.path)
    # 60 % of the capacity is probed last, next to the idle pods of the larger numbers.
    assert [record["subscribers"] for record in valid] == [1, 2, 4, 5, 3]
    assert all(record["network_proof"] for record in valid)
    (row,) = content.read(run).capacities
    assert (row["capacity_subscribers"], row["missed_subscribers"], row["decided"]) == (5, None, True)
