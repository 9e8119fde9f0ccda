"""How much of a trial, and which of its slow samples, fell into times in which a CPU limit stopped participants."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.campaign import cpu_limits
from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import Cell, Trial
from k8sdds.results import slow_samples
from k8sdds.testbeds import core_layout
from k8sdds.workloads import TrialOutputs

Stops = dict[str, list[tuple[int, int]]]
PUBLISHER_STOPS = [(500, 2_000), (4_000, 5_000)]


def outputs(folder: Path, stops: Stops | None, slow: str = "") -> TrialOutputs:
    """Return the outputs of a trial with 2 publishers, whose interval is from 1,000 to 11,000 µs."""
    interval = {"start_monotonic_ns": 1_000_000, "duration_s": 0.01}
    cell = Cell(network="host", test="paced", payload_bytes=1024, publishers=2, cpu_quota=0.1)
    outcomes = {one.name: Outcome(one, 0, {"interval": interval}) for one in cell.participants}
    (folder / "sub0").mkdir()
    (folder / "sub0" / slow_samples.FILE).write_text(f"publisher,at_us,delay_us\n{slow}")
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
    return TrialOutputs(trial, Measurement(outcomes, None, {}, stops=stops), folder, {})


@pytest.mark.parametrize(
    ("subscriber", "percent"),
    [([], 20), ([(4_500, 6_000)], 30), ([(10_000, 15_000)], 30), ([(0, 20_000)], 100)],
)
def test_the_time_of_stops_is_counted_once(
    tmp_path: Path, subscriber: list[tuple[int, int]], percent: float
) -> None:
    found = outputs(tmp_path, {"pub0": PUBLISHER_STOPS, "pub1": [], "sub0": subscriber})
    assert cpu_limits.stopped_percent(found) == pytest.approx(percent)


def test_a_slow_sample_is_in_a_stop_of_its_own_publisher(tmp_path: Path) -> None:
    # Due and arrived before, in, around, and after a stop; and in a stop of the other publisher.
    slow = "0,3000,900\n0,4500,100\n0,6000,2500\n0,7000,1900\n1,4500,100\n"
    found = outputs(tmp_path, {"pub0": PUBLISHER_STOPS, "pub1": [], "sub0": []}, slow)
    stopped, by_chance = cpu_limits.slow_stopped_percents(found)
    assert stopped == pytest.approx(40)
    # Of 10,000 µs, the publisher of four samples was stopped for 2,000; before the second stop, 2,000 µs are free.
    assert by_chance == pytest.approx(100 * (0.2 * 4 + (900 + 100 + 2000 + 1900) / 10_000) / 5)


def test_a_long_delay_meets_a_stop_by_chance(tmp_path: Path) -> None:
    found = outputs(tmp_path, {"pub0": [(3_000, 3_100), (9_000, 9_100)], "sub0": []}, "0,9500,9000\n")
    stopped, by_chance = cpu_limits.slow_stopped_percents(found)
    assert stopped == 100 and by_chance == pytest.approx(81)


@pytest.mark.parametrize("stops", [None, {"pub0": PUBLISHER_STOPS, "sub0": []}])
def test_what_was_not_recorded_is_unknown(tmp_path: Path, stops: Stops | None) -> None:
    found = outputs(tmp_path, stops, "1,4500,100\n")
    assert cpu_limits.stopped_percent(found) is None
    assert cpu_limits.slow_stopped_percents(found) == (None, None)


def test_without_slow_samples_their_share_is_unknown(tmp_path: Path) -> None:
    found = outputs(tmp_path, {name: [] for name in ("pub0", "pub1", "sub0")})
    assert cpu_limits.slow_stopped_percents(found) == (None, None) and cpu_limits.stopped_percent(found) == 0


@pytest.mark.parametrize(
    ("layout", "cores", "core"), [("same", 2, 1), ("split", 2, None), ("split", 4, 3), ("free", 8, None)]
)
def test_stops_are_recorded_on_a_core_without_participants(layout: str, cores: int, core: int | None) -> None:
    available = tuple(range(cores))
    assigned = core_layout.assign(layout, 1, 1, available)
    assert core_layout.unused(assigned, available) == core
