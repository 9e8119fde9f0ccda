"""No damaged input makes a reader fail: see oracle.py. A failing input is kept in corpus/found."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from k8sdds.security import directory
from tests.unit.fuzzing.oracle import judge
from tests.unit.fuzzing.readers import CORPUS, READERS, Reader

SAMPLE, MANY = 30, 20_000
"""Inputs of a reader in `make test`, and in `make test-all`."""
FOUND = CORPUS / "found"


@pytest.fixture(params=READERS, ids=lambda reader: reader.name)
def reader(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    request.param.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    # The Kubernetes client writes the certificates of a kubeconfig to temporary files.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    # openssl verifies signatures; starting it for every input takes most of the time.
    monkeypatch.setattr(directory.subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 1))
    return request.param


def fuzz(reader: Reader, folder: Path, count: int) -> Counter[str]:
    """Read so many damaged documents, each of its own seed, and return how often they had each outcome."""
    outcomes: Counter[str] = Counter()
    seeds = reader.seeds()
    assert seeds
    for number in range(count):
        chance = random.Random(f"{reader.name} {number}")
        parts = [reader.damage(chance.choice(seeds), chance) for _ in range(reader.batch)]
        data = b"\n".join(parts)
        try:
            outcomes[judge(lambda data=data: reader.read(data, folder), folder)] += 1
        except BaseException as error:
            error.add_note(f"input {number} of {reader.name}; K8SDDS_KEEP_FOUND=FOLDER keeps it")
            if kept := os.environ.get("K8SDDS_KEEP_FOUND"):
                (Path(kept) / f"{reader.name}.failing").write_bytes(data)
            raise
    return outcomes


def test_a_whole_document_is_read(reader: Reader, tmp_path: Path) -> None:
    for seed in reader.seeds():
        assert judge(lambda seed=seed: reader.read(seed, tmp_path), tmp_path) == "read"


def test_inputs_that_once_failed(reader: Reader, tmp_path: Path) -> None:
    for path in sorted(FOUND.glob(f"{reader.name}.*")):
        judge(lambda path=path: reader.read(path.read_bytes(), tmp_path), tmp_path)


def test_a_sample_of_damaged_inputs(reader: Reader, tmp_path: Path) -> None:
    fuzz(reader, tmp_path, max(SAMPLE // reader.batch, 3))


@pytest.mark.long
def test_many_damaged_inputs(reader: Reader, tmp_path: Path) -> None:
    outcomes = fuzz(reader, tmp_path, MANY // reader.batch)
    # Some inputs are still whole, and some are refused.
    print(f"{reader.name}: {dict(outcomes)}")
    assert outcomes
    shutil.rmtree(tmp_path, ignore_errors=True)
