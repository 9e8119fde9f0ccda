"""Draw one trial over time: the delays of the samples that arrived, and below what the links did to packets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import UNIT
from k8sdds.model.trial import FIRST_SUBSCRIBER
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures import outages
from k8sdds.report.figures.canvas import SINGLE_WIDTH, WIDTH, Figure, grid, save
from k8sdds.report.figures.estimates import Limits, scale
from k8sdds.report.settings import Setting
from k8sdds.report.theme import GRID, INK, MUTED, network_colors
from k8sdds.results import arrivals, link_statistics
from k8sdds.results.arrivals import Arrival, Interruption
from k8sdds.results.link_statistics import LinkStatistics, Series
from k8sdds.system.grouping import Row
from k8sdds.system.reading import UnreadableError
from k8sdds.workloads import outage as outage_test

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 3
"""Most networks of a figure."""
MOST_DOTS = 1000
"""Most dots of a trial: more cannot be told apart, and would make the file large."""
_MARGIN_S = 0.3
"""Least time before and after an outage that is drawn."""
_DROPS = (("outage", INK, "-"), ("lost", MUTED, "--"), ("queue", MUTED, ":"))
"""What a link dropped, by its key in the statistics, with color and line style."""
_WAYS = (("up", INK, "-"), ("down", MUTED, "--"))


@dataclass(frozen=True)
class _Trial:
    """The files of a trial."""

    row: Row
    arrivals: Sequence[Arrival]
    """What arrived at the first subscriber from the first publisher."""
    links: LinkStatistics | None
    outage: Interruption | None

    @property
    def zero_us(self) -> int:
        """Start of the axis of time: the failure, or the first sample."""
        return self.outage.failed_us if self.outage else self.arrivals[0].at_us

    @property
    def links_us(self) -> int:
        """Start of the statistics of the links, by the clock of the subscriber."""
        assert self.links is not None
        return self.links.started_us_of(self.outage.node if self.outage else "")

    @property
    def has_placed_links(self) -> bool:
        """Whether what the links did can be drawn: times by the clock of another machine are not those of the trial."""
        every = [series for each in self.ways.values() for series in each]
        if not every:
            return False
        length_us = min(len(series.lost) * series.bin_ms for series in every) * 1000
        return self.links_us <= self.arrivals[0].at_us <= self.links_us + length_us

    @property
    def limits(self) -> Limits:
        """What is drawn, in seconds."""
        if self.outage is None:
            return Limits(0, max((self.arrivals[-1].at_us - self.zero_us) / 1e6, 0.1))
        margin = max(_MARGIN_S, 0.4 * self.outage.length_s)
        recovery_ms = self.row["recovery_full_ms"]
        if recovery_ms is None:
            recovery_ms = outages.observed_ms(self.row)
        return Limits(-margin, self.outage.length_s + recovery_ms / 1000 + margin)

    @property
    def spans(self) -> Iterator[tuple[float, float]]:
        """The times in which something had failed, or in which the links dropped packets, in seconds."""
        if self.outage:
            yield 0, self.outage.length_s
        elif self.links:
            offset_s = (self.links_us - self.zero_us) / 1e6
            times = [*(state.at_us / 1e6 + offset_s for state in self.links.outages), self.limits.high]
            for state, (begin, end) in zip(self.links.outages, itertools.pairwise(times), strict=True):
                if state.state != "off" and not state.state.startswith("rate"):
                    yield begin, end

    @cached_property
    def ways(self) -> dict[str, list[Series]]:
        """What the link of the failed node did over time, or each link if none failed: `up` and `down`."""
        links = self.links.links if self.links else {}
        own = [links[self.outage.node]] if self.outage and self.outage.node in links else links.values()
        return {"up": [link.up.series for link in own], "down": [link.down.series for link in own]}

    @property
    def text(self) -> str:
        """What happened, for those who do not see the figure."""
        arrived = sum(one.samples for one in self.arrivals)
        if self.outage is None:
            return f"{self.row[UNIT]}: {formats.count(arrived, 'sample')} in {self.limits.high:.3g} s"
        blind_ms, full_ms = self.row["outage_blind_ms"], self.row["recovery_full_ms"]
        length = f"outage of {formats.number(1000 * self.outage.length_s)} ms"
        blind = "blind until the end" if blind_ms is None else f"blind for {formats.number(blind_ms)} ms"
        full = (
            "not recovered" if full_ms is None else f"full rate {formats.number(full_ms)} ms after the repair"
        )
        return f"{self.row[UNIT]}: {length}, {blind}, {full}"


def draw(content: Content, setting: Setting, folder: Path, test: str) -> Figure | None:
    """Draw one trial of a test of each network whose subscribers logged what arrived."""
    found: dict[str, _Trial] = {}
    ids = {row["trial_id"] for row in setting.trials if row["test"] == test}
    for row in content.as_measured:
        if row["trial_id"] in ids and row[UNIT] not in found and (trial := _read(content, row)):
            found[row[UNIT]] = trial
    trials = [found[label] for label in content.networks if label in found][:_MOST]
    if not trials:
        return None
    columns = len(trials)
    across = (WIDTH if columns > 1 else SINGLE_WIDTH) / columns
    has_links = all(trial.links for trial in trials)
    heights = [height for height in ((1.3, 0.7, 0.7) if has_links else (1.3,)) for _ in trials]
    drawing, panels = grid(heights, columns, across, left=0.8, right=0.1, head=0.22, foot=0.2, below=0.22)
    styles = network_colors(content.networks)
    for index, trial in enumerate(trials):
        own = panels[index::columns]
        own[0].set_title(trial.row[UNIT], color=styles[trial.row[UNIT]].light)
        _samples(own[0], trial, styles[trial.row[UNIT]].light)
        if has_links:
            _drops(own[1], trial)
            _delays(own[2], trial)
        for ax in own:
            for begin, end in trial.spans:
                ax.axvspan(begin, end, color=GRID, lw=0, zorder=0)
            scale(ax, "x", trial.limits, most=5)
            ax.grid(axis="y")
        own[-1].set_xlabel("seconds from the failure" if trial.outage else "seconds from the first sample")
    first = trials[0]
    title = f"{'An outage' if first.outage else 'Samples and links'} over time: {setting.title}"
    alt = f"{title}. {'; '.join(trial.text for trial in trials)}."
    kind = f"{'outage' if first.outage else 'link'}-timeline"
    caption = f"{_caption(has_links)} {content.caption(setting, test, interval=False)}."
    return save(drawing, folder, setting.file_name(kind), test, title, alt, caption)


def _caption(has_links: bool) -> str:
    below = (
        " Below: packets that the links dropped in each 100 ms, both ways (solid: outage, dashed: loss, dotted: queue),"
        " and their mean delay (solid: from the node, dashed: to it)."
    )
    return (
        "One trial; outages are gray. Dots: when samples arrived, and their delay since they were due, at the first"
        f" subscriber; one dot for the last of a millisecond, or of 1/{MOST_DOTS} of the time shown if that is longer,"
        " with a line up to the longest delay."
        f"{below if has_links else ''}"
    )


def _read(content: Content, row: Row) -> _Trial | None:
    folder = content.run.raw(row["trial_id"], row["attempt"] or 1)
    try:
        arrived = arrivals.of_attempt(folder, [FIRST_SUBSCRIBER.name])[FIRST_SUBSCRIBER.name].get(0)
    except UnreadableError:
        return None
    outage = arrivals.interruption(folder)
    if not arrived or (row["test"] == outage_test.NAME and outage is None):
        return None
    trial = _Trial(row, arrived, link_statistics.read(folder), outage)
    return trial if trial.has_placed_links else replace(trial, links=None)


def _dots(trial: _Trial) -> list[tuple[float, float, float]]:
    """Return for each interval with samples when the last one arrived, in s, its delay and the longest one, in ms."""
    low, high, _ = trial.limits
    step_us = max(1e6 * (high - low) / MOST_DOTS, 1000)
    dots: dict[int, tuple[float, float, float]] = {}
    for one in trial.arrivals:
        at_us = one.at_us - trial.zero_us
        if low <= at_us / 1e6 <= high:
            step = min(int((at_us - 1e6 * low) / step_us), MOST_DOTS - 1)
            *_, longest = dots.get(step, (0.0,))
            dots[step] = at_us / 1e6, max(one.delay_us, 0) / 1000, max(one.max_delay_us / 1000, longest)
    return list(dots.values())


def _samples(ax: Axes, trial: _Trial, color: str) -> None:
    dots = _dots(trial)
    times, last, longest = ([dot[index] for dot in dots] for index in range(3))
    ax.vlines(times, last, longest, color=color, lw=1.2)
    ax.plot(times, last, ".", color=color, ms=4, mew=0)
    top = max(longest, default=1) or 1
    scale(ax, "y", Limits(-0.04 * top, 1.08 * top), most=5)
    ax.set_ylabel("delay of\nsamples, ms")


def _times(trial: _Trial, series: Sequence[Series]) -> list[float]:
    """Return the middle of each interval of the statistics, in seconds."""
    offset_s = (trial.links_us - trial.zero_us) / 1e6
    step_s = series[0].bin_ms / 1000
    return [offset_s + (index + 0.5) * step_s for index in range(min(len(each.lost) for each in series))]


def _drops(ax: Axes, trial: _Trial) -> None:
    both = [series for every in trial.ways.values() for series in every]
    times, most = _times(trial, both), 1
    for name, color, line in _DROPS:
        dropped = [sum(getattr(series, name)[index] for series in both) for index in range(len(times))]
        if any(dropped):
            ax.plot(times, dropped, color=color, ls=line, lw=0.9, drawstyle="steps-mid")
            most = max(most, *dropped)
    scale(ax, "y", Limits(0, 1.08 * most), most=4)
    ax.set_ylabel("dropped\npackets")


def _delays(ax: Axes, trial: _Trial) -> None:
    low, high, _ = trial.limits
    top = 0.0
    for way, color, line in _WAYS:
        series = trial.ways[way]
        times = _times(trial, series)
        # Without packets, the line is interrupted.
        means = [_mean(each.mean_delay_us[index] for each in series) / 1000 for index in range(len(times))]
        ax.plot(times, means, marker=".", color=color, ls=line, lw=0.7, ms=3, mew=0)
        shown = [mean for at, mean in zip(times, means, strict=True) if low <= at <= high]
        top = max([top, *(mean for mean in shown if not math.isnan(mean))])
    scale(ax, "y", Limits(0, 1.08 * (top or 1)), most=4)
    ax.set_ylabel("delay of\nlinks, ms")


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else math.nan
