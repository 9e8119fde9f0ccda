"""Define the errors that users see, one class per exit code, each with a remedy."""

from __future__ import annotations

from dataclasses import dataclass


class K8sddsError(Exception):
    """Base of all errors that users see: what failed, and how to fix it."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message


class InputError(K8sddsError):
    """A file, option or argument of the user is wrong."""

    exit_code = 2


class PrerequisiteError(K8sddsError):
    """This machine or cluster does not meet a prerequisite, or has run out of a resource."""

    exit_code = 3


class InvalidTrials(K8sddsError):
    """The campaign has ended, but some trials have no valid attempt."""

    exit_code = 4


class Aborted(K8sddsError):
    """The campaign was aborted; its results so far are kept."""

    exit_code = 5


class PartFailed(Aborted):
    """A process, pod or connection that k8sdds started has failed, for example because it was killed.

    A campaign replaces the part and repeats the trial. It passes the error on only if this does not help.
    """


class NetworkChanged(PartFailed):
    """The network was changed from outside of the campaign. Repeating the trial does not help."""


class ConditionMet(K8sddsError):
    """A `--fail-if` condition of the user is met."""

    exit_code = 6


class RequirementsNotMet(K8sddsError):
    """No configuration meets all requirements of an application, or a cluster does not enforce its policies."""

    exit_code = 7


class RequirementsUndecided(K8sddsError):
    """It is undecided whether a configuration meets all requirements of an application."""

    exit_code = 8


class Interrupted(K8sddsError):
    """The user pressed Ctrl-C; the results so far are kept."""

    exit_code = 130


INTERNAL_ERROR = 70
"""Exit code of a defect in k8sdds itself (EX_SOFTWARE)."""

EXIT_CODES = {
    0: "success",
    InputError.exit_code: "wrong input: a file, option or argument",
    PrerequisiteError.exit_code: "a prerequisite is not met, or a resource has run out",
    InvalidTrials.exit_code: "trials without a valid attempt remain",
    Aborted.exit_code: "aborted; the results so far are kept",
    ConditionMet.exit_code: "the condition of --fail-if is met",
    RequirementsNotMet.exit_code: "no configuration meets all requirements, or policies are not enforced",
    RequirementsUndecided.exit_code: "undecided whether one meets all requirements",
    INTERNAL_ERROR: "internal error: a defect of k8sdds",
    Interrupted.exit_code: "interrupted (Ctrl-C)",
}
"""What each exit code means."""


@dataclass(frozen=True)
class Problem:
    """A finding of a check that prevents a run."""

    what: str
    remedy: str = ""
    input: bool = False
    """True if the experiment is wrong; False if this machine or cluster does not meet a prerequisite."""

    def __str__(self) -> str:
        return f"{self.what}\n  → {self.remedy}" if self.remedy else self.what
