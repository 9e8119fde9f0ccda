"""Create the credentials of a campaign in memory. A run folder keeps only fingerprints and validity."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant
from k8sdds.security import (
    CERTIFICATE,
    GOVERNANCE,
    IDENTITY_CA,
    KEY,
    PERMISSIONS,
    PERMISSIONS_CA,
    authority,
    documents,
)
from k8sdds.security.authority import Identity, Validity
from k8sdds.security.documents import OWN_TOPICS, Grant, Topics

CLOCK_SKEW = timedelta(hours=1)
"""Credentials are valid from this long before their creation, because the clocks of nodes differ."""
LIFETIME = timedelta(days=2)
"""Validity of a campaign's credentials: short, because nothing uses them after the campaign."""


class Credentials:
    """Two certificate authorities, and the identities, permissions and governance documents that they issued."""

    def __init__(self, validity: Validity, domains: range, kind: authority.KeyKind = "ec") -> None:
        """Create the authorities."""
        self.validity = validity
        self._domains = domains
        self._kind = kind
        self.identity_ca = authority.new_authority("Identity CA", validity, kind)
        self.permissions_ca = authority.new_authority("Permissions CA", validity, kind)
        self.identities: dict[Participant, Identity] = {}
        self._permissions: dict[Participant, bytes] = {}
        self._governance: dict[Protection, bytes] = {}

    @classmethod
    def valid_for(cls, duration: timedelta, domains: range, kind: authority.KeyKind = "ec") -> Credentials:
        """Create credentials that are valid for the given duration, starting now."""
        now = datetime.now(UTC).replace(microsecond=0)
        return cls(Validity(now - CLOCK_SKEW, now + duration), domains, kind)

    def enroll(self, participant: Participant, programs: Sequence[Topics] = (OWN_TOPICS,)) -> Identity:
        """Return the identity of a participant. The first call creates it, together with its permissions.

        `programs` are the topics of the perftest programs that the participant may run.
        """
        if participant not in self.identities:
            identity = authority.new_participant(
                self.identity_ca, participant.name, self.validity, self._kind
            )
            document = documents.permissions(
                Grant.perftest(participant, identity.subject, programs),
                self._domains,
                self.validity.not_before,
                self.validity.not_after,
            )
            self._permissions[participant] = authority.sign(self.permissions_ca, document)
            self.identities[participant] = identity
        return self.identities[participant]

    def governance(self, protection: Protection) -> bytes:
        """Return the signed governance document of a protection."""
        if protection not in self._governance:
            document = documents.governance(protection, self._domains)
            self._governance[protection] = authority.sign(self.permissions_ca, document)
        return self._governance[protection]

    def permissions(self, participant: Participant) -> bytes:
        """Return the signed permissions document of an enrolled participant."""
        return self._permissions[participant]

    def files(self, participant: Participant, protection: Protection) -> dict[str, bytes]:
        """Return the files that a participant needs, by file name. They include its private key."""
        identity = self.enroll(participant)
        return {
            IDENTITY_CA: self.identity_ca.certificate_pem,
            PERMISSIONS_CA: self.permissions_ca.certificate_pem,
            CERTIFICATE: identity.certificate_pem,
            KEY: identity.key_pem,
            PERMISSIONS: self.permissions(participant),
            GOVERNANCE: self.governance(protection),
        }

    def facts(self) -> dict[str, Any]:
        """Return the facts that a run folder records: subjects, fingerprints and validity, without secrets."""
        return {
            "not_before": self.validity.not_before.isoformat(),
            "not_after": self.validity.not_after.isoformat(),
            "identity_ca_sha256": authority.fingerprint(self.identity_ca.certificate),
            "permissions_ca_sha256": authority.fingerprint(self.permissions_ca.certificate),
            "participants": {
                participant.name: {
                    "subject": identity.subject,
                    "certificate_sha256": authority.fingerprint(identity.certificate),
                }
                for participant, identity in self.identities.items()
            },
        }


class Keyring:
    """The credentials of all participants in a campaign, which are renewed before they expire."""

    def __init__(
        self, participants: Sequence[Participant], domains: range, lifetime: timedelta = LIFETIME
    ) -> None:
        """Create the credentials, with which the participants can use the DDS domains."""
        self._participants = participants
        self._domains = domains
        self._lifetime = lifetime
        self._credentials = self._create()

    def _create(self) -> Credentials:
        credentials = Credentials.valid_for(self._lifetime, self._domains)
        for participant in self._participants:
            credentials.enroll(participant)
        return credentials

    def facts(self) -> dict[str, Any]:
        """Return fingerprints and validity of the current credentials."""
        return self._credentials.facts()

    def files(self, participant: Participant, protection: Protection) -> dict[str, bytes]:
        """Return the files that a participant needs for a protection, by file name."""
        return self._credentials.files(participant, protection)

    def renew_for(self, seconds: float) -> bool:
        """Replace the credentials if they expire within this time; return whether they were replaced."""
        now = datetime.now(UTC)
        if self._credentials.validity.covers(now, now + timedelta(seconds=seconds)):
            return False
        self._credentials = self._create()
        return True


def governance_facts(protection: Protection | None, domains: range) -> dict[str, Any]:
    """Return the settings of a protection, and the SHA-256 of its governance document before signing."""
    if protection is None:
        return {"dds_security": False}
    document = documents.governance(protection, domains).encode()
    parts = protection.model_dump(mode="json")
    return {"dds_security": True, **parts, "governance_sha256": hashlib.sha256(document).hexdigest()}
