"""Read the output of RTI PerfTest into the summary that k8sdds-perftest prints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from k8sdds.perftest import log
from k8sdds.perftest.output import Summary
from k8sdds.perftest.rows import LATENCY, THROUGHPUT
from k8sdds.perftest.settings import STAND_IN

_LATENCIES = {
    "mean": "mean_us", "stddev": "std_us", "min": "min_us", "p50": "p50_us", "p90": "p90_us",
    "p99": "p99_us", "p9999": "p9999_us", "p999999": "p999999_us", "max": "max_us",
}  # fmt: skip
"""Quantity of a summary to the quantity of a log (perftest.rows)."""

MAX_SAMPLES = {False: 100_000_000, True: 10_000_000}
"""PerfTest's default of `-numIter` in a throughput test and in a latency test."""


def read(folder: Path, payload_bytes: int, latency_test: bool, duration_s: float) -> Summary | None:
    """Return the summary of a participant from its stdout and stderr; None: there is no trustworthy result.

    PerfTest does not print the number of samples sent, nor when the first and the last sample arrived: these
    keys are missing.
    """
    try:
        text = b"\n".join((folder / name).read_bytes() for name in ("stderr", "stdout"))
    except FileNotFoundError:
        return None
    content = log.read(text)
    results = {result.kind: result for result in content.results if result.payload_bytes == payload_bytes}
    if content.problems or not results:
        return None
    product = content.settings.product
    version = product[1] if product else None
    data: dict[str, Any] = {
        "middleware": {
            "name": "RTI Connext",
            "version": f"{STAND_IN} of {version}" if content.settings.stand_in else version,
        },
        "perftest_version": content.settings.version,
        "measured_s": duration_s,
        "warmup_received": 0,
        "qos": {"batch_bytes": content.settings.batch_bytes},
    }
    if LATENCY in results:
        values = results[LATENCY].values
        timed = {
            quantity: values[name] * 1000
            for quantity, name in _LATENCIES.items()
            if math.isfinite(values.get(name, math.nan))
        }
        data["latency_ns" if latency_test else "loaded_latency_ns"] = timed
    if THROUGHPUT in results:
        values = results[THROUGHPUT].values
        data |= {
            "received": round(values["samples"]),
            "lost": round(values["lost"]),
            "samples_per_s": values["samples_per_s"],
            "throughput_mbps": values["throughput_mbps"],
        }
        if data["received"] + data["lost"] >= MAX_SAMPLES[latency_test]:
            data["ended_by"] = "count"
    return Summary(data)
