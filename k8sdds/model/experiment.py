"""Define the format of experiment files: one or more sweeps over the settings to measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, create_model, model_validator

from k8sdds.model.axis import keys_of, lists_of
from k8sdds.model.ip_families import IpFamilies
from k8sdds.model.link_choice import LinkChoice, LinkChoices
from k8sdds.model.settings import Layout, Number, Placement
from k8sdds.model.trial import AXES, MAX_LOSS_PERCENT, OF_EACH_FLOW, Cell
from k8sdds.system.strict import MAX_LABEL, Name, Placed, Remarks, Strict, Title, mistake

MAX_CELLS, MAX_TRIALS = 10_000, 100_000
"""Most combinations of the lists of an experiment, and most trials. Each trial takes seconds."""


LISTS = lists_of(Cell)
"""The keys of a sweep whose lists are combined."""

if TYPE_CHECKING:

    class _Keys(Placed):
        def __getattr__(self, name: str) -> Any: ...

else:
    _Keys = create_model("_Keys", __base__=Placed, **keys_of(Cell))


class Sweep(_Keys):
    """All combinations of the listed values. A single value needs no list brackets."""

    capture: bool = Field(default=False, description=Cell.model_fields["capture"].description)

    @model_validator(mode="after")
    def _sizes_and_times_are_stated_once(self) -> Sweep:
        of_graph = [
            name for name, axis in AXES.items() if axis.graph == "stated" and name not in OF_EACH_FLOW
        ]
        for key, what, names in (
            ("schedule", "sizes and times", ["payload_bytes", "rate", "rate_profile"]),
            ("graph", "what is sent, and by which participants", of_graph),
        ):
            for name in names if any(getattr(self, key)) else ():
                axis = AXES[name]
                usual = axis.default if axis.sweep_default is None else axis.sweep_default
                if getattr(self, name) != [usual]:
                    raise mistake(f"a {key} states {what}: leave out {name}", name)
        return self

    @model_validator(mode="after")
    def _limits_have_an_effect(self) -> Sweep:
        if any(self.flow_bytes) and "asynchronous" not in self.publish_mode:
            raise mistake("has no effect without `publish_mode: asynchronous`", "flow_bytes")
        if self.flow_period_ms != AXES["flow_period_ms"].default and not any(self.flow_bytes):
            raise mistake("has no effect without `flow_bytes`", "flow_period_ms")
        return self


class Experiment(Strict):
    """An experiment file."""

    page: ClassVar[str] = "experiments"

    name: Name = Field(description="name of the experiment")
    title: Title = Field(default="", description="the question that the experiment answers")
    description: Remarks = Field(default="", description="remarks")
    paper: Title = Field(
        default="", description="figure or table of the study that the experiment reproduces"
    )
    baseline: str = Field(
        default="host",
        max_length=MAX_LABEL,
        description="label of the network that overheads are relative to",
    )
    repetitions: Annotated[int, Number] = Field(
        default=3, ge=1, le=1000, description="each repetition measures all cells once, in random order"
    )
    precision_percent: Annotated[float | None, Number] = Field(
        default=None,
        gt=0,
        le=100,
        description="add repetitions until the interval of every overhead of a test's main metric reaches at most this"
        " many percentage points to either side (`--precision`); default: as many as `repetitions`",
    )
    max_time_min: Annotated[float | None, Number] = Field(
        default=None,
        gt=0,
        description="with `precision_percent`: add no repetition that would end after so many minutes of measuring"
        " (`--max-time`)",
    )
    duration_s: Annotated[float, Number] = Field(
        default=3, gt=0, le=86400, description="length of the measured interval of a trial, in seconds"
    )
    warmup_s: Annotated[float, Number] = Field(
        default=0.5,
        ge=0,
        le=3600,
        description="length of the warm-up before the measured interval, in seconds",
    )
    repeat_disturbed: Annotated[int, Number] = Field(
        default=0,
        ge=0,
        le=10,
        description="repeat a valid trial up to so many times if other processes or the hypervisor took more than 10 %"
        " of a core meanwhile; the last valid attempt counts, whatever it measured",
    )
    max_loss_percent: Annotated[float, Number] = Field(
        default=MAX_LOSS_PERCENT,
        ge=0,
        le=100,
        description="a best-effort trial in which a subscriber loses a larger share of the samples gets a warning; 100:"
        " no limit. In a reliable trial, no sample may be lost; with 100, any loss is a result over links with `loss`,"
        " `outages` or other impairments",
    )
    layout: Layout = Field(default="auto", description=AXES["layout"].description)
    ip_families: IpFamilies | None = Field(default=None, description=AXES["ip_families"].description)
    link: LinkChoices = Field(
        default=[LinkChoice()], description=AXES["link"].description, json_schema_extra={"default": {}}
    )
    placement: Placement = Field(default="spread", description=AXES["placement"].description)
    profile: bool = Field(
        default=False,
        description="after all repetitions, run the first cell of each network and test once more with `perf`, and"
        " divide its CPU time by component; these trials never enter statistics (`--profile`)",
    )
    sweeps: list[Sweep] = Field(min_length=1, description="combinations to measure")

    @model_validator(mode="after")
    def _can_be_measured(self) -> Experiment:
        if self.max_time_min is not None and self.precision_percent is None:
            raise mistake("has no effect without precision_percent", "max_time_min")
        cells = 0
        for index, sweep in enumerate(self.sweeps):
            cells += math.prod(len(getattr(sweep, name)) for name in LISTS) * sum(
                choice.count for choice in sweep.link or self.link
            )
            if cells > MAX_CELLS:
                raise mistake(f"more than {MAX_CELLS:,} combinations: split the experiment", "sweeps", index)
        if cells * self.repetitions > MAX_TRIALS:
            raise mistake(f"more than {MAX_TRIALS:,} trials: split the experiment", "repetitions")
        return self

    def with_schedules(self, place: Callable[[str], str]) -> Self:
        """Return the experiment with another place of each file with a recorded schedule."""
        sweeps = [
            sweep.model_copy(update={"schedule": [file and place(file) for file in sweep.schedule]})
            for sweep in self.sweeps
        ]
        return self.model_copy(update={"sweeps": sweeps})

    @property
    def links(self) -> Iterator[LinkChoice]:
        """The links of all sweeps."""
        for choices in (self.link, *(sweep.link or () for sweep in self.sweeps)):
            yield from choices

    def with_links(self, change: Callable[[LinkChoice], LinkChoice]) -> Self:
        """Return the experiment with each of its links changed."""
        sweeps = [
            sweep.model_copy(update={"link": [*map(change, sweep.link)]}) if sweep.link else sweep
            for sweep in self.sweeps
        ]
        return self.model_copy(update={"link": [*map(change, self.link)], "sweeps": sweeps})
