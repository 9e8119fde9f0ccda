"""Searches of a capacity on simulated devices, and with damaged records."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.analysis.capacity import MAX_PROBES, Goal, Probe, Search, rounded
from k8sdds.model.options import MEMBERS, SUBSCRIBERS

Device = Callable[[float, float], Probe]

STRICT, LOOSE = Goal(0, 10), Goal(0.5, 10)
SEARCH = Search((STRICT, LOOSE), 2, 3, 0.05, 10, 1e6, (10, 50, 90))


def monotone(capacity: float, slack: float = 1.0) -> Device:
    """Return a device that loses nothing up to its capacity, and everything above; saturated it carries `slack` of it."""

    def measure(rate: float, duration_s: float) -> Probe:
        if not rate:
            return Probe(0, duration_s, samples_per_s=capacity * slack)
        lost = 100 * max(0.0, 1 - capacity / rate)
        return Probe(rate, duration_s, lost, 0 if rate <= capacity else 100, rate)

    return measure


def noisy(capacity: float, noise: random.Random, spread: float, disturbed: float) -> Device:
    """Return a device whose capacity varies from trial to trial, and which sometimes delays samples at any rate."""

    def measure(rate: float, duration_s: float) -> Probe:
        device = monotone(capacity * math.exp(noise.gauss(0, spread / math.sqrt(duration_s))))
        probe = device(rate, duration_s)
        if rate and noise.random() < disturbed:
            return Probe(rate, duration_s, probe.undelivered_percent, 30, rate)
        return probe

    return measure


def probes_of(search: Search, device: Device, first: float = 0) -> list[Probe]:
    """Return all probes of a search. That of subscribers begins with one, as campaigns plan it."""
    probes = [device(first, search.duration_s)]
    while wanted := search.next(probes):
        assert len(probes) <= MAX_PROBES
        probes += [device(rate, duration_s) for rate, duration_s in wanted]
    return probes


capacities = st.floats(20, 9e5)
slacks = st.floats(0.01, 100)


@given(capacities, slacks, st.sampled_from([1, 2, 3, 5]), st.sampled_from([0.01, 0.05, 0.5]))
def test_the_interval_contains_the_capacity_of_a_monotone_device(
    capacity: float, slack: float, trials: int, width: float
) -> None:
    search = Search((STRICT, LOOSE), 2, trials, width, 10, 1e6)
    probes = probes_of(search, monotone(capacity, slack))
    bounds = search.bounds(STRICT, probes)
    assert bounds.low is not None and bounds.high is not None
    assert bounds.low <= capacity < bounds.high <= bounds.low * (1 + width) * 1.001
    assert search.is_decided(STRICT, probes) and search.is_decided(LOOSE, probes)


@given(capacities, slacks)
def test_a_looser_goal_never_has_a_lower_capacity(capacity: float, slack: float) -> None:
    probes = probes_of(SEARCH, monotone(capacity, slack))
    strict, loose = SEARCH.bounds(STRICT, probes), SEARCH.bounds(LOOSE, probes)
    assert (strict.low or 0) <= (loose.low or 0) and (strict.high or 0) <= (loose.high or math.inf)


@given(capacities)
def test_each_bound_is_decided_by_a_majority_of_probes_at_its_rate(capacity: float) -> None:
    probes = probes_of(SEARCH, monotone(capacity))
    bounds = SEARCH.bounds(STRICT, probes)
    full = [probe for probe in probes if probe.value == bounds.low and probe.duration_s == 2]
    assert len(full) >= 2
    assert sum(probe.value == bounds.high for probe in probes) >= 2


@given(st.integers(0, 2**32), capacities, st.floats(0, 0.3), st.floats(0, 0.5))
def test_a_search_on_a_noisy_device_ends(seed: int, capacity: float, spread: float, disturbed: float) -> None:
    probes = probes_of(SEARCH, noisy(capacity, random.Random(seed), spread, disturbed))
    assert len(probes) <= MAX_PROBES + len(SEARCH.latency_at_percent)
    assert all(probe.value == 0 or 10 <= probe.value <= 1e6 for probe in probes)


def test_a_disturbance_at_low_rates_is_outvoted() -> None:
    probes = probes_of(SEARCH, monotone(1e4))
    before = SEARCH.bounds(STRICT, probes)
    disturbed = [Probe(1000, 2, 0, 30), Probe(1000, 2, 0, 30)]
    assert SEARCH.bounds(STRICT, [*probes, *disturbed]) == before
    assert SEARCH.contradicting(STRICT, [*probes, *disturbed]) == 2
    assert SEARCH.contradicting(STRICT, probes) == 0


def test_noise_far_below_the_width_does_not_move_the_interval() -> None:
    hits = 0
    for seed in range(200):
        probes = probes_of(SEARCH, noisy(1e4, random.Random(seed), 0.01, 0.02))
        bounds = SEARCH.bounds(LOOSE, probes)
        hits += (bounds.low or 0) <= 1e4 * 1.02 and (bounds.high or 0) >= 1e4 / 1.02
    assert hits >= 195


@given(st.integers(0, 2**32), capacities)
def test_the_same_probes_lead_to_the_same_decision_in_any_order(seed: int, capacity: float) -> None:
    noise = random.Random(seed)
    probes = probes_of(SEARCH, noisy(capacity, noise, 0.05, 0.1))
    part = probes[: noise.randint(1, len(probes))]
    shuffled = noise.sample(part, len(part))
    assert SEARCH.next(part) == SEARCH.next(shuffled)


@pytest.mark.parametrize(
    ("seen", "first", "ends"),
    [((50, 100), 1e4, (None, SEARCH.lowest)), ((0, 0), 10, (SEARCH.highest, None))],
)
def test_a_search_ends_at_the_lowest_and_at_the_highest_rate(
    seen: tuple[float, float], first: float, ends: tuple[float | None, float | None]
) -> None:
    probes = probes_of(SEARCH, lambda rate, duration_s: Probe(rate, duration_s, *seen, rate or first))
    bounds = SEARCH.bounds(STRICT, probes)
    assert (bounds.low, bounds.high) == ends and SEARCH.is_decided(STRICT, probes)
    assert bool(SEARCH.latency_values(probes)) == (bounds.low is not None)


def test_a_rate_is_not_met_if_its_loss_or_delay_is_unknown() -> None:
    assert Probe(10, 2).excess(LOOSE) == math.inf
    assert Probe(10, 2, 0, None).excess(LOOSE) == math.inf
    assert Probe(10, 2, 0, None).excess(Goal(0, None)) == 0
    assert Probe(10, 2, math.nan, 0).excess(LOOSE) == math.inf


def test_any_loss_misses_a_goal_without_loss() -> None:
    assert Probe(10, 2, 1e-9, 0).excess(STRICT) == math.inf
    assert Probe(10, 2, 0.5, 1).excess(LOOSE) == 1


def test_a_short_probe_decides_only_if_a_full_one_could_not_have_met_the_goal() -> None:
    search = Search((LOOSE,), 2, 1, 0.05, 10, 1e6)
    clear, unclear, fine = (Probe(100, 0.5, lost, 0) for lost in (2.1, 1.9, 0))
    assert search.bounds(LOOSE, [clear]).high == 100
    assert search.bounds(LOOSE, [unclear]).high is None
    assert search.bounds(LOOSE, [fine]).low is None


@pytest.mark.parametrize("rate", [0.0, -5.0, math.inf, math.nan])
def test_a_record_with_an_impossible_rate_changes_nothing(rate: float) -> None:
    probes = probes_of(SEARCH, monotone(1e4))
    hostile = [*probes, Probe(rate, 2, 0, 0, None)]
    assert SEARCH.bounds(STRICT, hostile) == SEARCH.bounds(STRICT, probes)
    assert SEARCH.next(hostile) == []


def test_a_probe_at_a_low_rate_is_long_enough_for_its_percentile() -> None:
    for probe in probes_of(SEARCH, monotone(150)):
        assert not probe.value or probe.duration_s == 2 or probe.duration_s * probe.value >= 199


def test_the_delay_is_measured_at_shares_of_the_capacity() -> None:
    probes = probes_of(SEARCH, monotone(1e4))
    low = SEARCH.bounds(STRICT, probes).low or 0
    assert SEARCH.latency_values(probes) == {share: rounded(low * share / 100) for share in (10, 50, 90)}
    for rate in SEARCH.latency_values(probes).values():
        assert sum(probe.value == rate and probe.duration_s == 2 for probe in probes) >= 3


def subscribers_search(most: int, width: float = 0.05, trials: int = 3) -> Search:
    """Return a search over the number of subscribers at 1000 samples per second."""
    return Search((STRICT, LOOSE), 2, trials, width, 1, most, (50,), fixed_rate=1000, searched=SUBSCRIBERS)


@given(st.integers(2, 500), st.data(), st.sampled_from([0.01, 0.05, 0.5]), st.sampled_from([1, 3]))
def test_the_number_of_subscribers_is_found(
    most: int, data: st.DataObject, width: float, trials: int
) -> None:
    capacity = data.draw(st.integers(1, most - 1))
    search = subscribers_search(most, width, trials)
    probes = probes_of(search, monotone(capacity), first=1)
    bounds = search.bounds(STRICT, probes)
    assert bounds.low is not None and bounds.high is not None
    assert bounds.low <= capacity < bounds.high <= max(bounds.low * (1 + width) * 1.001, bounds.low + 1)
    assert all(probe.value == int(probe.value) and 1 <= probe.value <= most for probe in probes)


def test_a_number_of_subscribers_outside_the_bounds_ends_the_search() -> None:
    search = subscribers_search(100)
    all_met = search.bounds(STRICT, probes_of(search, monotone(100), first=1))
    none_met = search.bounds(STRICT, probes_of(search, monotone(0.5), first=1))
    assert (all_met.low, all_met.high) == (100, None)
    assert (none_met.low, none_met.high) == (None, 1)


@given(st.integers(2, 99), st.integers(0, 1000))
def test_a_noisy_search_over_subscribers_ends_with_whole_numbers(capacity: int, seed: int) -> None:
    search = subscribers_search(100)
    probes = probes_of(search, noisy(capacity, random.Random(seed), 0.05, 0.1), first=1)
    assert len(probes) <= MAX_PROBES + 1
    assert all(probe.value == int(probe.value) and 1 <= probe.value <= 100 for probe in probes)


MATCHED = Goal(matched_s=2)


def fleets(largest: int, steep: float, lost_above: float) -> Device:
    """Return fleets that match in 2 s up to the largest, with times that grow by a power; some above never match."""

    def measure(members: float, duration_s: float) -> Probe:
        in_time = 2 * (members / (largest + 0.5)) ** steep
        return Probe(members, duration_s, matched_s=in_time if members <= largest * lost_above else None)

    return measure


@given(
    st.integers(2, 500), st.data(), st.floats(0.1, 4), st.floats(1, 3), st.sampled_from([0.01, 0.05, 0.5]),
    st.sampled_from([1, 3]), st.integers(1, 500),
)  # fmt: skip
def test_the_largest_fleet_is_found_from_any_first_number(
    most: int, data: st.DataObject, steep: float, lost_above: float, width: float, trials: int, first: int
) -> None:
    largest = data.draw(st.integers(1, most - 1))
    search = Search((Goal(matched_s=0.5), MATCHED), 8, trials, width, 1, most, searched=MEMBERS)
    probes = probes_of(search, fleets(largest, steep, lost_above), first=min(first, most))
    bounds = search.bounds(MATCHED, probes)
    assert bounds.low is not None and bounds.high is not None
    assert bounds.low <= largest < bounds.high <= max(bounds.low * (1 + width) * 1.001, bounds.low + 1)
    assert all(probe.value == int(probe.value) and 1 <= probe.value <= most for probe in probes)
    # A shorter trial would end before members have matched.
    assert {probe.duration_s for probe in probes} == {8}
    strict = search.bounds(search.goals[0], probes)
    assert (strict.low or 0) <= bounds.low and search.is_decided(search.goals[0], probes)


def test_a_fleet_that_did_not_match_misses_every_time() -> None:
    assert Probe(4, 8, matched_s=None).excess(Goal(matched_s=1e9)) == math.inf
    assert Probe(4, 8, matched_s=2).excess(MATCHED) == 1
    # What a capacity test measures does not count.
    assert Probe(4, 8, 0, 0).excess(MATCHED) == math.inf
