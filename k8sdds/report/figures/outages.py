"""Draw how long recoveries take, by the length of the outage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import CONDITION, UNIT, describe
from k8sdds.model.link import Link
from k8sdds.model.trial import AXES
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import SINGLE_WIDTH, Figure, grid, legend, legend_height, save
from k8sdds.report.figures.estimates import (
    Estimate,
    Limits,
    Series,
    Styles,
    along,
    level_axis,
    scale,
    spans_a_decade,
)
from k8sdds.report.theme import network_colors, variant_colors
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, grouped
from k8sdds.workloads import outage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SLUG = "outage-lengths"
LENGTH = "outage_for_s"
_KIND = tuple(key for key in CONDITION if key not in (LENGTH, "middleware"))
"""In what the trials of a figure are equal."""
_QUANTITIES = ("recovery_first_ms", "recovery_full_ms")
_APART = 1.03
"""Ratio between the places of neighboring curves, so that intervals do not cover each other."""


@dataclass(frozen=True)
class _Curve:
    """A quantity by the length of the outage in seconds, of a network or of a middleware on it."""

    means: Series
    """Without those lengths at which a trial ended before the quantity."""
    known: Sequence[tuple[float, float]]
    """Length and value of single trials, at the other lengths."""
    ended: Sequence[tuple[float, float]]
    """Length and lower bound of those that ended before."""

    @property
    def every(self) -> list[Estimate]:
        """Everything that is drawn."""
        return [*self.means.values(), *(Estimate(value) for _, value in (*self.known, *self.ended))]

    @property
    def text(self) -> str:
        """The curve for those who do not see it."""
        texts = [f"{formats.number(one.mean)} ms after {at:g} s" for at, one in self.means.items()]
        texts += [f"more than {formats.number(bound)} ms after {at:g} s" for at, bound in self.ended]
        return ", ".join(texts)


def recoveries(content: Content, folder: Path) -> list[Figure]:
    """Draw when the first sample and the full rate come back by the length of the outage, for each kind of outage."""
    trials = _by_kind([row for row in content.as_measured if row["test"] == outage.NAME])
    levels = _by_kind([row for row in content.levels if row["test"] == outage.NAME])
    several = [kind for kind, rows in trials.items() if len({row[LENGTH] for row in rows}) > 1]
    differing = [
        key for key, values in zip(_KIND, zip(*several, strict=True), strict=False) if len(set(values)) > 1
    ]
    return [
        _by_length(
            content, trials[kind], levels.get(kind, []), folder, index, _described(trials[kind][0], differing)
        )
        for index, kind in enumerate(several)
    ]


def _by_kind(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    return grouped(rows, lambda row: tuple(str(row[key]) for key in _KIND))


def _by_length(
    content: Content, trials: Sequence[Row], levels: Sequence[Row], folder: Path, index: int, kind: str
) -> Figure:
    several = len({row["middleware"] for row in trials}) > 1

    def label_of(row: Row) -> str:
        return f"{row[UNIT]}, {row['middleware']}" if several else str(row[UNIT])

    order = sorted(trials, key=lambda row: (content.networks.index(row[UNIT]), str(row["middleware"])))
    labels = list(dict.fromkeys(map(label_of, order)))
    styles = variant_colors(labels) if several else network_colors(content.networks)
    drawing, panels = grid(
        [1.6] * len(_QUANTITIES), 1, SINGLE_WIDTH, left=0.62, right=0.1, head=0.3, foot=0.45,
        below=legend_height(labels),
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
        _panel(ax, curves, styles, lengths)
        ax.set(title=formats.capital(METRICS[name].title), xlabel="length of the outage, s", ylabel="ms")
        texts += [f"{METRICS[name].title}, {label}: {curve.text}" for label, curve in curves.items()]
    legend(drawing, [(label, styles[label].marker, styles[label].light, "-") for label in labels])
    title = f"Recovery by length of the outage: {kind}"
    slug = SLUG + (f"-{index + 1}" if index else "")
    return save(
        drawing, folder, slug, outage.NAME, title, f"{title}. {'; '.join(texts)}.", _caption(content, trials)
    )


def _caption(content: Content, trials: Sequence[Row]) -> str:
    ended = sum(row["recovery_full_ms"] is None for row in trials)
    triangles = (
        f" Open triangles: {ended} of {formats.count(len(trials), 'trial')} ended before they recovered: the time is"
        " longer than shown, and there is no mean."
    )
    return (
        f"Means, 95 % intervals and trials; both axes are logarithmic.{triangles if ended else ''} Both times begin at"
        f" the repair; the recovery ends when samples arrive as before the failure. {content.testbed}."
    )


def _curve(name: str, trials: Sequence[Row], levels: Sequence[Row]) -> _Curve:
    means = {row[LENGTH]: Estimate.of_level(row) for row in sorted(levels, key=lambda row: row[LENGTH])}
    others = [row for row in trials if row[LENGTH] not in means]
    return _Curve(
        means,
        [(row[LENGTH], row[name]) for row in others if row[name] is not None],
        [(row[LENGTH], observed_ms(row)) for row in others if row[name] is None],
    )


def observed_ms(row: Row) -> float:
    """Return the time after the repair that a trial measured, which can have ended earlier than requested."""
    return float(max(row["outage_observed_ms"] or 0, 1))


def _panel(ax: Axes, curves: Mapping[str, _Curve], styles: Styles, lengths: Sequence[float]) -> None:
    every = [one for curve in curves.values() for one in curve.every]
    if not every:
        return
    scale(ax, "y", level_axis(every, spans_a_decade(every)), most=5)
    scale(ax, "x", Limits(lengths[0] / 1.3, lengths[-1] * 1.3, True))
    ax.set_xticks(lengths, [f"{length:g}" for length in lengths])
    for index, (label, curve) in enumerate(curves.items()):
        factor, color = _APART ** (index - (len(curves) - 1) / 2), styles[label].light
        along(ax, {label: {factor * at: one for at, one in curve.means.items()}}, styles, 0)
        for points, marker, fill, size in ((curve.known, "o", color, 2.5), (curve.ended, "^", "none", 6)):
            x, y = [factor * at for at, _ in points], [value for _, value in points]
            ax.plot(x, y, marker, color=color, markerfacecolor=fill, ms=size, mew=0.9)
    ax.grid(axis="y")


def _described(row: Row, differing: Sequence[str]) -> str:
    """Describe the kind of a trial: what fails, the link, and in what the figures differ."""
    keys = {"outage_what", "outage_where", "reliability", *differing} | (
        {"link"} if _has_link(row) else set()
    )
    # A discovery server is neither at the publisher nor at the subscriber.
    if row["outage_what"] == "server":
        keys.remove("outage_where")
    return describe({key: row[key] for key in keys})


def _has_link(row: Row) -> bool:
    """Return whether the links of a trial are not plain, whatever forwards their packets."""
    link = AXES["link"].parsed(row["link"])
    return link is None or bool(link != Link(engine=link.engine))
