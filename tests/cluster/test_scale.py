"""Test the number of requests for many participants on a real API server with simulated nodes.

benchmarks/cluster_scale.py measures the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "cluster_scale.py"
BUILD_TIMEOUT_S = 1800
"""Includes the first build of kwok."""


def measured(*sizes: int) -> dict[str, Any]:
    args = [word for size in sizes for word in ("--participants", str(size))]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", "--pairs", "1", *args], capture_output=True, text=True,
        timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(30,), (100, 300)])
def test_requests_grow_linearly_with_the_participants(sizes: tuple[int, ...]) -> None:
    report = measured(*sizes)
    assert report["audited"] == report["counted"]  # k8sdds counts every request
    for size in sizes:
        calls = Counter(report["sizes"][str(size)]["calls"])
        # Pods are created, deleted and created again; one request deletes the namespace.
        assert calls["delete"] == size + 1
        # In addition to pods: the namespace, and checks of rights.
        assert 2 * size < calls["create"] <= 2 * size + 20
        # The server may close the watch of a slow client, for example on a busy machine.
        assert calls["get"] + calls["watch"] <= 15
        (phases,) = report["sizes"][str(size)]["rounds"]
        assert phases["placed"]["calls"]["create"] == size
        assert phases["removed"]["calls"] == {"delete": size}
        assert phases["again"]["calls"] == {"create": size}
    few, *more = (Counter(report["sizes"][str(size)]["calls"]) for size in sizes)
    for many in more:
        added = sizes[-1] - sizes[0]
        assert (many["create"] - few["create"], many["delete"] - few["delete"]) == (2 * added, added)
