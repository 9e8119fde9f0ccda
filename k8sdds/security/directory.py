"""Credentials in a folder of the user's: made, shown and checked."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from k8sdds.model.trial import Participant
from k8sdds.security import authority, levels
from k8sdds.security import permissions as rights
from k8sdds.security.credentials import Credentials
from k8sdds.security.file_names import CERTIFICATE, IDENTITY_CA, KEY, PERMISSIONS, PERMISSIONS_CA
from k8sdds.system.errors import InputError, PrerequisiteError

DESCRIPTION = "security.json"
GOVERNANCE = "governance"
AUTHORITY_KEYS = "authority-keys"
SOON = timedelta(days=14)
"""Credentials that expire within this time are told."""


@dataclass(frozen=True)
class CredentialIssue:
    """One thing that was checked."""

    subject: str
    ok: bool
    says: str


def init(
    folder: Path, participants: list[Participant], days: int, kind: authority.KeyKind, domains: range
) -> dict[str, Any]:
    """Make a folder with two authorities, credentials of the participants, and every level's governance.

    The folder appears whole or not at all. Returns the facts that `show` gives.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} exists already", "name a folder that does not exist: keys are never replaced"
        )
    credentials = Credentials.lasting(timedelta(days=days), domains, kind)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}", "name another folder") from error
    try:
        _fill(made, credentials, participants)
        made.rename(folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", "name another folder") from error
    finally:
        if made.exists():
            shutil.rmtree(made)
    return show(folder)


def _fill(folder: Path, credentials: Credentials, participants: list[Participant]) -> None:
    _public(folder / IDENTITY_CA, credentials.identity_ca.certificate_pem)
    _public(folder / PERMISSIONS_CA, credentials.permissions_ca.certificate_pem)
    _secret(folder / AUTHORITY_KEYS / IDENTITY_CA.replace("pem", "key"), credentials.identity_ca.key_pem)
    _secret(
        folder / AUTHORITY_KEYS / PERMISSIONS_CA.replace("pem", "key"), credentials.permissions_ca.key_pem
    )
    for participant in participants:
        name = participant.name
        identity = credentials.enrol(participant, (rights.OURS, rights.RTI))
        _public(folder / name / CERTIFICATE, identity.certificate_pem)
        _public(folder / name / PERMISSIONS, credentials.permissions(participant))
        _secret(folder / name / KEY, identity.key_pem)
    for level in levels.names():
        protection = levels.load(level)
        if protection is not None:
            _public(folder / GOVERNANCE / f"{level}.p7s", credentials.governance(protection))
    text = json.dumps(credentials.facts(), indent=1) + "\n"
    _public(folder / DESCRIPTION, text.encode())


def _public(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(content)


def _secret(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def show(folder: Path) -> dict[str, Any]:
    """What a folder of `init` holds: validity, fingerprints, rights of participants, levels. Never a key."""
    try:
        facts = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        names = sorted(facts["participants"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} is not a folder of credentials: {DESCRIPTION} cannot be read",
            f"make one: k8sdds security init {folder}",
        ) from error
    participants = {}
    for name in names:
        certificate = _certificate(folder / name / CERTIFICATE)
        publish, subscribe = _rights(_signed_text(folder / name / PERMISSIONS))
        participants[name] = {
            "subject": authority.subject_of(certificate),
            "certificate_sha256": authority.fingerprint(certificate),
            "not_after": certificate.not_valid_after_utc.isoformat(),
            "publish": publish,
            "subscribe": subscribe,
        }
    governances = sorted(path.stem for path in (folder / GOVERNANCE).glob("*.p7s"))
    return {**facts, "participants": participants, "levels": governances}


def check(folder: Path, now: datetime | None = None) -> list[CredentialIssue]:
    """Every certificate, key and signed document of a folder, looked at as a middleware would."""
    now = now or datetime.now(UTC)
    facts = show(folder)
    if not shutil.which("openssl"):
        raise PrerequisiteError("the program openssl is not here", "sudo apt-get install openssl")
    findings = []
    authorities = {}
    for file in (IDENTITY_CA, PERMISSIONS_CA):
        authorities[file] = _certificate(folder / file)
        findings.append(_holds(file, authorities[file], now))
        findings.append(_is_private(folder / AUTHORITY_KEYS / file.replace("pem", "key"), authorities[file]))
    for name in facts["participants"]:
        findings += _participant(folder, name, authorities[IDENTITY_CA], now)
    for level in facts["levels"]:
        file = folder / GOVERNANCE / f"{level}.p7s"
        findings.append(_signature(file, folder / PERMISSIONS_CA, f"{GOVERNANCE}/{level}.p7s"))
    return findings


def _participant(folder: Path, name: str, ca: x509.Certificate, now: datetime) -> list[CredentialIssue]:
    certificate = _certificate(folder / name / CERTIFICATE)
    subject = f"{name}/{CERTIFICATE}"
    try:
        certificate.verify_directly_issued_by(ca)
        issued = CredentialIssue(subject, True, "issued by the identity CA")
    except Exception:  # ValueError, TypeError or InvalidSignature, all of which say the same here
        issued = CredentialIssue(subject, False, f"not issued by {IDENTITY_CA}")
    document = folder / name / PERMISSIONS
    granted = _element(_signed_text(document), "subject_name")
    same = granted == authority.subject_of(certificate)
    until = _element(_signed_text(document), "not_after")
    expired = until <= now.strftime("%Y-%m-%dT%H:%M:%S")
    return [
        issued,
        _holds(subject, certificate, now),
        _is_private(folder / name / KEY, certificate),
        _signature(document, folder / PERMISSIONS_CA, f"{name}/{PERMISSIONS}"),
        CredentialIssue(
            f"{name}/{PERMISSIONS}", same and not expired,
            f"expired on {until}" if expired
            else f"for {granted}" + ("" if same else ", who is not the certificate's subject"),
        ),
    ]  # fmt: skip


def _holds(subject: str, certificate: x509.Certificate, now: datetime) -> CredentialIssue:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return CredentialIssue(subject, False, f"not valid before {start:%Y-%m-%d %H:%M} UTC")
    if now > end:
        return CredentialIssue(subject, False, f"expired on {end:%Y-%m-%d %H:%M} UTC")
    soon = f", in {(end - now).days} days: make new ones in time" if end - now < SOON else ""
    return CredentialIssue(subject, True, f"valid until {end:%Y-%m-%d %H:%M} UTC{soon}")


def _is_private(path: Path, certificate: x509.Certificate) -> CredentialIssue:
    subject = f"{path.parent.name}/{path.name}"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        return CredentialIssue(subject, False, f"cannot be read: {error}")
    if mode & 0o077:
        return CredentialIssue(subject, False, f"mode {mode:04o}: others may read it; chmod 600 {path}")
    if key.public_key() != certificate.public_key():
        return CredentialIssue(subject, False, "does not belong to its certificate")
    return CredentialIssue(subject, True, f"mode {mode:04o}, belongs to its certificate")


def _signature(document: Path, ca: Path, subject: str) -> CredentialIssue:
    """What OpenSSL says, which is what the middlewares ask."""
    argv = ["openssl", "smime", "-verify", "-text", "-no-CApath", "-in", str(document), "-CAfile", str(ca)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    says = (
        "signed by the permissions CA"
        if done.returncode == 0
        else f"not signed by {ca.name}, or changed since"
    )
    return CredentialIssue(subject, done.returncode == 0, says)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no certificate: {error}", "make new credentials") from error


def _signed_text(path: Path) -> str:
    """The XML within an S/MIME document."""
    try:
        text = path.read_text(encoding="utf-8")
        return text[text.index("<?xml") : text.index("</dds>") + len("</dds>")]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no signed document", "make new credentials") from error


def _element(xml: str, name: str) -> str:
    found = ElementTree.fromstring(xml.encode()).find(f".//{name}")
    return (found.text or "") if found is not None else ""


def _rights(xml: str) -> tuple[list[str], list[str]]:
    root = ElementTree.fromstring(xml.encode())
    return tuple([topic.text or "" for topic in root.findall(f".//{verb}/topics/topic")]
                 for verb in ("publish", "subscribe"))  # type: ignore[return-value]  # fmt: skip
