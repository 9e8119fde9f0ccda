"""What RTI PerfTest printed, as the summary that k8sdds-perftest gives of itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from k8sdds.perftest import log
from k8sdds.perftest.output import Summary
from k8sdds.perftest.settings import STAND_IN

_LATENCIES = {
    "mean": "mean_us", "stddev": "std_us", "min": "min_us", "p50": "p50_us", "p90": "p90_us",
    "p99": "p99_us", "p9999": "p9999_us", "p999999": "p999999_us", "max": "max_us",
}  # fmt: skip
"""Quantity of a summary to that of a log."""


def read(folder: Path, payload_bytes: int, latency_test: bool, duration_s: float) -> Summary | None:
    """The summary of a participant by its stdout and stderr; None where there is no result to be trusted.

    What PerfTest does not say is null: the number of samples sent, and when the first and last came.
    """
    try:
        said = b"\n".join((folder / name).read_bytes() for name in ("stderr", "stdout"))
    except OSError:
        return None
    found = log.read(said)
    results = {result.kind: result for result in found.results if result.payload_bytes == payload_bytes}
    if found.problems or not results:
        return None
    product = found.settings.product
    version = product[1] if product else None
    data: dict[str, Any] = {
        "middleware": {
            "name": "RTI Connext",
            "version": f"{STAND_IN} of {version}" if found.settings.stand_in else version,
        },
        "perftest_version": found.settings.version,
        "measured_s": duration_s,
        "warmup_received": 0,
    }
    if log.LATENCY in results:
        values = results[log.LATENCY].values
        timed = {
            ours: values[theirs] * 1000
            for ours, theirs in _LATENCIES.items()
            if math.isfinite(values.get(theirs, math.nan))
        }
        data["latency_ns" if latency_test else "loaded_latency_ns"] = timed
    if log.THROUGHPUT in results:
        values = results[log.THROUGHPUT].values
        data |= {
            "received": round(values["samples"]),
            "lost": round(values["lost"]),
            "samples_per_s": values["samples_per_s"],
            "throughput_mbps": values["throughput_mbps"],
        }
    return Summary(data)
