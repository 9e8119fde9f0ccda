"""A campaign's credentials, renewed before they expire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant
from k8sdds.security.credentials import Credentials

LASTING = timedelta(days=2)
"""How long a campaign's credentials hold: short, since they are of no use after it."""


class Keyring:
    """Credentials of all participants of a campaign."""

    def __init__(
        self,
        participants: Sequence[Participant],
        domains: range,
        renewed: Callable[[dict[str, Any]], None],
        lasting: timedelta = LASTING,
    ) -> None:
        """`renewed` is told the facts of credentials that replace expiring ones."""
        self._participants, self._domains, self._renewed, self._lasting = (
            participants,
            domains,
            renewed,
            lasting,
        )
        self._credentials = self._make()

    def _make(self) -> Credentials:
        made = Credentials.lasting(self._lasting, self._domains)
        for participant in self._participants:
            made.enrol(participant)
        return made

    def facts(self) -> dict[str, Any]:
        """Fingerprints and validity of those in use."""
        return self._credentials.facts()

    def files(self, participant: Participant, protection: Protection) -> dict[str, bytes]:
        """What a participant needs under a protection, by file name."""
        return self._credentials.files(participant, protection)

    def renew_for(self, seconds: float) -> bool:
        """Replace the credentials if they would not hold for so long from now; whether it was done."""
        now = datetime.now(UTC)
        if self._credentials.validity.covers(now, now + timedelta(seconds=seconds)):
            return False
        self._credentials = self._make()
        self._renewed(self.facts())
        return True
