"""A testbed leaves out user ids that it cannot give to participants."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds.model.experiment import Experiment
from k8sdds.testbeds import user_ids

BOTH, ZENOH = ["fastdds", "zenoh"], ["users other with zenoh (needs root)"]


def experiment(*sweeps: dict[str, Any]) -> Experiment:
    shared = {"networks": ["host"], "transport": "shared-memory"}
    return Experiment.model_validate({"name": "test", "sweeps": [shared | sweep for sweep in sweeps]})


@pytest.mark.parametrize(
    ("sweeps", "kept", "removed"),
    [
        (({"middleware": BOTH},), [(BOTH, ["same"])], []),
        (({"middleware": BOTH, "users": "other"},), [(["fastdds"], ["other"])], ZENOH),
        (
            ({"middleware": BOTH, "users": ["same", "other"]},),
            [(["fastdds"], ["same", "other"]), (["zenoh"], ["same"])],
            ZENOH,
        ),
        (
            ({"middleware": "zenoh"}, {"middleware": "zenoh", "users": "other"}),
            [(["zenoh"], ["same"])],
            ZENOH,
        ),
        (({"middleware": "zenoh", "users": "other"},), [(["zenoh"], ["other"])], []),
    ],
)
def test_unsupported_combinations_are_left_out(
    sweeps: tuple[dict[str, Any], ...], kept: list[tuple[list[str], list[str]]], removed: list[str]
) -> None:
    found, left_out = user_ids.supported(experiment(*sweeps), lambda name: name != "zenoh", "needs root")
    assert [(list(sweep.middleware), list(sweep.users)) for sweep in found.sweeps] == kept
    assert left_out == removed
