"""Decide from the results so far which trials a campaign measures next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from k8sdds.model.trial import Trial
from k8sdds.results.record import TrialRecord


class Planner(Protocol):
    """Adds trials to a running campaign.

    A planner keeps no state: after an interruption, the attempts in the run folder lead to the same decision. An added
    trial needs the same image, volumes and memory of pods as the planned ones, for which a cluster prepares them.
    """

    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        """Return the trials to measure next; empty: the campaign ends.

        Called when no planned trial needs another attempt. Trials that have used up their attempts stay without a valid
        one.

        Args:
            attempts: All attempts of the campaign, in the order in which they ended.
        """

    def status(self, attempts: Sequence[TrialRecord]) -> str:
        """Return how far the campaign is, in one line for the user; empty: nothing to show."""
        return ""
