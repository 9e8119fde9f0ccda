"""Test which files are packed, that secrets are not, and that archives are reproducible."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from k8sdds import artifact
from k8sdds.report import content as contents
from k8sdds.report import csv_tables
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError

KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\n-----END PRIVATE KEY-----\n"


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_all_measured_files_are_packed(run_folder: RunFolder, tmp_path: Path) -> None:
    artifact.pack([run_folder.path], tmp_path / "a.zip")
    measured = {
        f"runs/measured/{path.relative_to(run_folder.path)}"
        for path in run_folder.path.rglob("*")
        if path.is_file()
    }
    assert measured <= names(tmp_path / "a.zip")
    assert {"README.md", "SHA256SUMS", "artifact.json", "locks/python.txt", "locks/measured.json"} <= names(
        tmp_path / "a.zip"
    )


def test_equal_content_gives_equal_bytes(run_folder: RunFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "measured"
    shutil.copytree(run_folder.path, elsewhere)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1, 1))
    (elsewhere / "trials.jsonl").chmod(0o600)
    # What a report leaves in a folder is no part of the content.
    (elsewhere / "report").mkdir()
    (elsewhere / "report" / "report.html").write_text("made again")
    first = artifact.pack([run_folder.path], tmp_path / "a.zip")
    second = artifact.pack([elsewhere], tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert first.content_id == second.content_id


def test_sha256sum_and_the_expected_tables_agree(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "unpacked")
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "unpacked", check=True)
    run = RunFolder.open(tmp_path / "unpacked" / "runs" / "measured")
    written = csv_tables.write(contents.read(run), tmp_path / "tables")
    created = {path.name: path.read_bytes() for path in written}
    expected = tmp_path / "unpacked" / "expected" / "measured"
    assert created == {path.name: path.read_bytes() for path in expected.iterdir()}


def test_documents_contain_command_minutes_and_disk(run_folder: RunFolder, tmp_path: Path) -> None:
    description = artifact.Description("A | title", "CC-BY-4.0", ("Ada", "Grace"))
    artifact.pack([run_folder.path], tmp_path / "a.zip", description)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        readme = archive.read("README.md").decode()
        data = json.loads(archive.read("artifact.json"))
    assert "Authors: Ada, Grace." in readme
    assert "License of the data: CC-BY-4.0" in readme
    assert "k8sdds run runs/measured/experiment.yaml --output again/measured --seed 1" in readme
    for badge in ("Available", "Functional", "Reusable", "Reproduced"):
        assert badge in readme
    (run,) = data["runs"]
    assert (run["trials"], run["valid_trials"], run["folder"]) == (50, 50, "runs/measured")
    # 51 attempts of 3.6 s: one trial was tried twice.
    assert run["minutes"] == pytest.approx(51 * 3.6 / 60, abs=0.1)
    assert run["disk_bytes"] == sum(
        path.stat().st_size for path in run_folder.path.rglob("*") if path.is_file()
    )


OWN_CLAIMS = """
name: own
title: What we say
claims:
  - id: vxlan-slower
    claim: VXLAN is slower.
    paper: our Table 3
    experiment: quickstart
    parts:
      - quantity: throughput_mbps
        of: {network: flannel-vxlan}
        to: {network: host}
        at: {payload_bytes: [64]}
        is: lower
"""


def test_custom_claims_are_packed_and_judged(run_folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN_CLAIMS)
    description = artifact.Description(claims=str(tmp_path / "own.yaml"))
    artifact.pack([run_folder.path], tmp_path / "a.zip", description)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read("claims/claims.yaml").decode() == OWN_CLAIMS
        (judged,) = json.loads(archive.read("expected/claims.json"))
        readme = archive.read("README.md").decode()
    assert (judged["id"], judged["verdict"]) == ("vxlan-slower", "supported")
    assert judged["command"] == "k8sdds reproduce vxlan-slower --claims claims/claims.yaml"
    assert "What we say" in readme and judged["command"] in readme
    with pytest.raises(InputError, match="no claims file"):
        artifact.pack([run_folder.path], tmp_path / "b.zip", artifact.Description(claims="owm"))
    assert not list(tmp_path.glob("b.zip*"))


SECRETS = {
    "identity.key": "content of a key file",
    "ca_key.pem": "content of a CA's key file",
    "kubeconfig": "content of a kubeconfig",
    "stdout": f"something printed its key:\n{KEY}",
    "wg.conf": "[Interface]\nPrivateKey = " + "A" * 43 + "=\n",
    "secrets": '10.0.0.1 10.0.0.2 : PSK "correct horse battery staple"\n',
    "notes": "Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLW9m",
}


@pytest.fixture(scope="module")
def with_secrets(measured: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> artifact.PackedArtifact:
    """Pack a run folder that contains all secrets."""
    place = tmp_path_factory.mktemp("secrets")
    folder = shutil.copytree(measured.path, place / "measured") / "raw" / "leak"
    folder.mkdir()
    for name, content in SECRETS.items():
        (folder / name).write_text(content)
    return artifact.pack([place / "measured"], place / "a.zip")


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_never_packed(with_secrets: artifact.PackedArtifact, name: str) -> None:
    assert f"measured/raw/leak/{name}" in {path for path, _ in with_secrets.left_out}
    assert f"runs/measured/raw/leak/{name}" not in names(with_secrets.path)
    with zipfile.ZipFile(with_secrets.path) as archive:
        assert all(SECRETS[name].encode() not in archive.read(path) for path in archive.namelist())
        assert f"raw/leak/{name}" in archive.read("README.md").decode()


def test_only_secrets_are_left_out(with_secrets: artifact.PackedArtifact) -> None:
    assert {path for path, _ in with_secrets.left_out} == {f"measured/raw/leak/{name}" for name in SECRETS}


def test_links_are_not_followed(run_folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "diary").write_text("dear diary")
    (run_folder.path / "raw" / "linked").symlink_to(tmp_path / "private")
    (run_folder.path / "raw" / "file").symlink_to(tmp_path / "private" / "diary")
    packed = artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert {path for path, _ in packed.left_out} == {"measured/raw/file", "measured/raw/linked"}
    assert not any("diary" in path or "linked" in path for path in names(tmp_path / "a.zip"))


def test_a_secret_in_essential_files_is_rejected(run_folder: RunFolder, tmp_path: Path) -> None:
    with open(run_folder.path / "trials.jsonl", "a") as file:
        file.write(json.dumps({"reason": KEY}).replace("\\n", "\n") + "\n")
    with pytest.raises(InputError, match=r"trials\.jsonl contains a private key"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert not list(tmp_path.glob("a.zip*"))


def test_a_folder_in_use_is_rejected(run_folder: RunFolder, tmp_path: Path) -> None:
    with run_folder.lock(), pytest.raises(InputError, match="is writing to"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert not list(tmp_path.glob("a.zip*"))


def test_reasons_that_prevent_packing(run_folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a ZIP file"):
        artifact.pack([run_folder.path], tmp_path / "a.tar")
    with pytest.raises(InputError, match="several run folders have the name measured"):
        artifact.pack([run_folder.path, run_folder.path], tmp_path / "a.zip")
    with pytest.raises(InputError, match="not a run folder"):
        artifact.pack([tmp_path], tmp_path / "a.zip")
    (tmp_path / "a.zip").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_text() == "mine"
    with pytest.raises(InputError, match="cannot pack"):
        artifact.pack([run_folder.path], tmp_path / "nowhere" / "a.zip")
