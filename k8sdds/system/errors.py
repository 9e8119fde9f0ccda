"""What can go wrong, one class per exit code, each with its remedy.

Exit codes: 0 success; 2 wrong input; 3 this machine or cluster lacks something; 4 invalid trials
remain; 5 aborted; 6 a `--fail-if` is met; 130 interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass


class K8sddsError(Exception):
    """Base of all errors that a user sees: what is wrong, and what to do about it."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message


class InputError(K8sddsError):
    """The user's file, option or argument is wrong."""

    exit_code = 2


class PrerequisiteError(K8sddsError):
    """This machine or cluster lacks something that is needed."""

    exit_code = 3


class InvalidTrials(K8sddsError):
    """The campaign ended, but some trials have no valid attempt."""

    exit_code = 4


class Aborted(K8sddsError):
    """The campaign was ended before its time; what was measured is kept."""

    exit_code = 5


class ConditionMet(K8sddsError):
    """What the user asked to fail on (`--fail-if`) is the case."""

    exit_code = 6


class Interrupted(K8sddsError):
    """The user pressed Ctrl-C; what was measured is kept."""

    exit_code = 130


@dataclass(frozen=True)
class Problem:
    """One thing that a check found, which prevents a run."""

    what: str
    remedy: str = ""
    input: bool = False
    """True where the experiment asks for the impossible, False where the machine lacks something."""

    def __str__(self) -> str:
        return f"{self.what}\n  → {self.remedy}" if self.remedy else self.what
