"""Write the values of an answer as text: what was measured, levels and changes, with their intervals."""

from __future__ import annotations

from k8sdds.analysis.requirements import Judgement
from k8sdds.analysis.statistics import Contrast
from k8sdds.model.application import Application, Optimize
from k8sdds.report import formats
from k8sdds.results.metrics import METRICS


def measured(application: Application, judgement: Judgement) -> str:
    """Return a value with its interval and its unit; all delays of an application have the same one."""
    if judgement.value is None:
        return "–"
    unit, scale = METRICS[judgement.requirement.metric].unit, 1.0
    if unit == "µs" and _is_slow(application):
        unit, scale = "ms", 1e-3
    text = f"{number(scale * judgement.value)}\N{NO-BREAK SPACE}{'%' if unit.startswith('%') else unit}"
    if judgement.low is None or judgement.high is None:
        return text
    # The interval of two very different values has bounds that nobody can use.
    most, least = 1000 * judgement.value, judgement.value / 1000
    low = "0" if judgement.low < least else number(scale * judgement.low)
    high = f"over {number(scale * most)}" if 0 < most < judgement.high else number(scale * judgement.high)
    return f"{text} [{low}, {high}]"


def mean(application: Application, judgement: Judgement) -> str:
    """Return a value with its unit."""
    return measured(application, judgement).partition(" [")[0]


def number(value: float) -> str:
    """Return a number with as many digits as limits have, so that no bound looks as if it were beyond one."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" if value >= 10 else f"{value:.3g}"


def _is_slow(application: Application) -> bool:
    """Return whether delays are in milliseconds: the limits of an application are in the order of its delays."""
    limits = [each.limit for each in application.requirements if each.metric.startswith("delay_")]
    return max(limits, default=1000) >= 1000


def confidence(level: float) -> str:
    """Return a confidence in percent."""
    return f"{100 * level:.4g} %"


def level(contrast: Contrast | None, scale: float) -> str:
    """Return a level with its interval, so many times as large; `–` if it is not known."""
    if contrast is None:
        return "–"
    low, high = (None if bound is None else scale * bound for bound in contrast.interval())
    return formats.level(scale * contrast.ratio, low, high)


def cost_unit(optimize: Optimize) -> tuple[float, str]:
    """Return the factor and the unit in which the costs of configurations are shown."""
    return (1, "% of one core") if optimize == "cpu" else (100, "% of the limit")


def percent(contrast: Contrast | None, bounds: tuple[float | None, float | None]) -> str:
    """Return a change with its interval in percent, such as `+30 [+27, +33]`, or that it has none."""
    if contrast is None:
        return "not compared"
    low, high = (None if ratio is None else 100 * (ratio - 1) for ratio in bounds)
    change = formats.change(100 * (contrast.ratio - 1), low, high)
    return f"{change}, no interval" if None in bounds else change
