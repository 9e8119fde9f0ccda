"""Decide verdicts on claims. Every verdict follows from a statistical test at the claims' significance level.

supported      for every part, the test shows that the ratio lies in the claimed region
contradicted   for at least one part, the test shows that the ratio lies outside, after Holm's correction over points
consistent with the model   supported, but only by a model of the network, or true by construction
not enough data             the tests are inconclusive, or trials are missing
not testable here           this testbed, engine or link cannot test the claim

Run folders with the same variant of the conditions are tested together (`evidence.pooled`), and several variants each
at a part of the level, so that the rate of false verdicts does not grow with the number of either.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from k8sdds.analysis import missing, overhead
from k8sdds.analysis.statistics import holm
from k8sdds.claims import evidence
from k8sdds.claims.evidence import PointData, Source
from k8sdds.claims.model import Claim, Claims, Part
from k8sdds.claims.reasons import (
    TestedPoint,
    describe_point,
    mixed_versions,
    modeled_networks,
    sample_size,
    test_name,
    undecided_reason,
)
from k8sdds.results import machine
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder, without_copies

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
CONSISTENT = "consistent with the model"
NOT_ENOUGH = "not enough data"
NOT_TESTABLE = "not testable here"
VERDICTS = (SUPPORTED, CONTRADICTED, CONSISTENT, NOT_ENOUGH, NOT_TESTABLE)

_DECIDED = (SUPPORTED, CONTRADICTED, CONSISTENT)


@dataclass(frozen=True)
class Verdict:
    """The verdict of one variant on a claim, from one run folder or from several together."""

    source: str
    imported: bool
    verdict: str
    reason: str
    points: list[TestedPoint] = field(default_factory=list)
    alone: tuple[Verdict, ...] = ()
    """The verdict of each run folder, if there are several."""

    @property
    def gaps(self) -> int:
        """Number of points without data."""
        return sum(not point.data.is_known for point in self.points)

    @property
    def tested(self) -> bool:
        """Whether the data suffices for a statistical test."""
        return any(point.p_inside is not None for point in self.points)


@dataclass(frozen=True)
class ClaimResult:
    """A claim with all verdicts on it.

    The overall verdict comes from k8sdds runs if they can test the claim, else from imported data.
    """

    claim: Claim
    verdicts: list[Verdict]
    verdict: str
    reason: str
    overall: Mapping[bool, str] = field(default_factory=dict)
    """The verdict of all imported data (True) and of all measured data (False), if there is any."""

    @property
    def tested(self) -> bool:
        """Whether the data suffices for a statistical test of the claim, whether it decided or not."""
        return self.verdict != NOT_TESTABLE and any(verdict.tested for verdict in self.verdicts)

    def best(self, imported: bool) -> Verdict | None:
        """Return the most decisive verdict of imported or measured data; of equal ones, the one with fewer gaps."""
        candidates = [verdict for verdict in self.verdicts if verdict.imported == imported]
        return min(candidates, key=lambda each: (VERDICTS.index(each.verdict), each.gaps), default=None)


def judge(
    claims: Claims,
    runs: Sequence[RunFolder],
    only: Sequence[str] = (),
    obstacles: Mapping[str, str] | None = None,
) -> list[ClaimResult]:
    """Judge every claim, or those with the ids in `only`, with the data of all run folders.

    `obstacles` has why a claim, by id, could not be measured.
    """
    sources = [Source.read(run) for run in without_copies(runs)]
    return [
        judge_claim(claim, sources, claims.level, (obstacles or {}).get(claim.id, ""))
        for claim in claims.claims
        if not only or claim.id in only
    ]


def judge_claim(claim: Claim, sources: Sequence[Source], level: float, obstacle: str = "") -> ClaimResult:
    """Judge one claim with the data of some sources; `obstacle` is why it could not be measured, if it was tried."""
    if not claim.parts:
        return ClaimResult(claim, [], NOT_TESTABLE, claim.because)
    variants = _variants(claim, sources)
    verdicts: list[Verdict] = []
    overall: dict[bool, tuple[str, str]] = {}
    for imported in (False, True):
        group = [variant for variant in variants if variant.imported == imported]
        if group:
            found = [_verdict(claim, variant, level) for variant in group]
            verdicts += found
            overall[imported] = _combine(claim, group, found, level)
    if overall:
        # Imported data may decide what this testbed cannot.
        decisive = [result for result in overall.values() if result[0] != NOT_TESTABLE]
        by_kind = {imported: found for imported, (found, _) in overall.items()}
        return ClaimResult(claim, verdicts, *(decisive or list(overall.values()))[0], by_kind)
    if obstacle or (claim.lab == "no" and sources):
        return ClaimResult(claim, [], NOT_TESTABLE, obstacle or claim.because)
    reason = f"these run folders have no trial of it; measure: {claim.command}"
    return ClaimResult(claim, [], NOT_ENOUGH, reason)


def _combine(
    claim: Claim, variants: Sequence[_Variant], verdicts: Sequence[Verdict], level: float
) -> tuple[str, str]:
    """Combine the verdicts of variants into one and its reason. The result is undecided if they disagree.

    One variant is enough to decide, so each is tested at level/n (Bonferroni). Variants with all points of the claim
    decide it if there are any: otherwise, a run that happens to contain one of the points would cost the others power.
    """
    if reason := _disagreement(verdicts):
        return NOT_ENOUGH, reason
    pairs = zip(variants, verdicts, strict=True)
    able = [(variant, verdict) for variant, verdict in pairs if verdict.tested and not variant.obstacle]
    able = [pair for pair in able if pair[0].complete] or able
    if len(able) < 2:
        first = _most_decisive([verdict for _, verdict in able] or verdicts)
        return first.verdict, first.reason
    strict = level / len(able)
    first = _most_decisive(
        [_verdict(claim, each, strict) if found.verdict in _DECIDED else found for each, found in able]
    )
    note = f"one of {len(able)} variants, each tested at {100 * strict:.2g} %"
    return first.verdict, f"{first.source}: {first.reason}; {note}"


def _most_decisive(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: VERDICTS.index(verdict.verdict))


def _disagreement(verdicts: Sequence[Verdict]) -> str:
    decided = [verdict for verdict in verdicts if verdict.verdict in _DECIDED]
    kinds = {verdict.verdict for verdict in decided}
    if CONTRADICTED not in kinds or len(kinds) == 1:
        return ""
    return "the runs disagree: " + "; ".join(f"{verdict.source}: {verdict.verdict}" for verdict in decided)


# -- the data of a variant -----------------------------------------------------------------------------------

PartData = dict[int, list[PointData]]
"""The data of the points of each part that has any, by the number of the part."""


@dataclass(frozen=True)
class _Run:
    """The data of one variant of one run folder."""

    name: str
    parts: PartData

    @property
    def points(self) -> list[PointData]:
        return [point for points in self.parts.values() for point in points]

    def is_complete(self, claim: Claim) -> bool:
        """Return whether all points of the claim have data."""
        return len(self.parts) == len(claim.parts) and all(point.is_known for point in self.points)


@dataclass(frozen=True)
class _Variant:
    """The run folders of one testbed that have the same variant of a claim, and as much of it."""

    runs: list[_Run]
    imported: bool
    complete: bool
    obstacle: str
    description: str

    @property
    def name(self) -> str:
        if len(self.runs) == 1:
            return self.runs[0].name
        return ", ".join(filter(None, [f"{len(self.runs)} runs", self.description]))

    def parts(self, claim: Claim) -> PartData:
        """Return the data of all runs together."""
        return {
            number: evidence.pooled(part, measured)
            for number, part in enumerate(claim.parts)
            if (measured := [run.parts[number] for run in self.runs if number in run.parts])
        }

    def alone(self) -> list[_Variant]:
        """Return each run, if there are several."""
        return [replace(self, runs=[run]) for run in self.runs] if len(self.runs) > 1 else []


def _variants(claim: Claim, sources: Sequence[Source]) -> list[_Variant]:
    groups: dict[tuple[Any, ...], list[_Run]] = defaultdict(list)
    for source in sources:
        by_part = [evidence.points(part, source) for part in claim.parts]
        variants = list(dict.fromkeys(variant for points in by_part for variant in points))
        for variant in sorted(variants, key=lambda variant: json.dumps(variant, default=str)):
            parts = {number: points[variant] for number, points in enumerate(by_part) if variant in points}
            name = ", ".join(filter(None, [source.name, evidence.describe(variant, variants)]))
            run = _Run(name, parts)
            if not any(point.is_known for point in run.points) and not _no_estimate(claim, parts):
                continue
            rows = [row for point in run.points for row in point.rows]
            testbed = "imported" if source.imported else rows[0]["testbed"]
            groups[testbed, run.is_complete(claim), _obstacle(claim, rows, source), variant].append(run)
    known = list(dict.fromkeys(variant for *_, variant in groups))
    return [
        _Variant(runs, testbed == "imported", complete, obstacle, evidence.describe(variant, known))
        for (testbed, complete, obstacle, variant), runs in groups.items()
    ]


# -- one variant ---------------------------------------------------------------------------------------------


def _verdict(claim: Claim, variant: _Variant, level: float) -> Verdict:
    """Judge a variant with all its runs together. The result is undecided if single runs disagree."""
    alone = tuple(_verdict(claim, run, level) for run in variant.alone())
    verdict, reason, tested = _judged(claim, variant, level)
    if disagreement := _disagreement(alone):
        verdict, reason = NOT_ENOUGH, disagreement
    reason += "".join(dict.fromkeys(mixed_versions(run.points) for run in variant.runs))
    return Verdict(variant.name, variant.imported, verdict, reason, tested, alone)


def _judged(claim: Claim, variant: _Variant, level: float) -> tuple[str, str, list[TestedPoint]]:
    parts = variant.parts(claim)
    tested = [
        point for number, points in parts.items() for point in _test(number, claim.parts[number], points)
    ]
    rows = [row for points in parts.values() for point in points for row in point.rows]
    if variant.obstacle:
        return NOT_TESTABLE, variant.obstacle, tested
    outside = _outside(claim, tested, level, with_modeled=False)
    if outside is not None:
        if claim.lab == "model" and not variant.imported:
            reason = f"the lab does not agree ({describe_point(outside)}), but cannot decide: {claim.because}"
            return NOT_TESTABLE, reason, tested
        return CONTRADICTED, f"{describe_point(outside)}; {test_name(claim.parts[outside.part])}", tested
    outside = _outside(claim, tested, level, with_modeled=True)
    if outside is not None:
        disagrees = f"the lab's model of {modeled_networks(rows)} does not agree ({describe_point(outside)})"
        return NOT_TESTABLE, f"{disagrees}, but only the real network can contradict the claim", tested
    if len(parts) < len(claim.parts) or not all(point.data.is_known for point in tested):
        reason = _no_estimate(claim, parts) or "some cells of the claim have no valid trial; measure"
        return NOT_ENOUGH, f"{reason}: {claim.command}", tested
    undecided = _undecided(claim, tested, level)
    if undecided is not None:
        return NOT_ENOUGH, undecided_reason(undecided), tested
    shown = f"{test_name(claim.parts[0])}, {sample_size(tested)}"
    in_lab = any(row["testbed"] == "lab" for row in rows)
    by_construction = claim.lab == "model" and in_lab
    if variant.imported or not (by_construction or modeled_networks(rows)):
        return SUPPORTED, shown, tested
    because = claim.because if claim.lab == "model" else f"the lab models {modeled_networks(rows)}"
    return CONSISTENT, f"{shown}; {because}", tested


def _no_estimate(claim: Claim, parts: PartData) -> str:
    """Return why a quantity that trials have measured has no ratio; empty if that is not the reason."""
    for number, points in parts.items():
        for rows in (list(point.rows) for point in points if not point.is_known):
            for quantity in claim.parts[number].quantities:
                known = [row for row in rows if row.get(quantity) is not None]
                if len(methods := overhead.methods(METRICS[quantity], known)) > 1:
                    return (
                        f"{METRICS[quantity].title}: measured by {' and by '.join(methods)}; synchronize the clocks of"
                        " all machines, or of none, and measure again"
                    )
                values = [row[quantity] for row in known]
                if 0 in values:
                    zeros = f"{values.count(0)} of {len(values)} trials"
                    return f"{METRICS[quantity].title}: 0 in {zeros}, which has no ratio; repeat"
                if reason := missing.reason(rows, quantity):
                    return f"{METRICS[quantity].title}: {reason}; {missing.remedy(rows, quantity)}"
    return ""


def _obstacle(claim: Claim, rows: list[dict[str, Any]], source: Source) -> str:
    """Return the reason if this source cannot test the claim, whatever its results are; an empty text if it can."""
    if source.imported:
        return ""
    for network, word in claim.engines.items():
        for row in rows:
            engine = str(row.get("engine") or "none recorded")
            if row["network"] == network and word not in engine:
                return _other_engine(network, word, engine, source)
    testbeds = {row["testbed"] for row in rows}
    if claim.lab == "no" and (testbeds == {"lab"} or machine.all_share_a_kernel(source.facts)):
        return claim.because
    if claim.link_mbit and "lab" in testbeds:
        rates = {row.get("link_rate_mbit") for row in rows}
        if rates != {claim.link_mbit}:
            return f"needs links of {claim.link_mbit:g} Mbit/s; measure: {claim.command}"
    return ""


def _other_engine(network: str, word: str, engine: str, source: Source) -> str:
    features = source.facts.get("features")
    if word == "kernel" and engine.endswith("ESP") and isinstance(features, list) and "esp" not in features:
        return f"this kernel has no ESP: {network} used {engine}"
    return f"needs {network} with an engine of kind {word}; its engine was {engine}"


# -- tests -------------------------------------------------------------------------------------------------


def _test(number: int, part: Part, points: list[PointData]) -> list[TestedPoint]:
    if part.over == "mean":
        return [TestedPoint(number, evidence.mean_of(points), part.region(0), None, part.to is None)]
    return [
        TestedPoint(number, point, part.region(index), published, part.to is None)
        for index, (point, published) in enumerate(itertools.zip_longest(points, part.published or ()))
    ]


def _outside(claim: Claim, tested: list[TestedPoint], level: float, with_modeled: bool) -> TestedPoint | None:
    """Return the point that contradicts the claim most clearly after Holm's correction, or None.

    `with_modeled` states whether points with modeled networks count.
    """
    for point in tested:
        low, high = point.region
        counts = point.data.counts if with_modeled or not point.data.is_modeled else ()
        if any(not low <= count <= high for count in counts):
            return point
    # The correction covers all points, modeled or not, so that testing twice does not raise the error rate.
    hypotheses = [
        found for number, part in enumerate(claim.parts) for found in _hypotheses(part, number, tested)
    ]
    corrected = zip(holm([p for p, _, _ in hypotheses]), hypotheses, strict=True)
    for p, (_, point, modeled) in sorted(corrected, key=lambda pair: pair[0]):
        if p <= level and (with_modeled or not modeled):
            return point
    return None


def _hypotheses(part: Part, number: int, tested: list[TestedPoint]) -> list[tuple[float, TestedPoint, bool]]:
    """Return the evidence against a part: p value, point, and whether it includes a modeled network."""
    group = [point for point in tested if point.part == number]
    known = [
        (point.p_outside, point, point.data.is_modeled) for point in group if point.p_outside is not None
    ]
    if part.over != "any":
        return known
    if not known or len(known) < len(group):
        return []
    # Only all points together contradict a part that one point supports, so the least clear one decides.
    p, point, _ = max(known, key=lambda found: found[0])
    return [(p, point, any(point.data.is_modeled for point in group))]


def _undecided(claim: Claim, tested: list[TestedPoint], level: float) -> TestedPoint | None:
    """Return a point that prevents the claim from being supported, or None.

    All points must pass, so no correction is needed (intersection-union test: Berger, Technometrics 24(4),
    1982).
    """
    for number, part in enumerate(claim.parts):
        group = [point for point in tested if point.part == number]
        if part.exact:
            continue
        failing = [point for point in group if point.p_inside is None or point.p_inside > level]
        ps = {id(point): 2 if point.p_inside is None else point.p_inside for point in group}
        if part.over == "any":
            if min(holm(list(ps.values())), default=1.0) > level:
                return min(group, key=lambda point: ps[id(point)])
        elif failing:
            return max(failing, key=lambda point: ps[id(point)])
    return None
