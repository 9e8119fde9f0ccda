"""Damaged logs never cause an exception and never yield a number that is not in the file.

Each case follows from its number, so that a failing case can be repeated: `damaged(bodies, number)`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from k8sdds.importing import import_folder, kubectl_top
from k8sdds.perftest import log
from tests.published_data import ARTIFACT
from tests.unit.fuzzing import damage
from tests.unit.fuzzing.readers import corpus
from tests.unit.importing import logs

NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
OWN = corpus("logs")()
WHOLE = logs.configuration(True) + logs.csv_latency() + logs.END


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    """Return logs in every format and the published logs, if available, in equal shares."""
    folder = ARTIFACT.folder()
    theirs = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
    return OWN * max(1, len(theirs) // len(OWN)) + [path.read_bytes() for path in theirs]


def damaged(bodies: list[bytes], number: int) -> bytes:
    """Return case `number`: a damaged log, possibly with parts of other logs."""
    chance = random.Random(number)
    return damage.bytes_of(chance.choice(bodies), chance, bodies)


def check(data: bytes) -> None:
    """Check both guarantees for both readers."""
    in_file = {float(text) for text in NUMBER.findall(data) if len(text) < 300}
    read = log.read(data)
    for result in read.results:
        assert result.payload_bytes in in_file
        for name, value in result.values.items():
            # A log in nanoseconds is read in microseconds; other tests check signs.
            assert abs(value) in in_file or abs(value) * 1000 in in_file or value in {
                number / 1000 for number in in_file
            }, (name, value)  # fmt: skip
    stated = (read.settings.rate, read.settings.duration_s, read.settings.batch_bytes, read.settings.identity)
    for value in (*read.settings.payloads, *(value for value in stated if value)):
        assert value in in_file
    nodes, _ = kubectl_top.read(data)
    for values in nodes.values():
        assert set(values.values()) <= in_file


@pytest.mark.parametrize("count", [2_000, pytest.param(60_000, marks=pytest.mark.long)])
def test_damaged_logs(bodies, count: int) -> None:
    for number in range(count):
        check(damaged(bodies, number))


def test_an_import_of_damaged_logs_succeeds(bodies, tmp_path: Path):
    chance = random.Random(1)
    for number in range(60):
        folder = tmp_path / "in" / f"throughputTest/flannel-vxlan-udp/test-{number}"
        folder.mkdir(parents=True)
        for name in ("rtiperftest-pub0.log", "rtiperftest-sub0.log", "metrics.csv"):
            (folder / name).write_bytes(damaged(bodies, chance.randrange(10**9)))
    (tmp_path / "in" / "whole.log").write_text(WHOLE)
    done = import_folder(tmp_path / "in", tmp_path / "out")
    assert done.account["files"] == 181
    assert sum(done.account["by_kind"].values()) == 181
    assert done.account["trials"] == done.account["valid"] + sum(done.account["invalid"].values())
    assert all(attempt["valid"] or attempt["reason"] for attempt in done.run.attempts())
