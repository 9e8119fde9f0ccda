"""The fleet capacity workload: trials of a search for the largest fleet whose members all match in time."""

from __future__ import annotations

from typing_extensions import override

from k8sdds.model.options import FleetCapacityOptions
from k8sdds.model.trial import Cell
from k8sdds.workloads.discovery import Discovery, length_s


class FleetCapacity(Discovery):
    """A trial of a search (`analysis.capacity`): a discovery test with the number of members of the probe."""

    name = "fleet-capacity"
    timed_by = ("start_s", "change", "matched_s", "steady_s")
    mode = ""  # reports of programs name the discovery test

    @override
    def unsupported(self, cell: Cell) -> str | None:
        return super().unsupported(self.largest_cell(cell))

    @override
    def least_s(self, cell: Cell) -> float:
        options = FleetCapacityOptions(**cell.test_options)
        return length_s(options, max(options.matched_s) + 1)

    @override
    def largest_cell(self, cell: Cell) -> Cell:
        return self.probe(cell, FleetCapacityOptions(**cell.test_options).max_members)

    @override
    def probe(self, cell: Cell, value: float) -> Cell:
        options = FleetCapacityOptions(**cell.test_options).model_copy(update={"members": int(value)})
        return cell.model_copy(
            update={"test_options": options.model_dump(mode="json", exclude_defaults=True)}
        )
