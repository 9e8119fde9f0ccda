"""k8sdds-transactions: requests and responses over TCP or UDP, on open or on new connections.

Debian's sockperf has messages of at least 14 bytes, has one request under way on all connections
together, and keeps no histogram. No package of Debian opens a connection for each request without HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from k8sdds.model.measurement import Listener, Window
from k8sdds.model.reason import Reason
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import aggregate, histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.errors import K8sddsError, Problem
from k8sdds.system.paths import native_program
from k8sdds.system.shapes import Finite, Integer, Shape
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Command, Program, Surroundings
from k8sdds.workloads.tools import (
    ROUND_TRIPS,
    RoundTripWorkload,
    missing_round_trips,
    server_of,
    wrong_interval,
)

PROGRAM = "k8sdds-transactions"
PORT = 5202


class Report(Shape):
    """What the client prints."""

    transactions: Integer
    warmup_transactions: Integer
    seconds: Finite
    lost: Integer


class Transactions(Program):
    """Our own program. The client prints counts and keeps a histogram of all round trips of the measured interval."""

    name = PROGRAM
    exit_reasons: Mapping[int, tuple[str, str]] = {
        2: ("usage", "the program rejected its command line"),
        3: ("connection", "a connection failed"),
        4: ("system", "a system call failed"),
    }

    def __init__(self, *options: str) -> None:
        self._options = options
        self._protocol: Literal["tcp", "udp"] = "udp" if "--udp" in options else "tcp"

    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        if testbed != "lab":
            return []
        try:
            native_program(PROGRAM)
        except K8sddsError as error:
            return [Problem(error.message, error.remedy)]
        return []

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        program = str(Path(surroundings.paths.program).with_name(PROGRAM))
        role = "server" if participant.subscribes else "client"
        server = server_of(surroundings)
        own = (server.address, PORT)
        address, port = own if participant.subscribes else server.service or own
        argv = [program, role, "--address", address, "--port", str(port), *self._options]
        argv += ["--bytes", str(trial.cell.payload_bytes)]
        argv += ["--connections", str(trial.cell.test_options.get("connections", 1))]
        if participant.subscribes:
            listens = Listener(self._protocol, PORT)
            return Command(argv, listens=listens, window=Window(trial.warmup_s, trial.duration_s))
        argv += ["--warm-up", f"{trial.warmup_s:g}", "--time", f"{trial.duration_s:g}"]
        return Command([*argv, "--histogram-file", str(surroundings.paths.files / histograms.LOG)])

    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        report = Report.from_file(folder / FIRST_PUBLISHER.name / "stdout")
        if report is None:
            return None
        size = trial.cell.payload_bytes
        data = {
            "measured_s": report.seconds,
            "delivered_bytes": report.transactions * size,
            "warmup_delivered_bytes": report.warmup_transactions * size,
        }
        if participant.publishes:
            return Summary(data | {"sent": report.transactions + report.lost})
        return Summary(data | {"received": report.transactions, "lost": report.lost})


class Exchange(RoundTripWorkload):
    """Requests and responses: how many per second, which is the main metric, and how long each took."""

    longest_payload = 64 * 1024

    def unsupported(self, cell: Cell) -> str | None:
        if cell.payload_bytes > self.longest_payload:
            return f"a request of a {self.name} test has at most {self.longest_payload} bytes"
        return super().unsupported(cell)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        super().measure(record, outputs)
        transactions = aggregate.total(summary["received"] for summary in outputs.subscribers)
        seconds = aggregate.mean(client["measured_s"] for client in outputs.publishers)
        setattr(record, self.metrics[0], aggregate.ratio(transactions, seconds))

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        for participant, summary in outputs.summaries_of(PUBLISHER).items():
            answered = summary["delivered_bytes"] // outputs.trial.cell.payload_bytes
            reason = wrong_interval(participant, summary["measured_s"], outputs.trial.duration_s)
            if reason := reason or missing_round_trips(outputs, answered):
                return reason
        return None


class TcpRr(Exchange):
    """Requests and responses of `payload_bytes` each over TCP."""

    name = "tcp-rr"
    program = Transactions()
    tcp = True
    metrics = ("transactions_per_s", *ROUND_TRIPS)


class UdpRr(Exchange):
    """Requests and responses of `payload_bytes` each over UDP."""

    name = "udp-rr"
    program = Transactions("--udp")
    longest_payload = 65507
    metrics = ("transactions_per_s", *ROUND_TRIPS)


class TcpCrr(Exchange):
    """Connections with one request and one response of `payload_bytes` each."""

    name = "tcp-crr"
    program = Transactions("--new-connections")
    tcp = True
    metrics = ("connections_per_s", "conntrack_entries", *ROUND_TRIPS)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        super().measure(record, outputs)
        record.conntrack_entries = outputs.measurement.conntrack_entries
