"""Test reading the output of RTI PerfTest into a summary and a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.campaign import record as attempt
from k8sdds.middleware.connext import read_output
from k8sdds.model.measurement import Measurement, Outcome
from k8sdds.model.trial import Cell, Trial
from tests.unit.importing import logs


def participant(folder: Path, stdout: str, publisher: bool, **configuration: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "stderr").write_text(
        logs.configuration(publisher, **configuration) + logs.END, encoding="utf-8"
    )
    (folder / "stdout").write_text(stdout, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("commit", "version"), [("0123abc", "7.3.0"), ("stand-in", "stand-in of 7.3.0")])
def test_a_latency_test(tmp_path: Path, commit: str, version: str) -> None:
    output = participant(tmp_path / "pub0", logs.csv_latency(), True, commit=commit)
    parsed = read_output(output, 1024, True, 30)
    assert parsed is not None
    assert parsed.latency_us("latency_ns", "p50") == 55
    assert parsed.latency_us("latency_ns", "mean") == 54
    assert parsed["loaded_latency_ns"] is None and parsed["sent"] is None
    assert parsed["middleware"] == {"name": "RTI Connext", "version": version}


def test_untrustworthy_output(tmp_path: Path) -> None:
    assert read_output(tmp_path / "none", 1024, True, 30) is None
    assert read_output(participant(tmp_path / "a", "", True), 1024, True, 30) is None
    # Of another payload, or with numbers that cannot all be true.
    other = participant(tmp_path / "b", logs.TEXT_THROUGHPUT, False)
    assert read_output(other, 64, False, 30) is None
    damaged = participant(tmp_path / "c", logs.TEXT_THROUGHPUT.replace("741.4", "74.14"), False)
    assert read_output(damaged, 1024, False, 30) is None


def record(folder: Path, seen: int, **changes: Any) -> dict[str, Any]:
    cell = Cell(network="host", test="throughput", payload_bytes=1024, middleware="connext", **changes)
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=30, warmup_s=0)
    participant(folder / "pub0", logs.csv_latency(), True, latency=False)
    participant(folder / "sub0", logs.TEXT_THROUGHPUT, False)
    meters = {"network": {"ip_out_mcast_bytes": 0}, "interval": {"duration_s": 31}}
    outcomes = {item.name: Outcome(item, 0, meters) for item in cell.participants}
    return attempt.record(trial, 1, Measurement(outcomes, seen, {"sub0": seen}), folder, {}).as_json()


def test_a_valid_trial(tmp_path: Path) -> None:
    asked = {"loaded_latency": True}
    result = record(tmp_path / "a", 200_000_000, reliability="best-effort", test_options=asked)
    assert (result["valid"], result["reason"]) == (True, None)
    assert result["throughput_mbps"] == 741.4 and result["loaded_latency_p50_us"] == 55
    assert (result["sent"], result["received"], result["lost"]) == (None, 181000, 3)
    assert result["lost_percent"] == 3 / 181003 * 100
    assert result["qos"] == "none" and result["middleware_version"] == "7.3.0"
    # PerfTest always prints latencies; they count only if asked for.
    result = record(tmp_path / "b", 200_000_000, reliability="best-effort")
    assert result["valid"] and result["throughput_mbps"] == 741.4
    assert result["loaded_latency_p50_us"] is None and "loaded_latency" not in result


def test_an_invalid_trial(tmp_path: Path) -> None:
    assert record(tmp_path / "a", 1000, reliability="best-effort")["reason"].startswith("not-on-wire")
    assert record(tmp_path / "b", 200_000_000)["reason"].startswith("lost-samples")
