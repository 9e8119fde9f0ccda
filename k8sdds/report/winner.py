"""State in one sentence per metric which network, or which side of a comparison, is shown to be the best."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from k8sdds.analysis.comparison import Comparison, Side, of_networks
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.statistics import confidence_of
from k8sdds.report import formats
from k8sdds.report.settings import Point
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, by_columns, grouped

if TYPE_CHECKING:
    from k8sdds.report.content import Content


def winner_sentences(content: Content) -> list[str]:
    """Return for each headline metric which network is shown to be the best, or that none is.

    Of an application, the verdict of its recommendation is returned: what is best depends on its requirements.
    The networks are compared at the point of a setting at which most were measured. The baseline is one of them only if
    there is just one other network: what the others cost compared with it is their overhead.
    """
    if content.verdict:
        return [*content.verdict]
    best: list[Row] = []
    for setting in content.settings:
        for point in sorted(setting.points, key=Point.rank, reverse=True):
            trials = [row for row in setting.trials if Point.of(row) == point]
            if len({row[UNIT] for row in trials}) > len({row[UNIT] for row in best}):
                best = trials
    best.sort(key=lambda row: content.networks.index(row[UNIT]))
    others = [row for row in best if row[UNIT] != content.baseline]
    compared = others if len({row[UNIT] for row in others}) > 1 else best
    return _sentences(of_networks(compared, confidence_of(content.campaign)), content.best)


def of_comparison(sides: Sequence[Side], compared: Sequence[Comparison]) -> list[str]:
    """Return the same for the sides of a comparison, at the point with most subscribers and a payload near 1 KiB."""
    pairs = zip(itertools.combinations(short_names([side.name for side in sides]), 2), compared, strict=True)
    rows = [{"side_a": a, "side_b": b} | row for (a, b), pair in pairs for row in pair.rows]
    # The best on one network would not be the best side.
    return _sentences(rows, rows) if len({row["network"] for row in rows}) == 1 else []


def _sentences(rows: Sequence[Row], trials: Sequence[Row]) -> list[str]:
    """Return a sentence for each metric; it names the settings that differ among all trials of the metric's test."""
    found = []
    for (_, test), own in by_columns(rows, ("quantity", "test")).items():
        places = grouped(own, lambda row: str([row.get(name) for name in CONDITION]))
        pairs = max(places.values(), key=lambda pairs: Point.of(pairs[0]).rank())
        name = formats.cell_name(pairs[0], [row for row in trials if row["test"] == test])
        found.append(f"{formats.capital(name)}: {_sentence(pairs)}.")
    return found


def _sentence(pairs: Sequence[Row]) -> str:
    """Return which side is the best in one cell, and than which others."""
    gain = METRICS[pairs[0]["quantity"]].gain
    sign = 1 if gain else -1
    logs: dict[str, list[float]] = defaultdict(list)
    for row in pairs:
        logs[row["side_b"]].append(sign * math.log(row["ratio"]))
        logs[row["side_a"]].append(-sign * math.log(row["ratio"]))
    best = max(logs, key=lambda name: math.fsum(logs[name]) / len(logs[name]))
    beaten = {}
    for row in pairs:
        if row["side_b"] == best and row["better"]:
            beaten[row["side_a"]] = row["ratio"], row["ci_low"], row["ci_high"]
        elif row["side_a"] == best and row["worse"]:
            beaten[row["side_b"]] = 1 / row["ratio"], 1 / row["ci_high"], 1 / row["ci_low"]
    if not beaten:
        return _undecided([row for row in pairs if best in (row["side_a"], row["side_b"])], best, gain)
    nearest_first = sorted(beaten, key=lambda name: sign * beaten[name][0])
    changes = [f"{_change(*beaten[name], gain)} {name}" for name in nearest_first]
    rest = [name for name in logs if name != best and name not in beaten]
    doubt = f", not shown to be {'faster' if gain else 'lower'} than {formats.join(rest)}" if rest else ""
    return f"{best} is {formats.join(changes)}{doubt}"


def _change(ratio: float, low: float, high: float, gain: bool) -> str:
    """Return by how much a side is better: `1.25 times [1.12, 1.39] as fast as`, or `36 % [22, 48] lower than`."""
    if gain:
        return formats.level(ratio, low, high).replace(" ", " times ", 1) + " as fast as"
    text = formats.percent(100 * (1 - ratio), 100 * (1 - high), 100 * (1 - low), unit=True)
    return f"{text} lower than"


def _undecided(pairs: Sequence[Row], best: str, gain: bool) -> str:
    """Return that no side is shown to be the best, and how many repetitions would show it."""
    word, most = ("faster", "fastest") if gain else ("lower", "lowest")
    first = pairs[0]
    if all(row["p"] is None for row in pairs):
        if min(first["n_a"], first["n_b"]) > 1:
            return "all repetitions give the same number, so there is no test"
        return f"one repetition cannot show which is {word}: measure at least 3 (--repeat 3)"
    text = f"none is shown to be the {most}"
    if len(pairs) == 1:
        text = f"neither {first['side_a']} nor {first['side_b']} is shown to be {word}"
    needed = [row["repetitions"] for row in pairs]
    if None in needed:
        return text
    n = max(needed)
    return f"{text}; about {n} repetitions (--repeat {n}) would show that {best} is, if the values stay as they are"


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names without the folders, and without the run folder, that all of them have in common."""
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    common = "".join(letters[0] for letters in same)
    length = max(common.rfind("/"), common.rfind("@")) + 1
    return [name[length:] for name in names]
