"""The table of claims for terminals, CSV, JSON and HTML: what was published, found in it, and found by us."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.claims.judge import VERDICTS, Judged, Tested, Verdict
from k8sdds.claims.model import Claims, Part
from k8sdds.claims.reasons import describe_region, describe_value
from k8sdds.report import formats, pages
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = dict(zip(VERDICTS, ("green", "red", "cyan", "yellow", "dim"), strict=True))

COLUMNS = (
    "claim", "paper", "verdict", "reason", "source", "imported", "source_verdict", "source_reason", "part",
    "quantity", "point", "claimed_ratio_low", "claimed_ratio_high", "published", "ratio", "ratio_low",
    "ratio_high", "n", "p_inside", "p_outside", "counts",
)  # fmt: skip
"""One row per claim, source and point; ratios with their 95 % intervals."""


def rows(judged: list[Judged]) -> list[dict[str, Any]]:
    """Everything that was tested as plain rows, those of COLUMNS."""
    found = []
    for one in judged:
        base = {"claim": one.claim.id, "paper": one.claim.paper, "verdict": one.verdict, "reason": one.reason}
        points = [(finding, tested) for finding in one.findings for tested in finding.tested]
        found += [base | _row(one, finding, tested) for finding, tested in points] or [base]
    return [{name: row.get(name) for name in COLUMNS} for row in found]


def _row(one: Judged, finding: Verdict, tested: Tested) -> dict[str, Any]:
    low, high = tested.contrast.interval() if tested.contrast else (None, None)
    region = [bound if 0 < bound < float("inf") else None for bound in tested.region]
    return {
        "source": finding.source, "imported": finding.imported, "source_verdict": finding.verdict,
        "source_reason": finding.reason, "part": tested.part + 1,
        "quantity": one.claim.parts[tested.part].quantity,
        "point": ", ".join(f"{key}={value}" for key, value in tested.values.items()),
        "claimed_ratio_low": region[0], "claimed_ratio_high": region[1], "published": tested.published,
        "ratio": tested.contrast.ratio if tested.contrast else None, "ratio_low": low, "ratio_high": high,
        "n": tested.contrast.n if tested.contrast else len(tested.counts),
        "p_inside": tested.p_inside, "p_outside": tested.p_outside,
        "counts": " ".join(f"{count:g}" for count in tested.counts) or None,
    }  # fmt: skip


def data(claims: Claims, judged: list[Judged]) -> dict[str, Any]:
    """The verdicts as JSON-serialisable data."""
    return {
        "schema": 1,
        "claims": claims.name,
        "source": claims.source,
        "level": claims.level,
        "verdicts": {verdict: [j.claim.id for j in judged if j.verdict == verdict] for verdict in VERDICTS},
        "judged": [
            {
                "id": one.claim.id, "claim": one.claim.claim, "paper": one.claim.paper,
                "note": one.claim.note, "verdict": one.verdict, "reason": one.reason,
                "command": one.claim.command, "minutes": one.claim.minutes,
                "imported": (of := one.of(True)) and of.verdict, "ours": (of := one.of(False)) and of.verdict,
            }
            for one in judged
        ],
        "rows": rows(judged),
    }  # fmt: skip


def show(claims: Claims, judged: list[Judged], console: Console) -> None:
    """Print one table and a summary."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console.print(Text(claims.title or claims.name, style="bold"))
    if claims.source:
        console.print(Text(claims.source, style="dim"))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, show_lines=True)
    for name in ("claim", "published", "imported", "ours", "verdict"):
        table.add_column(name, overflow="fold")
    for one in judged:
        table.add_row(
            f"{one.claim.id}\n{one.claim.paper}", _published(one), _found(one, True), _found(one, False),
            Text.assemble((one.verdict, _STYLES[one.verdict]), f"\n{one.reason}"),
        )  # fmt: skip
    console.print(table)
    console.print(summary(judged), highlight=False)
    console.print(
        f"Lists go by payload, with 95 % intervals; tests at the {100 * claims.level:g} % level:"
        " docs/analysis.md",
        style="dim",
    )


def summary(judged: list[Judged]) -> str:
    """`3 supported, 1 contradicted, …`."""
    counts = Counter(one.verdict for one in judged)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def _published(one: Judged) -> str:
    """The published numbers of all parts, or the direction where there is none."""
    lines = []
    for part in one.claim.parts:
        if part.published is None:
            lines.append(f"ratio {describe_region(part.region(0))}")
            continue
        unit = "" if part.published_as in ("ratio", "level") else " %"
        numbers = [(point, f"{number:g}") for point, number in zip(part.points, part.published, strict=True)]
        found = _by_network(numbers)
        lines += [*found[:-1], found[-1] + unit]
    return "\n".join(lines) or "–"


def _found(one: Judged, imported: bool) -> str:
    finding = one.of(imported)
    if finding is None:
        return "–"
    lines = []
    for number, part in enumerate(one.claim.parts):
        lines += _by_network([(t.values, _number(part, t)) for t in finding.tested if t.part == number])
    return "\n".join([*filter(None, lines), f"({finding.source}: {finding.verdict})"])


def _by_network(points: list[tuple[dict[str, Any], str]]) -> list[str]:
    """One line of texts per network (or what else tells points apart besides the payload); one line in all
    where nothing does."""
    lines: dict[str, list[str]] = {}
    for values, text in points:
        rest = {key: value for key, value in values.items() if key != "payload_bytes"}
        lines.setdefault(", ".join(describe_value(*item) for item in rest.items()), []).append(text)
    return [f"{name}: {', '.join(texts)}" if name else ", ".join(texts) for name, texts in lines.items()]


def _number(part: Part, tested: Tested) -> str:
    if tested.counts:
        return " and ".join(f"{count:g}" for count in sorted(set(tested.counts)))
    if tested.contrast is None:
        return "–"
    low, high = tested.contrast.interval()
    value = tested.contrast.ratio
    if part.published is None or part.published_as in ("ratio", "level"):
        bracket = "" if low is None else f" [{formats.number(low)}, {formats.number(high)}]"
        return formats.number(value) + bracket
    overhead = part.published_as == "overhead"
    if overhead and METRICS[part.quantity].gain:
        value, low, high = 2 - value, high and 2 - high, low and 2 - low
    return formats.percent(*(None if bound is None else 100 * (bound - 1) for bound in (value, low, high)))


def write(claims: Claims, judged: list[Judged], folder: Path) -> list[Path]:
    """claims.csv, claims.json and claims.html in a folder, which is made."""
    table = {
        "caption": claims.title or claims.name,
        "heads": ["claim", "published", "imported data", "our runs", "verdict"],
        "rows": [
            [
                {"text": one.claim.claim, "small": f"{one.claim.id} · {one.claim.paper}"
                 + (f" · {one.claim.note}" if one.claim.note else "")},
                {"text": _published(one)},
                {"text": _found(one, True)},
                {"text": _found(one, False)},
                {"text": one.verdict, "small": one.reason, "mark": one.verdict.split(" ")[0]},
            ]
            for one in judged
        ],
    }  # fmt: skip
    page = {
        "title": f"{claims.name}: claims judged",
        "heading": claims.title or claims.name,
        "sub": claims.source,
        "lead": [summary(judged) + "."],
        "tables": [table],
        "notes": [
            f"Every verdict comes from a test at the {100 * claims.level:g} % level: one-sided t tests on log"
            " ratios, two for equivalence; a contradiction survives Holm's correction over all points.",
            "Numbers are published overheads or ratios, by payload, and ours with 95 % intervals.",
            "Where the lab only models a network, the most that it can say is “consistent with the model”.",
        ],
    }
    return pages.write(folder, "claims", data(claims, judged), rows(judged), COLUMNS, page)
