"""Draw outages: one trial over time, with the samples that arrived and what the link did; and recoveries by length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from k8sdds.analysis import overhead
from k8sdds.analysis.conditions import CONDITION, UNIT, describe
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import SINGLE_WIDTH, WIDTH, Figure, grid, save, text_width
from k8sdds.report.figures.estimates import (
    Estimate,
    Limits,
    Series,
    Styles,
    along,
    end_labels,
    level_axis,
    scale,
    spans_a_decade,
)
from k8sdds.report.settings import Row, Setting
from k8sdds.report.theme import GRID, INK, MUTED, network_colors, variant_colors
from k8sdds.results import arrivals, link_statistics
from k8sdds.results.arrivals import Arrival, Interruption
from k8sdds.results.link_statistics import LinkStatistics
from k8sdds.results.metrics import METRICS
from k8sdds.system.reading import UnreadableError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTAGE = "outage"
_MOST = 3
"""Most networks of a figure over time, and most panels of a figure by length."""
_MARGIN_S = 0.3
"""Least time before and after an outage that is drawn."""
_DROPS = (("outage", INK, "-"), ("lost", MUTED, "--"), ("queue", MUTED, ":"))
"""What a link dropped, by its key in the statistics, with color and line style."""
LENGTH = "outage_for_s"
_QUANTITIES = ("outage_blind_ms", "recovery_full_ms")


@dataclass(frozen=True)
class _Trial:
    """The files of a trial with an outage."""

    row: Row
    outage: Interruption
    arrivals: Sequence[Arrival]
    """What arrived at the first subscriber from the first publisher."""
    links: LinkStatistics | None

    @property
    def limits(self) -> Limits:
        """What is drawn, in seconds from the failure."""
        margin = max(_MARGIN_S, 0.4 * self.outage.length_s)
        recovery_ms = self.row["recovery_full_ms"]
        if recovery_ms is None:
            recovery_ms = _observed_ms(self.row, "recovery_full_ms")
        return Limits(-margin, self.outage.length_s + recovery_ms / 1000 + margin)

    @property
    def text(self) -> str:
        """What happened, for those who do not see the figure."""
        blind_ms, full_ms = self.row["outage_blind_ms"], self.row["recovery_full_ms"]
        length = f"outage of {formats.number(1000 * self.outage.length_s)} ms"
        blind = "blind until the end" if blind_ms is None else f"blind for {formats.number(blind_ms)} ms"
        full = (
            f"full rate {formats.number(full_ms)} ms after the repair"
            if full_ms is not None
            else "not recovered"
        )
        return f"{self.row[UNIT]}: {length}, {blind}, {full}"


def measured(content: Content) -> list[Row]:
    """Return the valid trials with outages; those in `content.best` do not have times that others ended before."""
    valid = {(row["trial_id"], row["attempt"]) for row in content.best if row["test"] == OUTAGE}
    rows = overhead.plain_rows(content.table[content.table["test"] == OUTAGE])
    return [row for row in rows if (row["trial_id"], row["attempt"]) in valid]


def timeline(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw one trial of each network over time: delays of the samples that arrived, and the link below."""
    ids = {row["trial_id"] for row in setting.trials if row["test"] == OUTAGE}
    found: dict[str, _Trial] = {}
    for row in measured(content) if ids else ():
        if row["trial_id"] in ids and row[UNIT] not in found and (trial := _read(content, row)):
            found[row[UNIT]] = trial
    trials = [found[label] for label in content.networks if label in found][:_MOST]
    if not trials:
        return None
    columns, left, right = len(trials), 0.7, 0.1
    width = (WIDTH if columns > 1 else SINGLE_WIDTH) / columns - left - right
    kinds = 3 if all(trial.links for trial in trials) else 1
    heights = [height for height in (1.3, 0.7, 0.7)[:kinds] for _ in trials]
    drawing, panels = grid(heights, columns, width, left=left, right=right, head=0.22, foot=0.2, below=0.22)
    styles = network_colors(content.networks)
    for index, trial in enumerate(trials):
        own = panels[index::columns]
        own[0].set_title(trial.row[UNIT], color=styles[trial.row[UNIT]].light)
        _samples(own[0], trial, styles[trial.row[UNIT]].light)
        if trial.links and kinds > 1:
            _link(own[1], own[2], trial, trial.links)
        for ax in own:
            ax.axvspan(0, trial.outage.length_s, color=GRID, lw=0, zorder=0)
            scale(ax, "x", trial.limits, most=5)
        own[-1].set_xlabel("seconds from the failure")
    title = f"An outage over time: {setting.title}"
    alt = f"{title}. {'; '.join(trial.text for trial in trials)}"
    below = (
        " Below: packets that the node's link dropped in each 100 ms, both ways (solid: outage, dashed: loss, dotted:"
        " queue), and its mean delay."
        if kinds > 1
        else ""
    )
    caption = (
        "One trial. The outage is gray. Dots: when samples arrived, and their delay since they were due, at the"
        " first subscriber; one dot for the last of a millisecond, with a line up to the oldest."
        f"{below} {content.caption(setting, OUTAGE, interval=False)}."
    )
    return save(drawing, folder, setting.file_name("outage-timeline"), OUTAGE, title, f"{alt}.", caption)


def _read(content: Content, row: Row) -> _Trial | None:
    folder = content.run.raw(row["trial_id"], row["attempt"] or 1)
    outage = arrivals.interruption(folder)
    try:
        arrived = arrivals.of_subscriber(folder / "sub0").get(0)
    except UnreadableError:
        return None
    return _Trial(row, outage, arrived, link_statistics.read(folder)) if outage and arrived else None


def _samples(ax: Axes, trial: _Trial, color: str) -> None:
    low, high, _ = trial.limits
    seconds = [(one.at_us - trial.outage.failed_us) / 1e6 for one in trial.arrivals]
    shown = [(at, one) for at, one in zip(seconds, trial.arrivals, strict=True) if low <= at <= high]
    times = [at for at, _ in shown]
    last, longest = (
        [max(getattr(one, name), 0) / 1000 for _, one in shown] for name in ("delay_us", "max_delay_us")
    )
    ax.vlines(times, last, longest, color=color, lw=1.2)
    ax.plot(times, last, ".", color=color, ms=4, mew=0)
    top = max(longest, default=1) or 1
    scale(ax, "y", Limits(-0.04 * top, 1.08 * top), most=5)
    ax.grid(axis="y")
    ax.set_ylabel("delay, ms")


def _link(drops: Axes, delays: Axes, trial: _Trial, links: LinkStatistics) -> None:
    """Draw what the link of the failed node dropped, and its delay."""
    link = links.links.get(trial.outage.node)
    if link is None:
        return
    both = (link.up.series, link.down.series)
    offset_s = (trial.outage.links_started_us - trial.outage.failed_us) / 1e6
    step_s = both[0].bin_ms / 1000
    count = min(len(series.packets_in) for series in both)
    times = [offset_s + (index + 0.5) * step_s for index in range(count)]
    most = 1
    for name, color, line in _DROPS:
        dropped = [sum(getattr(series, name)[index] for series in both) for index in range(count)]
        if any(dropped):
            drops.plot(times, dropped, color=color, ls=line, lw=0.9, label=name, drawstyle="steps-mid")
            most = max(most, *dropped)
    scale(drops, "y", Limits(0, 1.08 * most), most=4)
    drops.set_ylabel("dropped")
    means = [_mean([series.mean_delay_us[index] for series in both]) for index in range(count)]
    # Without packets, the line is interrupted.
    known = [math.nan if mean is None else mean / 1000 for mean in means]
    delays.plot(times, known, ".-", color=MUTED, lw=0.7, ms=3, mew=0)
    scale(delays, "y", Limits(0, 1.08 * max((mean / 1000 for mean in means if mean), default=1)), most=4)
    delays.set_ylabel("link, ms")
    for ax in (drops, delays):
        ax.grid(axis="y")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


# -- by length ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Curve:
    """A quantity by the length of the outage, of a network or of a middleware on it."""

    means: Series
    """By length in seconds; without those lengths at which a trial ended before the quantity."""
    known: Sequence[tuple[float, float]]
    """Length and value of single trials, at the other lengths."""
    ended: Sequence[tuple[float, float]]
    """Length and lower bound of those that ended before."""

    @property
    def every(self) -> list[Estimate]:
        """Everything that is drawn."""
        return [*self.means.values(), *(Estimate(value) for _, value in (*self.known, *self.ended))]

    @property
    def end(self) -> Estimate:
        """What is drawn at the greatest length."""
        last: dict[float, Estimate] = {at: Estimate(value) for at, value in (*self.known, *self.ended)}
        last |= self.means
        return last[max(last)]


def recoveries(content: Content, folder: Path) -> list[Figure]:
    """Draw how long subscribers are blind and recover by the length of the outage, for each kind of outage."""
    levels = content.levels[content.levels["test"] == OUTAGE]
    groups = [_by_kind(rows) for rows in (measured(content), overhead.plain_rows(levels))]
    several = [
        (rows, groups[1].get(kind, []))
        for kind, rows in groups[0].items()
        if len({row[LENGTH] for row in rows}) > 1
    ]
    return [_by_length(content, *rows, folder, index) for index, rows in enumerate(several)]


def _by_kind(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kind = tuple(str(row[key]) for key in CONDITION if key not in (LENGTH, "middleware"))
        groups.setdefault(kind, []).append(row)
    return groups


def _by_length(
    content: Content, trials: Sequence[Row], levels: Sequence[Row], folder: Path, index: int
) -> Figure:
    several = len({row["middleware"] for row in trials}) > 1

    def label_of(row: Row) -> str:
        return f"{row[UNIT]}, {row['middleware']}" if several else str(row[UNIT])

    order = sorted(trials, key=lambda row: (content.networks.index(row[UNIT]), str(row["middleware"])))
    labels = list(dict.fromkeys(map(label_of, order)))
    styles = variant_colors(labels) if several else network_colors(content.networks)
    left, right = 0.62, text_width(labels) + 0.2
    drawing, panels = grid(
        [1.7] * len(_QUANTITIES), 1, SINGLE_WIDTH - left - right, left=left, right=right, head=0.3, foot=0.45
    )  # fmt: skip
    texts, lengths = [], sorted({row[LENGTH] for row in trials})
    for ax, name in zip(panels, _QUANTITIES, strict=True):
        curves = {
            label: _curve(
                name,
                [row for row in trials if label_of(row) == label],
                [row for row in levels if row["quantity"] == name and label_of(row) == label],
            )
            for label in labels
        }
        _panel(ax, {label: curve for label, curve in curves.items() if curve.every}, styles, lengths)
        ax.set(title=formats.capital(METRICS[name].title), xlabel="length of the outage, s", ylabel="ms")
        texts += [f"{METRICS[name].title}, {label}: {_text(curve)}" for label, curve in curves.items()]
    title = f"Recovery by length of the outage: {_described(trials)}"
    slug = "outage-lengths" + (f"-{index + 1}" if index else "")
    return save(
        drawing, folder, slug, OUTAGE, title, f"{title}. {'; '.join(texts)}.", _caption(content, trials)
    )


def _caption(content: Content, trials: Sequence[Row]) -> str:
    ended = sum(row["recovery_full_ms"] is None for row in trials)
    triangles = (
        f" Triangles: {ended} of {formats.count(len(trials), 'trial')} ended before they recovered: the time is longer"
        " than shown, and there is no mean."
    )
    return (
        f"Means, 95 % intervals and trials; both axes are logarithmic.{triangles if ended else ''} Blind: from the"
        " failure to the first fresh sample; recovery: from the repair until samples arrive as before."
        f" {content.testbed}."
    )


def _curve(name: str, trials: Sequence[Row], levels: Sequence[Row]) -> _Curve:
    means = {row[LENGTH]: Estimate.of_level(row) for row in sorted(levels, key=lambda row: row[LENGTH])}
    others = [row for row in trials if row[LENGTH] not in means]
    return _Curve(
        means,
        [(row[LENGTH], row[name]) for row in others if row[name] is not None],
        [(row[LENGTH], _observed_ms(row, name)) for row in others if row[name] is None],
    )


def _observed_ms(row: Row, name: str) -> float:
    """Return the time after the failure, or the repair, that a trial measured."""
    before_s = row["outage_after_s"] + (0 if name == "outage_blind_ms" else row["outage_s"])
    return float(max(1000 * (row["duration_s"] - before_s), 1))


def _text(curve: _Curve) -> str:
    texts = [f"{formats.number(one.mean)} ms after {at:g} s" for at, one in curve.means.items()]
    texts += [f"more than {formats.number(bound)} ms after {at:g} s" for at, bound in curve.ended]
    return ", ".join(texts)


def _panel(ax: Axes, curves: Mapping[str, _Curve], styles: Styles, lengths: Sequence[float]) -> None:
    every = [one for curve in curves.values() for one in curve.every]
    if not every:
        return
    scale(ax, "y", level_axis(every, spans_a_decade(every)), most=5)
    scale(ax, "x", Limits(lengths[0] / 1.3, lengths[-1] * 1.3, True))
    ax.set_xticks(lengths, [f"{length:g}" for length in lengths])
    along(ax, {label: curve.means for label, curve in curves.items()}, styles, 0)
    for label, curve in curves.items():
        for points, marker, size in ((curve.known, "o", 2.5), (curve.ended, "^", 5)):
            x, y = [at for at, _ in points], [value for _, value in points]
            ax.plot(x, y, marker, color=styles[label].light, ms=size, mew=0)
    end_labels(ax, {label: {0: curve.end} for label, curve in curves.items()}, styles)
    ax.grid(axis="y")


def _described(rows: Sequence[Row]) -> str:
    return describe({key: rows[0].get(key) for key in ("outage_what", "outage_where", "reliability")})
