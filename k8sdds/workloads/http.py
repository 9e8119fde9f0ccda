"""The http workload: wrk requests an object from nginx, with several connections at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from k8sdds.model.measurement import Listener
from k8sdds.model.options import HttpOptions
from k8sdds.model.reason import Reason
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, Cell, Participant, Trial, host_and_port
from k8sdds.perftest.output import Summary
from k8sdds.results import aggregate, histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system import reading
from k8sdds.system.paths import private_folder
from k8sdds.system.shapes import Finite, Integer, Shape
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Command, Surroundings
from k8sdds.workloads.tools import (
    ROUND_TRIP,
    ROUND_TRIPS,
    RoundTripWorkload,
    Tool,
    missing_round_trips,
    server_of,
    whole_seconds,
    window,
    wrong_interval,
)

PORT = 8080
DEFAULT_PAYLOAD_BYTES = 1024
MAX_ROUND_TRIP_US = 100_000_000
"""Longest round trip of a histogram; wrk counts longer ones than 2 s as errors."""
LATE_S = 0.1
"""wrk looks this often whether its time has passed."""

SCRIPT = """\
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('{"requests": %d, "seconds": %.6f, "bytes": %d, "errors": %d, "round_trips_us": [',
    summary.requests, summary.duration / 1e6, summary.bytes,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
  for i = 1, #latency do
    local value, count = latency(i)
    io.write(i > 1 and ", " or "", string.format("[%d, %d]", value, count))
  end
  io.write("]}\\n")
end
"""
"""Prints the result of wrk as one line of JSON, with each round trip in µs and how many had it."""

NGINX = """\
daemon off;
user root;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen {address};
    root {folder};
    location = /object {{ default_type application/octet-stream; }}
    location / {{ return 404; }}
  }}
}}
"""
"""nginx as one process, which serves one object and writes nothing. In the lab of an ordinary user, where it has no
other user id, it cannot make its folders those of `nobody`."""


class Report(Shape):
    """What the script prints."""

    requests: Integer
    seconds: Finite
    bytes: Integer
    errors: Integer
    round_trips_us: list[tuple[Annotated[Integer, Field(le=MAX_ROUND_TRIP_US)], Integer]]

    def measured(self, concurrency: int) -> dict[int, int]:
        """Return how many requests had each round trip in µs.

        wrk adds values that it did not measure, for requests that it would have sent during a long round trip (its
        function stats_correct): each value is added to all that are shorter by a multiple of the mean period of a
        connection, but longer than the period. This removes them.
        """
        counts = dict(self.round_trips_us)
        of_each = self.requests // concurrency
        period = round(self.seconds * 1e6) // of_each if of_each else 0
        if period == 0:
            return counts
        own = {v: n - (counts.get(v + period, 0) if v > period else 0) for v, n in counts.items()}
        return {value: count for value, count in own.items() if count > 0}


class Http(Tool):
    """nginx as the server and wrk as the client."""

    name = "wrk"
    packages: Mapping[str, str] = {"wrk": "wrk", "nginx": "nginx"}

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        options = HttpOptions(**trial.cell.test_options)
        address = host_and_port(server_of(surroundings).address, PORT)
        folder = private_folder(participant.name)
        if participant.subscribes:
            return Command(
                ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")],
                listens=Listener("tcp", PORT),
                window=window(trial),
                private={
                    "nginx.conf": NGINX.format(folder=folder, address=address).encode(),
                    "object": bytes(options.object_bytes),
                },
            )
        warmup_s, length_s = whole_seconds(trial)
        threads = 1
        common = f"wrk --threads {threads} --connections {options.concurrency} http://{address}/object"
        warm_up = f"{common} --duration {warmup_s}s >/dev/null && " if warmup_s else ""
        measured = f"exec {common} --duration {length_s}s --latency --script {folder / 'report.lua'}"
        return Command(
            ["sh", "-c", warm_up + measured], window=window(trial), private={"report.lua": SCRIPT.encode()}
        )

    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        report = read(folder)
        if report is None:
            return None
        data = {"measured_s": report.seconds}
        if participant.subscribes:
            return Summary(data | {"received": report.requests, "delivered_bytes": 0})
        delivered = report.requests * HttpOptions(**trial.cell.test_options).object_bytes
        return Summary(
            data | {"sent": report.requests, "delivered_bytes": delivered, "errors": report.errors}
        )

    def convert(self, trial: Trial, folder: Path) -> None:
        report = read(folder)
        if report is not None and report.round_trips_us:
            options = HttpOptions(**trial.cell.test_options)
            counts = {value * 1000: count for value, count in report.measured(options.concurrency).items()}
            histograms.write(folder / FIRST_PUBLISHER.name, ROUND_TRIP, counts, report.seconds)


def read(folder: Path) -> Report | None:
    """Return the script's output at the end of wrk's; None if it is missing or of another shape."""
    try:
        lines = reading.text(folder / FIRST_PUBLISHER.name / "stdout").splitlines()
        printed = next((line for line in reversed(lines) if line.startswith("{")), "")
        # A strict shape accepts no list in place of a pair.
        return Report.model_validate_json(printed) if reading.json_object(printed, "wrk") else None
    except (OSError, reading.UnreadableError, ValidationError):
        return None


class HttpRequests(RoundTripWorkload):
    """Requests for an object on connections that stay open."""

    name = "http"
    program = Http()
    tcp = True
    metrics = ("requests_per_s", *ROUND_TRIPS)

    def unsupported(self, cell: Cell) -> str | None:
        if cell.payload_bytes != DEFAULT_PAYLOAD_BYTES:
            return "payload_bytes has no effect in a http test: leave it out, and set object_bytes"
        return super().unsupported(cell)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        super().measure(record, outputs)
        requests = aggregate.total(client["sent"] for client in outputs.publishers)
        seconds = aggregate.mean(client["measured_s"] for client in outputs.publishers)
        record.requests_per_s = aggregate.ratio(requests, seconds)

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        _, length_s = whole_seconds(outputs.trial)
        for participant, summary in outputs.summaries_of(PUBLISHER).items():
            if summary["errors"]:
                return Reason(
                    "http-errors", f"{summary['errors']} requests of {participant} failed or timed out"
                )
            reason = wrong_interval(participant, summary["measured_s"], length_s, LATE_S)
            if reason := reason or missing_round_trips(outputs, summary["sent"]):
                return reason
        return None
