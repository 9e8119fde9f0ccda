"""Plan the probes of capacity searches (`analysis.capacity`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel
from typing_extensions import override

from k8sdds import workloads
from k8sdds.analysis.capacity import UNITS, Probe, Search
from k8sdds.campaign.expansion import Expansion
from k8sdds.campaign.trial_loop import Planner
from k8sdds.model.axis import Axis, axes
from k8sdds.model.options import SEARCHES, search_options
from k8sdds.model.trial import AXES, Cell, Trial
from k8sdds.results.record import TrialRecord

_NAMED = ("network", "test", "middleware_config_sha256", "schedule_sha256")
"""Settings that the name of a search has elsewhere, or that only mean something to programs."""


class CapacitySearch(Planner):
    """The planner of all capacity searches of an experiment.

    Each search adds at most one probe to a round (or one per share of `latency_at_percent`). All probes of a round are
    one repetition, so that networks are compared under the same conditions.
    """

    def __init__(self, expansion: Expansion) -> None:
        self._expansion = expansion

    @override
    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        number = 1 + max((record.repetition or 0 for record in attempts), default=0)
        return [
            self._expansion.trial(_probe(cell, value), number, str(attempts[0].testbed), duration_s)
            for cell, probes in self._probes(attempts)
            for value, duration_s in self._search(cell).next(probes)
        ]

    @override
    def status(self, attempts: Sequence[TrialRecord]) -> str:
        known = []
        for cell, probes in self._probes(attempts):
            search = self._search(cell)
            bounds = search.bounds(search.goals[0], probes)
            low, high = ("?" if value is None else f"{value:,.0f}" for value in (bounds.low, bounds.high))
            known.append(f"{self._name(cell)} {low} – {high} {UNITS[search.searched]}")
        return f"capacity so far: {'; '.join(known)}" if known else ""

    def _name(self, cell: Cell) -> str:
        """Return the network of a search, with the settings and options of its test in which it differs from others."""
        others = self._expansion.searches
        alike = [search_options(other) for other in others if other.test == cell.test]
        differ = [
            *([cell.test] if len(alike) < len(others) else []),
            *_differing({name: axis for name, axis in AXES.items() if name not in _NAMED}, cell, others),
            *_differing(axes(SEARCHES[cell.test]), search_options(cell), alike),
        ]
        return f"{cell.network_label} ({', '.join(differ)})" if differ else cell.network_label

    def _search(self, cell: Cell) -> Search:
        experiment = self._expansion.experiment
        return Search.of(search_options(cell), experiment.duration_s, experiment.repetitions, cell.rate)

    def _probes(self, attempts: Sequence[TrialRecord]) -> list[tuple[Cell, list[Probe]]]:
        """Return the cells whose trials all have a valid attempt, with their probes; others are searched no further."""
        searches = []
        for cell in self._expansion.searches:
            searched = search_options(cell).searched
            ids = {
                _probe(cell, value).cell_id
                for value in {getattr(record, searched) or 0 for record in attempts}
            }
            own = [record for record in attempts if record.cell_id in ids]
            valid = {record.trial_id: Probe.of(vars(record), searched) for record in own if record.valid}
            if valid and all(record.trial_id in valid for record in own):
                searches.append((cell, list(valid.values())))
        return searches


def _differing(settings: Mapping[str, Axis], own: BaseModel, others: Sequence[BaseModel]) -> list[str]:
    """Describe the settings in which a cell or its options differ from others, the defaults included."""
    return [
        axis.phrase(value) or axis.unset or f"{name} {'default' if value is None else value}"
        for name, axis in settings.items()
        for value in [getattr(own, name)]
        if len({str(getattr(other, name)) for other in others}) > 1
    ]


def _probe(cell: Cell, value: float) -> Cell:
    return workloads.find(cell.test).probe(cell, value)
