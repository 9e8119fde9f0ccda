"""Verdicts on claims. Each comes from a named test at the claims' level, never from looking.

supported      every part's test says that the ratio lies in the claimed region
contradicted   some part's test says that it lies outside, after Holm's correction over the points
consistent with the model   supported, but by a model of the network, or where it holds by construction
not enough data             neither test decides, or trials are missing
not testable here           this testbed, engine or link cannot decide it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from k8sdds.analysis.tests import Contrast, holm, p_inside, p_outside
from k8sdds.claims import evidence
from k8sdds.claims.evidence import Point, Source, Variant
from k8sdds.claims.model import Claim, Claims, Part
from k8sdds.claims.reasons import extent, mixed_versions, models, named_test, where, why_undecided
from k8sdds.results.run_folder import RunFolder

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
CONSISTENT = "consistent with the model"
NOT_ENOUGH = "not enough data"
NOT_TESTABLE = "not testable here"
VERDICTS = (SUPPORTED, CONTRADICTED, CONSISTENT, NOT_ENOUGH, NOT_TESTABLE)

_DECIDED = (SUPPORTED, CONTRADICTED, CONSISTENT)


@dataclass(frozen=True)
class Tested:
    """One point of a part (or the mean of its points) with its tests."""

    part: int
    values: dict[str, Any]
    region: tuple[float, float]
    published: float | None
    contrast: Contrast | None
    counts: tuple[float, ...] = ()
    p_inside: float | None = None
    p_outside: float | None = None
    modelled: bool = False
    """Whether a network that the lab only models is among its trials."""
    level: bool = False
    """Whether it is a level that is claimed, not a ratio."""


@dataclass(frozen=True)
class Verdict:
    """What one variant of one run folder says of a claim."""

    source: str
    imported: bool
    verdict: str
    reason: str
    tested: list[Tested] = field(default_factory=list)

    @property
    def gaps(self) -> int:
        """Points of which it says nothing."""
        return sum(1 for one in self.tested if one.contrast is None and not one.counts)


@dataclass(frozen=True)
class Judged:
    """A claim with all findings; its verdict is that of our runs, where they can decide it, else that of the
    imported data."""

    claim: Claim
    findings: list[Verdict]
    verdict: str
    reason: str

    def of(self, imported: bool) -> Verdict | None:
        """The finding to show for imported data, or for our runs: a decided one before others, then the one
        with the fewest gaps."""
        found = [finding for finding in self.findings if finding.imported == imported]
        order = [*_DECIDED, NOT_ENOUGH, NOT_TESTABLE]
        return min(found, key=lambda one: (order.index(one.verdict), one.gaps), default=None)


def judge(claims: Claims, runs: Sequence[RunFolder], only: Sequence[str] = ()) -> list[Judged]:
    """Every claim (or those whose ids are in `only`) on all run folders together, in the file's order."""
    sources = [Source.read(run) for run in runs]
    chosen = [claim for claim in claims.claims if not only or claim.id in only]
    return [judge_claim(claim, sources, claims.level) for claim in chosen]


def judge_claim(claim: Claim, sources: Sequence[Source], level: float) -> Judged:
    """One claim on some sources, at a level."""
    if not claim.parts:
        return Judged(claim, [], NOT_TESTABLE, claim.because)
    findings = [finding for source in sources for finding in _findings(claim, source, level)]
    ours, theirs = ([one for one in findings if one.imported == imported] for imported in (False, True))
    for own in (ours, theirs):
        verdict, reason = _together(own) if own else (NOT_TESTABLE, "")
        # What our testbed cannot decide the imported data may.
        if verdict != NOT_TESTABLE or (own and own is ours and not theirs):
            return Judged(claim, findings, verdict, reason)
    if findings:
        return Judged(claim, findings, *_together(findings))
    return Judged(claim, [], NOT_ENOUGH, f"no trial of it in these run folders; measure: {claim.command}")


def _together(findings: list[Verdict]) -> tuple[str, str]:
    """One verdict of several findings: where decided ones disagree, none."""
    decided = [finding for finding in findings if finding.verdict in _DECIDED]
    kinds = {finding.verdict for finding in decided}
    if CONTRADICTED in kinds and len(kinds) > 1:
        said = "; ".join(f"{finding.source}: {finding.verdict}" for finding in decided)
        return NOT_ENOUGH, f"the runs disagree: {said}"
    for verdict in VERDICTS:
        for finding in findings:
            if finding.verdict == verdict:
                return verdict, finding.reason
    raise AssertionError("a finding has one of the verdicts")


# -- one variant of one run folder ---------------------------------------------------------------------------


def _findings(claim: Claim, source: Source, level: float) -> list[Verdict]:
    by_part = [evidence.points(part, source) for part in claim.parts]
    variants = list(dict.fromkeys(variant for found in by_part for variant in found))
    findings = []
    for variant in _plainest(variants):
        found = [
            (number, part, points[variant])
            for number, (part, points) in enumerate(zip(claim.parts, by_part, strict=True))
            if variant in points
        ]
        if not any(point.contrast or point.counts for _, _, points in found for point in points):
            continue
        name = ", ".join(filter(None, [source.name, evidence.describe(variant, variants)]))
        verdict, reason, tested = _verdict(claim, found, source, level)
        reason += mixed_versions([point for _, _, points in found for point in points])
        findings.append(Verdict(name, source.imported, verdict, reason, tested))
    return findings


def _plainest(variants: list[Variant]) -> list[Variant]:
    return sorted(variants, key=lambda variant: json.dumps(variant, default=str))


def _verdict(
    claim: Claim, found: list[tuple[int, Part, list[Point]]], source: Source, level: float
) -> tuple[str, str, list[Tested]]:
    tested = [one for number, part, points in found for one in _test(number, part, points)]
    rows = [row for _, _, points in found for point in points for row in point.rows]
    obstacle = _obstacle(claim, rows, source)
    if obstacle:
        return NOT_TESTABLE, obstacle, tested
    missing = [one for one in tested if one.contrast is None and not one.counts]
    parts_missing = len(found) < len(claim.parts)
    outside = _outside(claim, tested, level, modelled=False)
    if outside is not None:
        return (*_contradiction(claim, outside, source), tested)
    outside = _outside(claim, tested, level, modelled=True)
    if outside is not None:
        disagrees = f"the lab's model of {models(rows)} does not agree ({where(outside)})"
        return NOT_TESTABLE, f"{disagrees}, and only the real one can contradict", tested
    if missing or parts_missing:
        return NOT_ENOUGH, f"some of its cells have no valid trial; measure: {claim.command}", tested
    undecided = _undecided(claim, tested, level)
    if undecided is not None:
        return NOT_ENOUGH, why_undecided(undecided), tested
    how = named_test(claim.parts[0])
    if source.imported or not _only_a_model(claim, rows, source):
        return SUPPORTED, f"{how}, {extent(tested)}", tested
    because = claim.because if claim.lab == "model" else f"the lab models {models(rows)}"
    return CONSISTENT, f"{how}, {extent(tested)}; {because}", tested


def _contradiction(claim: Claim, one: Tested, source: Source) -> tuple[str, str]:
    if claim.lab == "model" and not source.imported:
        return NOT_TESTABLE, f"the lab does not agree ({where(one)}), but cannot decide: {claim.because}"
    return CONTRADICTED, f"{where(one)}; {named_test(claim.parts[one.part])}"


def _obstacle(claim: Claim, rows: list[dict[str, Any]], source: Source) -> str:
    """Why this source cannot decide the claim whatever it measured; empty where it can."""
    if source.imported:
        return ""
    for network, word in claim.engines.items():
        for row in rows:
            engine = str(row.get("engine") or "none recorded")
            if row["network"] == network and word not in engine:
                return _other_engine(network, word, engine, source)
    testbeds = {row["testbed"] for row in rows}
    if claim.lab == "no" and (testbeds == {"lab"} or _one_kernel(source.facts)):
        return claim.because
    if claim.link_mbit and "lab" in testbeds:
        rates = {row.get("link_rate_mbit") for row in rows}
        if rates != {claim.link_mbit}:
            return f"needs links of {claim.link_mbit:g} Mbit/s; measure: {claim.command}"
    return ""


def _other_engine(network: str, word: str, engine: str, source: Source) -> str:
    features = source.facts.get("features")
    if word == "kernel" and engine.endswith("ESP") and isinstance(features, list) and "esp" not in features:
        return f"this kernel has no ESP: {network} was carried by {engine}"
    return f"needs {network} by {word}; here its engine is {engine}"


def _one_kernel(facts: dict[str, Any]) -> bool:
    """Whether several nodes of a cluster have the same boot id."""
    nodes = facts.get("nodes")
    found = [one.get("boot_id") for one in nodes.values()] if isinstance(nodes, dict) else []
    return len(found) > 1 and len(set(found)) == 1


# -- tests -------------------------------------------------------------------------------------------------


def _test(number: int, part: Part, points: list[Point]) -> list[Tested]:
    if part.over == "mean":
        modelled = any(_modelled(point) for point in points)
        whole = {"mean of points": len(points)}
        return [_tested(number, part, whole, part.region(0), None, evidence.mean_of(points), modelled)]
    tested = []
    for index, point in enumerate(points):
        region = part.region(index)
        published = part.published[index] if part.published else None
        modelled = _modelled(point)
        if part.exact:
            tested.append(
                Tested(number, point.values, region, published, None, point.counts, modelled=modelled)
            )
        else:
            tested.append(_tested(number, part, point.values, region, published, point.contrast, modelled))
    return tested


def _tested(
    number: int,
    part: Part,
    values: dict[str, Any],
    region: tuple[float, float],
    published: float | None,
    contrast: Contrast | None,
    modelled: bool,
) -> Tested:
    inside = p_inside(contrast, *region) if contrast else None
    outside = p_outside(contrast, *region) if contrast else None
    level = part.to is None
    return Tested(number, values, region, published, contrast, (), inside, outside, modelled, level)


def _modelled(point: Point) -> bool:
    return any(row.get("fidelity") == "modelled" for row in point.rows)


def _outside(claim: Claim, tested: list[Tested], level: float, modelled: bool) -> Tested | None:
    """The point that contradicts most clearly after Holm's correction, or None. `modelled`: among all
    points; else only among those without a modelled network."""
    for one in tested:
        if one.counts and (modelled or not one.modelled):
            low, high = one.region
            if any(not low <= count <= high for count in one.counts):
                return one
    # A part that holds at any point is contradicted only by all of its points together.
    for number, part in enumerate(claim.parts):
        group = [one for one in tested if one.part == number]
        if part.over == "any" and group and all(one.p_outside is not None for one in group):
            worst = max(group, key=lambda one: one.p_outside or 0)
            if (worst.p_outside or 0) <= level / len(claim.parts) and (modelled or not worst.modelled):
                return worst
    # The correction is over all points, so that asking twice does not raise the rate of false verdicts.
    able = [one for one in tested if one.p_outside is not None and claim.parts[one.part].over != "any"]
    for p, one in sorted(
        zip(holm([one.p_outside for one in able]), able, strict=True), key=lambda found: found[0]
    ):
        if p <= level and (modelled or not one.modelled):
            return one
    return None


def _undecided(claim: Claim, tested: list[Tested], level: float) -> Tested | None:
    """A point that keeps the claim from being supported, or None: all must pass, so no correction is needed
    (intersection-union test: Berger, Technometrics 24(4), 1982)."""
    for number, part in enumerate(claim.parts):
        group = [one for one in tested if one.part == number]
        if part.exact:
            continue
        failing = [one for one in group if one.p_inside is None or one.p_inside > level]
        if part.over == "any":
            ps = [1.0 if one.p_inside is None else one.p_inside for one in group]
            if min(holm(ps), default=1.0) > level:
                return failing[0]
        elif failing:
            return max(failing, key=lambda one: 2 if one.p_inside is None else one.p_inside)
    return None


def _only_a_model(claim: Claim, rows: list[dict[str, Any]], source: Source) -> bool:
    in_lab = any(row["testbed"] == "lab" for row in rows)
    return (claim.lab == "model" and in_lab) or any(row.get("fidelity") == "modelled" for row in rows)
