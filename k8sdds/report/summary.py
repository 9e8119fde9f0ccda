"""The answer in words: which network costs what, chosen so that it can be read in half a minute.

Words follow from intervals: where an interval spans no difference, none is claimed; where there is no
interval (one repetition), numbers are given and no judgement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from k8sdds.analysis import background_cost, contrast, overhead
from k8sdds.analysis.conditions import CONDITION, UNIT, describe, payload
from k8sdds.report import formats
from k8sdds.report.content import Cell, Content, Curve, Point, Row, Setting
from k8sdds.results.metrics import Metric

THROUGHPUT, LATENCY = MAIN = ("throughput_mbps", "latency_p90_us")
MAX_POINTS = 3
MATTERS_PERCENT = 10
"""Where not even this difference would have been detected, "no difference seen" would say too much."""


@dataclass
class Statement:
    """One setting's answer: a lead (`Unicast, reliable, 1 subscriber`) and sentences."""

    lead: str
    sentences: list[str] = field(default_factory=list)


def answer(content: Content) -> list[Statement]:
    """The answer, a statement per setting; one statement that says so where nothing valid was measured."""
    if not content.settings:
        return [Statement("No result", [_nothing(content)])]
    statements = [_setting(content, setting) for setting in content.settings]
    statements += _contrasts(content)
    return [statement for statement in statements if statement.sentences]


def caveats(content: Content) -> list[str]:
    """What must be read with the answer: completeness, intervals, scheduling, warnings, testbed."""
    notes = []
    valid = len(content.best)
    if content.untried or content.failed:
        parts = [f"{valid} of {content.planned} trials have a valid attempt"]
        if content.failed:
            parts.append(f"{len(content.failed)} have only invalid ones")
        if content.untried:
            parts.append(f"{_were(content.untried)} not tried")
        notes.append("; ".join(parts) + ".")
    if content.settings:
        repetitions = set(content.levels["n"])
        if repetitions == {1}:
            notes.append(
                "One repetition: no interval, no difference can be told from chance; repeat 3 times or more."
            )
        elif 1 in repetitions:
            notes.append("Cells with one valid repetition have no interval (n = 1).")
    if content.settings and not content.baseline:
        notes.append("The campaign has no baseline network: levels only.")
    for lack, labels in _without_baseline(content) if content.baseline else []:
        notes.append(f"{content.baseline} {lack}: {formats.listed(labels)} as levels only.")
    compared = [
        row for s in content.settings for name in (THROUGHPUT, LATENCY) for row in s.overheads(name).values()
    ]
    if compared and sum(_undecided(row) for row in compared) > len(compared) / 2:
        notes.append(
            "Repetitions differ so much that most comparisons are undecided: repeat more often, measure"
            " longer, or on a machine that does nothing else."
        )
    if any(setting.scheduling for setting in content.settings):
        notes.append("Some trials had more participants than cores: their numbers include scheduling.")
    warned = sum(1 for texts in content.best["warnings"] if texts)
    if warned:
        notes.append(f"{formats.count(warned, 'valid trial')} came with warnings; see the report.")
    notes += [f"Not metered: {reason}." for reason in background_cost.missing_readings(content.run)]
    if content.testbed.startswith("lab"):
        notes.append(f"Measured in the {content.testbed}. Compare within this campaign only.")
    else:
        notes.append(f"Testbed: {content.testbed}. Compare within this campaign only.")
    return notes


def _were(n: int) -> str:
    """`1 was`, `3 were`."""
    return f"{n} was" if n == 1 else f"{n} were"


def _nothing(content: Content) -> str:
    if not len(content.table):
        return "No attempt has ended yet. Continue the campaign with: k8sdds run --resume FOLDER"
    reasons: dict[str, int] = {}
    for row in content.invalid:
        word = str(row["reason"] or "no reason recorded").split(":")[0]
        reasons[word] = reasons.get(word, 0) + 1
    said = formats.listed([f"{word} ({n})" for word, n in sorted(reasons.items(), key=lambda item: -item[1])])
    attempts = formats.count(len(content.table), "attempt")
    return f"None of {attempts} is valid, so nothing can be said. Reasons: {said}."


def _setting(content: Content, setting: Setting) -> Statement:
    statement = Statement(setting.title)
    compared = [point for point in setting.points if _rows(setting, point)]
    chosen = _chosen(compared)
    for point in chosen:
        statement.sentences.append(f"{setting.point_words(point)}: {_point(content, _rows(setting, point))}")
    if len(compared) > len(chosen):
        more = len(compared) - len(chosen)
        statement.sentences.append(f"{formats.count(more, 'further combination')} in the tables.")
    if not compared:
        statement.sentences += _levels_only(content, setting)
    statement.sentences += [_count(setting, quantity, rows) for quantity, rows in setting.counts]
    return statement


def _count(setting: Setting, quantity: Metric, rows: dict[Cell, Row]) -> str:
    """`IP fragments of a sample, counted: host 12 …`; counts that differ between repetitions are all told."""
    said = []
    for (label, at), row in rows.items():
        low, high = row["minimum"], row["maximum"]
        where = f" ({setting.point_words(at)})" if len(setting.points) > 1 else ""
        said.append(f"{label}{where} {low:g}" + (f" to {high:g}" if high != low else ""))
    return f"{formats.capital(quantity.title)}, counted: {formats.listed(said)}."


def _chosen(points: list[Point]) -> list[Point]:
    """Of few all; else the first, the one nearest to 1 KiB (the study's point for claims) and the last."""
    if len(points) <= MAX_POINTS:
        return points
    middle = min(points[1:-1], key=lambda point: abs(point.payload_bytes - 1024))
    return [points[0], middle, points[-1]]


def _rows(setting: Setting, point: Point) -> dict[str, dict[str, Row]]:
    """Overheads at a point by quantity and network, the smallest overhead first."""
    found = {}
    for name in (THROUGHPUT, LATENCY):
        rows = {label: row for (label, at), row in setting.overheads(name).items() if at == point}
        if rows:
            found[name] = dict(sorted(rows.items(), key=lambda item: item[1]["overhead_percent"]))
    return found


def _point(content: Content, found: dict[str, dict[str, Row]]) -> str:
    labels = {label for rows in found.values() for label in rows}
    if len(labels) == 1 and not any(_undecided(row) for rows in found.values() for row in rows.values()):
        label = labels.pop()
        costs = [_cost(content, name, rows[label]) for name, rows in found.items()]
        return f"{label} {' and '.join(costs)}."
    return "; ".join(_spread(content, name, rows) for name, rows in found.items()) + "."


def _spread(content: Content, name: str, rows: dict[str, Row]) -> str:
    """Best and worst network of one quantity, and which of them cannot be told from baseline or best."""
    what, verb = ("throughput", "falls") if name == THROUGHPUT else ("p90 latency", "grows")
    same = {label: row for label, row in rows.items() if row["seen"] is False and not _undecided(row)}
    undecided = {label: row for label, row in rows.items() if _undecided(row)}
    told = {label: row for label, row in rows.items() if row["seen"] is not False}
    worse = [label for label, row in told.items() if row["overhead_percent"] >= 0]
    parts = [
        f"{label} is better than {content.baseline} by {_amount(row, turned=True)}"
        for label, row in told.items()
        if row["overhead_percent"] < 0
    ]
    if same:
        which = "any network" if 1 < len(same) == len(rows) else formats.listed(list(same))
        parts.append(f"no difference from {content.baseline} seen for {which} ({_spans(same.values())})")
    if worse:
        best, worst = worse[0], worse[-1]
        against = "" if parts else f" against {content.baseline}"
        if len(worse) == 1:
            parts.append(f"{verb} with {best}, by {_amount(rows[best])}{against}")
        elif parts:
            parts.append(f"{verb} most with {worst}, by {_amount(rows[worst])}")
        else:
            tied = _tied(content, rows[best], worse[1:-1], name)
            alike = f" (no difference seen between it and {formats.listed(tied)})" if tied else ""
            parts.append(f"{verb} least with {best}, by {_amount(rows[best])}{against}{alike}")
            parts.append(f"most with {worst}, by {_amount(rows[worst])}")
    if undecided:
        which = "every network" if 1 < len(undecided) == len(rows) else formats.listed(list(undecided))
        parts.append(f"undecided for {which} ({_spans(undecided.values())})")
    return f"{what}{' ' if parts[0].startswith(verb) else ': '}{', '.join(parts)}"


def _undecided(row: Row) -> bool:
    """An interval that spans 0 but could not have shown a difference that matters either."""
    return row["seen"] is False and row["detectable_percent"] > MATTERS_PERCENT


def _tied(content: Content, best: Row, others: list[str], name: str) -> list[str]:
    """Networks between best and worst whose paired difference to the best spans no difference."""
    same = content.by_condition.get(tuple(best[key] for key in CONDITION), [])
    trials = [row for row in same if row[UNIT] in (best[UNIT], *others)]
    ratios = overhead.ratios(trials, best[UNIT], name)
    return [label for label in others if label in ratios and ratios[label].differs is False]


def _cost(content: Content, name: str, row: Row) -> str:
    what = "throughput" if name == THROUGHPUT else "p90 latency"
    if row["seen"] is False:
        return f"shows no difference from {content.baseline} in {what} ({_spans([row])})"
    if row["overhead_percent"] < 0:
        more = "more throughput" if name == THROUGHPUT else "less p90 latency"
        return f"has {_amount(row, turned=True)} {more} than {content.baseline}"
    if name == THROUGHPUT:
        return f"costs {_amount(row)} of {content.baseline}'s throughput"
    return f"has {_amount(row)} more p90 latency than {content.baseline}"


def _amount(row: Row, turned: bool = False) -> str:
    """`30 % [27, 33]`; turned: of a negative overhead, as a gain."""
    value, low, high = row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"]
    if turned:
        value, low, high = -value, None if high is None else -high, None if low is None else -low
    centre, _, bracket = formats.percent(value, low, high).partition(" ")
    # A line must not break between a number and its sign.
    return f"{centre}\N{NO-BREAK SPACE}% {bracket}".rstrip()


def _spans(rows: Iterable[Row]) -> str:
    worst = max(row["detectable_percent"] for row in rows)
    return f"95 % interval spans 0; smallest detectable {formats.detectable(worst)}"


def _levels_only(content: Content, setting: Setting) -> list[str]:
    sentences = []
    for name, unit in ((THROUGHPUT, "Mbit/s"), (LATENCY, "µs p90 latency")):
        cells = setting.levels(name)
        for point in _chosen(sorted({at for _, at in cells})):
            said = [
                f"{label} {formats.level(row['mean'], row['ci_low'], row['ci_high'])} {unit}"
                for (label, at), row in cells.items()
                if at == point
            ]
            more = f", and {len(said) - 4} more" if len(said) > 4 else ""
            sentences.append(f"{setting.point_words(point)}: {formats.listed(said[:4])}{more}.")
    return sentences


def _without_baseline(content: Content) -> list[tuple[str, list[str]]]:
    """Settings in which the baseline is missing, in words, with the networks measured there."""
    gathered = []
    for setting in content.settings:
        base = {(row["test"], Point.of(row)) for row in setting.trials if row[UNIT] == content.baseline}
        lacking = [row for row in setting.trials if (row["test"], Point.of(row)) not in base]
        if not lacking:
            continue
        where = setting.title[0].lower() + setting.title[1:]
        if base:
            points = sorted({Point.of(row) for row in lacking})
            where += f" at {formats.listed([setting.point_words(point) for point in points])}"
        gathered.append((f"has no valid trial in {where}", sorted({row[UNIT] for row in lacking})))
    return gathered


def _multicast(content: Content) -> list[str]:
    """Who carries multicast, and where it overtakes unicast as subscribers are added."""
    trials = [row for setting in content.settings for row in setting.trials]
    measured = {row[UNIT] for row in trials if row["transport"] == "multicast"}
    if not measured:
        return []
    facts = content.campaign.get("networks")
    facts = facts if isinstance(facts, dict) else {}
    carriers = {label for label, fact in facts.items() if isinstance(fact, dict) and fact.get("multicast")}
    labels = {row[UNIT] for row in trials}
    sentences = []
    if measured <= carriers and not labels <= carriers:
        sentences.append(f"Multicast is carried by {formats.listed(sorted(carriers & labels))} only.")
    elif measured != labels:
        sentences.append(f"Multicast was measured on {formats.listed(sorted(measured))} only.")
    curves, contrasts = content.curves, content.contrasts(THROUGHPUT)
    for (label, transport, size, rest), points in curves.items():
        unicast = curves.get((label, "unicast", size, rest))
        if transport == "multicast" and unicast:
            ahead = [
                row["subscribers"]
                for row in contrasts
                if (row[UNIT], row["payload_bytes"], row["value"]) == (label, size, "multicast")
                and row["seen"]
                and row["ratio"] > 1
            ]
            sentences.append(_crossing(label, size, points, unicast, sorted(ahead)))
    return sentences


def _contrasts(content: Content) -> list[Statement]:
    """What another setting changes within each network: at most subscribers, nearest to 1 KiB."""
    multicast = _multicast(content)
    lead = "Multicast against unicast"
    statements = {lead: Statement(lead, multicast)} if multicast else {}
    for name, what in ((THROUGHPUT, "throughput"), (LATENCY, "p90 latency")):
        for versus, rows, setting in contrast.compared(content.contrasts(name)):
            at = min(
                (Point.of(row) for row in rows), key=lambda p: (-p.subscribers, abs(p.payload_bytes - 1024))
            )
            shown = {row[UNIT]: row for row in rows if Point.of(row) == at}
            said = [f"{label} {_change(shown[label])}" for label in content.networks if label in shown]
            lead = formats.capital(versus)
            where = f"{formats.count(at.subscribers, 'subscriber')}, {payload(at.payload_bytes)}"
            where = ", ".join(filter(None, (where, describe(setting))))
            statement = statements.setdefault(lead, Statement(lead))
            statement.sentences.append(f"{where}: {what}: {'; '.join(said)}.")
    return list(statements.values())


def _change(row: Row) -> str:
    bracket = formats.interval(row["ci_low_percent"], row["ci_high_percent"])
    if row["seen"] is False:
        return f"{'undecided' if _undecided(row) else 'no difference seen'}, {bracket}\N{NO-BREAK SPACE}%"
    value = row["change_percent"]
    if value >= 100:
        # 1150 % more is harder to picture than 12.5 times.
        low, high = row["ci_low_percent"], row["ci_high_percent"]
        times = formats.level(1 + value / 100, low and 1 + low / 100, high and 1 + high / 100)
        return f"{times.replace(' ', ' times ', 1)}" if bracket else f"{times} times"
    amount = formats.percent(value, row["ci_low_percent"], row["ci_high_percent"]).split(" ")[0]
    signed = amount if value < 0 else f"+{amount}"
    return f"{signed}\N{NO-BREAK SPACE}% {bracket}".rstrip()


def _crossing(label: str, size: int, multicast: Curve, unicast: Curve, ahead: list[int]) -> str:
    first, last = min(unicast), max(unicast)
    text = (
        f"{label}, {payload(size)}: from {first} to {last} subscribers, unicast goes from"
        f" {formats.number(unicast[first]['mean'])} to {formats.number(unicast[last]['mean'])} Mbit/s per"
        f" subscriber, multicast from {formats.number(multicast[min(multicast)]['mean'])} to"
        f" {formats.number(multicast[max(multicast)]['mean'])}"
    )
    if not ahead:
        return f"{text}; multicast is not seen ahead."
    return f"{text}; multicast is ahead with {formats.listed([str(n) for n in ahead])} subscribers."
