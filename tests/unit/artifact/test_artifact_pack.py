"""Test which files are packed, that secrets are not, and that archives are reproducible."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from k8sdds import artifact
from k8sdds.artifact import zip_format
from k8sdds.report import content as contents
from k8sdds.report import csv_tables
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError, K8sddsError
from tests.run_folders import with_campaign

DER = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\n-----END PRIVATE KEY-----\n"


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


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


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


def test_the_archive_has_all_measured_files_and_tables_that_follow_from_them(
    archive: Path, measured: RunFolder, tmp_path: Path
) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
    assert (tmp_path / "locks/python.txt").exists() and (tmp_path / "locks/measured.json").exists()
    unpacked = tmp_path / "runs" / "measured"
    for path in filter(Path.is_file, measured.path.rglob("*")):
        assert (unpacked / path.relative_to(measured.path)).read_bytes() == path.read_bytes()
    written = csv_tables.write(contents.read(RunFolder.open(unpacked)), tmp_path / "tables")
    created = {path.name: path.read_bytes() for path in written}
    expected = tmp_path / "expected" / "measured"
    assert created == {path.name: path.read_bytes() for path in expected.iterdir()}


def test_documents_contain_commands_minutes_disk_and_the_users_claims(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(OWN_CLAIMS)
    description = artifact.Description(
        "A | title", "CC-BY-4.0", ("Ada", "Grace"), claims=str(tmp_path / "own.yaml")
    )
    artifact.pack([run_folder.path], tmp_path / "a.zip", description)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        readme = archive.read("README.md").decode()
        (run,) = json.loads(archive.read("artifact.json"))["runs"]
        assert archive.read("claims/claims.yaml").decode() == OWN_CLAIMS
        (judged,) = json.loads(archive.read("expected/claims.json"))
    assert (judged["id"], judged["verdict"]) == ("vxlan-slower", "supported")
    assert judged["command"] == "k8sdds reproduce vxlan-slower --claims claims/claims.yaml"
    for text in (
        "Authors: Ada, Grace.", "License of the data: CC-BY-4.0", "What we say", judged["command"],
        "k8sdds run runs/measured/experiment.yaml --output again/measured --seed 4711",
        "Available", "Functional", "Reusable", "Reproduced",
    ):  # fmt: skip
        assert text in readme
    assert (run["trials"], run["valid_trials"], run["folder"]) == (50, 50, "runs/measured")
    # 51 attempts of 4.6 s: one trial was tried twice.
    assert run["minutes"] == pytest.approx(51 * 4.6 / 60, abs=0.1)
    sizes = [path.stat().st_size for path in run_folder.path.rglob("*") if path.is_file()]
    assert run["disk_bytes"] == sum(sizes)
    with pytest.raises(InputError, match="no set of claims"):
        artifact.pack([run_folder.path], tmp_path / "b.zip", artifact.Description(claims="owm"))
    assert not list(tmp_path.glob("b.zip*"))


SECRETS: dict[str, str | bytes] = {
    "identity.key": "content of a key file",
    "ca_key.pem": "content of a CA's key file",
    "kubeconfig": "content of a kubeconfig",
    "stdout": f"something printed its key:\n{KEY}",
    "wg.conf": "[Interface]\nPrivateKey = " + "A" * 43 + "=\n",
    "secrets": '10.0.0.1 10.0.0.2 : PSK "correct horse battery staple"\n',
    "notes": "Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLW9m",
    "key": DER,
    "backup.gz": gzip.compress(KEY.encode(), mtime=0),
    "secret.yaml": f"tls.key: {base64.b64encode(KEY.encode()).decode()}\n",
}


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def test_all_secrets_and_nothing_else_are_left_out(run_folder: RunFolder, tmp_path: Path) -> None:
    folder = run_folder.path / "raw" / "leak"
    folder.mkdir()
    for name, content in SECRETS.items():
        (folder / name).write_bytes(as_bytes(content))
    packed = artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert {path for path, _ in packed.left_out} == {f"measured/raw/leak/{name}" for name in SECRETS}
    with zipfile.ZipFile(packed.path) as archive:
        contents = {path: archive.read(path) for path in archive.namelist()}
    for name, content in SECRETS.items():
        assert f"runs/measured/raw/leak/{name}" not in contents
        assert not [path for path, packed in contents.items() if as_bytes(content) in packed]
        assert f"raw/leak/{name}" in contents["README.md"].decode()


def test_a_secret_in_essential_files_is_rejected(run_folder: RunFolder, tmp_path: Path) -> None:
    with open(run_folder.path / "trials.jsonl", "a") as file:
        file.write(json.dumps({"reason": KEY}).replace("\\n", "\n") + "\n")
    with pytest.raises(InputError, match=r"trials\.jsonl contains a private key"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert not list(tmp_path.glob("a.zip*"))


def test_reasons_that_prevent_packing(run_folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a ZIP file"):
        artifact.pack([run_folder.path], tmp_path / "a.tar")
    with pytest.raises(InputError, match="several run folders have the name measured"):
        artifact.pack([run_folder.path, run_folder.path], tmp_path / "a.zip")
    with pytest.raises(InputError, match="not a run folder"):
        artifact.pack([tmp_path], tmp_path / "a.zip")
    with run_folder.lock(), pytest.raises(InputError, match="is writing to"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert not list(tmp_path.glob("a.zip*"))
    (tmp_path / "a.zip").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_text() == "mine"
    with pytest.raises(InputError, match="cannot pack"):
        artifact.pack([run_folder.path], tmp_path / "nowhere" / "a.zip")
    with pytest.raises(InputError, match=r"cannot pack .*a\\nb: its name contains a control character"):
        artifact.pack([run_folder.path.rename(tmp_path / "a\nb")], tmp_path / "b.zip")


def test_links_and_files_that_no_system_can_unpack_are_left_out(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "diary").write_text("dear diary")
    (run_folder.path / "raw" / "linked").symlink_to(tmp_path / "private")
    (run_folder.path / "raw" / "file").symlink_to(tmp_path / "private" / "diary")
    raw = os.fsencode(run_folder.path / "raw")
    for name in (b"\xff", b"line\nbreak", b"back\\slash", b"\x1b[2J", "Größe".encode()):
        with open(raw + b"/" + name, "wb") as file:
            file.write(b"content")
    with (run_folder.path / "raw" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    packed = artifact.pack([run_folder.path], tmp_path / "a.zip")
    left_out = {"\\xff", "line\\nbreak", "back\\slash", "\\x1b[2J", "sparse", "file", "linked"}
    assert {path for path, _ in packed.left_out} == {f"measured/raw/{name}" for name in left_out}
    packed_names = names(tmp_path / "a.zip")
    assert "runs/measured/raw/Größe" in packed_names
    assert not any("diary" in path or "linked" in path for path in packed_names)
    assert artifact.verify(tmp_path / "a.zip").findings == []


def test_records_that_cannot_be_packed_are_rejected(run_folder: RunFolder, tmp_path: Path) -> None:
    events = run_folder.path / "events.jsonl"
    whole = events.read_bytes()
    with events.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"events\.jsonl: it is larger than 1 GiB"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    events.unlink()
    (tmp_path / "elsewhere").write_bytes(whole)
    events.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"events\.jsonl: it is a symbolic link"):
        artifact.pack([run_folder.path], tmp_path / "a.zip")
    assert not list(tmp_path.glob("a.zip*"))


def test_hostile_records_start_no_markup_in_the_readme(run_folder: RunFolder, tmp_path: Path) -> None:
    hostile = "x` <img src=x> | [a](javascript:b)\n# c"
    keys = dict.fromkeys(("campaign", "k8sdds_version", "started_at"), hostile)
    testbed = run_folder.campaign["testbed"] | {"name": hostile}
    with_campaign(run_folder, **keys, command=["a", hostile], testbed=testbed)
    (run_folder.path / "raw" / "x` <img src=x>.key").write_text("")
    folder = run_folder.path.rename(tmp_path / "a; touch $HOME `b` <img src=x>")
    artifact.pack([folder], tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        readme = archive.read("README.md").decode()
    code = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
    prose = code.sub("", readme.replace("\\`", ""))
    assert "<img" in readme and "<img" not in prose and "`" not in prose and "\n# c" not in readme
    assert "[a](" not in prose.replace("\\[", "")
    (report,) = re.findall("^k8sdds report (.*)$", readme, re.MULTILINE)
    assert shlex.split(report) == [f"runs/{folder.name}"]


def test_records_of_other_types_are_packed_or_rejected(run_folder: RunFolder, tmp_path: Path) -> None:
    lines = (run_folder.path / "trials.jsonl").read_text().splitlines()
    lines += [json.dumps(json.loads(lines[0]) | {"trial_id": other}) for other in ([], {"a": 1}, None, 1.5)]
    (run_folder.path / "trials.jsonl").write_text("\n".join(lines) + "\n")
    with contextlib.suppress(K8sddsError):
        artifact.pack([run_folder.path], tmp_path / "a.zip")


def test_an_entry_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with (tmp_path / "a.zip").open("w+b") as output:
        writer = zip_format.Writer(output)
        with pytest.raises(ZeroDivisionError):
            writer.add("secret", (bytes(100_000 // number) for number in (1, 0)))
        writer.add("a", [b"1"])
        writer.finish()
    assert names(tmp_path / "a.zip") == {"a"} and (tmp_path / "a.zip").stat().st_size < 300


def test_content_that_verify_would_refuse_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_format, "MAX_FILE_BYTES", 1 << 20)
    with (tmp_path / "a.zip").open("w+b") as output, contextlib.closing(zip_format.Writer(output)) as writer:
        with pytest.raises(InputError, match="cannot pack a: larger than"):
            writer.add("a", [bytes(2 << 20)])
        with pytest.raises(InputError, match="more than 200 times"):
            for number in range(4):
                writer.add(str(number), [bytes(1 << 20)])
