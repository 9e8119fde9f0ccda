"""Create, inspect and verify a folder of credentials."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from k8sdds.model.trial import Participant
from k8sdds.security import CERTIFICATE, IDENTITY_CA, KEY, PERMISSIONS, PERMISSIONS_CA, authority, levels
from k8sdds.security.credentials import Credentials
from k8sdds.security.documents import OWN_TOPICS, RTI_TOPICS
from k8sdds.system import reading, xml_text
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.files import creating_folder, require_new

DESCRIPTION = "security.json"
GOVERNANCE_FOLDER = "governance"
AUTHORITY_KEYS = "authority-keys"
MAX_BYTES = 1024 * 1024
"""Largest file of credentials."""
NEW_FOLDER = "name a folder that does not exist: keys are never replaced"
"""The remedy if the folder exists."""
EXPIRES_SOON = timedelta(days=14)
"""Certificates that expire within this time are reported with a warning."""

_UNREADABLE = (
    OSError,
    reading.UnreadableError,
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
)
"""What reading and decoding of a damaged file of credentials raises."""


@dataclass(frozen=True)
class CredentialCheck:
    """The result of one check."""

    subject: str
    """File within the folder."""
    ok: bool
    message: str


def init(
    folder: Path, participants: list[Participant], days: int, kind: authority.KeyKind, domains: range
) -> dict[str, Any]:
    """Create a folder with two authorities, the participants' credentials and the governance document of each level.

    The folder is created atomically. Returns the same facts as `show`.
    """
    require_new(folder, NEW_FOLDER)
    credentials = Credentials.valid_for(timedelta(days=days), domains, kind)
    with explained(f"cannot write {folder}", "name another folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with creating_folder(folder) as unfinished:
            unfinished.mkdir(mode=0o700)
            _write(unfinished, credentials, participants)
    return show(folder)


def _write(folder: Path, credentials: Credentials, participants: list[Participant]) -> None:
    for name, ca in (
        (IDENTITY_CA, credentials.identity_ca),
        (PERMISSIONS_CA, credentials.permissions_ca),
    ):
        _store(folder / name, ca.certificate_pem)
        _store(folder / AUTHORITY_KEYS / name.replace("pem", "key"), ca.key_pem, 0o600)
    for participant in participants:
        name = participant.name
        identity = credentials.enroll(participant, (OWN_TOPICS, RTI_TOPICS))
        _store(folder / name / CERTIFICATE, identity.certificate_pem)
        _store(folder / name / PERMISSIONS, credentials.permissions(participant))
        _store(folder / name / KEY, identity.key_pem, 0o600)
    for level in levels.names():
        protection = levels.load(level)
        if protection is not None:
            _store(folder / GOVERNANCE_FOLDER / f"{level}.p7s", credentials.governance(protection))
    text = json.dumps(credentials.facts(), indent=1) + "\n"
    _store(folder / DESCRIPTION, text.encode())


def _store(path: Path, content: bytes, mode: int = 0o666) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def show(folder: Path) -> dict[str, Any]:
    """Describe a folder created by `init`: validity, fingerprints, permissions and levels, but no keys."""
    facts = _facts(folder)
    participants = {}
    for name in sorted(facts["participants"]):
        certificate = _load_certificate(folder / name / CERTIFICATE)
        permissions = _signed_xml(folder / name / PERMISSIONS)
        participants[name] = {
            "subject": authority.subject_of(certificate),
            "certificate_sha256": authority.fingerprint(certificate),
            "not_after": certificate.not_valid_after_utc.isoformat(),
            "publish": _topics(permissions, "publish"),
            "subscribe": _topics(permissions, "subscribe"),
        }
    governances = sorted(path.stem for path in (folder / GOVERNANCE_FOLDER).glob("*.p7s"))
    return {**facts, "participants": participants, "levels": governances}


_AUTHORITIES = ("identity_ca_sha256", "permissions_ca_sha256")


def _facts(folder: Path) -> dict[str, Any]:
    """Return the description of a folder of credentials, whose participants have names that `init` gives."""
    try:
        facts = reading.json_file(folder / DESCRIPTION)
        participants: dict[str, Any] = facts["participants"]
        for name, _ in participants.items():
            Participant.named(name)
        if not all(isinstance(facts[key], str) for key in _AUTHORITIES):
            raise ValueError(f"{' and '.join(_AUTHORITIES)} are not texts")
        return facts
    except (*_UNREADABLE, LookupError, AttributeError) as error:
        raise InputError(
            f"{folder} is not a folder of credentials: cannot read {DESCRIPTION}: {_reason(error)}",
            f"create one: k8sdds security init {folder}",
        ) from error


def check(folder: Path, now: datetime | None = None) -> list[CredentialCheck]:
    """Verify every certificate, key and signed document in a folder as a middleware would."""
    now = now or datetime.now(UTC)
    facts = show(folder)
    if not shutil.which("openssl"):
        raise PrerequisiteError("the program openssl is not installed", "run: k8sdds setup")
    checks = []
    authorities = {}
    for name in (IDENTITY_CA, PERMISSIONS_CA):
        authorities[name] = _load_certificate(folder / name)
        checks.append(_check_validity(name, authorities[name], now))
        checks.append(_check_key(folder / AUTHORITY_KEYS / name.replace("pem", "key"), authorities[name]))
    for name in facts["participants"]:
        checks += _check_participant(folder, name, authorities[IDENTITY_CA], now)
    for level in facts["levels"]:
        subject = f"{GOVERNANCE_FOLDER}/{level}.p7s"
        checks.append(_check_signature(folder / subject, folder / PERMISSIONS_CA, subject))
    return checks


def _check_participant(
    folder: Path, name: str, identity_ca: x509.Certificate, now: datetime
) -> list[CredentialCheck]:
    certificate = _load_certificate(folder / name / CERTIFICATE)
    subject = f"{name}/{CERTIFICATE}"
    try:
        certificate.verify_directly_issued_by(identity_ca)
        issued = CredentialCheck(subject, True, "issued by the identity CA")
    except (ValueError, TypeError, InvalidSignature):
        issued = CredentialCheck(subject, False, f"not issued by {IDENTITY_CA}")
    permissions = folder / name / PERMISSIONS
    return [
        issued,
        _check_validity(subject, certificate, now),
        _check_key(folder / name / KEY, certificate),
        _check_signature(permissions, folder / PERMISSIONS_CA, f"{name}/{PERMISSIONS}"),
        _check_grant(f"{name}/{PERMISSIONS}", _signed_xml(permissions), certificate, now),
    ]


def _check_grant(
    subject: str, xml: ElementTree.Element, certificate: x509.Certificate, now: datetime
) -> CredentialCheck:
    grantee, not_after = _element(xml, "subject_name"), _element(xml, "not_after")
    if not_after <= now.strftime("%Y-%m-%dT%H:%M:%S"):
        return CredentialCheck(subject, False, f"expired on {not_after}")
    if grantee != authority.subject_of(certificate):
        return CredentialCheck(subject, False, f"granted to {grantee}, not to the subject of the certificate")
    return CredentialCheck(subject, True, f"granted to {grantee}")


def _check_validity(subject: str, certificate: x509.Certificate, now: datetime) -> CredentialCheck:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return CredentialCheck(subject, False, f"not valid before {start:%Y-%m-%d %H:%M} UTC")
    if now > end:
        return CredentialCheck(subject, False, f"expired on {end:%Y-%m-%d %H:%M} UTC")
    soon = f", in {(end - now).days} days: create new credentials soon" if end - now < EXPIRES_SOON else ""
    return CredentialCheck(subject, True, f"valid until {end:%Y-%m-%d %H:%M} UTC{soon}")


def _check_key(path: Path, certificate: x509.Certificate) -> CredentialCheck:
    subject = f"{path.parent.name}/{path.name}"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = serialization.load_pem_private_key(reading.data(path, MAX_BYTES), password=None)
    except _UNREADABLE as error:
        return CredentialCheck(subject, False, f"cannot be read: {_reason(error)}")
    if mode & 0o077:
        return CredentialCheck(subject, False, f"mode {mode:04o}: other users can read it; chmod 600 {path}")
    if key.public_key() != certificate.public_key():
        return CredentialCheck(subject, False, "does not belong to its certificate")
    return CredentialCheck(subject, True, f"mode {mode:04o}, belongs to its certificate")


def _check_signature(document: Path, ca: Path, subject: str) -> CredentialCheck:
    """Verify a signature with OpenSSL, which the middlewares also use."""
    argv = ["openssl", "smime", "-verify", "-text", "-no-CApath", "-in", str(document), "-CAfile", str(ca)]
    ok = subprocess.run(argv, capture_output=True, timeout=20).returncode == 0
    message = "signed by the permissions CA" if ok else f"not signed by {ca.name}, or modified after signing"
    return CredentialCheck(subject, ok, message)


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(reading.data(path, MAX_BYTES))
        # cryptography decodes these parts when they are first used.
        authority.subject_of(certificate)
        certificate.public_key()
        _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return certificate
    except _UNREADABLE as error:
        raise InputError(
            f"{path} is not a certificate: {_reason(error)}", "create new credentials"
        ) from error


def _reason(error: Exception) -> str:
    """Return why a file cannot be read, in one line and without the path."""
    text = error.strerror if isinstance(error, OSError) else str(error) or type(error).__name__
    return reading.one_line(text or "", 200)


def _signed_xml(path: Path) -> ElementTree.Element:
    """Return the root of the XML document in an S/MIME document."""
    try:
        text = reading.text(path, MAX_BYTES)
        document = text[text.index("<?xml") : text.index("</dds>") + len("</dds>")]
    except _UNREADABLE as error:
        raise InputError(
            f"{path} is not a signed document: {_reason(error)}", "create new credentials"
        ) from error
    # The declared encoding is that of the document when it was signed; here it is text.
    return xml_text.parse(document.encode(), str(path), "create new credentials")


def _element(document: ElementTree.Element, name: str) -> str:
    element = document.find(f".//{name}")
    return reading.one_line(element.text or "", 1000) if element is not None else ""


def _topics(document: ElementTree.Element, verb: str) -> list[str]:
    topics = document.findall(f".//{verb}/topics/topic")
    return [reading.one_line(topic.text or "", 1000) for topic in topics]
