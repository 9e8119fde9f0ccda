"""Define the format of a claims file: statements, the cells they are about, and which testbeds can test them.

A claim holds if all of its parts hold. A part states a *region* for a ratio, or for a level, at one or more
points; `k8sdds.claims.judge` tests it. docs/reference/claims.md documents every key.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from k8sdds.analysis.conditions import COMPARABLE
from k8sdds.model.axis import OneOrMore
from k8sdds.model.settings import NoneText
from k8sdds.model.trial import AXES, Cell
from k8sdds.results.metrics import METRICS
from k8sdds.system import units
from k8sdds.system.strict import MAX_NAME, Name, Strict, Title
from k8sdds.system.yaml_text import nearest

Scalar = str | int | float | bool | None
Is = Literal["lower", "higher", "alike", "between", "published"]

DEFAULTS = {
    name: axis.recorded_default
    for name, axis in AXES.items()
    if axis.field and not axis.field.is_required() and not axis.any_in_claims
}
"""Defaults for cell settings that a claim does not specify: reliable unicast from one publisher to one subscriber, as
fast as possible."""

SELECTABLE = ("network", *COMPARABLE)
"""Keys of a selector. `network` is compared with the network label of the trials."""

PARTS = tuple(
    f"{name}.{part}"
    for name, setting in Cell.model_fields.items()
    if name in SELECTABLE and isinstance(setting.default, Strict)
    for part in type(setting.default).model_fields
)
"""Parts of settings that a selector can name, such as `link.rate_mbit`. They can have parts themselves."""


def _selector(value: Any) -> Any:
    if isinstance(value, dict):
        for key in value:
            if ".".join(str(key).split(".")[:2]) not in (*SELECTABLE, *PARTS):
                raise ValueError(f"unknown key {key!r}{nearest(str(key), [*SELECTABLE, *PARTS])}")
        return {key: _in_its_unit(key, setting) for key, setting in value.items()}
    return value


def _in_its_unit(key: str, setting: Any) -> Any:
    """Return a value as records have it: `300m` is 0.3, and a number that is `none` is null."""
    if isinstance(setting, list):
        return [_in_its_unit(key, one) for one in setting]
    field = Cell.model_fields.get(key)
    if setting == "none" and field and NoneText in field.metadata:
        return None
    return units.number(key, setting)


Selector = Annotated[dict[str, Scalar], BeforeValidator(_selector)]
Points = Annotated[
    dict[str, Annotated[list[Scalar], OneOrMore, Field(min_length=1)]], BeforeValidator(_selector)
]


MAX_POINTS = 10_000
"""Most points of a part."""


class Pair(Strict):
    """A ratio of two cells: `of` divided by `to`."""

    of: Selector
    to: Selector


class Part(Strict):
    """One statement: at each point, the ratio `of`/`to` or the level of `of` lies in a region."""

    quantity: str
    of: Selector
    to: Selector | None = Field(default=None, description="omit it to state the level of `of`")
    to_quantity: str | None = Field(
        default=None, description="the quantity of `to`, if it differs: two quantities of the same cells"
    )
    against: Pair | None = Field(default=None, description="a second ratio; the first is divided by it")
    cells: Selector = Field(default_factory=dict, description="settings that all of these cells share")
    at: Points = Field(default_factory=dict, description="the points: every combination of these values")
    is_: Is = Field(alias="is")
    by_percent: float = Field(default=0, ge=0, description="minimum difference for `lower` and `higher`")
    within_percent: float | None = Field(default=None, gt=0, description="tolerance, in percent of the ratio")
    between_percent: tuple[float, float] | None = Field(
        default=None, description="lower and upper limit of of/to - 1"
    )
    published: Annotated[list[float], OneOrMore] | None = Field(
        default=None, description="the published numbers, in the order of the points"
    )
    published_as: Literal["overhead", "change", "ratio", "level"] = "overhead"
    over: Literal["all", "any", "mean"] = Field(
        default="all", description="whether all points, any of them, or their mean must lie in the region"
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Part:
        if math.prod(len(values) for values in self.at.values()) > MAX_POINTS:
            raise ValueError(f"`at` has more than {MAX_POINTS:,} combinations")
        for quantity in filter(None, (self.quantity, self.to_quantity)):
            if quantity not in METRICS:
                raise ValueError(f"{quantity!r} is not a metric{nearest(quantity, list(METRICS))}")
        if self.to_quantity and (self.to is None or self.against):
            raise ValueError("to_quantity needs `to`, and excludes `against`")
        if (self.to is None) != (self.published_as == "level" and self.published is not None):
            raise ValueError("a part without `to` needs `published` with `published_as: level`")
        if self.is_ in ("alike", "published", "between") and self.within_percent is None and not self.exact:
            raise ValueError(f"`is: {self.is_}` needs within_percent")
        if (self.is_ == "between") != (self.between_percent is not None):
            raise ValueError("`is: between` needs between_percent, and only `is: between` allows it")
        if self.is_ == "published" and self.published is None:
            raise ValueError("`is: published` needs `published`")
        if self.published is not None and len(self.published) != len(self.points):
            raise ValueError(f"{len(self.published)} published numbers for {len(self.points)} points")
        return self

    @model_validator(mode="after")
    def _check_region(self) -> Part:
        """Refuse combinations whose region is empty, or is not about what the part measures."""
        if self.to is None and self.is_ in ("alike", "between"):
            raise ValueError(f"`is: {self.is_}` is about a ratio: it needs `to`")
        if self.is_bound and METRICS[self.quantity].scale != "log":
            raise ValueError(f"{self.quantity} can be 0: no bound of its level can be tested")
        if self.exact and (self.to is not None or self.over != "all"):
            raise ValueError(f"{self.quantity} is an exact count: it has neither `to` nor `over`")
        if self.over == "mean" and self.is_ == "published":
            raise ValueError("`over: mean` has one region for all points, and `is: published` one for each")
        for index in range(len(self.points)):
            low, high = self.region(index)
            if not self.exact and (high <= 0 or low > high):
                raise ValueError(f"no ratio can be from {low:g} to {high:g}")
        return self

    @property
    def exact(self) -> bool:
        """Whether the quantity is an exact count, compared without statistics."""
        return METRICS[self.quantity].exact

    @property
    def is_bound(self) -> bool:
        """Whether the level of `of` is to lie below or above the published one."""
        return self.to is None and self.is_ in ("lower", "higher")

    @property
    def quantities(self) -> list[str]:
        """The quantity of each term: `of`, `to`, and both of `against`."""
        return [self.quantity, self.to_quantity or self.quantity, self.quantity, self.quantity]

    @property
    def points(self) -> list[dict[str, Scalar]]:
        """Every combination of the values of `at`, in the order of `published`."""
        return [dict(zip(self.at, values, strict=True)) for values in itertools.product(*self.at.values())]

    def region(self, index: int) -> tuple[float, float]:
        """Return the claimed region (low, high) of the ratio or level at a point. 0 and inf stand for open ends."""
        tolerance = 1 + (self.within_percent or 0) / 100
        bound = self.published_ratio(index) if self.is_bound else 1
        match self.is_:
            case "lower":
                return 0, bound * (1 - self.by_percent / 100)
            case "higher":
                return bound * (1 + self.by_percent / 100), math.inf
            case "alike":
                return 1 / tolerance, tolerance
            case "between":
                low, high = (1 + percent / 100 for percent in self.between_percent or (0, 0))
                return low / tolerance, high * tolerance
            case "published":
                value = self.published_ratio(index)
                return value / tolerance, value * tolerance

    def published_ratio(self, index: int) -> float:
        """Return the published number of a point as a ratio x/b, or as a level if it is one."""
        number = (self.published or [])[index]
        match self.published_as:
            case "overhead":
                return 1 - number / 100 if METRICS[self.quantity].gain else 1 + number / 100
            case "change":
                return 1 + number / 100
            case _:
                return number


class Claim(Strict):
    """One claim. Its verdict follows from its parts; a claim without parts is not testable."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=MAX_NAME)
    claim: str = Field(description="the statement, one sentence")
    paper: str = Field(description="table, figure or section of the statement")
    parts: list[Part] = Field(default_factory=list)
    lab: Literal["tests", "model", "no"] = Field(
        default="tests",
        description="what the lab can do: `tests`: test it; `model`: only agree, because it holds there by"
        " construction or in a model; `no`: nothing",
    )
    because: str = Field(default="", description="why the lab, or any testbed, cannot test it")
    note: str = Field(default="", description="background that readers of the verdict need")
    engines: dict[str, str] = Field(
        default_factory=dict,
        description="network to a word that its engine's name must contain, such as kernel",
    )
    link_mbit: float | None = Field(
        default=None, gt=0, description="rate of the links that the claim is about"
    )
    experiment: str = Field(default="", description="name of the experiment that tests the claim")
    settings: list[str] = Field(
        default_factory=list, description="additional --set KEY=VALUE for the experiment"
    )
    minutes: float = Field(default=0, ge=0, description="duration of the experiment")

    @model_validator(mode="after")
    def _check_requirements(self) -> Claim:
        if (self.lab != "tests" or not self.parts) and not self.because:
            raise ValueError("a claim that the lab cannot test needs a reason: because")
        if self.parts and not self.experiment:
            raise ValueError("a testable claim needs an experiment")
        return self

    @property
    def command(self) -> str:
        """The command that measures what this claim needs, or an empty string if the claim is not testable."""
        return run_command(self.experiment, self.settings) if self.experiment else ""

    def is_measurable(self, in_lab: bool) -> bool:
        """Return whether a campaign in the lab, or on a cluster, can say something about the claim."""
        return bool(self.experiment) and not (in_lab and self.lab == "no")


def run_command(experiment: str, settings: Sequence[str]) -> str:
    """Return the command that measures an experiment with changed settings."""
    return " ".join(["k8sdds run", experiment, *(f"--set {shlex.quote(setting)}" for setting in settings)])


class Claims(Strict):
    """A claims file."""

    page: ClassVar[str] = "claims"

    name: Name
    title: Title = ""
    source: str = Field(default="", description="the publication that makes the claims")
    level: float = Field(
        default=0.05, gt=0, lt=0.5, description="significance level of every test: the rate of false verdicts"
    )
    claims: list[Claim] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_ids(self) -> Claims:
        ids = [claim.id for claim in self.claims]
        duplicates = sorted({claim_id for claim_id in ids if ids.count(claim_id) > 1})
        if duplicates:
            raise ValueError(f"several claims have the id {', '.join(duplicates)}")
        return self
