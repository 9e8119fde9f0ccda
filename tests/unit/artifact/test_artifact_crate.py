"""Test that the metadata is a Process Run Crate, with rocrate and roc-validator."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from rocrate.rocrate import ROCrate

VALIDATOR = "roc-validator==0.13.0"


def test_rocrate_finds_campaign_inputs_and_results(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "unpacked")
    crate = ROCrate(tmp_path / "unpacked")
    assert crate.root_dataset["conformsTo"].id == "https://w3id.org/ro/wfrun/process/0.5"
    (action,) = crate.root_dataset["mentions"]
    assert action.type == "CreateAction"
    assert action["instrument"]["name"] == "k8sdds"
    assert action["description"] == "k8sdds run experiments/made.yaml --repetitions 5"
    assert action["actionStatus"] == "http://schema.org/CompletedActionStatus"
    inputs = {entity.id.removeprefix("runs/measured/") for entity in action["object"]}
    results = {entity.id.removeprefix("runs/measured/") for entity in action["result"]}
    assert inputs == {"experiment.yaml", "qos/strict-reliable.xml"}
    assert results == {"trials.jsonl", "events.jsonl", "raw/"}
    for entity in crate.data_entities:
        assert (tmp_path / "unpacked" / entity.id).exists(), entity.id


def test_every_reference_resolves(archive: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        graph = json.loads(packed.read("ro-crate-metadata.json"))["@graph"]
    known = {entity["@id"] for entity in graph} | {"https://w3id.org/ro/crate/1.1"}
    values = [value for entity in graph for key, value in entity.items() if key != "@id"]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            assert value["@id"] in known
        elif isinstance(value, list):
            values += value


@pytest.mark.long
def test_the_validator_finds_no_violations(archive: Path, tmp_path: Path) -> None:
    # In an environment of its own: it needs an older rich than ours.
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", VALIDATOR, "rocrate==0.16.0"], check=True)
    script = Path(__file__).with_name("crate_validator.py")
    done = subprocess.run(
        [python, script, archive, tmp_path / "cache"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "valid\n"), done.stdout + done.stderr
    # A validator that finds nothing in a crate without its profile would prove nothing.
    with zipfile.ZipFile(archive) as packed:
        all_ = {info: packed.read(info) for info in packed.infolist()}
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad_archive:
        for info, content in all_.items():
            bad_archive.writestr(info, content.replace(b'"instrument"', b'"instrumental"'))
    bad = subprocess.run(
        [python, script, tmp_path / "bad.zip", tmp_path / "cache"], capture_output=True, text=True
    )
    assert bad.returncode > 0 and "instrument" in bad.stdout
