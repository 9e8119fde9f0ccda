"""The credentials of a campaign: made in memory, handed to participants, never written to a disk.

What a run folder keeps are fingerprints and the moments between which they hold.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant
from k8sdds.security import authority, documents
from k8sdds.security import permissions as rights
from k8sdds.security.authority import Identity, Validity
from k8sdds.security.file_names import CERTIFICATE, GOVERNANCE, IDENTITY_CA, KEY, PERMISSIONS, PERMISSIONS_CA

SKEW = timedelta(hours=1)
"""Credentials hold from that long ago, because the clocks of nodes differ."""


class Credentials:
    """Two authorities, and what they gave to participants so far."""

    def __init__(self, validity: Validity, domains: range, kind: authority.KeyKind = "ec") -> None:
        self.validity = validity
        self._domains = domains
        self._kind = kind
        self.identity_ca = authority.new_authority("Identity CA", validity, kind)
        self.permissions_ca = authority.new_authority("Permissions CA", validity, kind)
        self.identities: dict[Participant, Identity] = {}
        self._permissions: dict[Participant, bytes] = {}
        self._governance: dict[Protection, bytes] = {}

    @classmethod
    def lasting(cls, duration: timedelta, domains: range, kind: authority.KeyKind = "ec") -> Credentials:
        """Credentials that hold from now on for so long."""
        now = datetime.now(UTC).replace(microsecond=0)
        return cls(Validity(now - SKEW, now + duration), domains, kind)

    def enrol(
        self, participant: Participant, sets: tuple[tuple[str, str, str], ...] = (rights.OURS,)
    ) -> Identity:
        """Return the identity of a participant; create it, with its permissions, on the first call."""
        if participant not in self.identities:
            made = authority.new_participant(self.identity_ca, participant.name, self.validity, self._kind)
            grant = rights.grant(participant, made.subject, sets)
            document = documents.permissions(
                grant, self._domains, self.validity.not_before, self.validity.not_after
            )
            self._permissions[participant] = authority.sign(self.permissions_ca, document)
            self.identities[participant] = made
        return self.identities[participant]

    def governance(self, protection: Protection) -> bytes:
        """The signed governance document of a protection."""
        if protection not in self._governance:
            document = documents.governance(protection, self._domains)
            self._governance[protection] = authority.sign(self.permissions_ca, document)
        return self._governance[protection]

    def permissions(self, participant: Participant) -> bytes:
        """The signed permissions of an enrolled participant."""
        return self._permissions[participant]

    def files(self, participant: Participant, protection: Protection) -> dict[str, bytes]:
        """All that one participant needs, by file name. The private key is among them."""
        identity = self.enrol(participant)
        return {
            IDENTITY_CA: self.identity_ca.certificate_pem,
            PERMISSIONS_CA: self.permissions_ca.certificate_pem,
            CERTIFICATE: identity.certificate_pem,
            KEY: identity.key_pem,
            PERMISSIONS: self.permissions(participant),
            GOVERNANCE: self.governance(protection),
        }

    def facts(self) -> dict[str, Any]:
        """What may be known of them: subjects, fingerprints, validity. For run folders."""
        return {
            "not_before": self.validity.not_before.isoformat(),
            "not_after": self.validity.not_after.isoformat(),
            "identity_ca_sha256": authority.fingerprint(self.identity_ca.certificate),
            "permissions_ca_sha256": authority.fingerprint(self.permissions_ca.certificate),
            "participants": {
                participant.name: {
                    "subject": one.subject,
                    "certificate_sha256": authority.fingerprint(one.certificate),
                }
                for participant, one in self.identities.items()
            },
        }


def governance_facts(protection: Protection | None, domains: range) -> dict[str, Any]:
    """A protection's parts and the digest of its document before it is signed."""
    if protection is None:
        return {"dds_security": False}
    document = documents.governance(protection, domains).encode()
    parts = protection.model_dump(mode="json")
    return {"dds_security": True, **parts, "governance_sha256": hashlib.sha256(document).hexdigest()}
