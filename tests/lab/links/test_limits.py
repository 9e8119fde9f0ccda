"""Test that k8sdds-link has the limits of links in experiments."""

from __future__ import annotations

from pathlib import Path

import pytest
from link_tools import LINK, Values, config, decide, evenly

from k8sdds.model import link_files
from k8sdds.model.impairments import MAX_DELAY_US, MAX_QUEUE_BYTES, MAX_QUEUE_MS, MAX_QUEUE_PACKETS
from k8sdds.model.link import Link
from k8sdds.model.link_files import MAX_TRACE_MS, MAX_VALUES
from k8sdds.system.strict import MAX_RATE_MBIT
from k8sdds.testbeds.link_emulation import Port, configuration


def largest(folder: Path) -> list[Link]:
    """Return links with the largest values that experiments may have."""
    files = {
        "delay": f"{MAX_DELAY_US}\n" * MAX_VALUES,
        "loss": "1" * (MAX_VALUES - 1) + "0",
        "rate": "".join(f"{(number + 1) * MAX_TRACE_MS // MAX_VALUES}\n" for number in range(MAX_VALUES)),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    recorded = Link(**{name: {"file": str(folder / name)} for name in files}, queue={"ms": MAX_QUEUE_MS})
    queues = ({"packets": MAX_QUEUE_PACKETS}, {"bytes": MAX_QUEUE_BYTES}, {"ms": MAX_QUEUE_MS})
    return [
        link_files.checked(recorded),
        *(
            Link(
                delay={"mean_us": MAX_DELAY_US, "jitter_us": MAX_DELAY_US, "distribution": distribution},
                rate={"mbit": MAX_RATE_MBIT},
                queue=queue,
            )
            for distribution, queue in zip(("normal", "uniform", "pareto"), queues, strict=True)
        ),
    ]


def test_the_program_takes_whatever_experiments_may_have(tmp_path: Path) -> None:
    for link in largest(tmp_path):
        fates, _ = decide(tmp_path, configuration(link, [Port(LINK, "near", "far")], 7, None), evenly(1))
        assert len(fates) == 1


@pytest.mark.parametrize(
    ("up", "limit"),
    [
        ({"loss": {"pattern": "0" * (MAX_VALUES + 1)}}, MAX_VALUES),
        ({"delay": {"values_us": [0] * (MAX_VALUES + 1)}}, MAX_VALUES),
        ({"rate": {"trace_ms": [1] * (MAX_VALUES + 1)}}, MAX_VALUES),
        ({"rate": {"trace_ms": [MAX_TRACE_MS + 1]}}, MAX_TRACE_MS),
        ({"rate": {"mbit": MAX_RATE_MBIT + 1}}, MAX_RATE_MBIT),
        ({"queue": {"packets": MAX_QUEUE_PACKETS + 1}}, MAX_QUEUE_PACKETS),
        ({"queue": {"bytes": MAX_QUEUE_BYTES + 1}}, MAX_QUEUE_BYTES),
        ({"queue": {"ms": MAX_QUEUE_MS + 1}}, MAX_QUEUE_MS),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value),
)
def test_the_program_takes_no_more(tmp_path: Path, up: Values, limit: int) -> None:
    with pytest.raises(AssertionError, match=str(limit)):
        decide(tmp_path, config(up), [])
