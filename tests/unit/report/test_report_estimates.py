"""Figures show the means, intervals and trials that they are given, and estimate nothing themselves."""

import itertools
import math

import pytest
from matplotlib.collections import LineCollection, PathCollection

from k8sdds.networks.network import NetworkColor
from k8sdds.report.figures import estimates, levels
from k8sdds.report.figures.canvas import grid
from k8sdds.report.figures.estimates import Estimate, Limits
from k8sdds.workloads import HEADLINES

STYLES = {
    "host": NetworkColor("#4d4d4d", "#c9c9cf", "o"),
    "weavenet": NetworkColor("#d55e00", "#ff9248", "D"),
}
# No interval of these means could be computed from these trials.
SERIES = {
    "host": {0.0: Estimate(5.0, 1.0, 6.0, [70.0, 80.0], text="5.00"), 1.0: Estimate(7.0, 6.5, 9.0, [90.0])},
    "weavenet": {
        0.0: Estimate(3.0, 2.0, 8.0, [60.0, 65.0], (4.0,), "3.00"),
        1.0: Estimate(2.0, None, None, [50.0]),
    },
}
STEP = 0.2


@pytest.fixture
def ax():
    _, (ax,) = grid([2], 1, 4, left=0.5, right=0.5, head=0.5, foot=0.5)
    return ax


def points(ax):
    """The points of all collections of markers."""
    found = [item for item in ax.collections if isinstance(item, PathCollection)]
    return [tuple(map(float, point)) for item in found for point in item.get_offsets()]


def segments(ax):
    """The ends of all lines that are no curves."""
    found = [item for item in ax.collections if isinstance(item, LineCollection)]
    return sorted(
        tuple(tuple(map(float, end)) for end in line) for item in found for line in item.get_segments()
    )


def test_series_have_the_given_means_intervals_and_trials(ax):
    estimates.along(ax, SERIES, STYLES, STEP, dashed=["weavenet"])
    curves = {line.get_color(): line for line in ax.lines if len(line.get_xdata())}
    assert set(curves) == {style.light for style in STYLES.values()}
    for (label, shift), dashed in zip(
        (("host", -STEP / 2), ("weavenet", STEP / 2)), (False, True), strict=True
    ):
        curve = curves[STYLES[label].light]
        assert list(curve.get_ydata()) == [item.mean for item in SERIES[label].values()]
        assert list(curve.get_xdata()) == pytest.approx([shift, 1 + shift])
        assert (curve.get_marker(), curve.is_dashed()) == (STYLES[label].marker, dashed)
    assert segments(ax) == [
        ((-0.1, 1.0), (-0.1, 6.0)),
        ((0.1, 2.0), (0.1, 8.0)),
        ((0.1, 3.0), (0.1, 4.0)),
        ((0.9, 6.5), (0.9, 9.0)),
    ]
    assert sorted(y for _, y in points(ax)) == [4.0, 50.0, 60.0, 65.0, 70.0, 80.0, 90.0]


def test_rows_have_the_given_means_intervals_and_trials(ax):
    given = {label: series[0.0] for label, series in SERIES.items()}
    estimates.rows(ax, given, ["host", "kube-router", "weavenet"], STYLES)
    assert segments(ax) == [((1.0, 0.0), (6.0, 0.0)), ((2.0, 2.0), (8.0, 2.0)), ((3.0, 2.0), (4.0, 2.0))]
    assert sorted(x for x, _ in points(ax)) == [4.0, 60.0, 65.0, 70.0, 80.0]
    means = [line for line in ax.lines if line.get_marker() in {style.marker for style in STYLES.values()}]
    drawn = [float(x) for line in means for x in line.get_xdata()]
    assert sorted(x for x in drawn if not math.isnan(x)) == [3.0, 5.0]
    assert [text.get_text() for text in ax.texts] == ["5.00", "no value", "3.00"]


@pytest.mark.parametrize("ratio", [False, True])
def test_range_contains_all_trials_and_cuts_huge_intervals(ratio):
    item = Estimate(10.0, 1e-9, 1e9, [8.0, 12.0])
    low, high = estimates.reach([item], ratio)[:2]
    assert low < 8 and 12 < high < 20
    assert (low > 0) or not ratio


def test_end_labels_do_not_overlap(ax):
    colors = itertools.cycle(STYLES.values())
    styles = {f"network-{number}": next(colors) for number in range(8)}
    series = {label: {0.0: Estimate(1.0, None, None, [1.0])} for label in styles}
    ax.set_ylim(0, 2)
    estimates.end_labels(ax, series, styles)
    heights = sorted(text.get_position()[1] * 2 * 72 for text in ax.texts)
    assert all(b - a > estimates.FONT for a, b in itertools.pairwise(heights))


@pytest.mark.parametrize("kind", ["single", "paper", "scaling"])
def test_a_caption_states_the_axis_of_all_panels(reports, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(levels, "save", lambda drawing, *args: (drawing, args[-1]))
    content = reports(kind).content
    figures = [
        levels.headline(content, setting, tmp_path, name)
        for setting in content.settings
        for name in HEADLINES
    ]
    figures = [figure for figure in figures if figure]
    assert figures
    for drawing, caption in figures:
        expected = "log" if "Logarithmic axis" in caption else "linear"
        assert expected in {ax.get_yscale() for ax in drawing.axes} | {ax.get_xscale() for ax in drawing.axes}
    assert any("Logarithmic" in caption for _, caption in figures) == (kind != "single")


@pytest.mark.parametrize("logarithmic", [True, False])
@pytest.mark.parametrize(("low", "high"), [(1, 1e6), (3, 4), (48, 52), (0.02, 0.9), (17, 190), (99, 1001)])
def test_every_axis_has_at_least_three_labels(ax, low, high, logarithmic):
    estimates.scale(ax, "y", Limits(low, high, logarithmic))
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert 3 <= len(labels) <= 7 and len(set(labels)) == len(labels)
    assert all(low <= tick <= high for tick in ax.get_yticks())


def test_an_axis_of_levels_that_are_all_0_has_a_length():
    limits = estimates.level_axis([Estimate(0.0, None, None, [0.0, 0.0])])
    assert limits.low == 0 < limits.high
