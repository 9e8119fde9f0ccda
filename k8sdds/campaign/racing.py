"""Plan the rounds of a search among the configurations of an application (`analysis.race`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from typing_extensions import override

from k8sdds.analysis import missing, race
from k8sdds.analysis.race import Measured
from k8sdds.analysis.requirements import BLOCK, NOT_MET, corrected_level, judge_flows, overall, trials_of
from k8sdds.analysis.selection import scores, violations
from k8sdds.campaign import applications
from k8sdds.campaign.expansion import Expansion, candidates
from k8sdds.campaign.trial_loop import Planner
from k8sdds.model.application import Application, ApplicationExperiment, Search
from k8sdds.model.trial import Trial
from k8sdds.results import tidy
from k8sdds.results.record import TrialRecord
from k8sdds.system.errors import InputError
from k8sdds.system.grouping import Row
from k8sdds.system.numbers import count

MIN_IMPROVEMENT = 0.002
"""Expected improvement of the most promising configuration, as a logarithm, below which a search ends."""


SEARCHED_SHARE = 0.2
"""Trials of a search relative to those of all configurations."""
MIN_SEARCH_TRIALS = 12
MAX_SEARCH_TRIALS = 1000
"""Limits of this number, unless the user sets one. With more trials, a round would take minutes to plan."""


def searched(application: Application, max_trials: int | None = None) -> ApplicationExperiment:
    """Return the experiment that searches among the configurations of an application.

    `max_trials`: None is a fifth of those that measure all configurations. Raises InputError if they do not suffice for
    two configurations.
    """
    least = 2 * application.cells
    if max_trials is not None and max_trials < least:
        raise InputError(
            f"{max_trials} trials do not suffice to compare two configurations of {application.name}",
            f"a configuration has {count(application.cells, 'trial')}: give at least --max-trials {least}",
        )
    whole = applications.experiment(application)
    if max_trials is None:
        trials = len(candidates(whole).cells) * application.repetitions
        usual = max(MIN_SEARCH_TRIALS, least, math.floor(SEARCHED_SHARE * trials))
        max_trials = max(1, min(trials, usual, MAX_SEARCH_TRIALS))
    return whole.model_copy(update={"search": Search(max_trials=max_trials)})


class Racing(Planner):
    """The planner of a search: each of its rounds is a repetition."""

    def __init__(self, expansion: Expansion) -> None:
        assert isinstance(expansion.experiment, ApplicationExperiment)
        assert expansion.search is not None and expansion.candidates is not None
        self._expansion = expansion
        self._application, self._search = expansion.experiment.application, expansion.search
        self._candidates = expansion.candidates

    @override
    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        done = {str(record.trial_id) for record in attempts}
        remaining = self._search.max_trials - len(done)
        number = 1 + max(record.repetition or 0 for record in attempts)
        chosen = self._chosen(attempts, number, remaining) if remaining > 0 else []
        cells = {cell.cell_id: cell for index in chosen for cell in self._candidates.measurable[index].cells}
        testbed = str(attempts[0].testbed)
        return [self._expansion.trial(cell, number, testbed) for cell in cells.values()]

    def _chosen(self, attempts: Sequence[TrialRecord], number: int, remaining: int) -> list[int]:
        known = self._candidates
        measured = self.measured(attempts)
        (leader, *others), improvement = race.next_round(known.designs, measured)
        # Its verdict requires as many repetitions as if all configurations had been measured, so the other rounds
        # leave trials for them.
        further = self._application.repetitions - len(measured[leader].scores)
        if improvement < MIN_IMPROVEMENT and further <= 0:
            return []
        spare = remaining - max(further - 1, 0) * len(self._cells_of(leader))
        target = min(race.round_target(number, self._search.max_trials), spare)
        for least in (1, 2):
            chosen = race.fill([leader, *others], self._cells_of, target, least)
            if len(chosen) > 1 and self._fit(chosen, spare):
                return chosen
        # A block with one configuration compares nothing, but the verdict about the leader needs repetitions.
        return [leader] if further > 0 and self._fit([leader], remaining) else []

    def _cells_of(self, index: int) -> Sequence[str]:
        return self._candidates.measurable[index].cell_ids

    def _fit(self, chosen: Sequence[int], remaining: int) -> bool:
        return len({cell for index in chosen for cell in self._cells_of(index)}) <= remaining

    @override
    def status(self, attempts: Sequence[TrialRecord]) -> str:
        measured = self.measured(attempts)
        known = sum(bool(each.scores) or each.failed for each in measured)
        out = sum(each.excluded or each.failed for each in measured)
        return (
            f"after {count(1 + max(record.repetition or 0 for record in attempts), 'round')},"
            f" {len({record.trial_id for record in attempts})} of at most {self._search.max_trials} trials: {known} of"
            f" {len(measured)} configurations are measured, {out} of them no further: they fail a"
            " requirement, or a trial has no valid attempt or no sample"
        )

    def measured(self, attempts: Sequence[TrialRecord]) -> list[Measured]:
        """Return the results of each configuration in the attempts."""
        trials: dict[str, list[Row]] = defaultdict(list)
        for record in attempts:
            if record.valid:
                trials[str(record.cell_id)].append(vars(record) | {BLOCK: record.repetition})
        failed = {str(row["cell_id"]) for row in tidy.without_valid(map(vars, attempts))}
        return [
            self._measured(candidate.cell_ids, trials, failed) for candidate in self._candidates.measurable
        ]

    def _measured(self, cells: Sequence[str], trials: dict[str, list[Row]], failed: set[str]) -> Measured:
        application = self._application
        by_flow = trials_of(application, cells, trials)
        # A configuration with a trial without a valid attempt is never known to meet all requirements.
        if failed.intersection(cells) or any(map(missing.without_samples, by_flow.values())):
            return Measured(failed=True)
        if not all(by_flow.values()):
            return Measured()
        # Exclusion only saves trials, so it is not corrected for the rounds: the answer judges again.
        level = corrected_level(self._search.family_error, len(self._candidates.measurable))
        verdict = overall(judge_flows(application.requirements, by_flow, level))
        return Measured(scores(application, by_flow), violations(application, by_flow), verdict == NOT_MET)
