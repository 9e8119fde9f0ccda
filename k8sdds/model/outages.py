"""Define the outages of a link: times in which nothing passes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from k8sdds.model.impairments import Rate
from k8sdds.model.settings import Number
from k8sdds.system.strict import MAX_RATE_MBIT, Strict, mistake

MAX_OUTAGES, MAX_OUTAGE_S, MAX_TIME_S = 1000, 3600, 86_400
"""Most outages of a link, the longest one, and the latest moment: the longest trial lasts a day."""
MIN_PERIOD_S = 0.1
"""Shortest period: what happens more often is loss."""
USUAL_FADING_S = 1.0
"""How long the rate of a Wi-Fi link is low before it falls silent. An assumption: a station leaves a cell at walking
speed."""
USUAL_FADING_MBIT = 6.0
"""Lowest rate of OFDM in 20 MHz (IEEE 802.11-2020, table 17-4), which stations use last."""


@dataclass(frozen=True)
class Phase:
    """A phase of an outage: the link is slow, or nothing passes."""

    at_us: int
    """Its start, from that of the measured interval."""
    for_us: int
    rate_mbit: float = 0
    """Rate meanwhile; 0: that of the link."""
    drop_percent: float = 100
    """Share of the packets that are lost meanwhile, if the rate is that of the link."""


class Outage(Strict):
    """A time in which nothing passes, once or periodically, from the start of the measured interval."""

    at_s: Annotated[float | None, Number] = Field(
        default=None, ge=0, le=MAX_TIME_S, description="when nothing passes any more, in seconds"
    )
    every_s: Annotated[float | None, Number] = Field(
        default=None,
        ge=MIN_PERIOD_S,
        le=MAX_TIME_S,
        description="period: the outage repeats; the first one is at `at_s`, or after half a period, so that a trial as"
        " long as the period has one",
    )
    for_s: Annotated[float, Number] = Field(
        gt=0, le=MAX_OUTAGE_S, description="how long nothing passes, in seconds"
    )
    kind: Literal["link", "wifi"] = Field(
        default="link",
        description="`wifi`: the rate of the link falls before nothing passes, as when a station leaves a cell",
    )
    fading_s: Annotated[float | None, Number] = Field(
        default=None,
        gt=0,
        le=MAX_OUTAGE_S,
        description=f"with `wifi`: how long before the outage the rate is low; default: {USUAL_FADING_S:g}",
    )
    fading_mbit: Annotated[float | None, Number] = Field(
        default=None,
        gt=0,
        le=MAX_RATE_MBIT,
        description=f"with `wifi`: the low rate, in Mbit/s, below that of the link; default: {USUAL_FADING_MBIT:g}",
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.at_s is None and self.every_s is None:
            raise mistake("set at_s, every_s, or both")
        for name in ("fading_s", "fading_mbit"):
            if getattr(self, name) is not None and self.kind != "wifi":
                raise mistake("has no effect without `kind: wifi`", name)
        if self.every_s is not None and self.for_s + self._fading_s >= self.every_s:
            raise mistake(f"leaves no time between two outages (every_s: {self.every_s:g})", "for_s")
        if self._fading_s > self._first_s:
            raise mistake(
                f"the rate would fall before the measured interval: at least {self._fading_s:g} s", "at_s"
            )
        return self

    @property
    def _first_s(self) -> float:
        return self.at_s if self.at_s is not None else (self.every_s or 0) / 2

    @property
    def _fading_s(self) -> float:
        return (self.fading_s or USUAL_FADING_S) if self.kind == "wifi" else 0

    @property
    def slow_mbit(self) -> float:
        """The rate before nothing passes; 0 if it does not fall."""
        return (self.fading_mbit or USUAL_FADING_MBIT) if self.kind == "wifi" else 0

    def starts(self, length_s: float) -> Iterator[float]:
        """Yield the start of each outage in an interval of this length, in seconds."""
        count = 1 if self.every_s is None else math.ceil((length_s - self._first_s) / self.every_s)
        starts = (self._first_s + index * (self.every_s or 0) for index in range(count))
        yield from (start for start in starts if start < length_s)

    def phases(self, length_s: float) -> list[Phase]:
        """Return what happens in an interval of this length: before each outage of a Wi-Fi link, its rate falls."""
        found = []
        fading_us = round(self._fading_s * 1e6)
        for start in self.starts(length_s):
            at_us = round(start * 1e6)
            if fading_us:
                found.append(Phase(at_us - fading_us, fading_us, self.slow_mbit))
            found.append(Phase(at_us, round(self.for_s * 1e6)))
        return found

    @property
    def cycle_s(self) -> float:
        """The shortest interval with an outage, and with the share of outages that a period has."""
        return max(self.every_s or 0, self._first_s + self.for_s)

    def span(self) -> tuple[float, float]:
        """Return the start of the first one, with the fall of its rate, and its end, in seconds."""
        return self._first_s - self._fading_s, self._first_s + self.for_s

    def describe(self) -> str:
        """Describe the outage: `outage of 0.5 s every 10 s`."""
        kind = "Wi-Fi outage" if self.kind == "wifi" else "outage"
        first = f" at {self.at_s:g} s" if self.at_s is not None else ""
        period = f" every {self.every_s:g} s" if self.every_s is not None else ""
        return f"{kind} of {self.for_s:g} s{first}{period}"


def require_apart(outages: tuple[Outage, ...]) -> None:
    """Raise an error if outages of a link overlap. A period is the only one, so that all are known to be apart."""
    if len(outages) > 1:
        for index, outage in enumerate(outages):
            if outage.every_s is not None:
                raise mistake("a period must be the only outage of a link", "outages", index, "every_s")
    known = sorted((outage.span(), index) for index, outage in enumerate(outages))
    for (before, _), (after, index) in itertools.pairwise(known):
        if after[0] < before[1]:
            raise mistake(f"overlaps the outage that ends at {before[1]:g} s", "outages", index, "at_s")


def require_falling(outages: tuple[Outage, ...], rates: Mapping[str, Rate | None]) -> None:
    """Raise an error if one of these rates, by direction, would not fall before an outage of a Wi-Fi link."""
    for index, outage in enumerate(outages):
        for name, rate in rates.items() if outage.slow_mbit else ():
            if rate is None or rate.mbit is None:
                what = "`kind: wifi` needs a constant rate in both directions: set rate_mbit"
                raise mistake(what, "outages", index, "kind")
            if outage.slow_mbit >= rate.mbit:
                what = f"the rate of {name} ({rate.mbit:g} Mbit/s) would not fall to {outage.slow_mbit:g}"
                raise mistake(f"{what}: set a lower fading_mbit", "outages", index, "fading_mbit")


def describe_outages(outages: tuple[Outage, ...]) -> str:
    """Describe the outages of a link."""
    if len(outages) > 2:
        return f"{len(outages)} outages"
    return ", ".join(outage.describe() for outage in outages)
