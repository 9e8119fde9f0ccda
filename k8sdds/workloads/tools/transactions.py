"""k8sdds-transactions: requests and responses over TCP or UDP, on open or on new connections.

Debian's sockperf has messages of at least 14 bytes, has one request under way on all connections
together, and keeps no histogram. No package of Debian opens a connection for each request without HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from k8sdds.model.axis import WORKLOAD, Axis, counted
from k8sdds.model.measurement import Listener, Window
from k8sdds.model.reason import Reason
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import aggregate, histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system import reading
from k8sdds.system.errors import K8sddsError, Problem
from k8sdds.system.paths import native_program
from k8sdds.system.shapes import Finite, Integer, Shape
from k8sdds.system.strict import Strict
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Command, Program, Surroundings
from k8sdds.workloads.tools import ToolWorkload, round_trips, server_of, wrong_interval

PROGRAM = "k8sdds-transactions"
PORT = 5202
MAX_CONNECTIONS = 1000
"""Each is an open file, of which a process usually has at most 1024."""


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
        """Return a problem if the program is not built for the lab; the image of k8sdds contains it."""
        if testbed != "lab":
            return []
        try:
            native_program(PROGRAM)
        except K8sddsError as error:
            return [Problem(error.message, error.remedy)]
        return []

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        """Return the command line of the client, which marks its measured interval, or of the server."""
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
        """Return what the client counted: the server received the requests, and the client the responses."""
        try:
            document = reading.json_file(folder / FIRST_PUBLISHER.name / "stdout")
            report = Report.model_validate(document)
        except (OSError, reading.UnreadableError, ValidationError):
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


class ConnectionOptions(Strict):
    """Options of tests of transactions."""

    connections: Annotated[int, Axis(WORKLOAD, counted("connection"))] = Field(
        default=1,
        ge=1,
        le=MAX_CONNECTIONS,
        description="number of connections (for UDP: sockets) at the same time, each with one request under way",
    )


class Exchange(ToolWorkload):
    """Requests and responses: how many per second, which is the main metric, and how long each took."""

    options: type[Strict] = ConnectionOptions
    histograms: tuple[str, ...] = (round_trips.TAG,)
    measured_by = PUBLISHER
    longest_payload = 64 * 1024

    def unsupported(self, cell: Cell) -> str | None:
        """Return why the program cannot run this cell, or None."""
        if cell.payload_bytes > self.longest_payload:
            return f"a request of a {self.name} test has at most {self.longest_payload} bytes"
        return super().unsupported(cell)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the main metric and the distribution of the round trips."""
        setattr(record, self.metrics[0], per_second(outputs))
        round_trips.set_metrics(record, outputs)

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        """Return a reason if another interval than requested was measured, or the histogram is not complete."""
        for participant, summary in outputs.summaries_of(PUBLISHER).items():
            answered = summary["delivered_bytes"] // outputs.trial.cell.payload_bytes
            reason = wrong_interval(participant, summary["measured_s"], outputs.trial.duration_s)
            if reason := reason or round_trips.incomplete(outputs, answered):
                return reason
        return None

    def describe(self, record: Metrics) -> str:
        """Return the main metric and the tail of the round trips."""
        headline = self.metrics[0]
        return round_trips.describe(record, getattr(record, headline), headline.removesuffix("_per_s"))


def per_second(outputs: TrialOutputs) -> float | None:
    """Return the transactions of the measured interval per second."""
    transactions = aggregate.count(summary["received"] for summary in outputs.subscribers)
    return aggregate.ratio(
        transactions, aggregate.mean(client["measured_s"] for client in outputs.publishers)
    )
