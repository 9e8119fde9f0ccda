"""Show an answer as a terminal table, JSON, CSV and one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.requirements import MET, NOT_MET, UNDECIDED, Judgement
from k8sdds.analysis.selection import TITLES
from k8sdds.recommend.answer import Answer, Ranked
from k8sdds.report import export, formats
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console

NAME = "recommendation"
"""Name of the files in a report."""
MAX_ROWS = 12
"""Configurations that the terminal shows; the page and the CSV file have all."""

COLUMNS = (
    "place", "configuration", "verdict", "flow", "requirement", "requirement_verdict", "value", "ci_low", "ci_high",
    "n", "further_repetitions", "why", "score", "against_recommended", "against_low", "against_high", "tied",
)  # fmt: skip
"""Columns of the CSV file: one row for each requirement of each configuration."""


def data(answer: Answer) -> dict[str, Any]:
    """Return the answer as JSON-serializable data."""
    evidence = answer.evidence
    return {
        "schema": 1,
        "application": evidence.application.name,
        "verdict": answer.verdict,
        "optimize": evidence.application.optimize,
        "confidence": answer.confidence,
        "recommended": _option(answer.recommended),
        "runner_up": _option(answer.runner_up),
        "configurations": [_option(each) for each in answer.ranked],
        "worth": [
            {
                "choice": worth.choice, "recommended": worth.recommended, "other": worth.other,
                "quantity": worth.quantity, "pairs_of_configurations": worth.configurations,
                "ratio": worth.contrast.ratio if worth.contrast else None,
                "ci_low": worth.contrast.interval()[0] if worth.contrast else None,
                "ci_high": worth.contrast.interval()[1] if worth.contrast else None,
                "n": worth.contrast.n if worth.contrast else 0, "text": worth.describe(),
            }
            for worth in answer.worth
        ],
        "undecided": [dict(each.option.choices) for each in answer.undecided],
        "not_measured": [dict(choices) for choices in evidence.unmeasured],
        "excluded": [{"choices": dict(choices), "why": why} for choices, why in evidence.excluded],
        "notes": list(evidence.notes),
        "folders": list(evidence.folders),
        "trials": evidence.trials,
    }  # fmt: skip


def show(answer: Answer, console: Console) -> None:
    """Print the answer: verdict, requirements of the recommended configuration, ranking, worth and what is open."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for index, sentence in enumerate(lead(answer)):
        console.print(Text(sentence, style="bold" if index == 0 else ""))
    for title, heads, rows in _tables(answer):
        table = Table(
            title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
        )
        for head in heads:
            table.add_column(head, overflow="fold")
        for row in rows[:MAX_ROWS]:
            table.add_row(*(cell["text"] for cell in row))
        console.print(table)
        if len(rows) > MAX_ROWS:
            console.print(f"… and {len(rows) - MAX_ROWS} more")
    for line in notes(answer):
        console.print(line)


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write recommendation.html, .csv and .json to a folder and return their paths."""
    application = answer.evidence.application
    page = {
        "title": f"Recommendation for {application.name}",
        "heading": "Recommendation",
        "sub": f"{application.name}{' · ' + application.title if application.title else ''}",
        "lead": lead(answer),
        "tables": [
            {"caption": title, "heads": heads, "rows": rows} for title, heads, rows in _tables(answer)
        ],
        "notes": notes(answer),
    }
    return export.write(folder, NAME, data(answer), _csv_rows(answer), COLUMNS, page)


def lead(answer: Answer) -> list[str]:
    """Answer in a few sentences."""
    best, application = answer.recommended, answer.evidence.application
    if best is None:
        return [f"Nothing was measured of {application.name}."]
    varied = answer.evidence.varied
    name = best.option.describe(varied) or best.option.describe()
    match answer.verdict:
        case "met":
            first = f"Use {name}: it meets all requirements of {application.name}."
        case "not met":
            first = f"No measured configuration meets all requirements of {application.name}; the nearest is {name}."
        case _:
            first = f"It is undecided whether a configuration meets all requirements of {application.name}."
    sentences = [first]
    if answer.verdict == UNDECIDED:
        further = (
            f" {formats.count(best.further, 'further repetition')} would decide it." if best.further else ""
        )
        measured = formats.count(best.option.repetitions, "repetition")
        sentences.append(f"The most promising is {name}, measured in {measured}.{further}")
    if best.cost is not None:
        sentences.append(f"Its {TITLES[application.optimize]}: {_cost(answer, best)}.")
    if answer.runner_up is not None:
        second = answer.runner_up
        how = "a test does not distinguish them" if second.tied else _against(second)
        sentences.append(f"Runner-up: {second.option.describe(varied)} ({how}).")
    counts = [sum(each.verdict == verdict for each in answer.ranked) for verdict in (MET, UNDECIDED, NOT_MET)]
    ties = sum(each.tied and each.verdict == best.verdict for each in answer.ranked[1:])
    sentences.append(
        f"Of {formats.count(len(answer.ranked), 'measured configuration')}, {counts[0]} meet all requirements,"
        f" {counts[1]} are undecided and {counts[2]} fail one; {ties} with the same verdict cannot be distinguished"
        " from the first."
    )
    return sentences


def notes(answer: Answer) -> list[str]:
    """State how it was judged, and what is not decided or missing."""
    evidence, application = answer.evidence, answer.evidence.application
    error, rounds = f"{100 * evidence.family_error:g} %", formats.count(evidence.rounds, "round")
    lines = [
        f"A requirement is met if its whole {_confidence(answer)} interval over repetitions is within the limit: a"
        f" one-sided test at {error} after Bonferroni's correction over"
        f" {formats.count(evidence.competing, 'configuration')} and {rounds}. Other intervals have 95 % confidence.",
        "This holds for machines as they were during these repetitions. If their speed changes, repeat at other times.",
        "Configurations are compared within repetitions, directly or through others, with the spread of the trials of"
        " each, or that of all trials if it was measured once or twice; a tie is a difference that a one-sided t test"
        f" at {error} does not show after Bonferroni's correction over"
        f" {formats.count(len(answer.ranked), 'configuration')} and {rounds}.",
    ]
    if len(application.flows) > 1:
        together = (
            "Each flow was measured while UDP streams with the rate of the other flows ran between the same nodes; they"
            " replace the DDS traffic of those flows."
            if application.together
            else "Each flow was measured alone, without the other flows."
        )
        lines.append(together)
    lines += [f"Note: {note}." for note in evidence.notes]
    if evidence.unmeasured:
        predicted = ", which the search only predicted to be no better, without a stated error"
        lines.append(
            f"Not measured: {formats.count(len(evidence.unmeasured), 'further configuration')}"
            f"{predicted if evidence.rounds > 1 else ''}."
        )
    for option in (each.option for each in answer.ranked):
        if lacking := [
            flow for flow, rows in option.trials.items() if not rows and flow not in option.failed
        ]:
            lines.append(
                f"Missing: {option.describe(evidence.varied)} was not measured for {formats.join(lacking)}."
            )
    lines += [f"Left out: {why}." for _, why in evidence.excluded]
    return lines if len(lines) <= 30 else [*lines[:30], f"… and {len(lines) - 30} more notes"]


def _tables(answer: Answer) -> list[tuple[str, list[str], list[list[dict[str, str]]]]]:
    best = answer.recommended
    if best is None:
        return []
    tables = [
        (
            "Requirements of the recommended configuration",
            ["flow", "requirement", "measured", f"{_confidence(answer)} interval", "n", "verdict"],
            [_requirement_row(judgement) for judgement in best.judgements],
        ),
        (
            "Configurations, the best first",
            [
                "configuration",
                "verdict",
                TITLES[answer.evidence.application.optimize],
                "against the first",
                "fails",
            ],
            [_ranking_row(answer, each) for each in answer.ranked],
        ),
    ]
    if answer.worth:
        rows = [[{"text": worth.describe()}] for worth in answer.worth]
        tables.append(("What each choice is worth", ["recommended instead of another"], rows))
    return tables


def _confidence(answer: Answer) -> str:
    return f"{100 * answer.confidence:.5g} %"


def _requirement_row(judgement: Judgement) -> list[dict[str, str]]:
    unit = METRICS[judgement.requirement.metric].unit
    verdict: str = judgement.verdict
    if judgement.verdict == UNDECIDED:
        more = f"; {formats.count(judgement.further, 'more repetition')}" if judgement.further else ""
        verdict += f" ({judgement.why}{more})"
    return [
        {"text": judgement.requirement.where},
        {"text": judgement.requirement.text},
        {"text": "–" if judgement.value is None else f"{_number(judgement.value)} {unit}"},
        {"text": _interval(judgement)},
        {"text": str(judgement.n)},
        {"text": verdict, "mark": {MET: "better", NOT_MET: "worse"}.get(judgement.verdict, "same")},
    ]


def _ranking_row(answer: Answer, each: Ranked) -> list[dict[str, str]]:
    failing = [
        judgement.requirement.describe() for judgement in each.judgements if judgement.verdict == NOT_MET
    ]
    failing += [f"{flow}: no valid trial ({reason})" for flow, reason in each.option.failed.items()]
    return [
        {"text": each.option.describe(answer.evidence.varied) or each.option.describe()},
        {"text": each.verdict, "mark": {MET: "better", NOT_MET: "worse"}.get(each.verdict, "same")},
        {"text": _cost(answer, each)},
        {"text": "" if each is answer.recommended else _against(each)},
        {"text": "; ".join(failing)},
    ]


def _against(each: Ranked) -> str:
    if each.against is None:
        return "not connected by repetitions"
    low, high = each.against.interval()
    text = f"{100 * (each.against.ratio - 1):+.0f} %"
    text += "" if low is None or high is None else f" [{100 * (low - 1):+.0f}, {100 * (high - 1):+.0f}]"
    return f"{text}, tied" if each.tied else text


def _cost(answer: Answer, each: Ranked) -> str:
    if each.cost is None:
        return "–"
    scale, unit = (
        (1, "% of one core") if answer.evidence.application.optimize == "cpu" else (100, "% of the limit")
    )
    low, high = each.cost_interval
    interval = "" if low is None or high is None else f" [{_number(scale * low)}, {_number(scale * high)}]"
    return f"{_number(scale * each.cost)}{interval} {unit}"


def _interval(judgement: Judgement) -> str:
    if judgement.low is None or judgement.high is None:
        return "–"
    return f"[{_number(judgement.low)}, {_number(judgement.high)}]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _option(each: Ranked | None) -> dict[str, Any] | None:
    if each is None:
        return None
    low, high = each.against.interval() if each.against else (None, None)
    return {
        "choices": dict(each.option.choices), "verdict": each.verdict, "cost": each.cost,
        "cost_low": each.cost_interval[0], "cost_high": each.cost_interval[1],
        "ratio_to_recommended": each.against.ratio if each.against else None, "ci_low": low, "ci_high": high,
        "tied": each.tied, "repetitions": each.option.repetitions, "failed": dict(each.option.failed),
        "requirements": [
            {
                "flow": j.requirement.flow or None, "metric": j.requirement.metric, "limit": j.requirement.limit,
                "text": j.requirement.text, "verdict": j.verdict, "value": j.value, "ci_low": j.low, "ci_high": j.high,
                "n": j.n, "further_repetitions": j.further, "why": j.why,
            }
            for j in each.judgements
        ],
    }  # fmt: skip


def _csv_rows(answer: Answer) -> list[dict[str, Any]]:
    rows = []
    for place, each in enumerate(answer.ranked, start=1):
        low, high = each.against.interval() if each.against else (None, None)
        for judgement in each.judgements:
            rows.append({
                "place": place, "configuration": each.option.describe(), "verdict": each.verdict,
                "flow": judgement.requirement.where, "requirement": judgement.requirement.text,
                "requirement_verdict": judgement.verdict, "value": judgement.value, "ci_low": judgement.low,
                "ci_high": judgement.high, "n": judgement.n, "further_repetitions": judgement.further,
                "why": judgement.why, "score": each.cost,
                "against_recommended": each.against.ratio if each.against else None, "against_low": low,
                "against_high": high, "tied": each.tied,
            })  # fmt: skip
    return rows
