"""Claims as data: what somebody says, where, about which cells, and what of it could be tested where.

A claim holds if all of its parts hold. A part states a *region* for a ratio (or for a level) at one or more
points; `k8sdds.claims.judge` tests it. Every key is documented in docs/analysis.md.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from k8sdds.analysis.conditions import CONDITION
from k8sdds.model.experiment import OneOrMore
from k8sdds.results.metrics import METRICS
from k8sdds.system.strict import Strict

Scalar = str | int | float | bool | None
Is = Literal["lower", "higher", "alike", "between", "published"]

USUAL = {
    "reliability": "reliable", "transport": "unicast", "publishers": 1, "subscribers": 1,
    "security": "none", "rate": 0, "batch_bytes": 0,
}  # fmt: skip
"""What cells are like where a claim says nothing else: reliable unicast, one to one, as fast as possible."""

SELECTABLE = ("network", *(name for name in CONDITION if name not in ("testbed", "nodes")))
"""Keys of a selector; `network` is compared with the label of trials."""


def _selector(value: Any) -> Any:
    if isinstance(value, dict):
        for key in value:
            if key not in SELECTABLE:
                from k8sdds.system.yaml_text import nearest

                raise ValueError(f"{key!r} selects nothing{nearest(str(key), list(SELECTABLE))}")
    return value


Selector = Annotated[dict[str, Scalar], BeforeValidator(_selector)]
Points = Annotated[
    dict[str, Annotated[list[Scalar], OneOrMore, Field(min_length=1)]], BeforeValidator(_selector)
]


class Pair(Strict):
    """Two kinds of cells whose ratio is meant: `of` divided by `to`."""

    of: Selector
    to: Selector


class Part(Strict):
    """One statement: at each point the ratio `of`/`to` (or the level of `of`) lies in a region."""

    quantity: str
    of: Selector
    to: Selector | None = Field(default=None, description="none: the level of `of` itself is meant")
    against: Pair | None = Field(default=None, description="a second ratio, by which the first is divided")
    cells: Selector = Field(default_factory=dict, description="what all of these cells have in common")
    at: Points = Field(default_factory=dict, description="the points: every combination of these values")
    is_: Is = Field(alias="is")
    by_percent: float = Field(default=0, ge=0, description="lower or higher by at least so much")
    within_percent: float | None = Field(default=None, gt=0, description="tolerance, in percent of the ratio")
    between_percent: tuple[float, float] | None = Field(default=None, description="of/to - 1, both ends")
    published: Annotated[list[float], OneOrMore] | None = Field(
        default=None, description="the published numbers, in the order of the points"
    )
    published_as: Literal["overhead", "change", "ratio", "level"] = "overhead"
    over: Literal["all", "any", "mean"] = Field(
        default="all", description="whether all points must lie there, one of them, or their mean"
    )

    @model_validator(mode="after")
    def _whole(self) -> Part:
        if self.quantity not in METRICS:
            from k8sdds.system.yaml_text import nearest

            raise ValueError(f"{self.quantity!r} is not measured{nearest(self.quantity, list(METRICS))}")
        if (self.to is None) != (self.published_as == "level" and self.published is not None):
            raise ValueError("a part without `to` needs published numbers with published_as: level")
        if self.is_ in ("alike", "published", "between") and self.within_percent is None and not self.exact:
            raise ValueError(f"`is: {self.is_}` needs within_percent")
        if (self.is_ == "between") != (self.between_percent is not None):
            raise ValueError("`is: between` and between_percent belong together")
        if self.is_ == "published" and self.published is None:
            raise ValueError("`is: published` needs published numbers")
        if self.published is not None and len(self.published) != len(self.points):
            raise ValueError(f"{len(self.published)} published numbers for {len(self.points)} points")
        return self

    @property
    def exact(self) -> bool:
        """Whether the quantity is a count that is compared as it is, without statistics."""
        return METRICS[self.quantity].exact

    @property
    def points(self) -> list[dict[str, Scalar]]:
        """Every combination of `at`, in the order in which the published numbers are given."""
        return [dict(zip(self.at, values, strict=True)) for values in itertools.product(*self.at.values())]

    def region(self, index: int) -> tuple[float, float]:
        """The claimed region of the ratio (or level) at a point: low, high; 0 and inf are open ends."""
        tolerance = 1 + (self.within_percent or 0) / 100
        match self.is_:
            case "lower":
                return 0, 1 - self.by_percent / 100
            case "higher":
                return 1 + self.by_percent / 100, math.inf
            case "alike":
                return 1 / tolerance, tolerance
            case "between":
                low, high = (1 + percent / 100 for percent in self.between_percent or (0, 0))
                return low / tolerance, high * tolerance
            case "published":
                value = self.published_ratio(index)
                return value / tolerance, value * tolerance

    def published_ratio(self, index: int) -> float:
        """The published number of a point as the ratio x/b, or as the level that it is."""
        number = (self.published or [])[index]
        match self.published_as:
            case "overhead":
                return 1 - number / 100 if METRICS[self.quantity].gain else 1 + number / 100
            case "change":
                return 1 + number / 100
            case _:
                return number


class Claim(Strict):
    """One claim. Its verdict is made from its parts; without parts it is never testable."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    claim: str = Field(description="the statement, in a sentence")
    paper: str = Field(description="where it is made: table, figure or section")
    parts: list[Part] = Field(default_factory=list)
    lab: Literal["tests", "model", "no"] = Field(
        default="tests",
        description="what the lab can do: test it; at best agree, because it holds there by construction or"
        " in a model only; nothing",
    )
    because: str = Field(default="", description="why the lab, or anything, cannot test it")
    note: str = Field(default="", description="what a reader of the verdict should know of the claim itself")
    engines: dict[str, str] = Field(
        default_factory=dict, description="network to a word that its engine must have, such as kernel"
    )
    link_mbit: float | None = Field(default=None, gt=0, description="rate of the links that it is about")
    experiment: str = Field(default="", description="the experiment that tests it, by name")
    settings: list[str] = Field(default_factory=list, description="its further --set KEY=VALUE")
    minutes: float = Field(default=0, ge=0, description="time of that experiment")

    @model_validator(mode="after")
    def _reasons(self) -> Claim:
        if (self.lab != "tests" or not self.parts) and not self.because:
            raise ValueError("a claim that the lab cannot test says why: because")
        if self.parts and not self.experiment:
            raise ValueError("a testable claim names the experiment that tests it")
        return self

    @property
    def command(self) -> str:
        """The command that measures what this claim needs; empty where nothing does."""
        sets = "".join(f" --set {setting}" for setting in self.settings)
        return f"k8sdds run {self.experiment}{sets}" if self.experiment else ""


class Claims(Strict):
    """One file of claims."""

    page: ClassVar[str] = "docs/analysis.md"

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    title: str = ""
    source: str = Field(default="", description="who says so, and where it was published")
    level: float = Field(default=0.05, gt=0, lt=0.5, description="of every test: the rate of false verdicts")
    claims: list[Claim] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_twins(self) -> Claims:
        ids = [claim.id for claim in self.claims]
        twins = sorted({one for one in ids if ids.count(one) > 1})
        if twins:
            raise ValueError(f"two claims have the id {', '.join(twins)}")
        return self
