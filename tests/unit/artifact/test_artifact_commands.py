"""Test the output and exit codes of the artifact commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds import artifact
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from tests.conftest import Command


def test_pack_and_verify(k8sdds: Command, run_folder: RunFolder, tmp_path: Path) -> None:
    pack = ("artifact", "pack", str(run_folder.path), "-o", "a.zip", "--license", "CC-BY-4.0")
    planned = k8sdds(*pack, "--dry-run")
    assert not (tmp_path / "a.zip").exists()
    packed = k8sdds(*pack)
    assert packed.returncode == 0, packed.stderr
    assert planned.stdout == f"would write {packed.stdout}"
    content_id = packed.stdout.split("content id: ")[1].split()[0]
    whole = k8sdds("artifact", "verify", "a.zip", "--expect", content_id)
    assert whole.returncode == 0 and content_id in whole.stdout
    archive = tmp_path / "a.zip"
    bytes_ = bytearray(archive.read_bytes())
    bytes_[200] ^= 1
    archive.write_bytes(bytes_)
    damaged = k8sdds("artifact", "verify", "a.zip")
    assert damaged.returncode == 2 and "changed: runs/measured/campaign.json" in damaged.stderr
    reported = k8sdds("artifact", "verify", "a.zip", "--json")
    assert reported.returncode == 2
    assert json.loads(reported.stdout)["findings"][0]["path"] == "runs/measured/campaign.json"
    with pytest.raises(InputError, match="does not exist"):
        artifact.verify(tmp_path / "nothing.zip")


def test_reproduce_dry_run_prints_the_plan(k8sdds: Command) -> None:
    dry = k8sdds("reproduce", "flannel-vxlan-slower", "weavenet-slower", "table-1-weavenet", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.count("k8sdds run cni-overhead") == 1
    assert "flannel-vxlan-slower, weavenet-slower: " in dry.stdout
    assert "table-1-weavenet: not measured: " in dry.stdout
    untestable = k8sdds("reproduce", "table-1-weavenet")
    assert untestable.returncode == 2 and "Raspberry Pi" in untestable.stderr
    unknown = k8sdds("reproduce", "flannel-vxlan-slow")
    assert unknown.returncode == 2 and "flannel-vxlan-slower" in unknown.stderr
