"""Test the parsers of Kubernetes' numbers."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.kubernetes.metrics.quantities import parse_duration_s, parse_quantity, parse_time_s


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("1", 1), ("250m", 0.25), ("296263110n", 0.29626311), ("17u", 17e-6), ("1.5", 1.5), (".5", 0.5),
        ("-2", -2), ("12Ki", 12288), ("883044Ki", 883044 * 1024), ("3M", 3e6), ("1Gi", 2**30), ("2E", 2e18), ("2Ei", 2 * 2**60),
        ("1e3", 1000), ("12E2", 1200), ("5k", 5000),
    ],
)  # fmt: skip
def test_quantities(text: str, number: float) -> None:
    assert parse_quantity(text) == pytest.approx(number)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20.069s", 20.069), ("1m0.5s", 60.5), ("1h2m3s", 3723), ("250ms", 0.25), ("3µs", 3e-6)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "1", "1x", "1m 2s", "-1s", "1Ki", "1mi", "m1", "1e", "1ee3", "\u0661"]
)
def test_invalid_numbers(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_s(text)
    if text != "1" and text != "1Ki":
        with pytest.raises(ValueError):
            parse_quantity(text)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    for read in (parse_quantity, parse_duration_s, parse_time_s):
        with suppress(ValueError):
            assert isinstance(read(text), float)


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_times(moment: datetime) -> None:
    assert parse_time_s(moment.isoformat().replace("+00:00", "Z")) == pytest.approx(moment.timestamp())


def test_a_time_without_a_zone_is_rejected() -> None:
    with pytest.raises(ValueError, match="time zone"):
        parse_time_s("2026-11-21T16:27:09")
