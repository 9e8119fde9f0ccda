"""Decide verdicts on claims. Every verdict follows from a statistical test at the claims' significance level.

supported      for every part, the test shows that the ratio lies in the claimed region
contradicted   for at least one part, the test shows that the ratio lies outside, after Holm's correction over points
consistent with the model   supported, but only by a model of the network, or true by construction
not enough data             the tests are inconclusive, or trials are missing
not testable here           this testbed, engine or link cannot test the claim
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k8sdds.analysis import missing
from k8sdds.analysis.tests import Contrast, holm, p_inside, p_outside
from k8sdds.claims import evidence
from k8sdds.claims.evidence import PointData, Source, TestedPoint
from k8sdds.claims.model import Claim, Claims, Part
from k8sdds.claims.reasons import (
    describe_point,
    mixed_versions,
    modeled_networks,
    sample_size,
    test_name,
    undecided_reason,
)
from k8sdds.results import shared_kernels
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
CONSISTENT = "consistent with the model"
NOT_ENOUGH = "not enough data"
NOT_TESTABLE = "not testable here"
VERDICTS = (SUPPORTED, CONTRADICTED, CONSISTENT, NOT_ENOUGH, NOT_TESTABLE)

_DECIDED = (SUPPORTED, CONTRADICTED, CONSISTENT)


@dataclass(frozen=True)
class Verdict:
    """The verdict of one variant of one run folder on a claim."""

    source: str
    imported: bool
    verdict: str
    reason: str
    points: list[TestedPoint] = field(default_factory=list)

    @property
    def gaps(self) -> int:
        """Number of points without data."""
        return sum(1 for point in self.points if point.contrast is None and not point.counts)


@dataclass(frozen=True)
class ClaimResult:
    """A claim with all verdicts on it.

    The overall verdict comes from k8sdds runs if they can test the claim, else from imported data.
    """

    claim: Claim
    verdicts: list[Verdict]
    verdict: str
    reason: str

    def best(self, imported: bool) -> Verdict | None:
        """Return the most decisive verdict of imported or measured data; of equal ones, the one with fewer gaps."""
        candidates = [verdict for verdict in self.verdicts if verdict.imported == imported]
        order = [*_DECIDED, NOT_ENOUGH, NOT_TESTABLE]
        return min(candidates, key=lambda verdict: (order.index(verdict.verdict), verdict.gaps), default=None)


def judge(
    claims: Claims,
    runs: Sequence[RunFolder],
    only: Sequence[str] = (),
    obstacles: Mapping[str, str] | None = None,
) -> list[ClaimResult]:
    """Judge every claim, or some of them, with the data of all run folders.

    Args:
        claims: The claims.
        runs: The run folders.
        only: Ids of the claims to judge; empty: all.
        obstacles: Why a claim, by id, could not be measured.

    Returns:
        The results, in the order of the claims file.
    """
    sources = [Source.read(run) for run in runs]
    selected = [claim for claim in claims.claims if not only or claim.id in only]
    return [
        judge_claim(claim, sources, claims.level, (obstacles or {}).get(claim.id, "")) for claim in selected
    ]


def judge_claim(claim: Claim, sources: Sequence[Source], level: float, obstacle: str = "") -> ClaimResult:
    """Judge one claim with the data of some sources at a significance level.

    Args:
        claim: The claim.
        sources: The data.
        level: The significance level.
        obstacle: Why it could not be measured, if it was tried.
    """
    if not claim.parts:
        return ClaimResult(claim, [], NOT_TESTABLE, claim.because)
    verdicts = [verdict for source in sources for verdict in _verdicts(claim, source, level)]
    measured = [verdict for verdict in verdicts if not verdict.imported]
    imported = [verdict for verdict in verdicts if verdict.imported]
    for group in (measured, imported):
        verdict, reason = _combine(group) if group else (NOT_TESTABLE, "")
        # Imported data may decide what this testbed cannot.
        if verdict != NOT_TESTABLE or (group and group is measured and not imported):
            return ClaimResult(claim, verdicts, verdict, reason)
    if verdicts:
        return ClaimResult(claim, verdicts, *_combine(verdicts))
    if obstacle:
        return ClaimResult(claim, [], NOT_TESTABLE, obstacle)
    if claim.lab == "no" and sources:
        return ClaimResult(claim, [], NOT_TESTABLE, claim.because)
    reason = f"these run folders have no trial of it; measure: {claim.command}"
    return ClaimResult(claim, [], NOT_ENOUGH, reason)


def _combine(verdicts: list[Verdict]) -> tuple[str, str]:
    """Combine verdicts into one verdict and its reason. The result is undecided if they disagree."""
    decided = [verdict for verdict in verdicts if verdict.verdict in _DECIDED]
    kinds = {verdict.verdict for verdict in decided}
    if CONTRADICTED in kinds and len(kinds) > 1:
        summary = "; ".join(f"{verdict.source}: {verdict.verdict}" for verdict in decided)
        return NOT_ENOUGH, f"the runs disagree: {summary}"
    first = min(verdicts, key=lambda verdict: VERDICTS.index(verdict.verdict))
    return first.verdict, first.reason


# -- one variant of one run folder ---------------------------------------------------------------------------


def _verdicts(claim: Claim, source: Source, level: float) -> list[Verdict]:
    by_part = [evidence.points(part, source) for part in claim.parts]
    variants = list(dict.fromkeys(variant for points in by_part for variant in points))
    verdicts = []
    for variant in sorted(variants, key=lambda variant: json.dumps(variant, default=str)):
        parts = [
            (number, part, points[variant])
            for number, (part, points) in enumerate(zip(claim.parts, by_part, strict=True))
            if variant in points
        ]
        known = any(point.contrast or point.counts for _, _, points in parts for point in points)
        if not known and not _too_few_values(parts):
            continue
        name = ", ".join(filter(None, [source.name, evidence.describe(variant, variants)]))
        verdict, reason, tested = _verdict(claim, parts, source, level)
        reason += mixed_versions([point for _, _, points in parts for point in points])
        verdicts.append(Verdict(name, source.imported, verdict, reason, tested))
    return verdicts


def _verdict(
    claim: Claim, parts: list[tuple[int, Part, list[PointData]]], source: Source, level: float
) -> tuple[str, str, list[TestedPoint]]:
    tested = [point for number, part, points in parts for point in _test(number, part, points)]
    rows = [row for _, _, points in parts for point in points for row in point.rows]
    obstacle = _obstacle(claim, rows, source)
    if obstacle:
        return NOT_TESTABLE, obstacle, tested
    incomplete = len(parts) < len(claim.parts) or any(
        point.contrast is None and not point.counts for point in tested
    )
    outside = _outside(claim, tested, level, with_modeled=False)
    if outside is not None:
        return (*_contradiction(claim, outside, source), tested)
    outside = _outside(claim, tested, level, with_modeled=True)
    if outside is not None:
        disagrees = f"the lab's model of {modeled_networks(rows)} does not agree ({describe_point(outside)})"
        return NOT_TESTABLE, f"{disagrees}, but only the real network can contradict the claim", tested
    if incomplete:
        reason = _too_few_values(parts) or "some cells of the claim have no valid trial; measure"
        return NOT_ENOUGH, f"{reason}: {claim.command}", tested
    undecided = _undecided(claim, tested, level)
    if undecided is not None:
        return NOT_ENOUGH, undecided_reason(undecided), tested
    test = test_name(claim.parts[0])
    if source.imported or not _only_a_model(claim, rows):
        return SUPPORTED, f"{test}, {sample_size(tested)}", tested
    because = claim.because if claim.lab == "model" else f"the lab models {modeled_networks(rows)}"
    return CONSISTENT, f"{test}, {sample_size(tested)}; {because}", tested


def _too_few_values(parts: list[tuple[int, Part, list[PointData]]]) -> str:
    """Return which percentile is unknown because trials have too few values or episodes; empty if all are known."""
    for _, part, points in parts:
        for point in points:
            if point.contrast is not None or point.counts:
                continue
            for quantity in part.quantities:
                if reason := missing.reason(list(point.rows), quantity):
                    return (
                        f"{METRICS[quantity].title}: {reason}; {missing.remedy(list(point.rows), quantity)}"
                    )
    return ""


def _contradiction(claim: Claim, point: TestedPoint, source: Source) -> tuple[str, str]:
    if claim.lab == "model" and not source.imported:
        return (
            NOT_TESTABLE,
            f"the lab does not agree ({describe_point(point)}), but cannot decide: {claim.because}",
        )
    return CONTRADICTED, f"{describe_point(point)}; {test_name(claim.parts[point.part])}"


def _obstacle(claim: Claim, rows: list[dict[str, Any]], source: Source) -> str:
    """Return why this source cannot test the claim, regardless of its results. Empty if it can."""
    if source.imported:
        return ""
    for network, word in claim.engines.items():
        for row in rows:
            engine = str(row.get("engine") or "none recorded")
            if row["network"] == network and word not in engine:
                return _other_engine(network, word, engine, source)
    testbeds = {row["testbed"] for row in rows}
    if claim.lab == "no" and (testbeds == {"lab"} or shared_kernels.all_share(source.facts)):
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
        modeled = any(_is_modeled(point) for point in points)
        values = {"mean of points": len(points)}
        return [_tested(number, part, values, part.region(0), None, evidence.mean_of(points), modeled)]
    tested = []
    for index, point in enumerate(points):
        region = part.region(index)
        published = part.published[index] if part.published else None
        modeled = _is_modeled(point)
        if part.exact:
            tested.append(
                TestedPoint(number, point.values, region, published, None, point.counts, modeled=modeled)
            )
        else:
            tested.append(_tested(number, part, point.values, region, published, point.contrast, modeled))
    return tested


def _tested(
    number: int,
    part: Part,
    values: dict[str, Any],
    region: tuple[float, float],
    published: float | None,
    contrast: Contrast | None,
    modeled: bool,
) -> TestedPoint:
    inside = p_inside(contrast, *region) if contrast else None
    outside = p_outside(contrast, *region) if contrast else None
    is_level = part.to is None
    return TestedPoint(number, values, region, published, contrast, (), inside, outside, modeled, is_level)


def _is_modeled(point: PointData) -> bool:
    return any(row.get("fidelity") == "modelled" for row in point.rows)


def _outside(claim: Claim, tested: list[TestedPoint], level: float, with_modeled: bool) -> TestedPoint | None:
    """Return the point that contradicts the claim most clearly after Holm's correction, or None.

    Args:
        claim: The claim.
        tested: All tested points of the claim.
        level: Significance level.
        with_modeled: Whether points with modeled networks count.
    """
    for point in tested:
        if point.counts and (with_modeled or not point.modeled):
            low, high = point.region
            if any(not low <= count <= high for count in point.counts):
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
    """Return what can contradict a part: p value, point, and whether it includes a modeled network."""
    group = [point for point in tested if point.part == number]
    known = [(point.p_outside, point, point.modeled) for point in group if point.p_outside is not None]
    if part.over != "any":
        return known
    if not known or len(known) < len(group):
        return []
    # Only all points together contradict a part that one point supports, so the least clear one decides.
    p, point, _ = max(known, key=lambda found: found[0])
    return [(p, point, any(point.modeled for point in group))]


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


def _only_a_model(claim: Claim, rows: list[dict[str, Any]]) -> bool:
    in_lab = any(row["testbed"] == "lab" for row in rows)
    return (claim.lab == "model" and in_lab) or any(row.get("fidelity") == "modelled" for row in rows)
