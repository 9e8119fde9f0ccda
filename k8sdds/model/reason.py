"""Define why an attempt at a trial is not valid."""

from __future__ import annotations

from dataclasses import dataclass

PART_FAILED = "part-failed"
"""A part of the testbed failed during the attempt, such as a killed participant or pod."""
INTERRUPTED = "interrupted"
"""The user interrupted the attempt with Ctrl-C."""
ENVIRONMENT = "environment"
"""The attempt failed while its files could not be written."""
DAMAGED = "damaged"
"""A value of the record cannot be true: the record was damaged, or a participant reported nonsense."""
NO_SAMPLES = "no-samples"
"""No sample arrived at a participant that ended in order. If the links were to lose samples, this is a result."""
PEER_LOST, NO_MATCH = "peer-lost", "no-match"
"""A participant failed because of another one: it stopped responding, or was not discovered in time."""
DISTURBED = "disturbed"
"""Something else used the machine during the attempt. This is a warning: the attempt is valid."""

_NOT_COUNTED = {PART_FAILED, INTERRUPTED, ENVIRONMENT, "pod-lost"}  # earlier versions wrote pod-lost


@dataclass(frozen=True, order=True)
class Reason:
    """Why an attempt is not valid, or a warning about a valid one. A record has it as `code: text`."""

    code: str
    text: str

    @classmethod
    def read(cls, recorded: object) -> Reason:
        """Return the reason in a record, which earlier versions or other programs may have written."""
        code, _, text = str(recorded or "no reason recorded").partition(":")
        return cls(code, text.strip())

    @property
    def counts(self) -> bool:
        """Whether the attempt uses up one of those that a trial has; the trial did not cause the others."""
        return self.code not in _NOT_COUNTED

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"
