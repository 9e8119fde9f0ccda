"""Test which rate profiles an experiment accepts, and what is recorded of them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from k8sdds.model import rate_profile
from k8sdds.model.experiment import Sweep


@pytest.mark.parametrize(
    ("text", "parsed", "mean"),
    [
        ("constant", ("constant", ()), 100),
        ("ramp:0", ("ramp", (0,)), 50),
        ("ramp:300", ("ramp", (300,)), 200),
        ("burst:10", ("burst", (10,)), 100),
        ("on-off:0.5:1.5", ("on-off", (0.5, 1.5)), 25),
    ],
)
def test_a_profile_is_a_shape_with_its_numbers(
    text: str, parsed: tuple[str, tuple[float, ...]], mean: float
) -> None:
    assert rate_profile.parse(text) == parsed
    assert rate_profile.mean_rate(text, 100) == mean


@pytest.mark.parametrize(
    "text",
    [
        "", "sine", "constant:1", "ramp", "ramp:", "ramp:x", "ramp:-1", "ramp:1e3", "ramp:inf", "ramp:20000000",
        "burst:0", "burst:1.5", "burst:2000000", "on-off:1", "on-off:0:1", "on-off:1:0", "on-off:80000:80000",
        "burst:1_0", "burst:١",
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate profile|ramp|burst|both times"):
        rate_profile.parse(text)
    with pytest.raises(ValidationError):
        Sweep(networks=["host"], rate_profile=[text])
