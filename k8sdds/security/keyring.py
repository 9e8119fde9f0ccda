"""Keep the credentials of a campaign, and renew them before they expire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant
from k8sdds.security.credentials import Credentials

LIFETIME = timedelta(days=2)
"""Validity of a campaign's credentials: short, because nothing uses them after the campaign."""


class Keyring:
    """The credentials of all participants in a campaign."""

    def __init__(
        self,
        participants: Sequence[Participant],
        domains: range,
        lifetime: timedelta = LIFETIME,
    ) -> None:
        """Create the credentials.

        Args:
            participants: All participants of the campaign.
            domains: DDS domains in which they may participate.
            lifetime: Validity of the credentials.
        """
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
