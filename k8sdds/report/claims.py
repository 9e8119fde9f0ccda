"""Show judged claims as a table, CSV, JSON and HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from k8sdds.claims.evidence import PointData
from k8sdds.claims.judge import VERDICTS, ClaimResult, Verdict
from k8sdds.claims.model import Claims, Part
from k8sdds.claims.reasons import TestedPoint, describe_region, describe_value
from k8sdds.report import formats
from k8sdds.report.export import Findings
from k8sdds.report.table import Cell, Table
from k8sdds.results.metrics import METRICS

COLUMNS = (
    "claim", "paper", "verdict", "reason", "source", "imported", "source_verdict", "source_reason", "part",
    "quantity", "point", "claimed_ratio_low", "claimed_ratio_high", "published", "ratio", "ratio_low",
    "ratio_high", "n", "p_inside", "p_outside", "counts",
)  # fmt: skip
"""Columns of claims.csv: one row per claim, source and point; ratios with their 95 % intervals.

Several run folders together are a source, as is each of them. `n` is then the number of runs.
"""


def rows(judged: list[ClaimResult]) -> list[dict[str, Any]]:
    """Return all tests as rows with the columns COLUMNS."""
    result = []
    for claim in judged:
        base = {"claim": claim.claim.id, "paper": claim.claim.paper, "verdict": claim.verdict,
                "reason": claim.reason}  # fmt: skip
        sources = [source for verdict in claim.verdicts for source in (verdict, *verdict.alone)]
        points = [(verdict, tested) for verdict in sources for tested in verdict.points]
        result += [base | _row(claim, verdict, tested) for verdict, tested in points] or [base]
    return [{name: row.get(name) for name in COLUMNS} for row in result]


def _row(claim: ClaimResult, verdict: Verdict, tested: TestedPoint) -> dict[str, Any]:
    contrast, counts = tested.data.contrast, tested.data.counts
    ratio, (low, high) = (contrast.ratio, contrast.interval()) if contrast else (None, (None, None))
    claimed_low, claimed_high = (bound if 0 < bound < float("inf") else None for bound in tested.region)
    return {
        "source": verdict.source, "imported": verdict.imported, "source_verdict": verdict.verdict,
        "source_reason": verdict.reason, "part": tested.part + 1,
        "quantity": claim.claim.parts[tested.part].quantity,
        "point": ", ".join(f"{key}={value}" for key, value in tested.data.values.items()),
        "claimed_ratio_low": claimed_low, "claimed_ratio_high": claimed_high, "published": tested.published,
        "ratio": ratio, "ratio_low": low, "ratio_high": high,
        "n": contrast.n if contrast else len(counts),
        "p_inside": tested.p_inside, "p_outside": tested.p_outside,
        "counts": " ".join(f"{count:g}" for count in counts) or None,
    }  # fmt: skip


def findings(claims: Claims, judged: list[ClaimResult]) -> Findings:
    """Return the verdicts for the terminal and the files claims.html, claims.csv and claims.json."""
    every = rows(judged)
    notes = [
        f"Every verdict is the result of tests at the {100 * claims.level:g} % level: one-sided t tests on log ratios,"
        " two for equivalence. A contradiction must remain significant after Holm's correction over all points.",
        "Several runs are tested together: their estimates are the values of the t test. Of several variants of the"
        " conditions, each must pass its test at the level divided by their number.",
        "Numbers are published overheads or ratios by payload, and the results with 95 % intervals.",
        "If the lab only models a network, the best possible verdict is “consistent with the model”.",
    ]
    lead = [f"{summary(judged)}.", f"{chance(claims, judged)}."]
    heading, tables = claims.title or claims.name, [_table(judged)]
    return Findings(
        "claims", heading, claims.source, lead, tables, notes, _data(claims, judged, every), every, COLUMNS
    )


def _data(claims: Claims, judged: list[ClaimResult], every: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "claims": claims.name,
        "source": claims.source,
        "level": claims.level,
        "verdicts": {verdict: [j.claim.id for j in judged if j.verdict == verdict] for verdict in VERDICTS},
        "tested": _tested(judged), "supported_by_chance": claims.level * _tested(judged),
        "judged": [
            {
                "id": claim.claim.id, "claim": claim.claim.claim, "paper": claim.claim.paper,
                "note": claim.claim.note, "verdict": claim.verdict, "reason": claim.reason,
                "command": claim.claim.command, "minutes": claim.claim.minutes,
                "imported": claim.overall.get(True), "ours": claim.overall.get(False),
            }
            for claim in judged
        ],
        "rows": every,
    }  # fmt: skip


def _table(judged: Sequence[ClaimResult]) -> Table:
    rows = [
        [Cell(one.claim.id, one.claim.claim, " · ".join(filter(None, (one.claim.paper, one.claim.note)))),
         Cell(_published(one)), Cell(_results(one, True)), Cell(_results(one, False)),
         Cell(one.verdict, one.reason, mark=one.verdict)]
        for one in judged
    ]  # fmt: skip
    return Table("Verdicts", ("claim", "published", "imported", "measured", "verdict"), rows)


def summary(judged: list[ClaimResult]) -> str:
    """Return the number of claims per verdict: `3 supported, 1 contradicted, …`."""
    counts = Counter(claim.verdict for claim in judged)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def chance(claims: Claims, judged: list[ClaimResult]) -> str:
    """Return how many claims were tested, and how many of so many would be supported if none was true."""
    tested = _tested(judged)
    by_chance = f"about {claims.level * tested:.2g} would be supported by chance"
    return f"{formats.count(tested, 'claim')} tested; if all were false, {by_chance}"


def _tested(judged: list[ClaimResult]) -> int:
    return sum(claim.tested for claim in judged)


def _published(judged: ClaimResult) -> str:
    """Return the published numbers of all parts, or the claimed region if no numbers were published."""
    lines = []
    for part in judged.claim.parts:
        if part.published is None:
            lines.append(f"ratio {describe_region(part.region(0))}")
            continue
        unit = "" if part.published_as in ("ratio", "level") else " %"
        numbers = [(point, f"{number:g}") for point, number in zip(part.points, part.published, strict=True)]
        grouped = _by_network(numbers)
        lines += [*grouped[:-1], grouped[-1] + unit]
    return "\n".join(lines) or "–"


def _results(judged: ClaimResult, imported: bool) -> str:
    """Return the results in imported run folders, or in measured ones."""
    verdict = judged.best(imported)
    if verdict is None:
        return "–"
    lines = []
    for number, part in enumerate(judged.claim.parts):
        lines += _by_network(
            [(t.data.values, _number(part, t.data)) for t in verdict.points if t.part == number]
        )
    # With several variants, the verdict about all of them is stricter than that of each.
    several = sum(each.imported == imported for each in judged.verdicts) > 1
    return "\n".join([*filter(None, lines), f"({verdict.source}{'' if several else f': {verdict.verdict}'})"])


def _by_network(points: list[tuple[dict[str, Any], str]]) -> list[str]:
    """Return one line of text per network, or per other distinguishing value except the payload."""
    lines: dict[str, list[str]] = {}
    for values, text in points:
        rest = {key: value for key, value in values.items() if key != "payload_bytes"}
        lines.setdefault(", ".join(describe_value(*item) for item in rest.items()), []).append(text)
    return [f"{name}: {', '.join(texts)}" if name else ", ".join(texts) for name, texts in lines.items()]


def _number(part: Part, data: PointData) -> str:
    if data.counts:
        return " and ".join(f"{count:g}" for count in sorted(set(data.counts)))
    if data.contrast is None:
        return "–"
    low, high = data.contrast.interval()
    value = data.contrast.ratio
    if part.published is None or part.published_as in ("ratio", "level"):
        bracket = "" if low is None else f" [{formats.number(low)}, {formats.number(high)}]"
        return formats.number(value) + bracket
    overhead = part.published_as == "overhead"
    if overhead and METRICS[part.quantity].gain:
        value, low, high = 2 - value, high and 2 - high, low and 2 - low
    change, lower, upper = (None if bound is None else 100 * (bound - 1) for bound in (value, low, high))
    return formats.percent(change, lower, upper)
