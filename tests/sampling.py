"""Choose the test cases of a normal run by a fixed seed; `make test-all` runs all cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

SEED = 8


def sampled(cases: Sequence[Any], every_run: int) -> list[Any]:
    """Return the cases as test parameters; all except `every_run` randomly chosen cases are marked long."""
    # The names differ between lists, so that lists of equal length do not all select the same places.
    names = [value for case in cases for value in case if isinstance(value, str)]
    dice = random.Random(f"{SEED} {names}")
    selected = set(dice.sample(range(len(cases)), min(every_run, len(cases))))
    return [
        pytest.param(*case, marks=[] if index in selected else [pytest.mark.long])
        for index, case in enumerate(cases)
    ]
