"""Which cases every run takes: one sample of levels and middlewares by a seed; `make test-all` takes all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

SEED = 4


def sampled(cases: Sequence[Any], every_run: int) -> list[Any]:
    """The cases as parameters of a test; all but some, chosen by the seed, are marked long."""
    chosen = set(random.Random(SEED).sample(range(len(cases)), min(every_run, len(cases))))
    return [
        pytest.param(*case, marks=[] if index in chosen else [pytest.mark.long])
        for index, case in enumerate(cases)
    ]
