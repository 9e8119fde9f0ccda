"""Test that what the native programs read from outside neither crashes nor hangs them."""

import pytest
from fuzzing import REPOSITORY, TARGETS, fuzz

BUILD = REPOSITORY / "build/native"


@pytest.mark.parametrize("target", TARGETS)
def test_a_sample_of_inputs(target):
    assert "inputs" in fuzz(BUILD, target, runs=1000, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_many_inputs(target):
    fuzz(BUILD, target, runs=20_000, seed=2)
