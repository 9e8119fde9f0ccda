"""Show an answer as terminal tables, JSON, CSV and one HTML page with figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.requirements import MET, NOT_MET, UNDECIDED, Judgement, Verdict
from k8sdds.analysis.selection import TITLES
from k8sdds.analysis.statistics import Contrast
from k8sdds.model.application import Optimize
from k8sdds.recommend import files, graph, values
from k8sdds.recommend.answer import Answer, Ranked
from k8sdds.recommend.next_step import next_step
from k8sdds.report import formats
from k8sdds.report.export import Findings
from k8sdds.report.table import Cell, Table
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console

    from k8sdds.report.figures import Figure

NAME = "recommendation"
"""Name of the files in a report."""
MAX_ROWS = 12
"""Configurations that the terminal shows; the page and the CSV file have all."""
MAX_FLOWS = 40
"""Flows of a graph that the terminal shows."""

COLUMNS = (
    "place", "configuration", "verdict", "flow", "requirement", "requirement_verdict", "value", "ci_low", "ci_high",
    "n", "further_repetitions", "why", "score", "against_recommended", "against_low", "against_high", "tied",
)  # fmt: skip
"""Columns of the CSV file: one row for each requirement of each configuration."""

_TOGETHER = (
    "Each flow was measured while UDP streams with the rate of the other flows ran between the same nodes; they replace"
    " the DDS traffic of those flows."
)
_AT_ONCE = (
    "All flows ran at the same time: each node of the application was one participant in a pod of its own."
)
_ALONE = "Each flow was measured alone, without the other flows."
_SIGNS: Mapping[Verdict, Cell] = {
    MET: Cell(sign="✓", mark="better", meaning=MET),
    NOT_MET: Cell(sign="✗", mark="worse", meaning=NOT_MET),
    UNDECIDED: Cell(sign="?", mark="undecided", meaning=UNDECIDED),
}
_NO_SIGN = Cell(sign=" ")


def data(answer: Answer) -> dict[str, Any]:
    """Return the answer as JSON-serializable data."""
    evidence = answer.evidence
    return {
        "schema": 1,
        "application": evidence.application.name,
        "verdict": answer.verdict,
        "optimize": evidence.application.optimize,
        "confidence": answer.confidence,
        "confidence_against": answer.comparing,
        "recommended": _option(answer.recommended),
        "runner_up": _option(answer.runner_up),
        "configurations": [_option(each) for each in answer.ranked],
        "first_to_fail": _first_to_fail(answer),
        "worth": [
            {
                "choice": worth.choice, "recommended": worth.recommended, "other": worth.other,
                "quantity": worth.quantity, "pairs_of_configurations": worth.configurations,
                "ratio": worth.contrast.ratio if worth.contrast else None,
                "ci_low": worth.contrast.interval()[0] if worth.contrast else None,
                "ci_high": worth.contrast.interval()[1] if worth.contrast else None,
                "n": worth.contrast.n if worth.contrast else 0,
            }
            for worth in answer.worth
        ],
        "not_measured": [dict(choices) for choices in evidence.unmeasured],
        "excluded": [{"choices": dict(choices), "why": why} for choices, why in evidence.excluded],
        "notes": list(evidence.notes),
        "folders": list(evidence.folders),
        "trials": evidence.trials,
        "next": dict(zip(("why", "command"), next_step(answer, Path(files.FOLDER)), strict=True)),
    }  # fmt: skip


def show(answer: Answer, console: Console) -> None:
    """Print the answer: verdict, requirements of the first configuration, ranking, worth and what is open."""
    from k8sdds.report.text import paragraph

    for index, sentence in enumerate(lead(answer)):
        paragraph(console, sentence, style="bold" if index == 0 else "")
    for table in tables(answer):
        console.print()
        paragraph(console, table.caption, style="bold")
        by_flow = answer.evidence.application.at_once and table.heads[:1] == [graph.FLOW]
        table.print(console, MAX_FLOWS if by_flow else MAX_ROWS)
    console.print()
    paragraph(console, _legend(answer), style="dim")
    for line in findings(answer):
        paragraph(console, line)


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write recommendation.html, .csv and .json and the figures to a folder; return the paths of the first three."""
    application = answer.evidence.application
    purposes = [
        [Cell(file.name, href=f"{files.FOLDER}/{file.name}"), Cell(file.purpose.replace("`", ""))]
        for file in files.ready_files(answer)
    ]
    applied = Table(f"Files to use the {answer.role} configuration", ["file", "how to apply it"], purposes)
    return Findings(
        name=NAME,
        heading=heading(answer),
        sub=f"{application.name}{' · ' + application.title if application.title else ''}",
        lead=lead(answer),
        tables=[table for table in (*tables(answer), applied) if table.rows],
        notes=[*method(answer), *findings(answer)],
        data=data(answer),
        rows=_csv_rows(answer),
        columns=COLUMNS,
        draw=partial(_figures, answer),
        next=next_step(answer, Path(files.FOLDER)),
    ).write(folder)


def heading(answer: Answer) -> str:
    """Return the title of the answer: only a configuration that meets all requirements is recommended."""
    return {
        MET: "Recommendation",
        UNDECIDED: "Undecided",
        NOT_MET: "No configuration meets all requirements",
    }[answer.verdict]


def lead(answer: Answer) -> list[str]:
    """Answer in a few sentences."""
    best, application = answer.recommended, answer.evidence.application
    if best is None:
        return [f"Nothing was measured of {application.name}."]
    varied = answer.evidence.varied
    name = best.option.describe(varied) or best.option.describe()
    match answer.verdict:
        case "met":
            sentences = [f"Use {name}: it meets all requirements of {application.name}."]
        case "not met":
            sentences = [
                f"No measured configuration meets all requirements of {application.name}; the nearest is {name}."
            ]
        case _:
            measured = formats.count(best.option.repetitions, "repetition")
            sentences = [
                f"It is undecided whether a configuration meets all requirements of {application.name}.",
                f"The most promising is {name}, measured in {measured}.",
            ]
    if rejected := _rejected(best):
        whys = "; ".join(f"{flow}: {why}" for flow, why in _by_flow(best, rejected))
        sentences.append(f"It is undecided at best, because of {whys}.")
    if best.level is not None:
        scale, unit = values.cost_unit(application.optimize)
        unknown = ", no interval" if None in best.level.interval() else ""
        level = values.level(best.level, scale)
        sentences.append(f"Its {TITLES[application.optimize]}: {level} {unit}{unknown}.")
    if answer.runner_up is not None:
        second = answer.runner_up
        how = (
            "a test does not distinguish them"
            if second.tied
            else f"{values.percent(second.against, second.bounds)} %"
        )
        how = "too few repetitions for a test" if None in second.bounds else how
        how = "no repetition compares them" if second.against is None else how
        sentences.append(f"Runner-up: {second.option.describe(varied)} ({how}).")
    if application.at_once:
        sentences += graph.sentences(application, best)
    counts = [sum(each.verdict == verdict for each in answer.ranked) for verdict in (MET, UNDECIDED, NOT_MET)]
    ties = sum(each.tied and each.verdict == best.verdict for each in answer.ranked[1:])
    sentences.append(
        f"Of {formats.count(len(answer.ranked), 'measured configuration')}, {counts[0]} meet all requirements,"
        f" {counts[1]} are undecided and {counts[2]} fail one; {ties} with the same verdict cannot be distinguished"
        " from the first."
    )
    return sentences


def _legend(answer: Answer) -> str:
    evidence = answer.evidence
    return (
        f"✓ met, ✗ not met, ? undecided: one-sided tests at {100 * evidence.family_error:g} % after correction for"
        f" {formats.count(evidence.competing, 'configuration')} and {formats.count(evidence.rounds, 'round')}."
    )


def method(answer: Answer) -> list[str]:
    """State how it was judged."""
    evidence, application = answer.evidence, answer.evidence.application
    error, rounds = f"{100 * evidence.family_error:g} %", formats.count(evidence.rounds, "round")
    confidence, comparing = values.confidence(answer.confidence), values.confidence(answer.comparing)
    measured = _AT_ONCE if application.at_once else _TOGETHER if application.together else _ALONE
    return [
        f"A requirement is met if its whole {confidence} interval over repetitions is within the"
        f" limit: a one-sided test at {error} after Bonferroni's correction over"
        f" {formats.count(evidence.competing, 'configuration')} and {rounds}. Intervals against the first configuration"
        f" have {comparing} confidence for the same reason; all others, and delays without a limit, have 95 %.",
        "This holds for machines as they were during these repetitions. If their speed changes, repeat at other times.",
        "Configurations are compared within repetitions, directly or through others, with the spread of the trials of"
        " each, or that of all trials if it was measured once or twice; a tie is a difference that a one-sided t test"
        f" at {error} does not show after Bonferroni's correction over"
        f" {formats.count(len(answer.ranked), 'configuration')} and {rounds}.",
        "Configurations are listed by verdict, then by missing trials, means beyond a limit and the worst share of a"
        f" limit, and last by {TITLES[application.optimize]} as if all had been measured in the same repetitions.",
        *([measured] if len(application.flows) > 1 else []),
    ]


def findings(answer: Answer) -> list[str]:
    """State what is missing, and what else the run folders show."""
    evidence = answer.evidence
    lines = [f"Note: {note}." for note in evidence.notes]
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


def tables(answer: Answer) -> list[Table]:
    """Return the tables of the answer."""
    best, application = answer.recommended, answer.evidence.application
    objective = application.optimize
    if best is None:
        return []
    return [
        Table(
            f"Requirements of the {answer.role} configuration",
            ["flow", "requirement", f"measured, {values.confidence(answer.confidence)} interval", "n"],
            _requirement_rows(answer, best),
        ),
        *(graph.tables(answer, best) if application.at_once else []),
        *([_worth_table(answer)] if answer.worth else []),
        Table(
            "Configurations, the best first",
            [
                "configuration",
                f"{TITLES[objective]}, {values.cost_unit(objective)[1]}",
                f"against the first, %, {values.confidence(answer.comparing)} interval",
            ],
            [_ranking_row(answer, each) for each in answer.ranked],
        ),
    ]


def _requirement_rows(answer: Answer, best: Ranked) -> list[list[Cell]]:
    """Return the requirements by flow, with the percentiles that are stated in any case."""
    application, order = answer.evidence.application, list(METRICS)
    rows: list[list[Cell]] = []
    judged = [*best.judgements, *best.delays]
    for where in dict.fromkeys(each.requirement.where for each in judged):
        own = [each for each in judged if each.requirement.where == where]
        for each in sorted(own, key=lambda each: order.index(each.requirement.metric)):
            measured = Cell(values.measured(application, each))
            if each.verdict == UNDECIDED and each in best.judgements:
                more = f"; {formats.count(each.further, 'more repetition')}" if each.further else ""
                more = f"; measure trials of {each.longer_s:g} s" if each.longer_s else more
                measured = replace(measured, small=f"undecided: {each.why}{more}")
            else:
                measured = replace(measured, small=each.why)
            sign = _SIGNS[each.verdict] if each in best.judgements else _NO_SIGN
            rows.append([replace(sign, text=where), Cell(each.requirement.text), measured, Cell(str(each.n))])
    if application.at_once:
        # There may be hundreds: first those that matter.
        signs = [_SIGNS[verdict].sign for verdict in (NOT_MET, UNDECIDED, MET)] + [_NO_SIGN.sign]
        rows.sort(key=lambda row: signs.index(row[0].sign))
    return rows


def _ranking_row(answer: Answer, each: Ranked) -> list[Cell]:
    application = answer.evidence.application
    failing = [
        f"{'fails' if judged.verdict == NOT_MET else 'mean beyond'} {judged.requirement.describe()}"
        f" ({values.mean(application, judged)})"
        for judged in each.judgements
        if judged.value is not None and not judged.mean_is_within
    ]
    reasons = {
        flow: reason if each.option.trials[flow] else f"no valid trial ({reason})"
        for flow, reason in each.option.failed.items()
    }
    failing += [f"fails {flow}: {reason}" for flow, reason in _by_flow(each, reasons)]
    failing += [f"{flow}: {reason}" for flow, reason in _by_flow(each, _rejected(each))]
    name = each.option.describe(answer.evidence.varied) or each.option.describe()
    against = "" if each is answer.recommended else values.percent(each.against, each.bounds)
    against += ", tied" if None not in each.bounds and each.tied else ""
    scale, _ = values.cost_unit(application.optimize)
    return [
        replace(_SIGNS[each.verdict], text=name, small="; ".join(failing)),
        Cell(values.level(each.level, scale)),
        Cell(against),
    ]


def _rejected(each: Ranked) -> dict[str, str]:
    """Return why a configuration is undecided at best, by flow with a trial without a valid attempt."""
    return {
        flow: f"a trial without a valid attempt ({row['reason']})"
        for flow, row in each.option.rejected.items()
        if flow not in each.option.failed
    }


def _by_flow(each: Ranked, reasons: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Return each flow with its reason. A trial of a graph has all flows, which then have the same one."""
    if len(reasons) == len(each.option.trials) > 1 and len(set(reasons.values())) == 1:
        return [("all flows", next(iter(reasons.values())))]
    return reasons.items()


def _worth_table(answer: Answer) -> Table:
    """Return a row for each value that the first configuration could have instead, with a column for each quantity."""
    quantities = list(dict.fromkeys(worth.quantity for worth in answer.worth))
    rows: list[list[Cell]] = []
    for what in dict.fromkeys(worth.what for worth in answer.worth):
        own = {worth.quantity: worth for worth in answer.worth if worth.what == what}
        small = ""
        if (pairs := max(worth.configurations for worth in own.values())) > 1:
            small = f"on average over {pairs} pairs of configurations"
        if all(worth.contrast is None for worth in own.values()):
            small = "no repetition compares configurations that differ only in this"
        contrasts = [own[quantity].contrast if quantity in own else None for quantity in quantities]
        rows.append([Cell(what, small), *(_change(contrast) for contrast in contrasts)])
    heads = [f"{TITLES[quantity]}, %" for quantity in quantities]
    return Table("What each choice is worth, 95 % intervals", ["choice", *heads], rows)


def _change(contrast: Contrast | None) -> Cell:
    if contrast is None:
        return Cell()
    low, high = contrast.interval()
    mark = (
        "undecided" if low is None or high is None or low <= 1 <= high else "better" if high < 1 else "worse"
    )
    return Cell(values.percent(contrast, (low, high)), mark=mark)


def _figures(answer: Answer, folder: Path) -> list[Figure]:
    best, application = answer.recommended, answer.evidence.application
    if best is None:
        return []
    from k8sdds.report.figures import recommendation as draw

    judged = [(judgement, values.mean(application, judgement)) for judgement in best.judgements]
    found = [draw.requirements(judged, answer.role, values.confidence(answer.confidence), folder)]
    found += graph.figure(answer, best, folder) if application.at_once else []
    points = {
        each.option.key: draw.Point(str(each.option.choices["network"]), each.verdict, scores)
        for each in answer.ranked
        if len(scores := _scores(answer, each)) == len(answer.fits)
    }
    if len(points) > 1 and best.option.key in points:
        found.append(draw.configurations(list(points.values()), answer.role, folder))
    worth = [(each.what, each.quantity, each.contrast) for each in answer.worth]
    if any(contrast for *_, contrast in worth):
        found.append(draw.worth(worth, folder))
    return found


def _scores(answer: Answer, each: Ranked) -> dict[Optimize, Contrast]:
    levels = {quantity: fit.level(each.option.key) for quantity, fit in answer.fits.items()}
    return {quantity: level for quantity, level in levels.items() if level is not None}


def _option(each: Ranked | None) -> dict[str, Any] | None:
    if each is None:
        return None
    low, high = each.bounds
    cost_low, cost_high = each.level.interval() if each.level else (None, None)
    return {
        "choices": dict(each.option.choices), "verdict": each.verdict, "cost": each.cost, "cost_low": cost_low,
        "cost_high": cost_high, "ratio_to_recommended": each.against.ratio if each.against else None, "ci_low": low,
        "ci_high": high, "tied": each.tied, "repetitions": each.option.repetitions, "failed": dict(each.option.failed),
        "rejected": _rejected(each),
        "requirements": [
            _judgement(j)
            | {
                "limit": j.requirement.limit, "text": j.requirement.text, "verdict": j.verdict,
                "further_repetitions": j.further, "longer_s": j.longer_s, "why": j.why,
            }
            for j in each.judgements
        ],
        "delays": [_judgement(j) for j in each.delays],
    }  # fmt: skip


def _first_to_fail(answer: Answer) -> dict[str, Any] | None:
    application, best = answer.evidence.application, answer.recommended
    if not application.at_once or best is None or (first := graph.first_to_fail(best)) is None:
        return None
    full = graph.limit(application, best, first)
    return _judgement(first) | {"limited_by": asdict(full) if full else None}


def _judgement(judged: Judgement) -> dict[str, Any]:
    return {
        "flow": judged.requirement.flow or None, "metric": judged.requirement.metric, "value": judged.value,
        "ci_low": judged.low, "ci_high": judged.high, "n": judged.n,
    }  # fmt: skip


def _csv_rows(answer: Answer) -> list[dict[str, Any]]:
    return [
        own
        | {
            "place": place, "configuration": each.option.describe(), "verdict": each.verdict,
            "flow": judgement.requirement.where, "requirement": own["text"], "requirement_verdict": own["verdict"],
            "score": each.cost, "against_recommended": option["ratio_to_recommended"],
            "against_low": option["ci_low"], "against_high": option["ci_high"], "tied": each.tied,
            "why": "; ".join(filter(None, (own["why"], option["rejected"].get(own["flow"])))),
        }
        for place, each in enumerate(answer.ranked, start=1)
        for option in [_option(each) or {}]
        for judgement, own in zip(each.judgements, option["requirements"], strict=True)
    ]  # fmt: skip
