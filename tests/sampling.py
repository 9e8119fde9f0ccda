"""Choose the test cases of a normal run by a fixed seed; `make test-all` runs all cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

SEED = 4


def sampled(cases: Sequence[Any], every_run: int) -> list[Any]:
    """Return the cases as test parameters; all except `every_run` randomly chosen cases are marked long."""
    selected = set(random.Random(SEED).sample(range(len(cases)), min(every_run, len(cases))))
    return [
        pytest.param(*case, marks=[] if index in selected else [pytest.mark.long])
        for index, case in enumerate(cases)
    ]
