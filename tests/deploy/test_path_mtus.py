"""Packets of an experiment's MTU are sent although a machine has learned a smaller path MTU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from k8sdds.deploy import experiment_tuning

NETWORK = (Path(__file__).parent / "scripts/path_mtus.sh").read_text()


@pytest.mark.parametrize(("largest", "printed"), [(1500, ""), (1400, "lost\n")])
def test_only_a_link_loses_packets(largest: int, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root: sudo make test")
    monkeypatch.setattr(experiment_tuning, "PING_S", 3 if printed else experiment_tuning.PING_S)
    facts = {name: (f"address 10.0.0.{number}",) for number, name in enumerate("ab", 1)}
    _, script = experiment_tuning.pings_of(1500, facts)["a"]
    network = NETWORK.replace("LARGEST", str(largest))
    argv = ["unshare", "--net", "sh", "-c", f"{network}\n(\nset +e\n{script})"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
