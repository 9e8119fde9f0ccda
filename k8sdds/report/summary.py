"""Summarize the results of a campaign in a few sentences that take about half a minute to read.

Statements are based on confidence intervals: if an interval spans 0, no difference is claimed. With only one
repetition there are no intervals, so the summary gives numbers without interpreting them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from k8sdds.analysis import capacities, contrast, limit, overhead
from k8sdds.analysis.conditions import CONDITION, UNIT, describe, differing
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.settings import THROUGHPUT, Cell, Curve, Point, Setting
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row
from k8sdds.workloads import HEADLINES

MAX_SENTENCES = 3
"""Largest number of sentences about one setting: the tables have the rest."""
RELEVANT_PERCENT = 10
"""A comparison that could have missed a difference of this size is "undecided", not "no difference seen"."""


@dataclass
class Statement:
    """The summary of one setting: a lead such as `Unicast, reliable, 1 subscriber`, and sentences."""

    lead: str
    sentences: list[str] = field(default_factory=list)


def answer(content: Content) -> list[Statement]:
    """Return one statement per setting and contrast, or one that explains why there is no result."""
    searches = _capacities(content)
    if not content.settings:
        return searches or [Statement("No result", [_no_result(content)])]
    statements = searches + [_summarize(content, setting) for setting in content.settings]
    statements += _contrasts(content)
    statements.append(Statement("Share of the machine's limit", _limits(content)))
    return [
        Statement(statement.lead, statement.sentences[:MAX_SENTENCES])
        for statement in statements
        if statement.sentences
    ]


def _capacities(content: Content) -> list[Statement]:
    """Return one statement per condition of the capacity searches, with a sentence per goal."""
    groups: dict[str, dict[str, list[str]]] = {}
    for row in content.capacities:
        # A title contains what distinguishes the searches, and always these.
        always = capacities.title_columns(row)
        alike = [other for other in content.capacities if capacities.title_columns(other) == always]
        shown = {*always, *differing(alike)}
        lead = formats.capital(f"capacity, {describe({name: row[name] for name in shown})}")
        found = groups.setdefault(lead, {}).setdefault(capacities.goal_of(row), [])
        found.append(f"{row[UNIT]} {formats.capacity(row)}")
    return [
        Statement(lead, [f"{formats.capital(goal)}: {'; '.join(texts)}." for goal, texts in goals.items()])
        for lead, goals in groups.items()
    ]


def _no_result(content: Content) -> str:
    if not len(content.attempts):
        return "No attempt has ended yet. Continue the campaign: k8sdds run --resume FOLDER"
    reasons = formats.join([f"{code} ({n})" for code, n in content.reasons])
    attempts = formats.count(len(content.attempts), "attempt")
    return f"None of {attempts} is valid, so there is no result. Reasons: {reasons}."


def _summarize(content: Content, setting: Setting) -> Statement:
    """Summarize one setting at one point: a sentence per metric, or the levels if there are no overheads."""
    compared = [point for point in setting.points if _overheads_at(setting, point)]
    if compared:
        point = max(compared, key=Point.rank)
        sentences = [
            f"{setting.point_label(point)}: {_spread(content, METRICS[name], rows)}."
            for name, rows in _overheads_at(setting, point).items()
        ]
    else:
        sentences = _levels_only(setting)
    sentences += [_exact_count(setting, metric, rows) for metric, rows in setting.counts]
    if len(compared) > 1:
        sentences.append(f"{formats.count(len(compared) - 1, 'further combination')} in the tables.")
    return Statement(setting.title, sentences)


def _exact_count(setting: Setting, metric: Metric, rows: dict[Cell, Row]) -> str:
    """Return exact counts, with their range if repetitions differ: `IP fragments of a sample: host 12, …`."""
    texts = []
    for (label, point), row in rows.items():
        low, high = row["minimum"], row["maximum"]
        place = f" ({setting.point_label(point)})" if len(setting.points) > 1 else ""
        texts.append(f"{label}{place} {low:g}" + (f" to {high:g}" if high != low else ""))
    return f"{formats.capital(metric.title)} (exact count): {formats.join(texts)}."


def _overheads_at(setting: Setting, point: Point) -> dict[str, dict[str, Row]]:
    """Return the overheads at a point by headline metric and network, the smallest first."""
    overheads = {}
    for name in HEADLINES:
        rows = {label: row for (label, at), row in setting.overheads(name).items() if at == point}
        if rows:
            overheads[name] = dict(sorted(rows.items(), key=lambda item: item[1]["overhead_percent"]))
    return overheads


def _spread(content: Content, metric: Metric, rows: dict[str, Row]) -> str:
    """Describe the best and the worst network, and the networks without a visible difference."""
    verb = "falls" if metric.gain else "grows"
    # A network with one repetition has no interval, next to those with one it is not known to be different.
    tested = any(row["seen"] is not None for row in rows.values())
    undecided = {
        label: row for label, row in rows.items() if is_undecided(row) or (tested and row["seen"] is None)
    }
    same = {label: row for label, row in rows.items() if row["seen"] is False and label not in undecided}
    different = {label: row for label, row in rows.items() if label not in same | undecided}
    worse = [label for label, row in different.items() if row["overhead_percent"] >= 0]
    parts = [
        f"{label} is better than {content.baseline} by {_amount(row, negated=True)}"
        for label, row in different.items()
        if row["overhead_percent"] < 0
    ]
    if same:
        networks = "any network" if 1 < len(same) == len(rows) else formats.join(list(same))
        worst_case = formats.detectable(max(row["detectable_percent"] for row in same.values()))
        parts.append(
            f"no difference from {content.baseline} seen for {networks} (95 % interval spans 0; smallest detectable"
            f" {worst_case})"
        )
    if worse:
        best, worst = worse[0], worse[-1]
        reference = "" if parts else f" relative to {content.baseline}"
        if len(worse) == 1:
            parts.append(f"{verb} with {best}, by {_amount(rows[best])}{reference}")
        elif parts:
            parts.append(f"{verb} most with {worst}, by {_amount(rows[worst])}")
        else:
            tied = _tied(content, rows[best], worse[1:-1], metric.name)
            note = f" (no difference seen between it and {formats.join(tied)})" if tied else ""
            parts.append(f"{verb} least with {best}, by {_amount(rows[best])}{reference}{note}")
            parts.append(f"most with {worst}, by {_amount(rows[worst])}")
    if undecided:
        networks = "every network" if 1 < len(undecided) == len(rows) else formats.join(list(undecided))
        parts.append(f"undecided for {networks}")
    return f"{metric.title}{' ' if parts[0].startswith(verb) else ': '}{', '.join(parts)}"


def is_undecided(row: Row) -> bool:
    """Return whether an interval spans 0 and could have missed a relevant difference."""
    return row["seen"] is False and row["detectable_percent"] > RELEVANT_PERCENT


def _tied(content: Content, best: Row, others: list[str], name: str) -> list[str]:
    """Return the networks whose paired difference to the best network spans 0."""
    same = content.by_condition.get(tuple(best[key] for key in CONDITION), [])
    trials = [row for row in same if row[UNIT] in (best[UNIT], *others)]
    ratios = overhead.ratios(trials, best[UNIT], name)
    return [label for label in others if label in ratios and ratios[label].differs is False]


def _amount(row: Row, negated: bool = False) -> str:
    """Return an overhead such as `30 % [27, 33]`. If negated, a negative overhead becomes a gain."""
    value, low, high = row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"]
    if negated:
        value, low, high = -value, None if high is None else -high, None if low is None else -low
    return formats.percent(value, low, high, unit=True)


def _levels_only(setting: Setting) -> list[str]:
    sentences = []
    for name in HEADLINES:
        metric, cells = METRICS[name], setting.levels(name)
        if not cells:
            continue
        point = max((at for _, at in cells), key=Point.rank)
        rows = {label: row for (label, at), row in cells.items() if at == point}
        slow = metric.unit == "µs" and max(row["mean"] for row in rows.values()) >= 10_000
        scale, unit = (1e-3, "ms") if slow else (1, metric.unit)
        levels = []
        for label, row in rows.items():
            numbers = (
                None if row[key] is None else scale * row[key] for key in ("mean", "ci_low", "ci_high")
            )
            levels.append(f"{label} {formats.level(*numbers)} {unit}")
        more = f", and {len(levels) - 4} more" if len(levels) > 4 else ""
        sentences.append(f"{setting.point_label(point)}: {metric.title}: {formats.join(levels[:4])}{more}.")
    return sentences


_ON_A_CURVE = ("payload_bytes", "subscribers", "nodes")
"""Conditions that the text of a curve contains, or that follow from them."""


def _multicast(content: Content) -> list[str]:
    """Describe which networks support multicast, and from how many subscribers it beats unicast."""
    trials = [row for setting in content.settings for row in setting.trials]
    measured = {row[UNIT] for row in trials if row["transport"] == "multicast"}
    if not measured:
        return []
    supporting = {label for label, facts in content.network_facts.items() if facts.get("multicast")}
    labels = {row[UNIT] for row in trials}
    sentences = []
    if measured <= supporting and not labels <= supporting:
        names = sorted(supporting & labels)
        sentences.append(f"Only {formats.join(names)} support{'s' if len(names) == 1 else ''} multicast.")
    elif measured != labels:
        sentences.append(f"Multicast was measured only on {formats.join(sorted(measured))}.")
    curves, contrasts = content.curves, content.contrasts(THROUGHPUT)
    multicast = {key: points for key, points in curves.items() if key[1] == "multicast"}
    settings = differing([next(iter(points.values())) for points in multicast.values()])
    for (label, _, size, rest), points in multicast.items():
        if unicast := curves.get((label, "unicast", size, rest)):
            setting = {
                name: next(iter(points.values()))[name] for name in settings if name not in _ON_A_CURVE
            }
            ahead = [row["subscribers"] for row in contrasts if _is_ahead(row, points)]
            place = ", ".join(filter(None, (label, payload(size), describe(setting))))
            sentences.append(_crossing(place, points, unicast, sorted(ahead)))
    return sentences


def _is_ahead(contrast: Row, multicast: Curve) -> bool:
    """Return whether a contrast shows that multicast is faster in a cell of this curve."""
    cell = multicast.get(contrast["subscribers"], {})
    same = all(contrast[name] == cell.get(name) for name in (UNIT, *CONDITION) if name in contrast)
    return bool(same and contrast["column"] == "transport" and contrast["seen"] and contrast["ratio"] > 1)


def _contrasts(content: Content) -> list[Statement]:
    """Describe each contrast at the most subscribers and the payload nearest to 1 KiB."""
    multicast = _multicast(content)
    lead = "Multicast against unicast"
    statements = {lead: Statement(lead, multicast)} if multicast else {}
    for name in HEADLINES:
        for versus, rows, setting in contrast.by_title(content.contrasts(name)):
            point = max((Point.of(row) for row in rows), key=Point.rank)
            at_point = {row[UNIT]: row for row in rows if Point.of(row) == point}
            changes = [
                f"{label} {_change(at_point[label])}" for label in content.networks if label in at_point
            ]
            lead = formats.capital(versus)
            place = f"{formats.count(point.subscribers, 'subscriber')}, {payload(point.payload_bytes)}"
            place = ", ".join(filter(None, (place, describe(setting))))
            statement = statements.setdefault(lead, Statement(lead))
            statement.sentences.append(f"{place}: {METRICS[name].title}: {'; '.join(changes)}.")
    return list(statements.values())


def _change(row: Row) -> str:
    bracket = formats.interval(row["ci_low_percent"], row["ci_high_percent"])
    if row["seen"] is False:
        return f"{'undecided' if is_undecided(row) else 'no difference seen'}, {bracket}\N{NO-BREAK SPACE}%"
    value = row["change_percent"]
    if value >= 100:
        # "12.5 times" is easier to understand than "1150 % more".
        low, high = row["ci_low_percent"], row["ci_high_percent"]
        times = formats.level(1 + value / 100, low and 1 + low / 100, high and 1 + high / 100)
        return f"{times.replace(' ', ' times ', 1)}" if bracket else f"{times} times"
    amount = formats.percent(value, row["ci_low_percent"], row["ci_high_percent"], unit=True)
    return amount if value < 0 else f"+{amount}"


def _limits(content: Content) -> list[str]:
    """Compare throughput with plain UDP at the payload nearest to 1 KiB, network by network."""
    rows = [row for row in content.limits if row["quantity"] == THROUGHPUT]
    sentences = []
    for raw, kind in itertools.product((False, True), (limit.PACKETS, limit.MACHINE)):
        group = [row for row in rows if row["raw"] is raw and row["limit"] == kind]
        if not group:
            continue
        point = min(map(Point.of, group), key=lambda at: (at.subscribers, abs(at.payload_bytes - 1024)))
        columns = limit.SAME if raw else CONDITION
        shown = _one_setting([row for row in group if Point.of(row) == point], columns)
        shown.sort(key=lambda row: content.networks.index(row[UNIT]))
        udp = "plain UDP packet by packet" if kind == limit.PACKETS else "plain UDP"
        subject, of = (
            (udp, content.baseline) if raw else (shown[0]["middleware"], f"{udp} on the same network")
        )
        texts = [f"{row[UNIT]} {formats.share(row)}" for row in shown]
        sentences.append(
            f"{payload(point.payload_bytes)}: {METRICS[THROUGHPUT].title} of {subject} relative to {of}:"
            f" {formats.join(texts)}."
        )
    return sentences


def _one_setting(rows: list[Row], columns: Sequence[str]) -> list[Row]:
    """Return the rows of the setting that most networks have. The tables contain the other settings."""
    settings = Counter(tuple(row[name] for name in columns) for row in rows)
    chosen = min(settings, key=lambda key: (-settings[key], str(key)))
    return [row for row in rows if tuple(row[name] for name in columns) == chosen]


def _crossing(place: str, multicast: Curve, unicast: Curve, ahead: list[int]) -> str:
    first, last = min(unicast), max(unicast)
    text = (
        f"{place}: from {first} to {last} subscribers, unicast goes from"
        f" {formats.number(unicast[first]['mean'])} to {formats.number(unicast[last]['mean'])} Mbit/s per"
        f" subscriber, multicast from {formats.number(multicast[min(multicast)]['mean'])} to"
        f" {formats.number(multicast[max(multicast)]['mean'])}"
    )
    if not ahead:
        return f"{text}; multicast is not seen to be faster."
    return f"{text}; multicast is faster with {formats.join([str(n) for n in ahead])} subscribers."
