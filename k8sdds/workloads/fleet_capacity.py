"""The fleet capacity workload: trials of a search for the largest fleet whose members all match in time."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from k8sdds.model.axis import WORKLOAD, Axis
from k8sdds.model.trial import Cell
from k8sdds.system.strict import as_list, mistake
from k8sdds.workloads.capacity import MAX_GOALS, MEMBERS, WIDTH, CapacityOptions, Width
from k8sdds.workloads.discovery import MAX_MEMBERS, Discovery, DiscoveryOptions, Members, length_s

Time = Annotated[float, Field(gt=0)]


class FleetCapacityOptions(DiscoveryOptions):
    """Options of the fleet capacity test: those of a discovery test, and what is searched."""

    members: Members = Field(default=1, description="number of members in each process of the first probe")
    matched_s: Annotated[
        list[Time],
        BeforeValidator(as_list),
        Field(min_length=1, max_length=MAX_GOALS),
        Axis(WORKLOAD, lambda _: "", column="fleet_accepted_s"),
    ] = Field(
        default=[2],
        description="accepted times until all members have matched; the largest fleet is searched for each",
    )
    max_members: Annotated[
        int, Axis(WORKLOAD, lambda v: f"at most {v} per process", column="fleet_max_members")
    ] = Field(default=50, ge=2, le=MAX_MEMBERS, description="no more members in each process are probed")
    width_percent: Width = WIDTH

    @model_validator(mode="after")
    def _is_search(self) -> FleetCapacityOptions:
        if len(set(self.matched_s)) < len(self.matched_s):
            raise mistake("a time is listed twice", "matched_s")
        if self.members > self.max_members:
            raise mistake(f"members {self.members} is above max_members {self.max_members}", "members")
        return self

    @property
    def searched(self) -> str:
        """The column with the values of the probes."""
        return MEMBERS


SearchOptions = CapacityOptions | FleetCapacityOptions


def search_options(cell: Cell) -> SearchOptions:
    """Return the options of a cell of a test that finds a capacity."""
    return options_type(cell.test)(**cell.test_options)


def options_type(test: str) -> type[SearchOptions]:
    """Return the type of the options of a test that finds a capacity."""
    return FleetCapacityOptions if test == FleetCapacity.name else CapacityOptions


class FleetCapacity(Discovery):
    """A trial of a search (`analysis.capacity`): a discovery test with the number of members of the probe."""

    name = "fleet-capacity"
    options: type[DiscoveryOptions] = FleetCapacityOptions
    finds_capacity = True
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
