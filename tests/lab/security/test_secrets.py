"""Search every file, command line and environment of a campaign for its private keys."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from k8sdds.campaign import preflight, start
from k8sdds.campaign.expansion import expand
from k8sdds.cli.progress import CampaignProgress
from k8sdds.model.experiment import Experiment
from k8sdds.security.authority import Identity
from k8sdds.security.credentials import Credentials
from k8sdds.system import yaml_text
from k8sdds.testbeds.lab.testbed import Lab
from tests.measuring import experiment

SWEEP = """\
  - networks: [kube-router]
    test: [throughput, latency]
    security: [SignRTPS, EncryptRTPS]
"""


def forms(identity: Identity) -> list[bytes]:
    """Return the encodings in which a private key could appear."""
    number = identity.key.private_numbers().private_value.to_bytes(32, "big")
    der = identity.key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    lines = identity.key_pem.splitlines()[1:-1]
    return [number, number.hex().encode(), base64.b64encode(number), base64.b64encode(der), der, *lines[:2]]


def test_no_secret_is_stored_or_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[Credentials] = []
    create = Credentials.valid_for

    def record(*args: Any) -> Credentials:
        created.append(create(*args))
        return created[-1]

    monkeypatch.setattr(Credentials, "valid_for", record)
    expansion = expand(
        yaml_text.parse(experiment(SWEEP, baseline="kube-router", duration_s=0.5), Experiment, "secrets.yaml")
    )
    folder = tmp_path / "run"
    command_lines: set[bytes] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    command_lines.add((path / "cmdline").read_bytes() + (path / "environ").read_bytes())
                except OSError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with Lab(f"secrets-{os.getpid()}") as lab, CampaignProgress("kube-router", 1) as progress:
            preflight.refuse(preflight.check(expansion, lab))
            started = start.start(expansion, lab, folder, "secrets", 1, progress)
            started.execute()
    finally:
        done.set()
        watcher.join()
    assert len([record for record in started.run.attempts() if record["valid"]]) == 4
    (credentials,) = created
    assert {participant.name for participant in credentials.identities} == {"pub0", "sub0"}
    identities = (*credentials.identities.values(), credentials.identity_ca, credentials.permissions_ca)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(b"-securePrivateKey" in line for line in command_lines)
    for identity in identities:
        for form in forms(identity):
            assert [path for path in files if form in path.read_bytes()] == []
            assert not any(form in line for line in command_lines)
    recorded = started.run.campaign["credentials"]["participants"]["pub0"]["certificate_sha256"]
    assert recorded == credentials.facts()["participants"]["pub0"]["certificate_sha256"]
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in files)
