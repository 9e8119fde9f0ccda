"""RTI Connext, measured with RTI's own PerfTest, which the user provides with a license.

k8sdds contains nothing of RTI's. It writes the command lines that PerfTest 3.1 to 4.3 accept and reads what
PerfTest prints. docs/how-to/connext.md names the sources of these facts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from k8sdds import versions, workloads
from k8sdds.discovery import Service
from k8sdds.middleware.connext import command, settings
from k8sdds.middleware.ports import Ports, rtps
from k8sdds.middleware.protocol import Command, Middleware, Surroundings
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.perftest import log
from k8sdds.perftest.output import PERFTEST_REASONS, Summary
from k8sdds.perftest.rows import LATENCY, THROUGHPUT
from k8sdds.perftest.settings import STAND_IN
from k8sdds.system.errors import InputError, K8sddsError, Problem

SERVICE = Service(
    name="k8sdds-cloud-discovery",
    title="RTI Cloud Discovery Service",
    manifest="discovery/connext.yaml",
    port=7400,  # the service's default
)


_LATENCIES = {
    "mean": "mean_us", "stddev": "std_us", "min": "min_us", "p50": "p50_us", "p90": "p90_us",
    "p99": "p99_us", "p9999": "p9999_us", "p999999": "p999999_us", "max": "max_us",
}  # fmt: skip
"""Quantity of a summary to the quantity of a log (perftest.rows)."""

MAX_SAMPLES = {False: 100_000_000, True: 10_000_000}
"""PerfTest's default of `-numIter` in a throughput test and in a latency test."""


class Connext(Middleware):
    """RTI Connext with RTI PerfTest."""

    name = "connext"
    service = SERVICE
    settings = command.SETTINGS
    refusals = command.REFUSALS
    exit_reasons = PERFTEST_REASONS

    @override
    def unsupported(self, cell: Cell) -> str | None:
        return command.unsupported(cell) or super().unsupported(cell)

    @override
    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        try:
            perftest = settings.of(testbed)
            for trial in trials:
                command.check(trial, perftest)
        except K8sddsError as error:
            return [Problem(error.message, error.remedy, input=isinstance(error, InputError))]
        return []

    @override
    def takes_qos(self, cell: Cell) -> bool:
        return bool(cell.qos)

    @override
    def facts(self, testbed: str) -> dict[str, Any]:
        return {"connext": settings.of(testbed).facts()}

    @override
    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        perftest = settings.of(trial.testbed)
        argv = command.command_line(trial, participant, surroundings, perftest)
        return Command(argv, command.environment(perftest, surroundings.servers))

    @override
    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        load = workloads.find(trial.cell.test).load(trial.cell)
        return read_output(
            folder / participant.name, trial.cell.payload_bytes, load.round_trips, trial.duration_s
        )

    @override
    def image(self) -> str:
        return settings.in_image()[0]

    @override
    def service_image(self) -> str | None:
        return os.environ.get(versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE)

    @override
    def service_problems(self) -> list[tuple[str, str]]:
        required = {
            versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE: (
                "discovery by server needs your image of RTI Cloud Discovery Service",
                "k8sdds docs connext; or give another `discovery`",
            ),
            settings.LICENSE: (
                "RTI Cloud Discovery Service starts with a license only",
                "set it to the path of your license (k8sdds docs connext); or give another `discovery`",
            ),
        }
        missing = {name: text for name, text in required.items() if not os.environ.get(name)}
        return [(f"{what}: {name}", remedy) for name, (what, remedy) in missing.items()]

    @override
    def ports(self, domain: int, processes: int, discovery: str) -> Ports:
        return rtps(domain, processes, discovery)

    @override
    def secret(self, namespace: str) -> dict[str, Any] | None:
        path = settings.license_file(os.environ)
        return settings.license_secret(namespace, path.read_bytes()) if path else None

    @override
    def pod_parts(self) -> dict[str, Any]:
        return settings.license_parts()


def read_output(folder: Path, payload_bytes: int, latency_test: bool, duration_s: float) -> Summary | None:
    """Return the summary of a participant from its stdout and stderr; None if there is no trustworthy result.

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
